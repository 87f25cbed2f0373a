"""Groups of ranks: all of a job, or those that a file names, as models cut into stages and parts have them."""

import os
import stat

from litehouse.distributed.ranks import Place
from litehouse.errors import EngineError, ModelFormatError
from litehouse.formats.source import Source
from litehouse.formats.wire import BYTES, VARINT, Field, fields
from litehouse.options import MAX_RANKS

WORLD = "litehouse_world_group"
WORLDS = (WORLD, "hccl_world_group", "nccl_world_group", "mccl_world_group")
MAX_BYTES = 2 << 20
MAX_BITS = 70

# MindSpore's message: a map has items (1), an item has a name (1) and ranks (2), ranks are numbers (1).
ITEM, NAME, RANKS, NUMBER = 1, 1, 2, 1


class Groups:
    """The groups that a process knows.

    Example:
        >>> from litehouse.distributed.ranks import find_place
        >>> Groups(find_place(environment={})).ranks("hccl_world_group")
        (0,)
    """

    def __init__(self, place: Place, file: str = "") -> None:
        """Read the groups.

        Args:
            place: Which rank this process is.
            file: Path of the file that MindSpore wrote when it cut the model (`group_info_file`); empty for none.

        Raises:
            EngineError: The file cannot be read.
            ModelFormatError: It is broken.
        """
        self._place = place
        self._file = file
        self._groups = read_groups(file) if file else {}

    def ranks(self, name: str, node: str = "") -> tuple[int, ...]:
        """Give the ranks of a group, in the order of the group.

        Args:
            name: The group.
            node: The node that uses it, for messages.

        Raises:
            EngineError: Nothing tells the group's ranks, it lacks this rank, or it has one that the job has not.
        """
        place = self._place
        if name in WORLDS:
            return tuple(range(place.size))
        what = f"the group {name!r}" + (f" of node {node!r}" if node else "")
        if name not in self._groups:
            known = f"{self._file} does not have it" if self._file else "no file tells its ranks"
            raise EngineError(
                f"{what} is not known: {known}; set group_info_file (the groups of litehouse.Job) to the file that "
                "MindSpore wrote when it cut the model"
            )
        ranks = self._groups[name]
        if max(ranks) >= place.size:
            raise EngineError(
                f"{what} has rank {max(ranks)}, and the job has {place.size} ranks; start as many ranks as the model "
                f"was cut for, or set group_info_file to another file than {self._file}"
            )
        if place.rank not in ranks:
            raise EngineError(
                f"{what} has the ranks {', '.join(map(str, ranks))}, and this process is rank {place.rank}; load the "
                "model and the group_info_file of this rank"
            )
        return ranks


def read_groups(path: str) -> dict[str, tuple[int, ...]]:
    """Read a file of groups as MindSpore writes it.

    Raises:
        EngineError: It cannot be read.
        ModelFormatError: It is broken.
    """
    source = Source.over(_read(path), path)
    groups: dict[str, tuple[int, ...]] = {}
    for item in fields(source, 0, source.size):
        if item.number == ITEM:
            name, ranks = _item(_inside(source, item))
            if groups.setdefault(name, ranks) != ranks:
                raise ModelFormatError(f"the group {name!r} is there twice; the file is damaged", path=path)
    return groups


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make it wait
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = file.read(MAX_BYTES + 1) if is_file else b""
    except (OSError, ValueError) as error:
        raise EngineError(f"the group_info_file {path!r} cannot be read: {error}; correct its path") from error
    if not is_file:
        raise EngineError(f"the group_info_file {path!r} is no file; correct its path")
    if len(data) > MAX_BYTES:
        raise ModelFormatError(f"the file is larger than {MAX_BYTES >> 20} MiB, too large for groups", path=path)
    return data


def _item(item: Source) -> tuple[str, tuple[int, ...]]:
    name = ""
    ranks: list[int] = []
    for field in fields(item, 0, item.size):
        if field.number == NAME:
            text = _inside(item, field)
            try:
                name = text.read(0, text.size).decode()
            except UnicodeDecodeError as error:
                raise ModelFormatError("a group's name is no text; the file is damaged", path=item.path) from error
        elif field.number == RANKS:
            ranks += _ranks(_inside(item, field))
    if not name or not ranks or len(set(ranks)) != len(ranks):
        raise ModelFormatError(
            f"the group {name!r} has no name, no ranks, or a rank twice; the file is damaged", path=item.path
        )
    return name, tuple(ranks)


def _ranks(message: Source) -> list[int]:
    """Give the numbers of a list, packed or not."""
    numbers: list[int] = []
    for field in fields(message, 0, message.size):
        if field.number == NUMBER and field.kind in (VARINT, BYTES):
            numbers += _varints(message, field)
        elif field.number == NUMBER:
            raise ModelFormatError("a rank of a group is no number; the file is damaged", path=message.path)
    return numbers


def _varints(message: Source, field: Field) -> list[int]:
    numbers = []
    value = shift = 0
    for byte in message.read(field.content, field.end - field.content):
        value |= (byte & 0x7F) << shift
        shift += 7
        if value >= MAX_RANKS or shift > MAX_BITS:
            raise ModelFormatError(f"a rank of a group is over {MAX_RANKS - 1}; the file is damaged", path=message.path)
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    if shift:
        raise ModelFormatError("the ranks of a group are cut off; the file is damaged", path=message.path)
    return numbers


def _inside(source: Source, field: Field) -> Source:
    """Give what a field of bytes holds."""
    if field.kind != BYTES:
        raise ModelFormatError(
            f"the protobuf field {field.number} is of another kind; the file is damaged, or holds no groups",
            path=source.path,
        )
    return Source.over(source.read(field.content, field.end - field.content), source.path)

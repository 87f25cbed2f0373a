"""The protobuf wire format, as far as it takes to lift the weights out of a file before protobuf sees it.

Parsing a model with protobuf copies every weight at least once and fails beyond 2 GB. So the weights' bytes are cut out
first: what is left is small, and the weights are read from the file straight into the arena.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.source import Source

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_FIELD = (1 << 29) - 1
MAX_STRUCTURE = (1 << 31) - 1  # protobuf's own limit
WINDOW = 1 << 16

Parsed = TypeVar("Parsed", bound=Message)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its tag at `start`, its content from `content` to `end`."""

    number: int
    kind: int
    start: int
    content: int
    end: int


@dataclass(frozen=True, slots=True)
class Blob:
    """Where a cut-out tensor's bytes lie."""

    offset: int
    length: int


class _Window:
    """Buffered single-byte access to a source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    def varint(self, offset: int, end: int) -> tuple[int, int]:
        """The varint at `offset` and the offset behind it."""
        value = 0
        for shift in range(0, 70, 7):
            position = offset - self._start
            if not 0 <= position < len(self._data):
                self._data = self._source.read(offset, WINDOW)
                self._start, position = offset, 0
            if offset >= end or position >= len(self._data):
                break
            byte = self._data[position]
            offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, offset
        raise ModelFormatError(
            f"broken protobuf data at byte {offset}; the file is cut off or damaged", path=self._source.path
        )


def fields(source: Source, start: int, end: int, window: _Window | None = None) -> Iterator[Field]:
    """The fields of the message between two offsets."""
    window = window or _Window(source)
    offset = start
    while offset < end:
        tag_at = offset
        tag, offset = window.varint(offset, end)
        number, kind = tag >> 3, tag & 7
        content = offset
        if kind == VARINT:
            _, offset = window.varint(offset, end)
        elif kind == FIXED64:
            offset += 8
        elif kind == FIXED32:
            offset += 4
        elif kind == BYTES:
            length, content = window.varint(offset, end)
            offset = content + length
        else:
            raise ModelFormatError(f"broken protobuf data at byte {tag_at}; the file is damaged", path=source.path)
        if not 0 < number <= MAX_FIELD or offset > end:
            raise ModelFormatError(
                f"the protobuf field at byte {tag_at} ends behind the data; the file is cut off or damaged",
                path=source.path,
            )
        yield Field(number, kind, tag_at, content, offset)


def cut(source: Source, graph: int, tensor: int, blob: int) -> tuple[bytes, list[Blob | None]]:
    """The file without the bytes of its weights, and where those lie.

    Args:
        source: The file: a message with a graph.
        graph: Number of the graph's field in it.
        tensor: Number of the weights' field in the graph.
        blob: Number of the field with the bytes in a weight.

    Returns:
        The rest, to be parsed by protobuf, and one blob per weight in file order (None where a weight has none).
    """
    window = _Window(source)
    rest = bytearray()
    blobs: list[Blob | None] | None = None
    kept_from = 0
    for field in fields(source, 0, source.size, window):
        if field.number != graph or field.kind != BYTES:
            continue
        if blobs is not None:
            # Protobuf would merge the two, which no writer means.
            raise ModelFormatError("the file has two main graphs; it is damaged", path=source.path)
        _keep(rest, source, kept_from, field.start)
        body, blobs = _cut_graph(source, field, tensor, blob, window)
        rest += _head(graph, len(body)) + body
        kept_from = field.end
    _keep(rest, source, kept_from, source.size)
    return bytes(rest), blobs or []


def _cut_graph(
    source: Source, graph: Field, tensor: int, blob: int, window: _Window
) -> tuple[bytearray, list[Blob | None]]:
    body = bytearray()
    blobs: list[Blob | None] = []
    kept_from = graph.content
    for field in fields(source, graph.content, graph.end, window):
        if field.number != tensor or field.kind != BYTES:
            continue
        _keep(body, source, kept_from, field.start)
        shell, found = _cut_tensor(source, field, blob, window)
        blobs.append(found)
        body += _head(tensor, len(shell)) + shell
        kept_from = field.end
    _keep(body, source, kept_from, graph.end)
    return body, blobs


def _cut_tensor(source: Source, tensor: Field, blob: int, window: _Window) -> tuple[bytearray, Blob | None]:
    shell = bytearray()
    found: Blob | None = None
    kept_from = tensor.content
    for field in fields(source, tensor.content, tensor.end, window):
        if field.number == blob and field.kind == BYTES:
            found = Blob(field.content, field.end - field.content)
            _keep(shell, source, kept_from, field.start)
            kept_from = field.end
    _keep(shell, source, kept_from, tensor.end)
    return shell, found


def _keep(target: bytearray, source: Source, start: int, end: int) -> None:
    if len(target) + end - start > MAX_STRUCTURE:
        raise LimitError("the graph without its weights is over 2 GB; protobuf cannot hold it", path=source.path)
    target += source.read(start, end - start)


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Parsing --------------------------------------------------------------------------------------------------------------


def parse(message: type[Parsed], data: bytes, path: str) -> Parsed:
    """The message in `data`, all of its text checked to be UTF-8.

    Protobuf lets broken text pass in messages of the older syntax that both formats use: it turns up as `bytes` where
    `str` is meant, or as an error at the first access. So a twin of the message that checks its text is parsed first.

    Raises:
        ModelFormatError: The data is no such message.
    """
    try:
        _twin(message).FromString(data)
        parsed: Parsed = message.FromString(data)
    except DecodeError as error:
        raise ModelFormatError(f"broken protobuf data ({error}); the file is cut off or damaged", path=path) from error
    return parsed


def _twin(message: type[Message]) -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    message.DESCRIPTOR.file.CopyToProto(file)
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    file.options.features.utf8_validation = descriptor_pb2.FeatureSet.VERIFY
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message.DESCRIPTOR.full_name))

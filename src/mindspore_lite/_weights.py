"""What a configuration says about weights: which may be updated, and which processes share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litehouse import WeightError
from mindspore_lite._checks import check_instance
from mindspore_lite._options import find_file
from mindspore_lite.tensor import Array, Tensor

NAMES_FILE = "variable_weights_file"
PIDS, HANDLE = "shareable_weight_pid_list", "shareable_weight_mem_handle"
SECTIONS = ("ascend_context", "gpu_context", "litehouse")
# Published programs also write these beside the sections, the second one as a number.
BESIDE = {"pids": PIDS, "shared_mem_handle": HANDLE}


@dataclass(frozen=True)
class Settings:
    """What a configuration says about weights.

    Attributes:
        names: The weights that may be updated, in the order of the file.
        aliases: Other names for some of them.
        pids: The processes that may share the model's memory; None where none was asked for.
        handle: The memory of another process that is used; None for none.
    """

    names: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    pids: Sequence[int] | None = None
    handle: int | None = None


def lift(sections: object) -> Any:
    """Give a `config_dict` with what was written beside its sections put into one."""
    if not isinstance(sections, dict) or not any(key in sections for key in BESIDE):
        return sections
    lifted = {key: dict(value) if isinstance(value, dict) else value for key, value in sections.items()}
    for key, name in BESIDE.items():
        if key in lifted:
            value = lifted.pop(key)
            if isinstance(value, list | tuple):
                value = ",".join(map(str, value))
            check_instance(f"config_dict_{key}", value, int if isinstance(value, int) else str)
            lifted.setdefault(SECTIONS[0], {})[name] = str(value)
    return lifted


def take_settings(sections: dict[str, dict[str, str]], config_path: str) -> Settings:
    """Take what concerns weights out of a configuration.

    Raises:
        ValueError: A number is none, or the file with the names cannot be read.
    """
    found: dict[str, str] = {}
    for section in SECTIONS:
        entries = sections.get(section, {})
        found |= {key: entries.pop(key) for key in (NAMES_FILE, PIDS, HANDLE) if key in entries}
    names, aliases = _read_names(found[NAMES_FILE], config_path) if NAMES_FILE in found else ((), {})
    pids = [_number(PIDS, text) for text in found[PIDS].split(",") if text.strip()] if PIDS in found else None
    return Settings(names, aliases, pids, _number(HANDLE, found[HANDLE]) if HANDLE in found else None)


def _number(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{key} must be numbers, not {text!r}") from None


def _read_names(path: str, config_path: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Read one name a line, each with another name for it if there is a comma."""
    place = Path(find_file(path, config_path))
    names, aliases = [], {}
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ValueError(f"{NAMES_FILE} {path!r} cannot be read: {error}") from None
    for line in lines:
        name, comma, other = (part.strip() for part in line.partition(","))
        if name:
            names.append(name)
        if name and comma and other:
            aliases[other] = name
    return tuple(names), aliases


def arrays_of(weights: object, settings: Settings) -> dict[str, Array]:
    """Give the arrays of `update_weights` by the names of their weights.

    Tensors with names go by these; nameless ones by the order of the names in the configuration.

    Raises:
        TypeError: The argument is no list of lists of tensors.
        WeightError: A tensor has no data, or they cannot be told apart.
    """
    tensors = check_weights(weights)
    if settings.handle is not None:
        raise WeightError("the weights belong to the process that shares them; update them there")
    if tensors and not settings.names:
        raise WeightError(f"no weight is updatable: the configuration has no {NAMES_FILE}, or it is empty")
    named = [settings.aliases.get(tensor.name, tensor.name) for tensor in tensors]
    if tensors and not any(named):
        if len(tensors) != len(settings.names):
            raise WeightError(
                f"{len(tensors)} tensors without names were given for {len(settings.names)} updatable weights; "
                "give each tensor the name of its weight, or all of them in the order of the names"
            )
        named = list(settings.names)
    if len(set(named)) != len(named) or not all(named):
        raise WeightError("two tensors have the same name, or one has none; give each the name of its weight")
    empty = [name for name, tensor in zip(named, tensors, strict=True) if tensor._array is None]
    if empty:
        raise WeightError(f"tensors have no data; set it first: {', '.join(map(repr, empty))}")
    return {name: tensor.get_data_to_numpy() for name, tensor in zip(named, tensors, strict=True)}


def check_weights(weights: object) -> list[Tensor]:
    """Give the tensors of lists of lists, or raise TypeError."""
    if not isinstance(weights, list):
        raise TypeError(f"weights must be list, but got {type(weights)}.")
    tensors = []
    for place, weight in enumerate(weights):
        if not isinstance(weight, list):
            raise TypeError(f"weight must be list, but got {type(weight)}.")
        for index, tensor in enumerate(weight):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"weights element must be Tensor, but got {type(tensor)} as index {place}{index}.")
            tensors.append(tensor)
    return tensors

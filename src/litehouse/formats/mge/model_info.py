"""What a packed model says about itself: JSON beside the network, with the settings that it wants to run with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from litehouse.errors import ModelFormatError

MAX_BYTES = 1 << 20
MAX_NESTING = 64
MAX_NUMBER = (1 << 31) - 1
DIMENSIONS = ("dim0", "dim1", "dim2", "dim3")
DEVICES = ("CPU", "CUDA", "ATLAS", "CAMBRICON", "NPU")
DTYPES = ("float32", "float16", "int32", "int16", "int8", "uint8")
IO_TYPES = ("value", "shape")
SWITCHES = (
    "weight_preprocess",
    "fuse_preprocess",
    "fake_next_exec",
    "var_sanity_check_first_run",
    "const_shape",
    "force_dynamic_alloc",
    "force_output_dynamic_alloc",
    "no_profiling_on_shape_change",
)
LEVELS = ("jit_level", "comp_node_seq_record_level", "graph_opt_level", "async_exec_level")


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output that the info declares. What it does not mention is None."""

    name: str
    is_host: bool | None = None
    io_type: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """Where the model wants to run. What it does not mention is None."""

    type: str
    device_id: int | None = None
    number_threads: int | None = None
    enable_inplace_model: bool | None = None
    use_tensorrt: bool | None = None


@dataclass(frozen=True, slots=True)
class Info:
    """What a packed model says about itself.

    Attributes:
        valid: Whether anything of it counts. If not, all else is as if nothing had been said.
        name: The model's name.
        version: The version of MegEngine Lite that it is for.
        has_compression: Whether the values of its tensors are compressed.
        backend: `"MGE"`, or what else is written there; None where nothing is said.
        device: Where it wants to run; None where nothing is said.
        options: Settings by their names in LiteOptions, those that are mentioned.
        inputs: Declared inputs, each name once.
        outputs: Declared outputs, each name once.
        extra: The user's own content, as JSON with sorted keys; empty where there is none.
        text: The whole JSON, as it stands in the file.
    """

    valid: bool = False
    name: str = ""
    version: str = ""
    has_compression: bool = False
    backend: str | None = None
    device: Device | None = None
    options: dict[str, bool | int] = field(default_factory=dict)
    inputs: tuple[Declared, ...] = ()
    outputs: tuple[Declared, ...] = ()
    extra: str = ""
    text: str = ""


def parse_info(data: bytes, name: str, *, path: str) -> Info:
    """The info from its JSON text; what stands behind that, as a cipher leaves it, does not count.

    Args:
        data: The text.
        name: The model's name in the header, which must be the one in the info.
        path: The file, for error texts.

    Raises:
        ModelFormatError: The text is no such JSON, or has values that it cannot have.
    """
    content, text = _parse(data, path)
    reader = _Reader(path)
    entries = reader.object("the info", content)
    if not reader.required("valid", reader.switch(entries, "valid")):
        return Info()
    found = reader.required("name", reader.text(entries, "name"))
    if found != name:
        reader.fail(
            f"infomation of model name is not match, packed model is {name[:100]}, but json info get {found[:100]}. "
            "Pack the model again with its own info"
        )
    declared = reader.object("IO", entries.get("IO"))
    return Info(
        valid=True,
        name=found,
        version=reader.text(entries, "version") or "",
        has_compression=reader.switch(entries, "has_compression") or False,
        backend=reader.text(entries, "backend"),
        device=reader.device(entries),
        options=reader.options(entries),
        inputs=reader.declared(declared, "inputs"),
        outputs=reader.declared(declared, "outputs"),
        extra=_dump(entries["extra_info"]) if "extra_info" in entries else "",
        text=text,
    )


def _dump(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _parse(data: bytes, path: str) -> tuple[Any, str]:
    """The first JSON value, and its text."""
    if len(data) > MAX_BYTES + (64 << 10):
        raise ModelFormatError(f"the packed model's info has {len(data)} bytes, which is too much", path=path)
    # What is no UTF-8 may stand behind the value. Inside, it shows when the value is encoded again.
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").lstrip(" \t\r\n")
    try:
        _check_nesting(text)
        content, end = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text)
        text[:end].encode()
        _dump(content).encode()
    except ValueError as error:
        raise ModelFormatError(
            f"the packed model's info is no valid JSON ({error}); "
            "the file is damaged, or encrypted with another method or key",
            path=path,
        ) from error
    return content, text[:end]


def _check_nesting(text: str) -> None:
    without_escapes = re.sub(r"\\.", "", text, flags=re.DOTALL)
    outside_of_strings = "".join(without_escapes.split('"')[::2])
    depth = 0
    for bracket in re.findall(r"[][{}]", outside_of_strings):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise ValueError(f"more than {MAX_NESTING} objects inside each other")
        if depth <= 0:
            return


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


class _Reader:
    """Takes values out of JSON objects. An absent one is None; one of another type is an error."""

    def __init__(self, path: str) -> None:
        self.path = path

    def fail(self, text: str) -> NoReturn:
        raise ModelFormatError(text, path=self.path)

    def wrong(self, key: str, value: Any, expected: str) -> NoReturn:
        shown = _dump(value)
        shown = shown if len(shown) <= 60 else shown[:60] + "…"
        self.fail(f"the packed model's info has {shown} as {key!r}, not {expected}; pack the model again")

    def required(self, key: str, value: Any) -> Any:
        if value is None:
            self.fail(f"the packed model's info has no {key!r}; pack the model again")
        return value

    def object(self, key: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.wrong(key, value, "an object")
        return value

    def switch(self, entries: dict[str, Any], key: str) -> bool | None:
        value = entries.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong(key, value, "true or false")
        return value

    def text(self, entries: dict[str, Any], key: str) -> str | None:
        value = entries.get(key)
        if value is not None and not isinstance(value, str):
            self.wrong(key, value, "text")
        return value

    def number(self, entries: dict[str, Any], key: str) -> int | None:
        value = entries.get(key)
        if value is None:
            return None
        # MegEngine Lite takes 2.0 and true as well.
        if not isinstance(value, int | float) or value != value // 1 or not 0 <= value <= MAX_NUMBER:
            self.wrong(key, value, f"a whole number from 0 to {MAX_NUMBER}")
        return int(value)

    def choice(self, entries: dict[str, Any], key: str, allowed: Sequence[str], what: str) -> str | None:
        value = self.text(entries, key)
        if value is not None and value not in allowed:
            self.fail(f"LITE not support {what} of {value[:100]}. It must be one of {', '.join(allowed)}")
        return value

    def device(self, entries: dict[str, Any]) -> Device | None:
        if entries.get("device") is None:
            return None
        device = self.object("device", entries["device"])
        return Device(
            type=self.required("type", self.choice(device, "type", DEVICES, "device type")),
            device_id=self.number(device, "device_id"),
            number_threads=self.number(device, "number_threads"),
            enable_inplace_model=self.switch(device, "enable_inplace_model"),
            use_tensorrt=self.switch(device, "use_tensorrt"),
        )

    def options(self, entries: dict[str, Any]) -> dict[str, bool | int]:
        """The options that MegEngine Lite knows; it passes over others."""
        options = self.object("options", entries.get("options"))
        found: dict[str, bool | int | None] = {name: self.switch(options, name) for name in SWITCHES}
        found |= {name: self.number(options, name) for name in LEVELS}
        return {name: value for name, value in found.items() if value is not None}

    def declared(self, entries: dict[str, Any], key: str) -> tuple[Declared, ...]:
        """The inputs or outputs. Where a name occurs twice, the later entry adds to the first."""
        items = entries.get(key) or []
        if not isinstance(items, list):
            self.wrong(key, items, "a list")
        found: dict[str, Declared] = {}
        for item in items:
            entry = self.object(key, item)
            name = self.required("name", self.text(entry, "name"))
            mentioned = {
                "is_host": self.switch(entry, "is_host"),
                "io_type": self.choice(entry, "io_type", IO_TYPES, "IO type"),
                "dtype": self.choice(entry, "dtype", DTYPES, "data type"),
                "shape": self.shape(entry),
            }
            changes: dict[str, Any] = {field: value for field, value in mentioned.items() if value is not None}
            found[name] = replace(found.get(name, Declared(name)), **changes)
        return tuple(found.values())

    def shape(self, entry: dict[str, Any]) -> tuple[int, ...] | None:
        """The sizes up to the first one that is absent."""
        if entry.get("shape") is None:
            return None
        sizes = self.object("shape", entry["shape"])
        count = next((index for index, key in enumerate(DIMENSIONS) if sizes.get(key) is None), len(DIMENSIONS))
        return tuple(self.required(key, self.number(sizes, key)) for key in DIMENSIONS[:count])

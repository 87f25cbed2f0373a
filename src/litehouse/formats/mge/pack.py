"""Packed models of MegEngine Lite: a network and JSON about it in one flatbuffer, each encrypted or not."""

from __future__ import annotations

from dataclasses import dataclass

from litehouse import ciphers
from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.flat import FlatBuffer, Table
from litehouse.formats.loader import Place
from litehouse.formats.mge.model_info import MAX_BYTES, Info, parse_info
from litehouse.formats.source import Source
from litehouse.options import Limits

__all__ = ["TAG", "Info", "Packed", "open_packed"]

TAG = b"packed_model"
PLAIN = "NONE"
PARSER = "LITE_default"


@dataclass(frozen=True, slots=True)
class Packed:
    """What a packed model holds.

    Attributes:
        model: The network, in one of the containers for bare models. It can be read until the packed file is closed.
        info: What the file says about it.
        name: The model's name.
        method: The decryption method that the network was opened with, or `"NONE"`.
    """

    model: Source
    info: Info
    name: str
    method: str


def open_packed(source: Source, limits: Limits) -> Packed:
    """Open a packed model, and decrypt it with the methods that it names.

    Raises:
        ModelFormatError: It is broken, or a decryption method is unknown or does not open it.
        LimitError: The network is larger than the limits allow.
    """
    root = FlatBuffer(source, len(TAG)).root()
    if root.count(0) != 1:
        raise _wrong(source, f"Now only support one model, and this packed file has {root.count(0)}; pack it anew")
    (entry,) = root.tables(0)
    header = entry.table(0)
    if header is None:
        raise _wrong(source, "the packed model has no header; the file is damaged")
    place, info_place = _place(entry.table(2)), _place(entry.table(1))
    if place is None:
        raise _wrong(source, "packed model parse error! It holds no network; pack it anew")
    if not place.length:
        raise _wrong(source, "The loaded model is of zero length. Pack it anew")
    info = _read_info(source, info_place, header) if info_place is not None and info_place.length else Info()
    name, method = header.text(0), header.text(3)
    model = _opened(source, place, method)
    if model.size > limits.max_model_bytes:
        raise LimitError(
            f"the packed network has {model.size} bytes, more than max_model_bytes={limits.max_model_bytes}; "
            "raise the limit if you trust the file",
            path=source.path,
        )
    if model.read(0, len(TAG)) == TAG:
        raise _wrong(source, "the packed model holds another packed model; unpack that one and load it by itself")
    return Packed(model, info, name, method)


def _place(table: Table | None) -> Place | None:
    return None if table is None else table.place(0)


def _read_info(source: Source, place: Place, header: Table) -> Info:
    if header.text(2) != PARSER:
        raise _wrong(
            source,
            f"can't find model info parse function {header.text(2)[:100]}. Only {PARSER} is known; pack the model anew",
        )
    if (place.length or 0) > MAX_BYTES:
        raise _wrong(source, f"the packed model's info has {place.length} bytes, more than {MAX_BYTES}; shorten it")
    content = _opened(source, place, header.text(1))
    return parse_info(content.read(0, content.size), header.text(0), path=source.path)


def _opened(source: Source, place: Place, method: str) -> Source:
    """The plain content of a place: a part of the file where it is not encrypted."""
    part = source.window(place.offset, place.length or 0)
    if method == PLAIN:
        return part
    source.is_secret = True
    return Source.over(ciphers.decrypt(method, part.read(0, part.size), path=source.path), source.path)


def _wrong(source: Source, text: str) -> ModelFormatError:
    return ModelFormatError(text, path=source.path)

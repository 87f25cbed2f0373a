"""FlatBuffers, read piece by piece from a `Source`, every access checked against the bytes that are there.

Google's own Python package wants the whole file in memory and checks nothing. Here only the tables that are asked for
are read; the bytes of weights stay in the file, as a `Place` to load them from.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from litehouse.errors import ModelFormatError
from litehouse.formats.loader import Place
from litehouse.formats.source import Source

BLOCK = 1 << 16
KEPT_BLOCKS = 64
TABLE_COST = 32  # a table's cost beyond its bytes: even an empty one becomes an object here
SPARE = 1 << 16

_UINT16, _INT32, _UINT32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_SCALARS = {kind: struct.Struct("<" + kind) for kind in "?bBhHiIqQfd"}


class FlatBuffer:
    """One flatbuffer in a file.

    Tables and vectors may be shared, or refer to each other in a circle. So the sum of all that is read is bounded by
    the size of the buffer: four times its bytes, where an honest file is read about once.
    """

    def __init__(self, source: Source, start: int = 0, size: int | None = None) -> None:
        """Take the buffer of `size` bytes at `start`; without a size, all that follows."""
        self.path = source.path
        self._source = source
        self._start = start
        self._size = max(0, source.size - start if size is None else min(size, source.size - start))
        self._blocks: dict[int, bytes] = {}
        self._block = b""  # the one of the last access, which the next one mostly falls into
        self._block_at = 0
        self._layouts: dict[int, tuple[int, ...]] = {}
        self._budget = 4 * self._size + SPARE
        self._blob_budget = self._size

    def root(self) -> Table:
        """The root table."""
        return self.table_at(self._offset(0))

    def identifier(self) -> bytes:
        """The four bytes behind the root's offset, which tell the kind of file."""
        return self._bytes(4, 4)

    def table_at(self, at: int) -> Table:
        """The table at an offset of the buffer."""
        layout_at = at - _INT32.unpack(self._bytes(at, 4))[0]
        layout = self._layouts.get(layout_at)
        if layout is None:
            layout = self._layouts[layout_at] = self._layout(layout_at)
        self._spend(TABLE_COST + layout[0])
        return Table(self, at, layout, self._bytes(at, layout[0]))

    def vector_at(self, at: int, width: int) -> tuple[int, int]:
        """Where the vector at an offset has its elements, and how many."""
        count: int = _UINT32.unpack(self._bytes(at, 4))[0]
        if count * width > self._size - at - 4:
            self.damaged(f"a vector of {count} elements ends behind the buffer")
        return at + 4, count

    def content(self, at: int, length: int) -> bytes:
        """Bytes of the buffer, counted against what a file may make us read."""
        self._spend(length)
        return self._bytes(at, length)

    def place(self, at: int, length: int) -> Place:
        """Where bytes of the buffer lie in the file. Together these places are no larger than the buffer."""
        self._blob_budget -= length
        if self._blob_budget < 0:
            self.damaged("its tensors overlap: together they have more bytes than the file")
        return Place(self._start + at, length)

    def damaged(self, what: str) -> NoReturn:
        """Raise the error for a broken buffer."""
        raise ModelFormatError(f"broken flatbuffer: {what}; the file is cut off or damaged", path=self.path)

    def _layout(self, at: int) -> tuple[int, ...]:
        """A vtable: the size of its tables, then the offset of each field in them, 0 for an absent one."""
        size = _UINT16.unpack(self._bytes(at, 2))[0]
        if size < 4 or size % 2:
            self.damaged(f"the table layout at byte {at} has {size} bytes")
        numbers: tuple[int, ...] = struct.unpack(f"<{size // 2}H", self.content(at, size))
        if numbers[1] < 4:
            self.damaged(f"the table layout at byte {at} describes tables of {numbers[1]} bytes")
        return numbers[1:]

    def _offset(self, at: int) -> int:
        step: int = _UINT32.unpack(self._bytes(at, 4))[0]
        return at + step

    def _spend(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            self.damaged("its parts are used over and over, far beyond the file's size")

    def _bytes(self, at: int, length: int) -> bytes:
        inside = at - self._block_at
        if 0 <= inside <= len(self._block) - length:
            return self._block[inside : inside + length]
        if at < 0 or at + length > self._size:
            self.damaged(f"{length} bytes at {at} of {self._size}")
        number, inside = divmod(at, BLOCK)
        if inside + length > BLOCK:
            return self._source.read(self._start + at, length)
        self._block = self._blocks.get(number) or self._load(number)
        self._block_at = number * BLOCK
        return self._block[inside : inside + length]

    def _load(self, number: int) -> bytes:
        if len(self._blocks) >= KEPT_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        start = number * BLOCK
        block = self._source.read(self._start + start, min(BLOCK, self._size - start))
        self._blocks[number] = block
        return block


class Table:
    """One table. Fields are asked for by their slot; an absent one gives the default."""

    __slots__ = ("_buffer", "_data", "_layout", "at")

    def __init__(self, buffer: FlatBuffer, at: int, layout: tuple[int, ...], data: bytes) -> None:
        """Use `FlatBuffer.root` and the methods here instead."""
        self.at = at
        self._buffer = buffer
        self._layout = layout
        self._data = data

    def has(self, slot: int) -> bool:
        """Whether the file has a value for the field."""
        return slot + 1 < len(self._layout) and self._layout[slot + 1] != 0

    def number(self, slot: int, kind: str, default: Any = 0) -> Any:
        """A number or bool; `kind` is its letter in Python's `struct`."""
        scalar = _SCALARS[kind]
        offset = self._field(slot, scalar.size)
        return scalar.unpack_from(self._data, offset)[0] if offset else default

    def numbers(self, slot: int, kind: str) -> tuple[Any, ...]:
        """The numbers of a vector; empty where it is absent."""
        target = self._target(slot)
        if not target:
            return ()
        width = _SCALARS[kind].size
        at, count = self._buffer.vector_at(target, width)
        return struct.unpack(f"<{count}{kind}", self._buffer.content(at, count * width))

    def structs(self, slot: int, layout: str) -> list[tuple[Any, ...]]:
        """The structs of a vector; `layout` is that of Python's `struct`. Empty where it is absent."""
        target = self._target(slot)
        if not target:
            return []
        width = struct.calcsize(layout)
        at, count = self._buffer.vector_at(target, width)
        return list(struct.iter_unpack(layout, self._buffer.content(at, count * width)))

    def damaged(self, what: str) -> NoReturn:
        """Raise the error for what this table says."""
        self._buffer.damaged(f"{what}, in the table at byte {self.at}")

    def text(self, slot: int) -> str:
        """A text; empty where it is absent."""
        target = self._target(slot)
        return self._text(target) if target else ""

    def texts(self, slot: int) -> list[str]:
        """The texts of a vector; empty where it is absent."""
        return self._each(slot, self._text)

    def table(self, slot: int) -> Table | None:
        """Another table; None where it is absent."""
        target = self._target(slot)
        return self._buffer.table_at(target) if target else None

    def tables(self, slot: int) -> list[Table]:
        """The tables of a vector; empty where it is absent."""
        return self._each(slot, self._buffer.table_at)

    def count(self, slot: int, width: int = 4) -> int:
        """How many elements a vector has, without reading them; `width` is the size of one."""
        target = self._target(slot)
        return self._buffer.vector_at(target, width)[1] if target else 0

    def union(self, slot: int) -> tuple[int, Table | None]:
        """The tag of a union at `slot`, and its table at the slot behind."""
        return self.number(slot, "B"), self.table(slot + 1)

    def place(self, slot: int) -> Place | None:
        """Where a vector of bytes lies in the file, unread; None where it is absent."""
        target = self._target(slot)
        if not target:
            return None
        return self._buffer.place(*self._buffer.vector_at(target, 1))

    def bytes(self, slot: int) -> bytes:
        """A vector of bytes; empty where it is absent."""
        target = self._target(slot)
        return self._buffer.content(*self._buffer.vector_at(target, 1)) if target else b""

    def _each(self, slot: int, read: Callable[[int], Any]) -> list[Any]:
        target = self._target(slot)
        if not target:
            return []
        at, count = self._buffer.vector_at(target, 4)
        offsets = struct.unpack(f"<{count}I", self._buffer.content(at, count * 4))
        return [read(at + 4 * index + offset) for index, offset in enumerate(offsets)]

    def _text(self, at: int) -> str:
        content = self._buffer.content(*self._buffer.vector_at(at, 1))
        try:
            return content.decode()
        except UnicodeDecodeError:
            self._buffer.damaged(f"the text at byte {at} is not UTF-8")

    def _target(self, slot: int) -> int:
        """Where a field points to; 0 where it is absent."""
        offset = self._field(slot, 4)
        return self.at + offset + int(_UINT32.unpack_from(self._data, offset)[0]) if offset else 0

    def _field(self, slot: int, width: int) -> int:
        """Where a field lies in the table; 0 where it is absent."""
        offset = self._layout[slot + 1] if slot + 1 < len(self._layout) else 0
        if offset and not 4 <= offset <= len(self._data) - width:
            self._buffer.damaged(f"field {slot} of the table at byte {self.at} lies outside of it")
        return offset

"""Containers of version 1: the values of all tensors, then a flatbuffer with the graph."""

from __future__ import annotations

import struct

from litehouse.errors import ModelFormatError
from litehouse.formats.flat import FlatBuffer, Table
from litehouse.formats.loader import Place
from litehouse.formats.mge.operators import names_by_number, output_count, plain_name, renewed
from litehouse.formats.mge.records import DType, GraphRecord, Operator, TensorRecord, read_dtype, read_shape
from litehouse.formats.mge.v2 import buffer_size, check_count, check_numbering, params_of, version_text
from litehouse.formats.source import Source
from litehouse.options import Limits

IDENTIFIER = b"mgb1"
AREA_STARTS = {b"MGBC": 24, b"MGBS": 16}  # where the values begin; the older kind has no feature bytes
MAX_OUTPUTS = 1 << 16


def read_v1(source: Source, start: int, limits: Limits) -> GraphRecord:
    """Read what the container at `start` declares.

    Raises:
        ModelFormatError: It is broken.
    """
    magic = source.read(start, 4)
    area = start + AREA_STARTS[magic]
    head = source.read(area - 8, 8)
    offset = struct.unpack("<Q", head)[0] if len(head) == 8 else source.size
    size = buffer_size(source, area + offset)
    buffer = FlatBuffer(source, area + offset + 4, size)
    if buffer.identifier() != IDENTIFIER:
        raise ModelFormatError("no graph lies where the header says; the file is damaged", path=source.path)
    root = buffer.root()
    check_count(root.count(3), limits, source.path)
    reader = _Operators(source.path, area, offset, versioned=magic == b"MGBC")
    operators = [reader.read(table, place) for place, table in enumerate(root.tables(3))]
    check_numbering(operators, source.path)
    outputs = [variable for variable, _ in root.structs(4, "<II")]
    graph = GraphRecord(operators, reader.names, list(dict.fromkeys(outputs)), size=area - start + offset + 4 + size)
    graph.metadata = {"container": "v1", "mge_version": version_text(root.number(0, "I"))}
    return graph


class _Operators:
    """Reads operators in order: variables and the places of values are counted, not written down."""

    def __init__(self, path: str, area: int, area_size: int, *, versioned: bool) -> None:
        self.names: dict[int, str] = {}
        self._path = path
        self._at = area
        self._end = area + area_size
        self._next = 0
        self._known = names_by_number(versioned)

    def read(self, table: Table, place: int) -> Operator:
        number = table.number(0, "Q")
        raw = self._known.get(number, "")
        kind = plain_name(raw) or f"operator number {number}"
        params = renewed(raw, params_of(*table.union(1)))
        inputs = table.numbers(3, "I")
        tensors = tuple(self._tensor(item) for item in table.tables(7))
        names = table.texts(5)
        count = output_count(kind, params, len(inputs), len(tensors)) if raw else max(1, len(names))
        outputs = tuple(range(self._next, self._next + min(count, MAX_OUTPUTS)))
        self._next += len(outputs)
        self.names.update((variable, name) for variable, name in zip(outputs, names, strict=False) if name)
        return Operator(
            type=kind,
            name=table.text(12) or f"{kind}[{place}]",
            params=params,
            inputs=inputs,
            outputs=outputs,
            output_dtype=read_dtype(table.table(6)),
            tensors=tensors,
        )

    def _tensor(self, table: Table) -> TensorRecord:
        size, skipped = table.number(4, "I"), table.number(5, "I")
        place = Place(self._at + skipped, size - skipped) if size else None
        if size and (skipped > size or self._at + size > self._end):
            raise ModelFormatError(
                f"a tensor's {size} bytes at {self._at} leave the area of values; the file is damaged", path=self._path
            )
        self._at += size
        return TensorRecord(
            name=table.text(0),
            shape=read_shape(table, 1),
            dtype=read_dtype(table.table(3)) or DType("Float32"),
            place=place,
        )

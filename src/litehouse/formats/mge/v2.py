"""Containers of version 2: one flatbuffer that holds all, the weights too."""

from __future__ import annotations

import struct
from typing import Any

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.flat import FlatBuffer, Table
from litehouse.formats.mge.operators import names_by_number, plain_name, renewed
from litehouse.formats.mge.records import DType, GraphRecord, Operator, TensorRecord, read_dtype, read_shape
from litehouse.formats.mge.schema import DTYPE_PARAM, read_params
from litehouse.formats.source import Source
from litehouse.options import Limits

IDENTIFIERS = (b"mgv2", b"mge2")  # the second is that of versions before the first release


def read_v2(source: Source, start: int, limits: Limits) -> GraphRecord:
    """Read what the container at `start` declares.

    Raises:
        ModelFormatError: It is broken.
    """
    size = buffer_size(source, start)
    model = FlatBuffer(source, start + 4, size).root()
    check_count(model.count(2), limits, source.path)
    operators = [_operator(table, place) for place, table in enumerate(model.tables(2))]
    check_numbering(operators, source.path)
    names = {variable: name for variable, table in enumerate(model.tables(3)) if (name := table.text(0))}
    outputs = [(table.number(0, "I"), table.number(1, "I")) for table in model.tables(4)]
    listed = [(table.number(0, "I"), table.text(1)) for table in model.tables(5)]
    graph = GraphRecord(operators, names, list(dict.fromkeys(variable for variable, _ in outputs)), size=4 + size)
    if listed:
        variables = {original: variable for variable, original in outputs}
        if any(original not in variables for original, _ in listed):
            raise ModelFormatError("an output's other name belongs to no output; the file is damaged", path=source.path)
        graph.outputs = list(dict.fromkeys(variables[original] for original, _ in listed))
        graph.aliases = {variables[original]: name for original, name in listed if name}
    graph.metadata = {"container": "v2", "mge_version": version_text(model.number(0, "I"))}
    return graph


def buffer_size(source: Source, start: int) -> int:
    """The size of the flatbuffer at `start`, as the four bytes before it tell."""
    head = source.read(start, 4)
    size: int = struct.unpack("<I", head)[0] if len(head) == 4 else 0
    if not size or start + 4 + size > source.size:
        raise ModelFormatError(
            f"the graph's {size} bytes at {start + 4} end behind the file's {source.size}; the file is cut off",
            path=source.path,
        )
    return size


def version_text(number: int) -> str:
    """A version number as text: 101300 is 1.13.0."""
    return f"{number // 100_000}.{number // 100 % 1000}.{number % 100}"


def check_count(count: int, limits: Limits, path: str) -> None:
    """Refuse a graph without operators, or with more than the limits allow."""
    if not count:
        raise ModelFormatError("the graph has no operators; the file is cut off or damaged", path=path)
    if count > limits.max_nodes:
        raise LimitError(
            f"{count} operators are more than max_nodes={limits.max_nodes}; raise the limit if you trust the file",
            path=path,
        )


def check_numbering(operators: list[Operator], path: str) -> None:
    """Check that each variable is made once, and before it is used."""
    made: set[int] = set()
    for operator in operators:
        missing = [variable for variable in operator.inputs if variable not in made]
        if missing or made.intersection(operator.outputs):
            raise ModelFormatError(
                f"operator {operator.name} ({operator.type}) takes variable {missing[0]}, which nothing before it makes"
                if missing
                else f"operator {operator.name} ({operator.type}) makes a variable that was made before"
                "; the file is damaged",
                path=path,
            )
        made.update(operator.outputs)


def params_of(tag: int, table: Table | None) -> dict[str, Any]:
    """The parameters of an operator; those of a conversion are the dtype itself."""
    if tag == DTYPE_PARAM:
        return {"dtype": read_dtype(table)}
    return read_params(tag, table)


def _operator(table: Table, place: int) -> Operator:
    raw = table.text(0)
    if not raw:
        number = table.number(1, "Q")
        raw = names_by_number(versioned=True).get(number) or names_by_number(versioned=False).get(number, "")
    kind = plain_name(raw) or f"operator number {table.number(1, 'Q')}"
    return Operator(
        type=kind,
        name=table.text(2) or f"{kind}[{place}]",
        params=renewed(raw, params_of(*table.union(3))),
        inputs=table.numbers(7, "I"),
        outputs=table.numbers(8, "I"),
        output_dtype=read_dtype(table.table(10)),
        tensors=tuple(_tensor(item) for item in table.tables(11)),
    )


def _tensor(table: Table) -> TensorRecord:
    return TensorRecord(
        name=table.text(0),
        shape=read_shape(table, 1),
        dtype=read_dtype(table.table(3)) or DType("Float32"),
        place=table.place(6) if table.count(6, 1) else None,
    )

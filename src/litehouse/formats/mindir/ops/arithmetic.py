"""Elementwise arithmetic."""

from typing import Any

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op("Add", "TensorAdd")
def add(t: MindirTape, input: Any, other: Any) -> Any:
    return t.op("Add", t.promote(input, other))


@op("InplaceAddExt", writes=True)
@op("AddExt")
def add_ext(t: MindirTape, input: Any, other: Any, alpha: Any = 1) -> Any:
    a, b = t.promote(input, other)
    if t.literal(alpha) != 1:
        b = t.op("Mul", [b, *t.promote(alpha)], like=b)
    return t.op("Add", [a, b])


@op("Muls")
def multiply_scalar(t: MindirTape, input: Any, other: Any) -> Any:
    return t.op("Mul", t.promote(input, other))

"""`Number`: arithmetic on values as one writes it down, for converters that are formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.tape import MgeTape

TRUTHS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not", "IsInf", "IsNaN"})


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A value on a tape. `x * 2 + y` writes the nodes for it; plain numbers get the dtype of the other operand."""

    t: MgeTape
    value: ir.Value

    @property
    def dtype(self) -> ir.DataType:
        """The dtype of the value."""
        return self.t.dtype(self.value)

    def cast(self, dtype: ir.DataType) -> Number:
        """The same numbers in another dtype."""
        return Number(self.t, self.t.cast(self.value, dtype))

    def __add__(self, other: Number | float) -> Number:
        return call("Add", self, other)

    def __radd__(self, other: float) -> Number:
        return call("Add", other, self)

    def __sub__(self, other: Number | float) -> Number:
        return call("Sub", self, other)

    def __rsub__(self, other: float) -> Number:
        return call("Sub", other, self)

    def __mul__(self, other: Number | float) -> Number:
        return call("Mul", self, other)

    def __rmul__(self, other: float) -> Number:
        return call("Mul", other, self)

    def __truediv__(self, other: Number | float) -> Number:
        return call("Div", self, other)

    def __rtruediv__(self, other: float) -> Number:
        return call("Div", other, self)

    def __neg__(self) -> Number:
        return call("Neg", self)

    def __lt__(self, other: Number | float) -> Number:
        return call("Less", self, other)

    def __le__(self, other: Number | float) -> Number:
        return call("LessOrEqual", self, other)

    def __gt__(self, other: Number | float) -> Number:
        return call("Greater", self, other)

    def __ge__(self, other: Number | float) -> Number:
        return call("GreaterOrEqual", self, other)


def call(op_type: str, *operands: Number | float, **attributes: Any) -> Number:
    """The result of an elementwise ONNX op."""
    t, values = _values(*operands)
    dtype = ir.DataType.BOOL if op_type in TRUTHS else values[0].dtype
    return Number(t, t.op(op_type, values, dtype=dtype, **attributes))


def where(condition: Number, x: Number | float, other: Number | float) -> Number:
    """One operand where the condition holds, the other elsewhere. One of them must be no plain number."""
    t, values = _values(x, other)
    return Number(t, t.op("Where", [condition.value, *values], dtype=values[0].dtype))


def _values(*operands: Number | float) -> tuple[MgeTape, list[ir.Value]]:
    first = next(item for item in operands if isinstance(item, Number))
    values = [item.value if isinstance(item, Number) else first.t.constant(item, first.dtype) for item in operands]
    return first.t, values

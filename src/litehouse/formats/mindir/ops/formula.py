"""`Formula`: arithmetic on values and numbers, for converters that are one long formula."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.tape import MindirTape

TRUTHS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not", "IsInf", "IsNaN"})


class Formula:
    """Writes ONNX ops whose operands are values of one dtype, or numbers: `m("Add", x, 1)`.

    Attributes:
        t: The tape.
        dtype: What is computed in: float64 where the result has it, else float32, of which short floats need the range.
    """

    def __init__(self, t: MindirTape, dtype: ir.DataType | None = None) -> None:
        """Write on this tape, in the dtype for its result or in another one."""
        self.t = t
        wanted = t.result_dtype() if dtype is None else dtype
        self.dtype = ir.DataType.DOUBLE if wanted == ir.DataType.DOUBLE else ir.DataType.FLOAT

    def operands(self, *values: Any) -> list[ir.Value]:
        """Values and literals in the dtype."""
        return [self.t.tensor(value, self.dtype) for value in values]

    def result(self, value: ir.Value) -> ir.Value:
        """A value in the dtype of the op's result."""
        return self.t.cast(value, self.t.result_dtype())

    def __call__(self, op_type: str, *operands: ir.Value | float) -> ir.Value:
        """The result of an elementwise op."""
        values = self._values(*operands)
        made: ir.Value = self.t.op(op_type, values, dtype=ir.DataType.BOOL if op_type in TRUTHS else values[0].dtype)
        return made

    def where(self, condition: ir.Value, x: ir.Value | float, other: ir.Value | float) -> ir.Value:
        """One operand where the condition holds, the other elsewhere."""
        values = self._values(x, other)
        made: ir.Value = self.t.op("Where", [condition, *values], dtype=values[0].dtype)
        return made

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """A polynomial, highest power first."""
        total = self("Mul", x, coefficients[0])
        for coefficient in coefficients[1:-1]:
            total = self("Mul", self("Add", total, coefficient), x)
        return self("Add", total, coefficients[-1])

    def _values(self, *operands: ir.Value | float) -> list[ir.Value]:
        return [value if isinstance(value, ir.Value) else self.t.constant(value, self.dtype) for value in operands]

"""Comparisons, logic, bits, and the choice between values."""

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import WIDER
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

COMPARISONS = {
    "Equal": "Equal",
    "EqualExt": "Equal",
    "EqScalar": "Equal",
    "Greater": "Greater",
    "GreaterScalar": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "GreaterEqualScalar": "GreaterOrEqual",
    "Less": "Less",
    "LessScalar": "Less",
    "LessEqual": "LessOrEqual",
    "LessEqualScalar": "LessOrEqual",
}
LOGICAL = {"LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor"}
BITWISE = {
    "BitwiseAnd": "And",
    "BitwiseAndTensor": "And",
    "BitwiseAndScalar": "And",
    "BitwiseOr": "Or",
    "BitwiseOrTensor": "Or",
    "BitwiseOrScalar": "Or",
    "BitwiseXor": "Xor",
    "BitwiseXorTensor": "Xor",
    "BitwiseXorScalar": "Xor",
}
UNSIGNED = {64: ir.DataType.UINT64, 32: ir.DataType.UINT32, 16: ir.DataType.UINT32, 8: ir.DataType.UINT32}


def comparable(t: MindirTape, *values: Any) -> tuple[ir.Value, ...]:
    """The values in one dtype that all engines compare: small integers of both signs meet in int32."""
    values = tuple(t.cast(v, WIDER[v.dtype]) if isinstance(v, ir.Value) and v.dtype in WIDER else v for v in values)
    return t.operands(*values)


def _comparison(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: Any, other: Any) -> Any:
        return t.op(onnx_op, comparable(t, input, other))

    return convert


def _logical(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, x: Any, y: Any) -> Any:
        return t.op(onnx_op, [t.tensor(x, ir.DataType.BOOL), t.tensor(y, ir.DataType.BOOL)])

    return convert


def _bitwise(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: Any, other: Any) -> Any:
        prefix = "" if t.result_dtype() == ir.DataType.BOOL else "Bitwise"
        return t.op(prefix + onnx_op, t.promote(input, other))

    return convert


for table, maker in ((COMPARISONS, _comparison), (LOGICAL, _logical), (BITWISE, _bitwise)):
    for _name, _onnx_op in table.items():
        op(_name)(maker(_onnx_op))


@op("NotEqual", "NeScalar")
def not_equal(t: MindirTape, input: Any, other: Any) -> Any:
    return t.op("Not", [t.op("Equal", comparable(t, input, other))])


@op("LogicalNot")
def logical_not(t: MindirTape, input: Any) -> Any:
    return t.op("Not", [t.tensor(input, ir.DataType.BOOL)])


@op("BitwiseNot", "Invert")
def bitwise_not(t: MindirTape, input: Any) -> Any:
    return t.op("Not" if t.result_dtype() == ir.DataType.BOOL else "BitwiseNot", t.promote(input))


def _shifted(t: MindirTape, x: ir.Value, count: Any, direction: str) -> ir.Value:
    """The bits of an integer moved, zeros following. ONNX moves those of unsigned integers alone."""
    dtype = t.result_dtype()
    unsigned = UNSIGNED[dtype.bitwidth]
    moved = t.op("BitShift", [t.cast(x, unsigned), t.tensor(count, unsigned)], direction=direction, dtype=unsigned)
    return t.cast(moved, dtype)


@op("LeftShift")
def left_shift(t: MindirTape, x1: Any, x2: Any) -> Any:
    return _shifted(t, t.promote(x1)[0], x2, "LEFT")


@op("RightShift")
def right_shift(t: MindirTape, input_x: Any, input_y: Any) -> Any:
    (x,) = t.promote(input_x)
    moved = _shifted(t, x, input_y, "RIGHT")
    if not t.result_dtype().is_signed():
        return moved
    # What follows the bits of a negative number is ones: the zeros of its complement.
    complement = t.op("BitwiseNot", [x], dtype=t.result_dtype())
    ones = t.op("BitwiseNot", [_shifted(t, complement, input_y, "RIGHT")])
    negative = t.op("Less", [x, t.constant(0, t.result_dtype())])
    return select(t, negative, ones, moved)


# What kind of number -------------------------------------------------------------------------------------------------


def _float_test(t: MindirTape, input: ir.Value) -> ir.Value | None:
    """The operand for ONNX's tests of floats; None for integers, which are always finite."""
    dtype = t.dtype(input)
    return t.cast(input, WIDER.get(dtype, dtype)) if dtype.is_floating_point() else None


def _nowhere(t: MindirTape, input: ir.Value) -> ir.Value:
    """False, as often as there are numbers."""
    nowhere: ir.Value = t.op("Not", [t.op("Equal", [input, input])])
    return nowhere


@op("IsNan")
def is_nan(t: MindirTape, x: ir.Value) -> Any:
    value = _float_test(t, x)
    return _nowhere(t, x) if value is None else t.op("IsNaN", [value])


@op("IsInf")
def is_inf(t: MindirTape, input: ir.Value) -> Any:
    value = _float_test(t, input)
    return _nowhere(t, input) if value is None else t.op("IsInf", [value])


@op("IsNegInf")
def is_neg_inf(t: MindirTape, input: ir.Value) -> Any:
    value = _float_test(t, input)
    return _nowhere(t, input) if value is None else t.op("IsInf", [value], detect_positive=0)


@op("IsFinite")
def is_finite(t: MindirTape, input: ir.Value) -> Any:
    value = _float_test(t, input)
    if value is None:
        return t.op("Equal", [input, input])
    return t.op("Not", [t.op("Or", [t.op("IsNaN", [value]), t.op("IsInf", [value])])])


@op("IsClose")
def is_close(
    t: MindirTape, input: Any, other: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: Any = False
) -> Any:
    a, b = comparable(t, input, other)
    if not t.dtype(a).is_floating_point():
        a, b = t.cast(a, ir.DataType.FLOAT), t.cast(b, ir.DataType.FLOAT)
    relative, absolute = t.tensor(rtol, a.dtype), t.tensor(atol, a.dtype)
    distance = t.op("Abs", [t.op("Sub", [a, b])])
    allowed = t.op("Add", [absolute, t.op("Mul", [relative, t.op("Abs", [b])])])
    near = t.op("And", [t.op("LessOrEqual", [distance, allowed]), t.op("Not", [t.op("IsInf", [distance])])])
    near = t.op("Or", [near, t.op("Equal", [a, b])])
    if t.literal(equal_nan):
        near = t.op("Or", [near, t.op("And", [t.op("IsNaN", [a]), t.op("IsNaN", [b])])])
    return near


@op("ApproximateEqual")
def approximate_equal(t: MindirTape, x: Any, y: Any, *, tolerance: Any = 1e-05) -> Any:
    a, b = comparable(t, x, y)
    return t.op("Less", [t.op("Abs", [t.op("Sub", [a, b])]), t.tensor(tolerance, a.dtype)])


# Choice --------------------------------------------------------------------------------------------------------------


@op("Select", "SelectV2")
def select(t: MindirTape, condition: Any, input: Any, other: Any) -> Any:
    dtype = t.result_dtype()
    inside = ir.DataType.INT64 if dtype == ir.DataType.UINT64 else WIDER.get(dtype, dtype)
    values = [t.tensor(t.tensor(value, dtype), inside) for value in (input, other)]
    return t.cast(t.op("Where", [t.tensor(condition, ir.DataType.BOOL), *values], dtype=inside), dtype)


@op("InplaceMaskedFillScalar", "InplaceMaskedFillTensor", writes=True)
@op("MaskedFill", "MaskedFillScalar")
def masked_fill(t: MindirTape, input_x: Any, mask: Any, value: Any) -> Any:
    return select(t, mask, value, input_x)

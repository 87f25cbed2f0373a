"""Elementwise arithmetic of two operands and more."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import SUMMABLE, narrowed, widened
from litehouse.formats.mindir.ops.unary import is_integer, number, truncated
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

# MindIR name: the ONNX op of the same meaning. Names with an s, or with Scalar, have a Python number as one operand.
SAME = {
    "Add": "Add",
    "TensorAdd": "Add",
    "AddV2": "Add",
    "Adds": "Add",
    "Sub": "Sub",
    "Subs": "Sub",
    "Mul": "Mul",
    "Muls": "Mul",
    "InplaceMul": "Mul",
    "InplaceMuls": "Mul",
    "Div": "Div",
    "RealDiv": "Div",
    "Divs": "Div",
    "InplaceDiv": "Div",
    "InplaceDivs": "Div",
    "Maximum": "Max",
    "Minimum": "Min",
}


def _same(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: Any, other: Any) -> Any:
        return narrowed(t, t.op(onnx_op, widened(t, input, other)))

    return convert


for _name, _onnx_op in SAME.items():
    op(_name, writes=_name.startswith("Inplace"))(_same(_onnx_op))


def _scaled(t: MindirTape, value: ir.Value, factor: Any) -> ir.Value:
    """The value times a number that is mostly 1."""
    if t.is_literal(factor) and t.literal(factor) == 1:
        return value
    product: ir.Value = t.op("Mul", [value, *widened(t, factor)])
    return product


@op("InplaceAddExt", "InplaceAddsExt", writes=True)
@op("AddExt", "AddScalar")
def add_ext(t: MindirTape, input: Any, other: Any, alpha: Any = 1) -> Any:
    a, b = widened(t, input, other)
    return narrowed(t, t.op("Add", [a, _scaled(t, b, alpha)]))


@op("InplaceSubExt", "InplaceSubScalar", writes=True)
@op("SubExt", "SubScalar")
def sub_ext(t: MindirTape, input: Any, other: Any, alpha: Any = 1) -> Any:
    a, b = widened(t, input, other)
    return narrowed(t, t.op("Sub", [a, _scaled(t, b, alpha)]))


@op("Pow", "PowTensorScalar", "PowScalarTensor")
def power(t: MindirTape, input: Any, exponent: Any) -> Any:
    dtype = t.result_dtype()
    inside = SUMMABLE.get(dtype, dtype)
    return t.cast(t.op("Pow", [t.tensor(input, inside), t.tensor(exponent, inside)], dtype=inside), dtype)


@op("AddN", "AccumulateNV2")
def add_n(t: MindirTape, *x: Any) -> Any:
    """The terms are one tuple; in converted files they are operands one by one."""
    terms = widened(t, *(x[0] if isinstance(x[0], tuple) else x))
    return narrowed(t, reduce(lambda total, term: t.op("Add", [total, term]), terms))


# Division ------------------------------------------------------------------------------------------------------------


@op("InplaceFloorDivide", "InplaceFloorDivides", writes=True)
@op("FloorDiv", "FloorDivScalar")
def floor_div(t: MindirTape, input: Any, other: Any) -> Any:
    a, b = widened(t, input, other)
    if is_integer(t):
        # Integer division rounds to zero; without the remainder nothing is left to round.
        return narrowed(t, t.op("Div", [t.op("Sub", [a, t.op("Mod", [a, b])]), b]))
    return narrowed(t, t.op("Floor", [t.op("Div", [a, b])]))


@op("TruncateDiv")
def truncate_div(t: MindirTape, x: Any, y: Any) -> Any:
    quotient = t.op("Div", widened(t, x, y))
    return narrowed(t, quotient if is_integer(t) else truncated(t, quotient))


@op("InplaceDivMod", "InplaceDivMods", writes=True)
@op("DivMod", "DivMods")
def div_mod(t: MindirTape, input: Any, other: Any, rounding_mode: Any = None) -> Any:
    mode = t.literal(rounding_mode)
    if mode in (1, "trunc"):
        return truncate_div(t, input, other)
    if mode in (2, "floor"):
        return floor_div(t, input, other)
    if mode is not None:
        t.refuse(f"rounding mode {mode!r} is not supported")
    return narrowed(t, t.op("Div", widened(t, input, other)))


@op("InplaceRemainderTensorTensor", "InplaceRemainderTensorScalar", writes=True)
@op("FloorMod", "RemainderTensorTensor", "RemainderTensorScalar", "RemainderScalarTensor")
def floor_mod(t: MindirTape, input: Any, other: Any) -> Any:
    """The remainder with the sign of the divisor."""
    a, b = widened(t, input, other)
    if is_integer(t):
        return narrowed(t, t.op("Mod", [a, b]))
    rest = t.op("Mod", [a, b], fmod=1)
    opposite = t.op("Less", [t.op("Mul", [rest, t.op("Sign", [b])]), number(t, 0)])
    return narrowed(t, t.op("Where", [opposite, t.op("Add", [rest, b]), rest]))


@op("Mod", "TruncateMod", "FmodTensor", "FmodScalar")
def truncate_mod(t: MindirTape, x: Any, y: Any) -> Any:
    """The remainder with the sign of the dividend."""
    return narrowed(t, t.op("Mod", widened(t, x, y), fmod=1))


def _unless_zero(t: MindirTape, tested: ir.Value, value: ir.Value) -> ir.Value:
    """The value, but 0 wherever the tested one is 0."""
    zero = number(t, 0)
    chosen: ir.Value = t.op("Where", [t.op("Equal", [tested, zero]), zero, value])
    return narrowed(t, chosen)


@op("DivNoNan")
def div_no_nan(t: MindirTape, x1: Any, x2: Any) -> Any:
    a, b = widened(t, x1, x2)
    # An integer divisor of 0 would be an error when the model runs.
    divisor = t.op("Where", [t.op("Equal", [b, number(t, 0)]), number(t, 1), b]) if is_integer(t) else b
    return _unless_zero(t, b, t.op("Div", [a, divisor]))


@op("MulNoNan")
def mul_no_nan(t: MindirTape, x: Any, y: Any) -> Any:
    a, b = widened(t, x, y)
    return _unless_zero(t, b, t.op("Mul", [a, b]))


@op("Xdivy")
def xdivy(t: MindirTape, x: Any, y: Any) -> Any:
    a, b = widened(t, x, y)
    return _unless_zero(t, a, t.op("Div", [a, b]))


@op("Xlogy", "XLogYScalarOther", "XLogYScalarSelf")
def xlogy(t: MindirTape, input: Any, other: Any) -> Any:
    """Just the product: MindSpore does not make an exception of 0."""
    a, b = widened(t, input, other)
    return narrowed(t, t.op("Mul", [a, t.op("Log", [b])]))


# Functions of two operands -------------------------------------------------------------------------------------------


@op("SquaredDifference")
def squared_difference(t: MindirTape, x: Any, y: Any) -> Any:
    difference = t.op("Sub", widened(t, x, y))
    return narrowed(t, t.op("Mul", [difference, difference]))


@op("Hypot")
def hypot(t: MindirTape, x1: Any, x2: Any) -> Any:
    """Scaled by the larger operand, as the squares alone could be out of range."""
    a, b = (t.op("Abs", [value]) for value in widened(t, x1, x2))
    large, small = t.op("Max", [a, b]), t.op("Min", [a, b])
    ratio = _ratio(t, small, large)
    return narrowed(t, t.op("Mul", [large, t.op("Sqrt", [t.op("Add", [t.op("Mul", [ratio, ratio]), number(t, 1)])])]))


def _ratio(t: MindirTape, a: ir.Value, b: ir.Value) -> ir.Value:
    """The quotient, but the dividend itself where that is 0."""
    ratio: ir.Value = t.op("Where", [t.op("Equal", [a, number(t, 0)]), a, t.op("Div", [a, b])])
    return ratio


def _is_negative(t: MindirTape, x: ir.Value) -> ir.Value:
    """Whether a float has the sign -, which 0 can have too."""
    zero = number(t, 0)
    negative: ir.Value = t.op("Or", [t.op("Less", [x, zero]), t.op("Less", [t.op("Reciprocal", [x]), zero])])
    return negative


@op("Atan2", "Atan2Ext")
def atan2(t: MindirTape, input: Any, other: Any) -> Any:
    y, x = widened(t, input, other)
    angle = t.op("Atan", [t.cast(_ratio(t, y, x), ir.DataType.FLOAT)], dtype=ir.DataType.FLOAT)
    half_turn = t.op("Where", [_is_negative(t, y), number(t, -math.pi), number(t, math.pi)])
    turn = t.op("Where", [_is_negative(t, x), half_turn, number(t, 0)])
    return narrowed(t, t.op("Add", [*widened(t, angle), turn]))


def _log_add(t: MindirTape, input: Any, other: Any, base: float) -> ir.Value:
    a, b = widened(t, input, other)
    # Equal operands have the distance 0, infinite ones too.
    distance = t.op("Where", [t.op("Equal", [a, b]), number(t, 0), t.op("Abs", [t.op("Sub", [a, b])])])
    power = t.op("Pow", [number(t, base), t.op("Neg", [distance])])
    logarithm = t.op("Log", [t.op("Add", [power, number(t, 1)])])
    if base != math.e:
        logarithm = t.op("Div", [logarithm, number(t, math.log(base))])
    return narrowed(t, t.op("Add", [t.op("Max", [a, b]), logarithm]))


@op("LogAddExp")
def log_add_exp(t: MindirTape, input: Any, other: Any) -> Any:
    return _log_add(t, input, other, math.e)


@op("LogAddExp2")
def log_add_exp2(t: MindirTape, input: Any, other: Any) -> Any:
    return _log_add(t, input, other, 2)


@op("Fmax")
def fmax(t: MindirTape, x1: Any, x2: Any) -> Any:
    return _number_of(t, "Max", x1, x2)


@op("Fmin")
def fmin(t: MindirTape, x1: Any, x2: Any) -> Any:
    return _number_of(t, "Min", x1, x2)


def _number_of(t: MindirTape, onnx_op: str, x1: Any, x2: Any) -> ir.Value:
    """The larger or smaller operand, or the one that is a number where one is not."""
    a, b = widened(t, x1, x2)
    chosen = t.op(onnx_op, [a, b])
    if not is_integer(t):
        chosen = t.op("Where", [t.op("IsNaN", [a]), b, t.op("Where", [t.op("IsNaN", [b]), a, chosen])])
    return narrowed(t, chosen)


@op("Heaviside")
def heaviside(t: MindirTape, x: Any, values: Any) -> Any:
    a, b = widened(t, x, values)
    zero, one = number(t, 0), number(t, 1)
    step = t.op("Where", [t.op("Greater", [a, zero]), one, zero])
    return narrowed(t, t.op("Where", [t.op("Equal", [a, zero]), b, step]))


# Functions of three operands and more --------------------------------------------------------------------------------


@op("Lerp", "LerpScalar")
def lerp(t: MindirTape, input: Any, end: Any, weight: Any) -> Any:
    a, b, w = widened(t, input, end, weight)
    return narrowed(t, t.op("Add", [a, t.op("Mul", [w, t.op("Sub", [b, a])])]))


@op("Addcmul", "AddcmulExt")
def addcmul(t: MindirTape, input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    a, b, c = widened(t, input, tensor1, tensor2)
    return narrowed(t, t.op("Add", [a, _scaled(t, t.op("Mul", [b, c]), value)]))


@op("Addcdiv", "AddcdivExt")
def addcdiv(t: MindirTape, input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    a, b, c = widened(t, input, tensor1, tensor2)
    return narrowed(t, t.op("Add", [a, _scaled(t, t.op("Div", [b, c]), value)]))

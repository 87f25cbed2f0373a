"""Elementwise math of one operand, and casts."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import narrowed, widened
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.polynomials import ERFC

# MindIR name: the ONNX op of the same meaning.
SAME = {
    "Abs": "Abs",
    "Sqrt": "Sqrt",
    "Sin": "Sin",
    "Cos": "Cos",
    "Exp": "Exp",
    "InplaceExp": "Exp",
}

# As above, where ONNX Runtime has no kernel for float64: these are computed in float32.
SINGLE = {
    "Erf": "Erf",
    "Tan": "Tan",
    "Asin": "Asin",
    "AsinExt": "Asin",
    "ACos": "Acos",
    "AcosExt": "Acos",
    "Atan": "Atan",
    "AtanExt": "Atan",
    "Sinh": "Sinh",
    "Cosh": "Cosh",
    "Asinh": "Asinh",
    "AsinhExt": "Asinh",
    "Acosh": "Acosh",
    "AcoshExt": "Acosh",
    "Atanh": "Atanh",
}

# MindIR name: the ONNX op that rounds floats. Integers are whole already.
ROUNDING = {"Floor": "Floor", "InplaceFloor": "Floor", "Ceil": "Ceil", "Rint": "Round"}

# Polynomials, highest power first, fitted in float64 at Chebyshev points.
# erfinv(x) / x by w = -log(1 - x * x): in w - 2.5 where w < 5, and in sqrt(w) - 3 beyond; to 2e-7 of the value.
ERFINV_CENTRE = (
    2.32858445e-08,
    3.42524857e-07,
    -3.46335617e-06,
    -4.38363159e-06,
    0.000218346915,
    -0.00125374861,
    -0.00417738976,
    0.246640758,
    1.50140936,
)
ERFINV_TAIL = (
    -0.00012693107,
    4.47783194e-05,
    0.00125542845,
    -0.00361478232,
    0.00577941249,
    -0.00763948295,
    0.00943308127,
    1.00167527,
    2.83297706,
)


def number(t: MindirTape, value: float) -> ir.Value:
    """A constant in the dtype that `widened` gives."""
    return widened(t, value)[0]


def is_integer(t: MindirTape) -> bool:
    """Whether the result is of an integer dtype, or bool."""
    return not t.result_dtype().is_floating_point()


def _same(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: Any) -> Any:
        return narrowed(t, t.op(onnx_op, widened(t, input)))

    return convert


def _single(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: Any) -> Any:
        if t.result_dtype() != ir.DataType.DOUBLE:
            return narrowed(t, t.op(onnx_op, widened(t, input)))
        x = t.tensor(input, ir.DataType.FLOAT)
        return t.cast(t.op(onnx_op, [x], dtype=ir.DataType.FLOAT), ir.DataType.DOUBLE)

    return convert


def _rounding(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: Any) -> Any:
        return t.promote(input)[0] if is_integer(t) else narrowed(t, t.op(onnx_op, widened(t, input)))

    return convert


for table, maker in ((SAME, _same), (SINGLE, _single), (ROUNDING, _rounding)):
    for _name, _onnx_op in table.items():
        op(_name, writes=_name.startswith("Inplace"))(maker(_onnx_op))


@op("Neg")
def neg(t: MindirTape, input: Any) -> Any:
    (x,) = widened(t, input)
    if t.result_dtype() in (ir.DataType.UINT32, ir.DataType.UINT64):
        return t.op("Sub", [number(t, 0), x])
    return narrowed(t, t.op("Neg", [x]))


@op("InplaceLog", writes=True)
@op("Log")
def log(t: MindirTape, input: Any, *, base: Any = -1.0, scale: Any = 1.0, shift: Any = 0.0) -> Any:
    (x,) = widened(t, input)
    if t.literal(scale) != 1:
        x = t.op("Mul", [x, number(t, t.literal(scale))])
    if t.literal(shift) != 0:
        x = t.op("Add", [x, number(t, t.literal(shift))])
    x = t.op("Log", [x])
    if t.literal(base) > 0:
        x = t.op("Div", [x, number(t, math.log(t.literal(base)))])
    return narrowed(t, x)


@op("Log2")
def log2(t: MindirTape, input: Any) -> Any:
    return log(t, input, base=2)


@op("Log10")
def log10(t: MindirTape, input: Any) -> Any:
    return log(t, input, base=10)


@op("Log1p")
def log1p(t: MindirTape, input: Any) -> Any:
    return log(t, input, shift=1)


@op("Expm1")
def expm1(t: MindirTape, input: Any) -> Any:
    return narrowed(t, t.op("Sub", [t.op("Exp", widened(t, input)), number(t, 1)]))


@op("Exp2")
def exp2(t: MindirTape, input: Any) -> Any:
    return narrowed(t, t.op("Pow", widened(t, 2, input)))


@op("Reciprocal", "Inv")
def reciprocal(t: MindirTape, input: Any) -> Any:
    (x,) = widened(t, input)
    return narrowed(t, t.op("Div", [number(t, 1), x]) if is_integer(t) else t.op("Reciprocal", [x]))


@op("Square")
def square(t: MindirTape, input: Any) -> Any:
    (x,) = widened(t, input)
    return narrowed(t, t.op("Mul", [x, x]))


@op("Rsqrt")
def rsqrt(t: MindirTape, input: Any) -> Any:
    return narrowed(t, t.op("Reciprocal", [t.op("Sqrt", widened(t, input))]))


@op("InplaceSign", writes=True)
@op("Sign")
def sign(t: MindirTape, input: Any) -> Any:
    (x,) = widened(t, input)
    result = t.op("Sign", [x])
    if t.result_dtype().is_floating_point():
        # MindSpore gives 0 for what is no number; the engines pass it on.
        result = t.op("Where", [t.op("IsNaN", [x]), number(t, 0), result])
    return narrowed(t, result)


def truncated(t: MindirTape, x: ir.Value) -> ir.Value:
    """Floats with their fraction cut off."""
    cut: ir.Value = t.op("Mul", [t.op("Sign", [x]), t.op("Floor", [t.op("Abs", [x])])])
    return cut


@op("Trunc")
def trunc(t: MindirTape, input: Any) -> Any:
    return t.promote(input)[0] if is_integer(t) else narrowed(t, truncated(t, *widened(t, input)))


@op("Frac")
def frac(t: MindirTape, input: Any) -> Any:
    (x,) = widened(t, input)
    return narrowed(t, t.op("Sub", [x, x if is_integer(t) else truncated(t, x)]))


@op("Round")
def round_(t: MindirTape, input: Any, decimals: Any = 0) -> Any:
    digits = t.literal(decimals) or 0
    if is_integer(t):
        return t.promote(input)[0] if digits >= 0 else t.refuse("rounding integers to tens or more")
    (x,) = widened(t, input)
    if not digits:
        return narrowed(t, t.op("Round", [x]))
    # A power of ten below 1 is no exact number, so scale by its inverse.
    there, back = ("Mul", "Div") if digits > 0 else ("Div", "Mul")
    power = number(t, 10.0 ** abs(digits))
    return narrowed(t, t.op(back, [t.op("Round", [t.op(there, [x, power])]), power]))


@op("Sinc")
def sinc(t: MindirTape, input: Any) -> Any:
    (x,) = widened(t, input)
    angle = t.op("Mul", [x, number(t, math.pi)])
    quotient = t.op("Div", [t.op("Sin", [angle]), angle])
    return narrowed(t, t.op("Where", [t.op("Equal", [x, number(t, 0)]), number(t, 1), quotient]))


@op("Logit")
def logit(t: MindirTape, input: Any, eps: Any = -1.0) -> Any:
    (x,) = widened(t, input)
    margin = t.literal(eps)
    if margin is not None and margin >= 0:
        x = t.op("Clip", [x, number(t, margin), number(t, 1 - margin)])
    odds = t.op("Div", [x, t.op("Sub", [number(t, 1), x])])
    return narrowed(t, t.op("Log", [odds]))


@op("NanToNum")
def nan_to_num(t: MindirTape, input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if is_integer(t):
        return t.promote(input)[0]
    (x,) = widened(t, input)
    limit = float(np.finfo(t.result_dtype().numpy()).max)
    nan, posinf, neginf = (t.literal(value) for value in (nan, posinf, neginf))
    x = t.op("Where", [t.op("IsNaN", [x]), number(t, nan or 0), x])
    high = t.op("IsInf", [x], detect_negative=0)
    x = t.op("Where", [high, number(t, limit if posinf is None else posinf), x])
    low = t.op("IsInf", [x], detect_positive=0)
    return narrowed(t, t.op("Where", [low, number(t, -limit if neginf is None else neginf), x]))


def _polynomial(t: MindirTape, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """A polynomial in float32, highest power first."""
    total = t.constant(coefficients[0], ir.DataType.FLOAT)
    for coefficient in coefficients[1:]:
        total = t.op("Add", [t.op("Mul", [total, x]), t.constant(coefficient, ir.DataType.FLOAT)])
    return total


@op("Erfc")
def erfc(t: MindirTape, input: Any) -> Any:
    """Not 1 - erf(x), which has no digits left where the result is small."""
    x = t.tensor(input, ir.DataType.FLOAT)
    one, two = (t.constant(value, ir.DataType.FLOAT) for value in (1, 2))
    size = t.op("Abs", [x])
    near = t.op("Reciprocal", [t.op("Add", [t.op("Div", [size, two]), one])])
    exponent = t.op("Sub", [_polynomial(t, near, ERFC), t.op("Mul", [x, x])])
    tail = t.op("Mul", [near, t.op("Exp", [exponent])])
    negative = t.op("Less", [x, t.constant(0, ir.DataType.FLOAT)])
    result = t.op("Where", [negative, t.op("Sub", [two, tail]), tail], dtype=ir.DataType.FLOAT)
    return t.cast(result, t.result_dtype())


@op("InplaceErfinv", writes=True)
@op("Erfinv")
def erfinv(t: MindirTape, input: Any) -> Any:
    x = t.tensor(input, ir.DataType.FLOAT)
    one, split, centre, tail = (t.constant(value, ir.DataType.FLOAT) for value in (1, 5, 2.5, 3))
    distance = t.op("Neg", [t.op("Log", [t.op("Mul", [t.op("Sub", [one, x]), t.op("Add", [one, x])])])])
    inner = _polynomial(t, t.op("Sub", [distance, centre]), ERFINV_CENTRE)
    outer = _polynomial(t, t.op("Sub", [t.op("Sqrt", [distance]), tail]), ERFINV_TAIL)
    factor = t.op("Where", [t.op("Less", [distance, split]), inner, outer])
    # At 1 and -1 the logarithm is infinite, and so is the result.
    factor = t.op("Where", [t.op("IsInf", [distance]), distance, factor])
    return t.cast(t.op("Mul", [factor, x], dtype=ir.DataType.FLOAT), t.result_dtype())


@op("Cast")
def cast(t: MindirTape, input: Any, dtype: Any) -> Any:
    target = t.type_id(dtype)
    if isinstance(input, ir.Value) and input.dtype == ir.DataType.DOUBLE and target.is_integer():
        # OpenVINO saturates when it casts from float64 to 8 bits.
        return t.cast(t.cast(input, ir.DataType.INT64), target)
    return t.tensor(input, target)


@op("ToDtype")
def to_dtype(t: MindirTape, input: Any, dtype: Any = None, non_blocking: Any = False, copy: Any = False) -> Any:
    return input if t.literal(dtype) is None else cast(t, input, dtype)


@op("ToOther")
def to_other(t: MindirTape, input: Any, other: ir.Value, non_blocking: Any = False, copy: Any = False) -> Any:
    return t.tensor(input, t.dtype(other))


@op("ToDevice")
def to_device(
    t: MindirTape, input: Any, device: Any = None, dtype: Any = None, non_blocking: Any = False, copy: Any = False
) -> Any:
    return to_dtype(t, t.op("Identity", [input], like=input), dtype)


@op("CopyToDevice", "CopyToHost", "AShardIdentity", "FormatCast")
def moved(t: MindirTape, x: ir.Value, *_: Any) -> Any:
    """The operand, for another device or in another arrangement of memory."""
    return t.op("Identity", [x])


@op("CheckNumerics")
def check_numerics(t: MindirTape, x: ir.Value) -> Any:
    """The operand. MindSpore stops where it is not finite; here that is passed on."""
    return t.op("Identity", [x])

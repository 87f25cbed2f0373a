"""Modes of Elemwise that take more than an ONNX op or two: integer division and shifts, error functions, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.formula import Number, call, where
from litehouse.formats.polynomials import ERFC

Mode = Callable[..., Number]

# Polynomials, highest power first, fitted in float64 at Chebyshev points.
# erfinv(p) / p by w = -log(1 - p * p): in w - 3 where w < 6; beyond, times v, in v - 0.25 with v = 1 / sqrt(w), up to
# where 1 - p leaves float32; both to 3e-7 of the value.
ERFINV_CENTRE = (
    -5.89238247e-09,
    -4.29796353e-09,
    4.56933293e-07,
    -1.88599902e-06,
    -1.2766548e-05,
    0.000195480081,
    -0.000836047482,
    -0.00573858739,
    0.241630308,
    1.62354208,
)
ERFINV_TAIL = (
    -453.044091,
    -20.4382608,
    29.9111298,
    6.99082648,
    -0.518882224,
    0.560038061,
    0.080496131,
    -0.198179633,
    0.959946006,
)


def is_float(x: Number) -> bool:
    """Whether the numbers are floats."""
    return x.dtype.is_floating_point()


def truth(condition: Number, like: Number) -> Number:
    """1 where the condition holds and 0 elsewhere, in the dtype of another number."""
    return condition.cast(like.dtype)


# Integers ------------------------------------------------------------------------------------------------------------


def floor_div(x: Number, y: Number) -> Number:
    """The quotient, rounded down."""
    if is_float(x):
        return call("Floor", x / y)
    # OpenVINO divides and compares integers as floats. Large quotients come out a little off, so what is left is
    # divided again; differences are compared with 0.
    quotient = x / y
    quotient = quotient + (x - quotient * y) / y
    size, rest = call("Abs", y), (x - quotient * y) * call("Sign", y)
    below = truth(rest < 0, x)
    return quotient - below + truth(rest + below * size - size >= 0, x)


def mod(x: Number, y: Number) -> Number:
    """The rest of a division: of floats with the sign of the dividend, of integers with that of the divisor."""
    return call("Mod", x, y, fmod=1) if is_float(x) else x - floor_div(x, y) * y


def shift_left(x: Number, bits: Number) -> Number:
    """Bits moved up; of their count the lowest five bits matter."""
    first, second = _two_powers(bits)
    return x * first * second


def shift_right(x: Number, bits: Number) -> Number:
    """Bits moved down, the sign kept; of their count the lowest five bits matter."""
    first, second = _two_powers(bits)
    return floor_div(floor_div(x, first), second)


def _two_powers(bits: Number) -> tuple[Number, Number]:
    """Two int32 factors of 2**bits, which may itself be too large."""
    count = mod(bits, Number(bits.t, bits.t.constant(32, bits.dtype)))
    half = count / 2
    return powers_of_two(half), powers_of_two(count - half)


def powers_of_two(bits: Number) -> Number:
    """2**bits as int32, for 0 to 30 bits."""
    table = bits.t.constant(2 ** np.arange(31), ir.DataType.INT32)
    return Number(bits.t, bits.t.op("Gather", [table, bits.value], dtype=ir.DataType.INT32))


def rounded_product(x: Number, y: Number, dtype: ir.DataType) -> Number:
    """The upper half of a product of fractions of that dtype, computed in int32: halves upward, then saturated."""
    limits = np.iinfo(dtype.numpy())
    if dtype == ir.DataType.INT32:
        product = _upper_half(x, y)
    else:
        digits = dtype.bitwidth - (limits.min < 0)
        product = _over(x * y + (1 << digits - 1), 1 << digits)
    smallest = call("And", call("Equal", x - int(limits.min), 0), call("Equal", y - int(limits.min), 0))
    return where(smallest, int(limits.max), product)


def _upper_half(x: Number, y: Number) -> Number:
    """(x * y + 2**30) >> 31 in int32 alone, from three parts of each: 11 bits, 11 bits, and the signed rest."""
    (x0, x1, x2), (y0, y1, y2) = _parts(x), _parts(y)
    carried = _over(x0 * y1 + x1 * y0 + _over(x0 * y0, 1 << 11), 1 << 11)
    middle = x0 * y2 + x1 * y1 + x2 * y0 + carried  # counts 2**22
    return x2 * y2 * (1 << 13) + (x1 * y2 + x2 * y1) * 4 + _over(middle + (1 << 8), 1 << 9)


def _parts(x: Number) -> tuple[Number, Number, Number]:
    upper = _over(x, 1 << 11)
    top = _over(upper, 1 << 11)
    return x - upper * (1 << 11), upper - top * (1 << 11), top


def _over(x: Number, divisor: int) -> Number:
    return floor_div(x, Number(x.t, x.t.constant(divisor, x.dtype)))


# Floats --------------------------------------------------------------------------------------------------------------


def rounded(x: Number) -> Number:
    """The nearest integers, halves away from zero."""
    size = call("Abs", x)
    whole = call("Floor", size)
    return call("Sign", x) * (whole + truth(size - whole >= 0.5, x))


THIRD = float(np.float32(1 / 3))


def power(x: Number, y: Number) -> Number:
    """A power. Of a constant exponent MegEngine makes a root, or takes the operand without its sign."""
    if not y.t.is_known(y.value) or y.t.sizes(y.value) != (1,):
        return call("Pow", x, y)
    exponent = y.t.literal(y.value)[0]
    if abs(exponent) == 0.5:
        root = call("Sqrt", x)
        return root if exponent > 0 else call("Reciprocal", root)
    if float(exponent).is_integer():
        return call("Pow", x, y)
    unsigned = call("Pow", call("Abs", x), y)
    return where(x < 0, -unsigned, unsigned) if abs(exponent) == THIRD else unsigned


def prelu(x: Number, slope: Number) -> Number:
    """The operand, times the slope where it is negative."""
    sizes, slopes = x.t.known_sizes(x.value), x.t.known_sizes(slope.value)
    fits = len(slopes) <= len(sizes) and all(
        size in (1, wanted) and size is not None for size, wanted in zip(slopes[::-1], sizes[::-1], strict=False)
    )
    if fits and is_float(x):
        return call("PRelu", x, slope)
    return where(x > 0, x, x * slope)


def clip(x: Number, low: Number, high: Number) -> Number:
    """The operand between two bounds; the lower one decides where they cross."""
    t = x.t
    if t.is_known(low.value) and t.is_known(high.value) and t.sizes(low.value) == t.sizes(high.value) == (1,):
        (least,), (most,) = t.literal(low.value), t.literal(high.value)
        if least <= most:
            return call("Clip", x, least, most)
    return where(x <= low, low, call("Min", x, high))


def atan2(y: Number, x: Number) -> Number:
    """The angle of a point."""
    if x.t.is_known(x.value) and np.all(np.array(x.t.literal(x.value)) > 0):
        return call("Atan", y / x)
    ratio = where(call("Equal", y, 0), y, y / x)
    half_turn = where(_is_negative(y), Number(y.t, y.t.constant(-math.pi, y.dtype)), math.pi)
    return call("Atan", ratio) + where(_is_negative(x), half_turn, 0)


def _is_negative(x: Number) -> Number:
    """Whether a float has the sign -, which 0 can have too."""
    return call("Or", x < 0, call("Reciprocal", x) < 0)


def erfc(x: Number) -> Number:
    """Not 1 - erf(x), which has no digits left where the result is small."""
    near = 1 / (call("Abs", x) / 2 + 1)
    tail = near * call("Exp", _polynomial(near, ERFC) - x * x)
    return where(x < 0, 2 - tail, tail)


def erfinv(x: Number) -> Number:
    """The number whose erf is the operand."""
    return _inverse(x, (1 - x) * (1 + x))


def erfcinv(x: Number) -> Number:
    """The number whose erfc is the operand."""
    return _inverse(1 - x, x * (2 - x))


def _inverse(p: Number, rest: Number) -> Number:
    """The inverse of erf at p, where the rest is 1 - p * p with all its digits."""
    distance = -call("Log", rest)
    inner = _polynomial(distance - 3, ERFINV_CENTRE)
    root = call("Sqrt", distance)
    outer = root * _polynomial(1 / root - 0.25, ERFINV_TAIL)
    # At 1 and -1 the logarithm is infinite, and so is the result.
    outer = where(call("IsInf", distance), distance, outer)
    return p * where(distance < 6, inner, outer)


def _polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    total = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total = (total + coefficient) * x
    return total + coefficients[-1]


# Gradients: of the function at x, times y ----------------------------------------------------------------------------


def fast_tanh_grad(x: Number, y: Number) -> Number:
    """The gradient of x * (27 + x * x) / (27 + 9 * x * x)."""
    square = x * x
    divisor = square + 3
    return (square * -48 / divisor + 27 + square) / (divisor * 9) * y


def silu_grad(x: Number, y: Number) -> Number:
    """The gradient of x * sigmoid(x)."""
    sigmoid = call("Sigmoid", x)
    return y * sigmoid * (1 + x * (1 - sigmoid))


def gelu_grad(x: Number, y: Number) -> Number:
    """The gradient of x times the normal distribution up to x."""
    density = call("Exp", x * x * -0.5) / math.sqrt(2 * math.pi)
    return y * ((call("Erf", x / math.sqrt(2)) + 1) / 2 + x * density)


GRADIENTS: dict[str, Mode] = {
    "ABS_GRAD": lambda x, y: where(x > 0, y, -y),
    "ACOSH_GRAD": lambda x, y: y / call("Sqrt", x * x - 1),
    "ASINH_GRAD": lambda x, y: y / call("Sqrt", x * x + 1),
    "ATANH_GRAD": lambda x, y: y / (1 - x * x),
    "FAST_TANH_GRAD": fast_tanh_grad,
    "GELU_GRAD": gelu_grad,
    "HSIGMOID_GRAD": lambda x, y: where(call("Abs", x) < 3, y / 6, 0),
    "H_SWISH_GRAD": lambda x, y: where(x < -3, 0, where(x > 3, y, (x * 2 + 3) / 6 * y)),
    "RELU6_GRAD": lambda x, y: where(call("And", x > 0, x < 6), y, 0),
    "SIGMOID_GRAD": lambda x, y: x * (1 - x) * y,
    "SILU_GRAD": silu_grad,
    "SOFTPLUS_GRAD": lambda x, y: y * call("Sigmoid", x),
    "TANH_GRAD": lambda x, y: (1 - x * x) * y,
}

"""Bessel functions of the orders 0 and 1, by Chebyshev series near 0 and far from it."""

import math
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.bessel_table import SERIES
from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

BORDER = 8.0  # of the near series of I, J and Y
BORDER_K = 2.0


def _series(m: Formula, name: str, x: ir.Value, high: float) -> ir.Value:
    """The sum of a Chebyshev series for numbers from 0 to `high`, by Clenshaw's method."""
    first, *middle, last = SERIES[name]
    twice = m("Sub", m("Mul", x, 4 / high), 2)
    total, before = m("Add", m("Mul", twice, last), middle[-1]), m("Add", m("Mul", twice, 0), last)
    for coefficient in middle[-2::-1]:
        total, before = m("Add", m("Sub", m("Mul", twice, total), before), coefficient), total
    return m("Add", m("Sub", m("Mul", m("Mul", twice, total), 0.5), before), first)


def _scaled_i(m: Formula, order: int, x: ir.Value) -> ir.Value:
    """The modified function of the first kind, times exp(-|x|)."""
    size = m("Abs", x)
    near = _series(m, f"i{order}_near", m("Min", size, BORDER), BORDER)
    beyond = m("Max", size, BORDER)
    far = m("Div", _series(m, f"i{order}_far", m("Div", BORDER, beyond), 1), m("Sqrt", beyond))
    if order == 0:
        return m.where(m("Less", size, BORDER), near, far)
    return m.where(m("Less", size, BORDER), m("Mul", x, near), m("Mul", m("Sign", x), far))


def _i(m: Formula, order: int, x: ir.Value) -> ir.Value:
    # In two steps: the exponential alone leaves the range before the function does.
    root = m("Exp", m("Mul", m("Abs", x), 0.5))
    return m("Mul", root, m("Mul", root, _scaled_i(m, order, x)))


def _k(m: Formula, order: int, x: ir.Value, scaled: bool) -> ir.Value:
    """The modified function of the second kind, times exp(x) where asked for."""
    small = m("Min", x, BORDER_K)
    near = _series(m, f"k{order}_near", m("Mul", small, small), BORDER_K**2)
    logarithm = m("Mul", m("Log", m("Mul", small, 0.5)), _i(m, order, small))
    near = m("Sub", near, logarithm) if order == 0 else m("Add", m("Div", near, small), logarithm)
    beyond = m("Max", x, BORDER_K)
    far = m("Div", _series(m, f"k{order}_far", m("Div", BORDER_K, beyond), 1), m("Sqrt", beyond))
    if scaled:
        near = m("Mul", near, m("Exp", small))
    else:
        far = m("Mul", far, m("Exp", m("Neg", beyond)))
    return _positive(m, x, m.where(m("Less", x, BORDER_K), near, far), math.inf)


def _positive(m: Formula, x: ir.Value, value: ir.Value, at_zero: float) -> ir.Value:
    """A value that exists for positive arguments alone."""
    value = m.where(m("Equal", x, 0), at_zero, value)
    return m.where(m("Less", x, 0), math.nan, value)


def _waves(m: Formula, order: int, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """J and Y, far from 0."""
    beyond = m("Max", size, BORDER)
    ratio = m("Div", BORDER, beyond)
    even = _series(m, f"p{order}_far", m("Mul", ratio, ratio), 1)
    odd = m("Mul", ratio, _series(m, f"q{order}_far", m("Mul", ratio, ratio), 1))
    # Cosine and sine of x less an eighth of a turn, or three, times the root of 2: no digits are lost in a difference.
    sine, cosine = m("Sin", beyond), m("Cos", beyond)
    plus, minus = m("Add", sine, cosine), m("Sub", sine, cosine)
    turned_cosine, turned_sine = (plus, minus) if order == 0 else (minus, m("Neg", plus))
    scale = m("Reciprocal", m("Sqrt", m("Mul", beyond, math.pi)))
    first = m("Sub", m("Mul", even, turned_cosine), m("Mul", odd, turned_sine))
    second = m("Add", m("Mul", even, turned_sine), m("Mul", odd, turned_cosine))
    return m("Mul", scale, first), m("Mul", scale, second)


def _near_j(m: Formula, order: int, x: ir.Value) -> ir.Value:
    """The function of the first kind, where the argument is at most `BORDER`."""
    near = _series(m, f"j{order}_near", m("Mul", x, x), BORDER**2)
    return near if order == 0 else m("Mul", x, near)


def _j(m: Formula, order: int, x: ir.Value) -> ir.Value:
    size = m("Abs", x)
    near, far = _near_j(m, order, m("Min", size, BORDER)), _waves(m, order, size)[0]
    value = m.where(m("Less", size, BORDER), near, far)
    return value if order == 0 else m.where(m("Less", x, 0), m("Neg", value), value)


def _y(m: Formula, order: int, x: ir.Value) -> ir.Value:
    """The function of the second kind."""
    small = m("Min", x, BORDER)
    near = _series(m, f"y{order}_near", m("Mul", small, small), BORDER**2)
    logarithm = m("Mul", m("Log", small), _near_j(m, order, small))
    if order == 1:
        near, logarithm = m("Mul", near, small), m("Sub", logarithm, m("Reciprocal", small))
    near = m("Add", near, m("Mul", logarithm, 2 / math.pi))
    value = m.where(m("Less", x, BORDER), near, _waves(m, order, m("Abs", x))[1])
    return _positive(m, x, value, -math.inf)


def _plain_k(m: Formula, order: int, x: ir.Value) -> ir.Value:
    return _k(m, order, x, False)


def _scaled_k(m: Formula, order: int, x: ir.Value) -> ir.Value:
    return _k(m, order, x, True)


KINDS = {"I": _i, "J": _j, "Y": _y, "Ie": _scaled_i, "K": _plain_k, "Ke": _scaled_k}


def _converter(kind: str, order: int) -> Any:
    def convert(t: MindirTape, x: Any) -> Any:
        m = Formula(t)
        return m.result(KINDS[kind](m, order, *m.operands(x)))

    return convert


for _kind in KINDS:
    for _order in (0, 1):
        op(f"Bessel{_kind[0]}{_order}{_kind[1:]}")(_converter(_kind, _order))

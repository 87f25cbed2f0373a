"""The gamma function and its relatives."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import any_true, repeated, spread
from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

# Asymptotic series hold from here on; smaller arguments are raised by whole steps.
FAR = 9
BERNOULLI = tuple(
    Fraction(*pair)
    for pair in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798))
)
MOST_TERMS = 2000
MOST_DIMENSIONS = 64


def _raised(m: Formula, x: ir.Value) -> tuple[ir.Value, ir.Value, list[ir.Value]]:
    """Whether an argument is small; the argument, raised where it is; and the steps on the way there."""
    near = m("Less", x, FAR)
    steps = [x, *(m("Add", x, step) for step in range(1, FAR))]
    return near, m.where(near, m("Add", x, FAR), x), steps


def _off_pole(m: Formula, x: ir.Value) -> ir.Value:
    """Pi times the distance to the nearest whole number, with its sign."""
    return m("Mul", m("Sub", x, m("Round", x)), math.pi)


def _stirling(m: Formula, z: ir.Value) -> ir.Value:
    """What Stirling's formula lacks to the logarithm of the gamma function of a large number."""
    inverse = m("Reciprocal", z)
    terms = [float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(BERNOULLI, 1)]
    return m("Mul", inverse, m.polynomial(m("Mul", inverse, inverse), terms[::-1]))


def _log_gamma(m: Formula, x: ir.Value) -> ir.Value:
    """The logarithm of the gamma function's absolute value."""
    negative = m("Less", x, 0)
    near, z, steps = _raised(m, m.where(negative, m("Sub", 1, x), x))
    product = m.where(near, reduce(lambda a, b: m("Mul", a, b), steps), 1)
    main = m("Sub", m("Mul", m("Sub", z, 0.5), m("Sub", m("Log", z), 1)), 0.5 - 0.5 * math.log(2 * math.pi))
    value = m("Add", m("Sub", main, m("Log", product)), _stirling(m, z))
    mirrored = m("Sub", m("Log", m("Div", math.pi, m("Abs", m("Sin", _off_pole(m, x))))), value)
    return m.where(m("IsInf", x), math.inf, m.where(negative, mirrored, value))


def _digamma(m: Formula, x: ir.Value) -> ir.Value:
    """The derivative of the logarithm of the gamma function."""
    negative = m("Less", x, 0)
    near, z, steps = _raised(m, m.where(negative, m("Sub", 1, x), x))
    inverse = m("Reciprocal", z)
    square = m("Mul", inverse, inverse)
    terms = [float(b / (2 * k)) for k, b in enumerate(BERNOULLI, 1)]
    series = m("Add", m("Mul", square, m.polynomial(square, terms[::-1])), m("Mul", inverse, 0.5))
    passed = m.where(near, reduce(lambda a, b: m("Add", a, b), [m("Reciprocal", step) for step in steps]), 0)
    value = m("Sub", m("Sub", m("Log", z), series), passed)
    angle = _off_pole(m, x)
    mirrored = m("Sub", value, m("Div", m("Mul", m("Cos", angle), math.pi), m("Sin", angle)))
    mirrored = m.where(m("Equal", angle, 0), math.nan, mirrored)
    return m.where(negative, mirrored, value)


def _zeta(m: Formula, s: ir.Value, q: ir.Value) -> ir.Value:
    """The sum of (q + k) to the power -s over all whole k from 0 on, by Euler and Maclaurin's formula."""
    t = m.t
    q, total = _made_positive(m, s, q)
    steps = m("Add", t.op("Unsqueeze", [q, t.ints(-1)]), t.constant(range(FAR), q.dtype))
    powers = m("Pow", steps, t.op("Unsqueeze", [m("Neg", s), t.ints(-1)]))
    total = m("Add", total, t.op("ReduceSum", [powers, t.ints(-1)], keepdims=0))
    w = m("Add", q, FAR)
    power = m("Pow", w, m("Neg", s))
    total = m("Add", total, m("Mul", power, m("Add", m("Div", w, m("Sub", s, 1)), 0.5)))
    total = m("Add", total, _zeta_rest(m, s, w))
    total = m.where(m("Equal", s, 1), math.inf, total)
    return m.where(m("Less", s, 1), math.nan, total)


def _zeta_rest(m: Formula, s: ir.Value, w: ir.Value) -> ir.Value:
    """The terms of Euler and Maclaurin's formula that have Bernoulli numbers, by their logarithms."""
    t = m.t
    s, w = (t.op("Unsqueeze", [value, t.ints(-1)], dtype=value.dtype) for value in (s, w))
    steps = t.constant(range(1, 2 * len(BERNOULLI) - 1, 2), s.dtype)
    log_w = m("Log", w)
    growth = m("Log", m("Mul", m("Add", s, steps), m("Add", m("Add", s, steps), 1)))
    growth = m("Sub", growth, m("Mul", log_w, 2))
    first = m("Sub", m("Log", s), m("Mul", m("Add", s, 1), log_w))
    grown = t.op("CumSum", [t.op("Concat", [first, growth], axis=-1), t.constant(-1, ir.DataType.INT64)], dtype=s.dtype)
    factors = [float(number_ / math.factorial(2 * k)) for k, number_ in enumerate(BERNOULLI, 1)]
    terms = m("Mul", m("Exp", grown), t.constant(factors, s.dtype))
    total: ir.Value = t.op("ReduceSum", [terms, t.ints(-1)], keepdims=0, dtype=s.dtype)
    return total


def _made_positive(m: Formula, s: ir.Value, q: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A second argument that is positive, and the sum's terms before it; infinite at poles, no number elsewhere."""
    t = m.t
    pole = m("And", m("LessOrEqual", q, 0), m("Equal", q, m("Floor", q)))
    start = m.where(m("Or", pole, m("Less", q, -float(2**23))), 1, q)  # floats beyond have no fraction
    zeros, start = spread(t, m("Mul", s, 0), start)
    odd = m("Equal", m("Sub", s, m("Mul", m("Floor", m("Mul", s, 0.5)), 2)), 1)

    def step(place: ir.Value, total: ir.Value) -> tuple[ir.Value, Sequence[ir.Value]]:
        below = m("Less", place, 0)
        size = m("Pow", m("Abs", place), m("Neg", s))
        added = m.where(odd, m("Neg", size), size)
        following = m.where(below, m("Add", place, 1), place)
        return any_true(t, m("Less", following, 0)), [following, m("Add", total, m.where(below, added, 0))]

    place, total = repeated(t, [start, zeros], step, 2**23)
    undefined = m("And", m("Less", q, 0), m("Not", m("Equal", s, m("Floor", s))))
    return place, m.where(undefined, math.nan, m.where(pole, math.inf, total))


@op("Lgamma")
def lgamma(t: MindirTape, x: Any) -> Any:
    m = Formula(t)
    return m.result(_log_gamma(m, *m.operands(x)))


@op("Digamma")
def digamma(t: MindirTape, x: Any) -> Any:
    m = Formula(t)
    return m.result(_digamma(m, *m.operands(x)))


@op("Mvlgamma")
def mvlgamma(t: MindirTape, x: Any, *, p: Any) -> Any:
    """The logarithm of the gamma function of several dimensions."""
    m, count = Formula(t), t.literal(p)
    if not 0 < count <= MOST_DIMENSIONS:
        t.refuse(f"{count} dimensions; 1 to {MOST_DIMENSIONS} are supported")
    (value,) = m.operands(x)
    total = m.operands(count * (count - 1) / 4 * math.log(math.pi))[0]
    for dimension in range(count):
        total = m("Add", total, _log_gamma(m, m("Sub", value, dimension / 2)))
    return m.result(total)


@op("Zeta")
def zeta(t: MindirTape, x: Any, q: Any) -> Any:
    m = Formula(t)
    return m.result(_zeta(m, *m.operands(x, q)))


@op("Polygamma")
def polygamma(t: MindirTape, a: Any, x: Any) -> Any:
    """A derivative of digamma."""
    m, order = Formula(t), t.literal(a)
    (value,) = m.operands(x)
    if order == 0:
        return m.result(_digamma(m, value))
    if not 0 < order <= 20:
        t.refuse(f"derivative {order} of digamma; 0 to 20 are supported")
    factor = (-1) ** (order + 1) * float(math.factorial(order))
    return m.result(m("Mul", _zeta(m, m.operands(order + 1)[0], value), factor))


# Incomplete integrals ------------------------------------------------------------------------------------------------


def _log_weight(m: Formula, a: ir.Value, x: ir.Value) -> ir.Value:
    """The logarithm of x to the power a, times exp(-x), over the gamma function of a + 1."""
    plain = m("Sub", m("Sub", m("Mul", a, m("Log", x)), x), _log_gamma(m, m("Add", a, 1)))
    # For large numbers the terms above would cancel; these are small where the result is not.
    ratio = m("Div", x, a)
    distance = m("Sub", m("Sub", ratio, 1), m("Log", ratio))
    scale = m("Mul", m("Log", m("Mul", a, 2 * math.pi)), 0.5)
    large = m("Neg", m("Add", m("Add", m("Mul", a, distance), scale), _stirling(m, a)))
    return m.where(m("Less", a, FAR), plain, large)


def _matters(m: Formula, change: ir.Value, whole: ir.Value) -> ir.Value:
    """Where a change is more than rounding."""
    precision = 1e-15 if whole.dtype == ir.DataType.DOUBLE else 2e-7
    return m("Greater", m("Abs", change), m("Mul", m("Abs", whole), precision))


def _lower_series(m: Formula, a: ir.Value, x: ir.Value) -> ir.Value:
    """The sum of 1, x / (a + 1), x * x / ((a + 1) * (a + 2)) and so on."""

    def step(place: ir.Value, term: ir.Value, total: ir.Value) -> tuple[ir.Value, Sequence[ir.Value]]:
        place = m("Add", place, 1)
        term = m("Div", m("Mul", term, x), place)
        total = m("Add", total, term)
        return any_true(m.t, _matters(m, term, total)), [place, term, total]

    ones = m("Add", m("Mul", x, 0), 1)
    total: ir.Value = repeated(m.t, [a, ones, ones], step, MOST_TERMS)[2]
    return total


def _upper_fraction(m: Formula, a: ir.Value, x: ir.Value) -> ir.Value:
    """1 / (x + 1 - a - (1 - a) / (x + 3 - a - 2 * (2 - a) / (x + 5 - a - …))), by Lentz's method."""
    first = m("Sub", m("Add", x, 1), a)
    inverse = m("Reciprocal", first)

    def step(
        count: ir.Value, below: ir.Value, ratio: ir.Value, other: ir.Value, whole: ir.Value
    ) -> tuple[ir.Value, Sequence[ir.Value]]:
        count, below = m("Add", count, 1), m("Add", below, 2)
        above = m("Mul", count, m("Sub", a, count))
        ratio = m("Reciprocal", m("Add", m("Mul", above, ratio), below))
        other = m("Add", below, m("Div", above, other))
        change = m("Mul", ratio, other)
        grows = _matters(m, m("Sub", change, 1), change)
        whole = m.where(grows, m("Mul", whole, change), whole)
        return any_true(m.t, grows), [count, below, ratio, other, whole]

    zeros, huge = m("Mul", x, 0), m("Add", m("Mul", x, 0), 1e30)
    whole: ir.Value = repeated(m.t, [zeros, first, inverse, huge, inverse], step, MOST_TERMS)[4]
    return whole


def _incomplete_gamma(t: MindirTape, a: Any, x: Any, upper: bool) -> ir.Value:
    m = Formula(t)
    order, limit = spread(t, *m.operands(a, x))
    defined = m("And", m("Greater", order, 0), m("GreaterOrEqual", limit, 0))
    far = m("And", m("Greater", limit, 1), m("Greater", limit, order))
    safe = m.where(defined, order, 1)
    weight = m("Exp", _log_weight(m, safe, m.where(defined, limit, 1)))
    series = _lower_series(m, safe, m.where(m("Or", far, m("Not", defined)), 0, limit))
    fraction = _upper_fraction(m, safe, m.where(m("And", far, m("Not", m("IsInf", limit))), limit, m("Add", safe, 2)))
    low, high = m("Mul", weight, series), m("Mul", m("Mul", weight, safe), fraction)
    high = m.where(m("IsInf", limit), 0, high)
    value = m.where(far, high, m("Sub", 1, low)) if upper else m.where(far, m("Sub", 1, high), low)
    return m.result(m.where(defined, value, math.nan))


@op("Igamma")
def igamma(t: MindirTape, a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function."""
    return _incomplete_gamma(t, a, x, False)


@op("Igammac")
def igammac(t: MindirTape, a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function."""
    return _incomplete_gamma(t, a, x, True)


def _beta_fraction(m: Formula, a: ir.Value, b: ir.Value, x: ir.Value) -> ir.Value:
    """The continued fraction of the incomplete beta function, two of its terms in a step, by Lentz's method."""
    total = m("Add", a, b)
    first = m("Reciprocal", m("Sub", 1, m("Div", m("Mul", total, x), m("Add", a, 1))))

    def term(above: ir.Value, ratio: ir.Value, other: ir.Value) -> tuple[ir.Value, ir.Value]:
        ratio = m("Reciprocal", m("Add", m("Mul", above, ratio), 1))
        return ratio, m("Add", 1, m("Div", above, other))

    def step(count: ir.Value, ratio: ir.Value, other: ir.Value, whole: ir.Value) -> tuple[ir.Value, Sequence[ir.Value]]:
        count = m("Add", count, 1)
        place = m("Add", a, m("Mul", count, 2))
        even = m("Div", m("Mul", count, m("Sub", b, count)), m("Mul", m("Sub", place, 1), place))
        ratio, other = term(m("Mul", even, x), ratio, other)
        first_change = m("Mul", ratio, other)
        odd = m("Div", m("Mul", m("Add", a, count), m("Add", total, count)), m("Mul", place, m("Add", place, 1)))
        ratio, other = term(m("Mul", m("Neg", odd), x), ratio, other)
        change = m("Mul", first_change, m("Mul", ratio, other))
        grows = _matters(m, m("Sub", change, 1), change)
        return any_true(m.t, grows), [count, ratio, other, m.where(grows, m("Mul", whole, change), whole)]

    zeros = m("Mul", x, 0)
    whole: ir.Value = repeated(m.t, [zeros, first, m("Add", zeros, 1), first], step, MOST_TERMS)[3]
    return whole


@op("Betainc")
def betainc(t: MindirTape, a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function."""
    m = Formula(t)
    p, q, limit = spread(t, *m.operands(a, b, x))
    far = m("Greater", limit, m("Div", m("Add", p, 1), m("Add", m("Add", p, q), 2)))
    # Beyond the mean, what is left to 1 is computed.
    first, second = m.where(far, q, p), m.where(far, p, q)
    part = m.where(far, m("Sub", 1, limit), limit)
    powers = m("Add", m("Mul", first, m("Log", part)), m("Mul", second, m("Log", m("Sub", 1, part))))
    scale = m("Sub", _log_gamma(m, m("Add", p, q)), m("Add", _log_gamma(m, p), _log_gamma(m, q)))
    weight = m("Div", m("Exp", m("Add", powers, scale)), first)
    value = m("Mul", weight, _beta_fraction(m, first, second, part))
    value = m.where(m("LessOrEqual", part, 0), 0, value)
    value = m.where(far, m("Sub", 1, value), value)
    within = m("And", m("GreaterOrEqual", limit, 0), m("LessOrEqual", limit, 1))
    within = m("And", within, m("And", m("Greater", p, 0), m("Greater", q, 0)))
    return m.result(m.where(within, value, math.nan))

"""Functions of the digits of numbers: common divisors, counts of bits, neighbouring floats."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import any_true, narrowed, repeated, spread, widened
from litehouse.formats.mindir.ops.unary import number
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
LONGEST_EUCLID = 92  # Fibonacci number 92 is the last in int64, and neighbours there take the most divisions


def _common_divisor(t: MindirTape, a: ir.Value, b: ir.Value) -> ir.Value:
    """The greatest common divisor, by Euclid's divisions; 0 for two zeros."""
    zero, one = number(t, 0), number(t, 1)
    states = spread(t, *(t.op("Abs", [value], dtype=a.dtype) for value in (a, b)))

    def step(large: ir.Value, small: ir.Value) -> tuple[ir.Value, Sequence[ir.Value]]:
        done = t.op("Equal", [small, zero])
        rest = t.op("Mod", [large, t.op("Where", [done, one, small])])
        following = [t.op("Where", [done, large, small]), t.op("Where", [done, zero, rest])]
        return any_true(t, t.op("Greater", [following[1], zero])), following

    divisor: ir.Value = repeated(t, states, step, LONGEST_EUCLID)[0]
    return divisor


@op("Gcd")
def gcd(t: MindirTape, input: Any, other: Any) -> Any:
    return narrowed(t, _common_divisor(t, *widened(t, input, other)))


@op("Lcm")
def lcm(t: MindirTape, x1: Any, x2: Any) -> Any:
    a, b = widened(t, x1, x2)
    divisor = _common_divisor(t, a, b)
    divisor = t.op("Where", [t.op("Equal", [divisor, number(t, 0)]), number(t, 1), divisor])
    return narrowed(t, t.op("Abs", [t.op("Mul", [t.op("Div", [a, divisor]), b])]))


@op("PopulationCount")
def population_count(t: MindirTape, x: ir.Value) -> Any:
    """How many bits are 1."""
    width, dtype = t.dtype(x).bitwidth, t.dtype(x)
    powers = np.left_shift(np.uint64(1), np.arange(width, dtype=np.uint64)).astype(f"u{width // 8}")
    masks = t.constant(powers.astype(dtype.numpy()), dtype)
    found = t.op("Equal", [t.op("BitwiseAnd", [t.op("Unsqueeze", [x, t.ints(-1)]), masks]), t.constant(0, dtype)])
    count = t.op("ReduceSum", [t.op("Cast", [t.op("Not", [found])], to=int(INT64)), t.ints(-1)], keepdims=0)
    return t.op("Cast", [count], to=int(t.result_dtype()))


@op("NextAfter")
def next_after(t: MindirTape, input: Any, other: Any) -> Any:
    """The neighbouring float in the direction of another number."""
    x, towards = widened(t, input, other)
    kind = np.finfo(t.dtype(x).numpy())
    zero, scale = number(t, 0), number(t, 2.0**64)
    size, up = t.op("Abs", [x]), t.op("Greater", [towards, x])
    # Small numbers are scaled, so that half of their distance is a normal number too.
    small = t.op("Less", [size, number(t, 1)])
    factor = t.op("Where", [small, scale, number(t, 1)])
    scaled = t.op("Mul", [x, factor])
    # A little more than half the distance to the next float; the sum is rounded to just that one.
    half = t.op("Mul", [t.op("Abs", [scaled]), number(t, kind.epsneg * (1 + 2 * kind.epsneg))])
    moved = t.op("Add", [scaled, t.op("Where", [up, half, t.op("Neg", [half])])])
    moved = t.op("Div", [moved, factor])
    tiny = t.op("Where", [up, number(t, kind.smallest_subnormal), number(t, -kind.smallest_subnormal)])
    moved = t.op("Where", [t.op("Less", [size, number(t, 2 * kind.tiny)]), t.op("Add", [x, tiny]), moved])
    largest = t.op("Where", [t.op("Greater", [x, zero]), number(t, kind.max), number(t, kind.min)])
    moved = t.op("Where", [t.op("IsInf", [x]), largest, moved])
    moved = t.op("Where", [t.op("Equal", [x, towards]), towards, moved])
    return narrowed(t, t.op("Where", [t.op("IsNaN", [towards]), towards, moved]))

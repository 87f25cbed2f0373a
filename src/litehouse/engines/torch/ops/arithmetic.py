"""Arithmetic, element by element, and running sums."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    """Register a torch function of one tensor that is an op by itself."""

    @op(name)
    def apply(x: Tensor) -> Tensor:
        return function(x)


_unary("Neg", torch.neg)
_unary("Abs", torch.abs)
_unary("Sqrt", torch.sqrt)
_unary("Exp", torch.exp)
_unary("Log", torch.log)
_unary("Reciprocal", torch.reciprocal)
_unary("Floor", torch.floor)
_unary("Ceil", torch.ceil)
_unary("Round", torch.round)  # halves to even, as ONNX has it
_unary("Sin", torch.sin)
_unary("Cos", torch.cos)
_unary("Tan", torch.tan)
_unary("Asin", torch.asin)
_unary("Acos", torch.acos)
_unary("Atan", torch.atan)
_unary("Sinh", torch.sinh)
_unary("Cosh", torch.cosh)
_unary("Asinh", torch.asinh)
_unary("Acosh", torch.acosh)
_unary("Atanh", torch.atanh)
_unary("IsNaN", torch.isnan)
_unary("BitwiseNot", torch.bitwise_not)


@op("Erf")
def erf(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        raise LackingError("Erf of integers")
    return torch.erf(x)


@op("Sign")
def sign(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x, x.sign()) if x.is_floating_point() else x.sign()


@op("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return torch.isinf(x)
    if detect_negative:
        return torch.isneginf(x)
    return torch.isposinf(x) if detect_positive else torch.zeros_like(x, dtype=torch.bool)


@op("Add")
def add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


@op("Sub")
def sub(a: Tensor, b: Tensor) -> Tensor:
    return a - b


@op("Mul")
def mul(a: Tensor, b: Tensor) -> Tensor:
    return a * b


@op("Div")
def div(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point() or a.is_complex():
        return a / b
    if a.device.type != "cpu" or a.dtype not in (torch.int32, torch.int64):
        return torch.div(a, b, rounding_mode="trunc")
    is_negated = b == -1  # the lowest number divided by -1 is none: a CPU ends the process there
    return torch.where(is_negated, -a, torch.div(a, b.masked_fill(is_negated, 1), rounding_mode="trunc"))


@op("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    if fmod:
        return torch.fmod(a, b)
    rest = torch.remainder(a, b)
    return torch.where(rest == 0, rest.copysign(b), rest) if a.is_floating_point() else rest


@op("Pow")
def pow_(a: Tensor, b: Tensor) -> Tensor:
    if not a.is_floating_point() and b.is_floating_point():
        return a.double().pow(b.double()).to(a.dtype)
    return a.pow(b).to(a.dtype)


@op("Min")
def minimum(*values: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, values)


@op("Max")
def maximum(*values: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, values)


@op("Sum")
def sum_(*values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values)


@op("Mean")
def mean(*values: Tensor) -> Tensor:
    return sum_(*values) / len(values)


@op("Clip")
def clip_to_numbers(
    x: Tensor,
    *,
    min: float | None = None,  # noqa: A002  (ONNX's own name)
    max: float | None = None,  # noqa: A002
) -> Tensor:
    limits = torch.finfo(x.dtype)
    low = limits.min if min is None or min < limits.min else min
    high = limits.max if max is None or max > limits.max else max
    return x.clamp(low, high)


@op("Clip", since=11)
def clip(
    x: Tensor,
    min: Tensor | None = None,  # noqa: A002
    max: Tensor | None = None,  # noqa: A002
) -> Tensor:
    low, high = (None if bound is None else bound.reshape(()) for bound in (min, max))
    if x.is_floating_point():  # without a bound, inf still becomes the largest number that there is
        limits = torch.finfo(x.dtype)
        low = x.new_full((), limits.min) if low is None else low
        high = x.new_full((), limits.max) if high is None else high
    return x if low is None and high is None else x.clamp(low, high)


@op("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    if x.dtype in SIGNED:  # torch shifts none of these
        kind = SIGNED[x.dtype]
        return _shifted(x.view(kind), y.view(kind), is_left=direction == "LEFT").view(x.dtype)
    return torch.bitwise_left_shift(x, y) if direction == "LEFT" else torch.bitwise_right_shift(x, y)


def _shifted(x: Tensor, y: Tensor, *, is_left: bool) -> Tensor:
    """A shift of numbers whose first bit is no sign, though their dtype says so."""
    bits = torch.iinfo(x.dtype).bits
    y = y.masked_fill((y < 0) | (y > bits), bits)
    if is_left:
        return torch.bitwise_left_shift(x, y)
    copies = torch.bitwise_left_shift(torch.full_like(y, -1), bits - y)  # of the sign, which came in from the left
    return torch.bitwise_right_shift(x, y) & ~copies


@op("BitwiseAnd")
def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    return a & b


@op("BitwiseOr")
def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    return a | b


@op("BitwiseXor")
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    return a ^ b


def _running(
    compute: Callable[..., Tensor], first: int, x: Tensor, axis: int, *, exclusive: int, reverse: int
) -> Tensor:
    """A running sum or product; an exclusive one begins with `first` and leaves out the last element."""
    dtype, x = x.dtype, wide(x.flip(axis) if reverse else x)
    if exclusive:
        start = torch.full_like(x.narrow(axis, 0, min(1, x.shape[axis])), first)
        x = torch.cat([start, x.narrow(axis, 0, max(0, x.shape[axis] - 1))], axis)
    found = compute(x, axis, dtype=x.dtype).to(dtype)
    return found.flip(axis) if reverse else found


@op("CumSum", known=["axis"])
def cum_sum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(torch.cumsum, 0, x, int(axis), exclusive=exclusive, reverse=reverse)


@op("CumProd", known=["axis"])
def cum_prod(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(torch.cumprod, 1, x, int(axis), exclusive=exclusive, reverse=reverse)

"""ONNX Runtime's own ops on numbers of 8 bits, place by place and along an axis.

Its kernels round after they have added the zero point, or before: that decides where halves go.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.scales import dequantised, less, quantised, rounded
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    scale = y_scale.reshape(())
    first, second = (a, a_scale, a_zero), (b, b_scale, b_zero)
    if _is_repeated(a, b):
        first, second = second, first
    total = _zero(y_zero, scale) - _multiplied(first[1] / scale, _zero(first[2], scale), _shift(second, scale))
    for value, own, _ in (second, first):
        total = _multiplied(own.reshape(()) / scale, value, total)
    return rounded(total, None, a.dtype)


def _shift(operand: tuple[Tensor, Tensor, Tensor | None], scale: Tensor) -> Tensor:
    return operand[1].reshape(()) / scale * _zero(operand[2], scale)


def _zero(zero: Tensor | None, like: Tensor) -> Tensor:
    """A zero point as a float; 0 where it is left out."""
    return torch.zeros_like(like) if zero is None else zero.reshape(()).float()


def _multiplied(x: Tensor, y: Tensor, more: Tensor) -> Tensor:
    """X * y + more, rounded once."""
    return (x.reshape(()).double() * y.double() + more.double()).float()


def _is_repeated(a: Tensor, b: Tensor) -> bool:
    """Whether one element of a meets several of b that lie side by side: the kernel adds the single one first.

    It takes a for the single one, too, where all axes that both have are of size 1.
    """
    for ours, theirs in zip(reversed(a.shape), reversed(b.shape), strict=False):
        if ours != 1 or theirs != 1:
            return bool(ours == 1)
    return b.ndim > 0 or a.ndim == 0 or bool(a.shape[-1] == 1)


@op("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    scale = a_scale.reshape(()) * b_scale.reshape(()) / y_scale.reshape(())
    found = (less(a, a_zero) * less(b, b_zero)).float() * scale
    return rounded(found if y_zero is None else found + y_zero.reshape(()), None, a.dtype)


def _applied(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None,
) -> Tensor:
    """A function of the floats that integers stand for, as integers."""
    return quantised(function(dequantised(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    return _applied(torch.sigmoid, x, x_scale, x_zero, y_scale, y_zero)


@op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 0.01,
) -> Tensor:
    return _applied(lambda value: functional.leaky_relu(value, alpha), x, x_scale, x_zero, y_scale, y_zero)


@op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,  # noqa: ARG001  (it changes nothing)
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Tensor:
    is_flat = opset < 13  # then all axes from the one on are one
    shape, x = x.shape, x.flatten(axis) if is_flat else x.movedim(axis, -1)
    below = x.int() - x.amax(-1, keepdim=True)
    parts = torch.exp(below.double() * x_scale.reshape(()).double()).float()
    steps = (1 / y_scale.reshape(())).floor()  # as the kernel has it
    found = (parts * steps / parts.double().sum(-1, keepdim=True).float()).round()
    found = rounded(found, None if y_zero is None else y_zero.reshape(()), x.dtype)
    return found.reshape(shape) if is_flat else found.movedim(-1, axis)


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(y_scale: Tensor, y_zero: Tensor, *given: Tensor, axis: int) -> Tensor:
    triples = zip(given[0::3], given[1::3], given[2::3], strict=True)
    return torch.cat([_requantised(*triple, y_scale, y_zero) for triple in triples], axis)


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    z_scale: Tensor,
    z_zero: Tensor,
) -> Tensor:
    chosen = [_requantised(*triple, z_scale, z_zero) for triple in ((x, x_scale, x_zero), (y, y_scale, y_zero))]
    return torch.where(condition, *chosen)


def _requantised(x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, y_zero: Tensor) -> Tensor:
    """Integers by another scale and zero point."""
    if x.dtype != y_zero.dtype or x_zero.dtype != y_zero.dtype:
        raise LackingError("quantised numbers of several dtypes")
    return quantised(dequantised(x, x_scale, x_zero), y_scale, y_zero, y_zero.dtype)

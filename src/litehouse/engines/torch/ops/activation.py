"""Activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor

SIXTH = 1 / 6


@op("Relu")
def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


@op("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.009999999776482582) -> Tensor:
    return F.leaky_relu(x, alpha)


@op("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    if x.is_floating_point() and x.ndim > 1 and (slope.numel() == 1 or _is_per_channel(slope, x)):
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


def _is_per_channel(slope: Tensor, x: Tensor) -> bool:
    sizes = [1] * (x.ndim - slope.ndim) + list(slope.shape)
    return sizes == [1, x.shape[1]] + [1] * (x.ndim - 2)


@op("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@op("Selu")
def selu(x: Tensor, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Tensor:
    found: Tensor = torch.ops.aten.elu(x, alpha, gamma)
    return found


@op("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@op("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@op("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.20000000298023224, beta: float = 0.5) -> Tensor:
    if abs(alpha - SIXTH) < 1e-8 and beta == 0.5:
        return F.hardsigmoid(x)
    return (x * alpha + beta).clamp(0, 1)


@op("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    return F.hardswish(x)


@op("Mish")
def mish(x: Tensor) -> Tensor:
    return F.mish(x)


@op("Sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


@op("Tanh")
def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


@op("Softplus")
def softplus(x: Tensor) -> Tensor:
    return F.softplus(x, threshold=40)  # from where on it is x, even in float64


@op("Softsign")
def softsign(x: Tensor) -> Tensor:
    return F.softsign(x)


@op("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    found = torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))
    return found.to(x.dtype)


@op("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.masked_fill(~(x > alpha), 0)  # NaN, too


@op("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@op("SwiGLU")
def swi_glu(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    return swish(a, alpha=alpha) * b


def _softmax(x: Tensor, axis: int) -> Tensor:
    return torch.softmax(x, axis)


def _log_softmax(x: Tensor, axis: int) -> Tensor:
    return torch.log_softmax(x, axis)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1) if x.numel() else x


def _along(name: str, compute: Callable[[Tensor, int], Tensor]) -> None:
    """Register a function along an axis; before version 13, it was over all axes from that one on."""

    @op(name)
    def over_the_rest(x: Tensor, *, axis: int = 1) -> Tensor:
        axis = axis % max(x.ndim, 1)
        if axis == x.ndim - 1:
            return compute(x, -1)
        flat = x.reshape(-1) if axis == 0 else x.flatten(axis)
        return compute(flat, -1).reshape(x.shape)

    @op(name, since=13)
    def along_one(x: Tensor, *, axis: int = -1) -> Tensor:
        return compute(x, axis)


_along("Softmax", _softmax)
_along("LogSoftmax", _log_softmax)
_along("Hardmax", _hardmax)

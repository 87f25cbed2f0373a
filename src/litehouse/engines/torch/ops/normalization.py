"""Normalisations."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of

EPSILON = 9.999999747378752e-06  # 1e-5 as ONNX has it, in 32 bits


@op("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = EPSILON,
    momentum: float = 0.9,  # noqa: ARG001
    spatial: int = 1,
    outputs: int = 1,
) -> Tensor:
    if outputs > 1 or not spatial:
        raise LackingError("BatchNormalization that trains, or is not spatial")
    return _batch_norm(x, scale, bias, mean, var, epsilon)


@op("BatchNormalization", since=14)
def batch_norm_by_mode(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = EPSILON,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, ...]:
    if not training_mode:
        return _batch_norm(x, scale, bias, mean, var, epsilon)
    axes = [place for place in range(x.ndim) if place != 1]
    now_var, now_mean = torch.var_mean(x.to(mean.dtype), axes, correction=0)
    running = [old * momentum + now * (1 - momentum) for old, now in ((mean, now_mean), (var, now_var))]
    return _batch_norm(x, scale, bias, now_mean, now_var, epsilon), *running


def _batch_norm(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float) -> Tensor:
    if x.ndim < 2:
        return _batch_norm(x.unsqueeze(-1), scale, bias, mean, var, epsilon).squeeze(-1)
    kinds = {value.dtype for value in (scale, bias, mean, var)}
    if kinds == {x.dtype} or (kinds == {torch.float32} and x.dtype in (torch.float16, torch.bfloat16)):
        return F.batch_norm(x, mean, var, scale, bias, eps=epsilon)
    kind = functools.reduce(torch.promote_types, kinds, x.dtype)
    scale, bias, mean, var = (value.to(kind) for value in (scale, bias, mean, var))
    return F.batch_norm(x.to(kind), mean, var, scale, bias, eps=epsilon).to(x.dtype)


@op("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    return torch.group_norm(x, x.shape[1], scale, bias, epsilon)


@op("GroupNormalization")
def group_norm_by_group(x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = EPSILON) -> Tensor:
    each = x.shape[1] // num_groups
    scale, bias = (value.unsqueeze(1).expand(-1, each).reshape(-1) for value in (scale, bias))
    return torch.group_norm(x, num_groups, scale, bias, epsilon)


@op("GroupNormalization", since=21)
def group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = EPSILON,
    stash_type: int = 1,  # noqa: ARG001  (torch computes in float32 or better)
) -> Tensor:
    return torch.group_norm(x, num_groups, scale, bias, epsilon)


def fits(value: Tensor | None, x: Tensor, sizes: Sequence[int]) -> bool:
    """Whether a scale or bias is what torch's own function takes, rather than one that must be broadcast."""
    return value is None or (list(value.shape) == list(sizes) and value.dtype == x.dtype)


@op("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = EPSILON,
    stash_type: int = 1,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    sizes = x.shape[axis:]
    if outputs == 1 and fits(scale, x, sizes) and fits(bias, x, sizes):
        return F.layer_norm(x, sizes, scale, bias, epsilon)
    stashed = x.to(_stash(x, stash_type))
    normal, mean, deviation = torch.native_layer_norm(stashed, sizes, None, None, epsilon)
    found = scaled(normal, scale, bias).to(x.dtype)
    kind = dtype_of(stash_type) or torch.float32
    return (found, mean.to(kind), deviation.to(kind))[: max(outputs, 1)]


def _stash(x: Tensor, stash_type: int) -> torch.dtype:
    """The dtype to compute in: the one that is asked for, or that of the numbers where it holds more."""
    return torch.promote_types(dtype_of(stash_type) or torch.float32, x.dtype)


def scaled(x: Tensor, scale: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """A tensor times a scale, plus a bias."""
    x = x if scale is None else x * scale
    return x if bias is None else x + bias


@op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(
    x: Tensor, scale: Tensor | None = None, *, axis: int = -1, epsilon: float = EPSILON, stash_type: int = 1
) -> Tensor:
    sizes = x.shape[axis:]
    if fits(scale, x, sizes):
        return F.rms_norm(x, sizes, scale, epsilon)
    stashed = x.to(_stash(x, stash_type))
    return scaled(F.rms_norm(stashed, sizes, None, epsilon).to(x.dtype), scale).to(x.dtype)


@op("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(wide(x), p, axis, keepdim=True)
    return (x / norm.masked_fill(norm == 0, 1)).to(x.dtype)


@op("MeanVarianceNormalization")
def mean_variance_norm(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    var, mean = torch.var_mean(wide(x), tuple(axes), correction=0, keepdim=True)
    return ((x - mean) / (var.sqrt() + 1e-9)).to(x.dtype)


@op("LRN")
def local_response_norm(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    before, behind = (size - 1) // 2, math.ceil((size - 1) / 2)
    if x.ndim < 3:
        raise LackingError("LRN of a tensor without places")
    squares = F.pad(wide(x).square().flatten(2).unsqueeze(1), (0, 0, before, behind))
    means = F.avg_pool2d(squares, (size, 1), 1).reshape(x.shape)
    return (x / (means * alpha + bias).pow(beta)).to(x.dtype)


@op("Dropout")
def dropout_by_attribute(x: Tensor, *, ratio: float = 0.5, outputs: int = 1) -> Tensor | tuple[Tensor, ...]:  # noqa: ARG001
    return x if outputs < 2 else (x, torch.zeros_like(x))  # a mask of nothing, as ONNX Runtime has it


@op("Dropout", since=10)
def dropout_with_bools(x: Tensor, *, ratio: float = 0.5, outputs: int = 1) -> Tensor | tuple[Tensor, ...]:  # noqa: ARG001
    return x if outputs < 2 else (x, torch.zeros_like(x, dtype=torch.bool))


@op("Dropout", since=12, known=["ratio", "training_mode"])
def dropout(
    x: Tensor,
    ratio: Tensor | None = None,
    training_mode: Tensor | None = None,
    *,
    seed: int = 0,  # noqa: ARG001
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    if training_mode is not None and bool(training_mode) and (ratio is None or float(ratio) > 0):
        raise LackingError("Dropout that trains")
    return x if outputs < 2 else (x, torch.ones_like(x, dtype=torch.bool))

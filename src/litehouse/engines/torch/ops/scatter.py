"""Elements put into places of a tensor."""

from __future__ import annotations

import math

import torch

from litehouse.engines.torch.ops.common import from_zero, wide
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("Scatter", "ScatterElements")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    return _scattered(x, axis, from_zero(indices, x.shape[axis]), updates, reduction)


@op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    if depth > x.ndim:
        raise IndexError(f"indices of {depth} numbers into {x.ndim} axes")
    sizes, rest = x.shape[:depth], math.prod(x.shape[depth:])
    places = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for at, size in enumerate(sizes):
        found = from_zero(indices[..., at], size)
        places = found if at == 0 else places * size + found
    rows = places.reshape(-1, 1).expand(-1, rest)
    flat = x.reshape(math.prod(sizes), rest)
    return _scattered(flat, 0, rows, updates.reshape(-1, rest), reduction).reshape(x.shape)


def _scattered(x: Tensor, axis: int, places: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return x.scatter(axis, places, updates)
    if reduction not in REDUCTIONS or x.dtype == torch.bool:
        raise LackingError(f"{reduction} of {x.dtype}")
    whole, parts = wide(x), wide(updates)
    if reduction == "add":
        return whole.scatter_add(axis, places, parts).to(x.dtype)
    return whole.scatter_reduce(axis, places, parts, REDUCTIONS[reduction]).to(x.dtype)


@op("TensorScatter")
def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    mode: str = "linear",
    axis: int = -2,
) -> Tensor:
    axis = axis + past_cache.ndim if axis < 0 else axis
    size, batch = past_cache.shape[axis], past_cache.shape[0]
    line = torch.arange(update.shape[axis], device=update.device).unsqueeze(0)
    places = line.expand(batch, -1) if write_indices is None else write_indices.long().unsqueeze(1) + line
    places = places.remainder(size) if mode == "circular" else from_zero(places, size, counts_back=False)
    shape = [batch if each == 0 else -1 if each == axis else 1 for each in range(update.ndim)]
    return past_cache.scatter(axis, places.reshape(shape).expand(update.shape), update)

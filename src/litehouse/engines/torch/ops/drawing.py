"""Numbers that are drawn. Those without an input, on whose device they would be drawn, are left to ONNX Runtime."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of


@op("RandomUniformLike")
def random_uniform_like(
    x: Tensor, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return torch.empty(x.shape, dtype=_kind(x, dtype, seed), device=x.device).uniform_(low, high)


@op("RandomNormalLike")
def random_normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return torch.empty(x.shape, dtype=_kind(x, dtype, seed), device=x.device).normal_(mean, scale)


@op("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    kind = _kind(x, dtype, seed)
    return (torch.rand(x.shape, device=x.device) < x).to(kind)  # torch's own function ends the process's GPU for NaN


def _kind(x: Tensor, dtype: int | None, seed: float | None) -> torch.dtype:
    """The dtype of what is drawn. A seed would need a generator that lives as long as the program."""
    kind = x.dtype if dtype is None else dtype_of(dtype)
    if seed is not None or kind is None:
        raise LackingError("a seed, or a dtype that torch does not have")
    return kind

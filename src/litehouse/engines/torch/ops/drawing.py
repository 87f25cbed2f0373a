"""Numbers that are drawn."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of

FLOAT, INT32 = 1, 6  # as ONNX counts types


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


@op("RandomUniform")
def random_uniform(
    *,
    dtype: int = FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    place: torch.device,
    seed: float | None = None,
    shape: list[int],
) -> Tensor:
    return torch.empty(shape, dtype=_kind(None, dtype, seed), device=place).uniform_(low, high)


@op("RandomNormal")
def random_normal(
    *,
    dtype: int = FLOAT,
    mean: float = 0.0,
    place: torch.device,
    scale: float = 1.0,
    seed: float | None = None,
    shape: list[int],
) -> Tensor:
    return torch.empty(shape, dtype=_kind(None, dtype, seed), device=place).normal_(mean, scale)


@op("Multinomial")
def multinomial(x: Tensor, *, dtype: int = INT32, sample_size: int = 1, seed: float | None = None) -> Tensor:
    kind = _kind(x, dtype, seed)
    sums = torch.softmax(x.double(), -1).cumsum(-1)  # not torch's own function, which waits for a look at the chances
    drawn = torch.rand(x.shape[0], sample_size, dtype=sums.dtype, device=x.device) * sums[:, -1:]
    return torch.searchsorted(sums, drawn, right=True).clamp(max=x.shape[1] - 1).to(kind)


@op("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    kind = _kind(x, dtype, seed)
    return (torch.rand(x.shape, device=x.device) < x).to(kind)  # torch's own function ends the process's GPU for NaN


def _kind(x: Tensor | None, dtype: int | None, seed: float | None) -> torch.dtype:
    """The dtype of what is drawn. A seed would need a generator that lives as long as the program."""
    kind = x.dtype if x is not None and dtype is None else dtype_of(dtype or FLOAT)
    if seed is not None or kind is None:
        raise LackingError("a seed, or a dtype that torch does not have")
    return kind

"""Sizes, and other views of the same elements."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor


@op("Identity")
def identity(x: Tensor) -> Tensor:
    return x


@op("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


@op("Size")
def size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@op("Reshape", known=["shape"])
def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    sizes = [x.shape[place] if size == 0 and not allowzero else size for place, size in enumerate(shape.tolist())]
    return x.reshape(sizes)


@op("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    return x.permute(perm if perm is not None else list(range(x.ndim))[::-1])

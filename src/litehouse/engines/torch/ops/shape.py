"""Sizes, and other views of the same elements."""

from __future__ import annotations

import math
from typing import Any

import torch

from litehouse.engines.torch.registry import MICROSOFT, op
from litehouse.engines.torch.values import Tensor


@op("Identity")
def identity(x: Any) -> Any:
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


@op("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Squeeze")
def squeeze_by_attribute(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    return _squeezed(x, axes or [])


@op("Squeeze", since=13, known=["axes"])
def squeeze(x: Tensor, axes: Tensor | None = None) -> Tensor:
    return _squeezed(x, [] if axes is None else axes.tolist())


def _squeezed(x: Tensor, axes: list[int]) -> Tensor:
    """Without these axes; without all of size 1 where none are named."""
    if not axes:
        return x.squeeze()
    long = [axis for axis in axes if x.shape[axis] != 1]
    if long:
        raise ValueError(f"axis {long[0]} of the shape {tuple(x.shape)} is not of size 1")
    return x.squeeze(tuple(axes))


@op("Unsqueeze")
def unsqueeze_by_attribute(x: Tensor, *, axes: list[int]) -> Tensor:
    return _unsqueezed(x, axes)


@op("Unsqueeze", since=13, known=["axes"])
def unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    return _unsqueezed(x, axes.reshape(-1).tolist())


def _unsqueezed(x: Tensor, axes: list[int]) -> Tensor:
    """With new axes; their numbers are those of the result."""
    rank = x.ndim + len(axes)
    places = sorted(axis + rank if axis < 0 else axis for axis in axes)
    if len(set(places)) < len(places):
        raise ValueError(f"the axes {axes} name one twice")
    for place in places:
        x = x.unsqueeze(place)
    return x


@op("Expand", known=["shape"])
def expand(x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape.tolist())))


@op("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    return x.permute(perm if perm is not None else list(range(x.ndim))[::-1])


@op("ExpandDims", domain=MICROSOFT, known=["axis"])
def expand_dims(x: Tensor, axis: Tensor) -> Tensor:
    return x.unsqueeze(int(axis))


@op("UnfoldTensor", domain=MICROSOFT)
def unfold(x: Tensor, *, dim: int = -1, size: int, step: int = 1) -> Tensor:
    return x.unfold(dim, size, step)

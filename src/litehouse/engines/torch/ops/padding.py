"""Padding."""

from __future__ import annotations

import torch
from torch.nn import functional

from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

NAMES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@op("Pad")
def pad_by_attributes(x: Tensor, *, pads: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return _padded(x, pads, mode, value)


@op("Pad", since=11, known=["pads", "constant_value", "axes"])
@op("Pad", domain=MICROSOFT, known=["pads", "constant_value", "axes"])
def pad(
    x: Tensor,
    pads: Tensor,
    constant_value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    sizes = pads.reshape(-1).tolist()
    if axes is not None:
        sizes = _of_all_axes(sizes, axes.tolist(), x.ndim)
    return _padded(x, sizes, mode, 0 if constant_value is None else constant_value.item())


def _of_all_axes(sizes: list[int], axes: list[int], rank: int) -> list[int]:
    whole = [0] * (2 * rank)
    for place, axis in enumerate(axes):
        axis = axis + rank if axis < 0 else axis
        whole[axis], whole[axis + rank] = sizes[place], sizes[place + len(axes)]
    return whole


def _padded(x: Tensor, sizes: list[int], mode: str, value: float) -> Tensor:
    pairs = list(zip(sizes[: x.ndim], sizes[x.ndim :], strict=True))
    if not any(sizes):
        return x
    if mode == "constant":
        flat = [size for pair in reversed(pairs) for size in pair]
        return torch.constant_pad_nd(x, flat, value)  # not `pad`, which makes a float of the value
    if mode not in NAMES:
        raise LackingError(f"the mode {mode}")
    for axis, (before, after) in enumerate(pairs):
        x = _cropped(x, axis, before, after)
    pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
    count = x.ndim - next((axis for axis, pair in enumerate(pairs) if any(pair)), x.ndim)
    if _is_native(x, pairs, count, mode):
        flat = [size for pair in reversed(pairs[-count:]) for size in pair]
        return functional.pad(x, flat, mode=NAMES[mode])
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            x = x.index_select(axis, _places(x, axis, before, after, mode))
    return x


def _cropped(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    first, behind = max(-before, 0), x.shape[axis] - max(-after, 0)
    return x.narrow(axis, first, max(behind - first, 0)) if before < 0 or after < 0 else x


def _is_native(x: Tensor, pairs: list[tuple[int, int]], count: int, mode: str) -> bool:
    """Whether one call of torch does it: for the last one to three axes, of numbers with a point."""
    if not x.is_floating_point() or not 1 <= count <= 3 or x.ndim not in (count + 1, count + 2) or not x.numel():
        return False
    most = [max(pair) for pair in pairs]
    return mode == "edge" or all(pad < size for pad, size in zip(most, x.shape, strict=True))


def _places(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    size = x.shape[axis]
    if size == 0:
        raise ValueError(f"axis {axis} has no elements to be padded with")
    line = torch.arange(-before, size + after, device=x.device)
    if mode == "edge":
        return line.clamp(0, size - 1)
    if mode == "wrap":
        return line.remainder(size)
    there = line.remainder(max(2 * (size - 1), 1))
    return torch.minimum(there, 2 * (size - 1) - there) if size > 1 else torch.zeros_like(line)

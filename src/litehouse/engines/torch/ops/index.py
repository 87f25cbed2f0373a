"""Elements by their places."""

from __future__ import annotations

import math

import torch

from litehouse.engines.torch.ops.common import from_zero, known_from_zero
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of

LARGEST = ((1 << 31) - 1, (1 << 63) - 1)


@op("Gather", seen=["indices"])
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    sizes = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if indices.numel() == 1 and indices.device.type == "cpu":  # known, and only a part of what is there
        return x.narrow(axis, known_from_zero(int(indices.item()), x.shape[axis]), 1).reshape(sizes)
    found = x.index_select(axis, from_zero(indices, x.shape[axis]).reshape(-1))
    return found if indices.ndim == 1 else found.reshape(sizes)


@op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return x.gather(axis, from_zero(indices, x.shape[axis]))


@op("GatherND")
@op("GatherND", domain=MICROSOFT)
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    if indices.ndim == 1 and not batch_dims:  # torch asks for the number of an index that is a single one
        one: Tensor = gather_nd(x, indices.unsqueeze(0))
        return one.squeeze(0)
    depth = indices.shape[-1]
    if batch_dims + depth > x.ndim:
        raise IndexError(f"indices of {depth} numbers behind {batch_dims} axes of {x.ndim}")
    places = [from_zero(indices[..., at], x.shape[batch_dims + at]) for at in range(depth)]
    rank = indices.ndim - 1
    for axis in range(batch_dims):
        line = torch.arange(x.shape[axis], device=x.device)
        places.insert(axis, line.reshape([-1 if other == axis else 1 for other in range(rank)]))
    return x[tuple(places)] if places else x.expand((*indices.shape[:-1], *x.shape))


@op("Slice")
def slice_by_attributes(x: Tensor, *, starts: list[int], ends: list[int], axes: list[int] | None = None) -> Tensor:
    return _sliced(x, starts, ends, axes, None)


@op("Slice", since=10, known=["starts", "ends", "axes", "steps"])
def slice_(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
    named, strides = (None if each is None else each.tolist() for each in (axes, steps))
    return _sliced(x, starts.tolist(), ends.tolist(), named, strides)


def _sliced(x: Tensor, starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> Tensor:
    axes = list(range(len(starts))) if axes is None else axes
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        if step == 0:
            raise ValueError("a step of a slice is 0")
        size, axis = x.shape[axis], axis + x.ndim if axis < 0 else axis
        start, end = start + size if start < 0 else start, end + size if end < 0 else end
        if step > 0:
            start, end = min(max(start, 0), size), min(max(end, 0), size)
            x = x[(*[slice(None)] * axis, slice(start, max(start, end), step))]
            continue
        end = -1 if end in LARGEST else end  # as ONNX Runtime has it: as far as it goes
        taken = range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)
        part = slice(taken[-1], taken[0] + 1, -step) if taken else slice(0, 0)
        x = x[(*[slice(None)] * axis, part)].flip(axis)
    return x


@op("Compress", known=["x", "condition"])
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = x.reshape(-1), 0
    places = condition.reshape(-1)[: x.shape[axis]].nonzero().reshape(-1)
    return x.index_select(axis, places)


@op("NonZero", known=["x"])
def non_zero(x: Tensor) -> Tensor:
    return (x.reshape(1) if x.ndim == 0 else x).nonzero().t()


@op("OneHot", known=["depth"])
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(depth.item())
    places = indices if indices.is_floating_point() else indices.long()
    places = torch.where(places < 0, places + count, places)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    line = torch.arange(count, device=indices.device)
    line = line.reshape([-1 if other == axis else 1 for other in range(indices.ndim + 1)])
    return torch.where(places.unsqueeze(axis) == line, values[1], values[0])


@op("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    if kind is None:
        raise LackingError(f"the dtype {dtype}")
    made = torch.zeros(x.shape, dtype=kind, device=x.device)
    if -x.shape[0] < k < x.shape[1]:
        made.diagonal(k).fill_(1)
    return made


@op("Trilu", known=["k"])
@op("Trilu", domain=MICROSOFT, known=["k"])
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    limit = math.prod(x.shape[-2:]) + 1  # torch takes no number of more than 32 bits for some kinds
    offset = 0 if k is None else min(max(int(k.item()), -limit), limit)
    return x.triu(offset) if upper else x.tril(offset)


@op("ReverseSequence")
def reverse_sequence(x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    ordered = x.movedim((batch_axis, time_axis), (0, 1))
    batch, time = ordered.shape[:2]
    line = torch.arange(time, device=x.device)
    lengths = sequence_lens.long().unsqueeze(1)
    places = from_zero(torch.where(line < lengths, lengths - 1 - line, line), time)
    found = ordered[torch.arange(batch, device=x.device).unsqueeze(1), places]
    return found.movedim((0, 1), (batch_axis, time_axis))

"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _reduction(name: str, since: int = 18) -> Callable[[Reduction], Reduction]:
    """Register a reduction over axes, which are an attribute before the version `since`, and an input from then on."""

    def register(compute: Reduction) -> Reduction:
        @op(name)
        def by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
            return _over(compute, x, axes or [], keepdims)

        @op(name, since=since, known=["axes"])
        def by_input(
            x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
        ) -> Tensor:
            chosen = [] if axes is None else axes.tolist()
            if noop_with_empty_axes and not chosen:
                return compute(x.unsqueeze(-1), (x.ndim,), False)
            return _over(compute, x, chosen, keepdims)

        return compute

    return register


def _over(compute: Reduction, x: Tensor, axes: Sequence[int], keepdims: int) -> Tensor:
    dims = {axis % x.ndim for axis in axes if x.ndim} or range(x.ndim)
    return compute(x, tuple(sorted(dims)), bool(keepdims))


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _filled(x: Tensor, axes: tuple[int, ...], keep: bool, value: float) -> Tensor:
    """What a reduction over no elements gives."""
    sizes = [1 if place in axes else size for place, size in enumerate(x.shape) if keep or place not in axes]
    return x.new_full(sizes, value)


def _limits(dtype: torch.dtype) -> tuple[float, float]:
    """The lowest and the highest value."""
    if dtype.is_floating_point:
        return -math.inf, math.inf
    return (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)


@_reduction("ReduceSum", since=13)
def reduce_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(axes, keepdim=keep, dtype=x.dtype)


@_reduction("ReduceMean")
def reduce_mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.is_floating_point():
        return x.mean(axes, keepdim=keep)
    return reduce_sum(x, axes, keep).div(_count(x, axes), rounding_mode="trunc")


@_reduction("ReduceMax")
def reduce_max(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.amax(axes, keepdim=keep) if _count(x, axes) else _filled(x, axes, keep, _limits(x.dtype)[0])


@_reduction("ReduceMin")
def reduce_min(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.amin(axes, keepdim=keep) if _count(x, axes) else _filled(x, axes, keep, _limits(x.dtype)[1])


@_reduction("ReduceProd")
def reduce_prod(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    dtype, x = x.dtype, wide(x)  # only the result must be small
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x.to(dtype)


@_reduction("ReduceL1")
def reduce_l1(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.linalg.vector_norm(x, 1, axes, keepdim=keep)
    return reduce_sum(x.abs(), axes, keep)


@_reduction("ReduceL2")
def reduce_l2(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.linalg.vector_norm(x, 2, axes, keepdim=keep)
    return reduce_sum_square(x, axes, keep).double().sqrt().to(x.dtype)


@_reduction("ReduceLogSum")
def reduce_log_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    total = reduce_sum(wide(x), axes, keep)
    return (total if x.is_floating_point() else total.double()).log().to(x.dtype)


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if not _count(x, axes):
        return _filled(x, axes, keep, _limits(x.dtype)[0])
    return (x if x.is_floating_point() else x.double()).logsumexp(axes, keepdim=keep).to(x.dtype)


@_reduction("ReduceSumSquare")
def reduce_sum_square(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return reduce_sum(x * x, axes, keep)


def _index(find: Callable[..., Tensor], x: Tensor, axis: int, keepdims: int, select_last_index: int) -> Tensor:
    if not x.ndim:
        return find(x)
    if not select_last_index:
        return find(x, axis, keepdim=bool(keepdims))
    return x.shape[axis] - 1 - find(x.flip(axis), axis, keepdim=bool(keepdims))


@op("ArgMax")
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _index(torch.argmax, x, axis, keepdims, select_last_index)


@op("ArgMin")
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _index(torch.argmin, x, axis, keepdims, select_last_index)

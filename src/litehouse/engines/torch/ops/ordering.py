"""Elements in order."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import MICROSOFT, op
from litehouse.engines.torch.values import Tensor


@op("TopK")
def top_k_by_attribute(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return _top(x, k, axis, is_largest=True)


@op("TopK", since=10, known=["k"])
def top_k(
    x: Tensor,
    k: Tensor,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002, ARG001  (ONNX's own name; in order they are in any case)
) -> tuple[Tensor, Tensor]:
    return _top(x, int(k.item()), axis, is_largest=bool(largest))


def _top(x: Tensor, count: int, axis: int, *, is_largest: bool) -> tuple[Tensor, Tensor]:
    """The first so many in order; of equal ones, that with the lower index is first, which `topk` does not promise."""
    size = x.shape[axis] if x.ndim else 1
    if not 0 <= count <= size:
        raise ValueError(f"{count} elements of an axis of size {size}")
    values, places = x.sort(dim=axis, descending=is_largest, stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)


@op("Unique", known=["x"])
def unique(
    x: Tensor,
    *,
    axis: int | None = None,
    sorted: int = 1,  # noqa: A002  (ONNX's own name)
) -> tuple[Tensor, ...]:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
    inverse = inverse.reshape(-1)
    line = torch.arange(inverse.numel())
    firsts = torch.zeros_like(counts).scatter_reduce(0, inverse, line, "amin", include_self=False)
    if not sorted:
        order = firsts.argsort()
        values, firsts, counts = values.index_select(axis or 0, order), firsts[order], counts[order]
        inverse = order.argsort()[inverse]
    return values, firsts, inverse, counts


@op("Unique", domain=MICROSOFT, known=["x"])
def unique_by_place(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values, _, inverse, counts = unique(x, sorted=0)
    return values, inverse, counts

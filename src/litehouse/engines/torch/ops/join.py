"""Several tensors to one, and one to several."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor


@op("Concat")
def concat(*parts: Tensor, axis: int = 1) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


@op("Split")
def split_by_attribute(
    x: Tensor,
    *,
    axis: int = 0,
    split: list[int] | None = None,
    outputs: int,
) -> tuple[Tensor, ...]:
    return _split(x, axis, split or _equal(x.shape[axis], outputs))


@op("Split", since=13, known=["split"])
def split(
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int,
) -> tuple[Tensor, ...]:
    if split is not None:
        return _split(x, axis, split.tolist())
    size = x.shape[axis]
    return _split(x, axis, _equal(size, outputs) if num_outputs is None else _shared_out(size, num_outputs))


def _split(x: Tensor, axis: int, sizes: list[int]) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = x.split(sizes, axis)
    return parts


def _equal(size: int, count: int) -> list[int]:
    if size % count:
        raise ValueError(f"an axis of size {size} has no {count} equal parts")
    return [size // count] * count


def _shared_out(size: int, count: int) -> list[int]:
    """Parts of one size, but for the last, which may be smaller."""
    part = -(-size // count)
    return [*([part] * (count - 1)), size - part * (count - 1)]


@op("Tile", known=["repeats"])
def tile(x: Tensor, repeats: Tensor) -> Tensor:
    times = repeats.tolist()
    return x if all(count == 1 for count in times) else x.repeat(times)

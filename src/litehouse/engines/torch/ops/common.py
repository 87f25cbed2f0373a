"""What several families need."""

from __future__ import annotations

import torch

from litehouse.engines.torch.values import Tensor


def from_zero(indices: Tensor, size: int) -> Tensor:
    """Indices into an axis of this size, counted from its start; negative ones are counted from its end.

    One that is out of range is an error on the CPU. A GPU does not wait to find out: there it counts round and round,
    so that nothing outside the axis is ever read or written.
    """
    if not indices.numel():
        return indices.long()
    if size == 0:
        raise IndexError("an index into an axis of size 0")
    if indices.device.type != "cpu":
        return indices.long().remainder(size)
    indices = indices.long()
    least, most = indices.aminmax()
    if least < -size or most >= size:
        wrong = least if least < -size else most
        raise IndexError(f"the index {int(wrong)} is out of the range of an axis of size {size}")
    return torch.where(indices < 0, indices + size, indices) if least < 0 else indices

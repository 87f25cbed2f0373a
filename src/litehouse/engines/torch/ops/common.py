"""What several families need."""

from __future__ import annotations

import torch

from litehouse.engines.torch.doubts import must_not_wait, note
from litehouse.engines.torch.values import Tensor


def from_zero(indices: Tensor, size: int, *, counts_back: bool = True) -> Tensor:
    """Indices into an axis of this size, counted from its start; negative ones are counted from its end.

    One that is out of range is an error; so is a negative one where none `counts_back`. A GPU does not wait to find
    out: there it counts round and round, so that nothing outside the axis is read or written, and the run is told wrong
    in the end. An index that a kernel of a GPU refuses would end all that the process does there.
    """
    if not indices.numel():
        return indices.long()
    if size == 0:
        raise IndexError("an index into an axis of size 0")
    indices = indices.long()
    if must_not_wait(indices):
        wrong = ((indices < (-size if counts_back else 0)) | (indices >= size)).any()
        note(wrong, f"an index is out of the range of an axis of size {size}")
        return indices.remainder(size)
    least, most = (int(bound) for bound in indices.aminmax())
    known_from_zero(least, size, counts_back=counts_back)
    known_from_zero(most, size, counts_back=counts_back)
    return torch.where(indices < 0, indices + size, indices) if least < 0 else indices


def known_from_zero(index: int, size: int, *, counts_back: bool = True) -> int:
    """The same for an index whose number is known, on whatever device it is used."""
    if not size:
        raise IndexError("an index into an axis of size 0")
    if not (-size if counts_back else 0) <= index < size:
        raise IndexError(f"the index {index} is out of the range of an axis of size {size}")
    return index + size if index < 0 else index


def divided(x: Tensor, number: float) -> Tensor:
    """A tensor by a number, rounded once: a GPU multiplies by the reciprocal of a number, but not of a tensor.

    It is for what is rounded to whole numbers then, where the last bit decides.
    """
    return x / torch.full((), number, dtype=x.dtype, device=x.device)


def wide(x: Tensor) -> Tensor:
    """Numbers of 16 bits as those of 32, where many are added up or where they are places; others as they are."""
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x

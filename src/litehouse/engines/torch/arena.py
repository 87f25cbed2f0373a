"""The weights on the device: one piece of memory, in which each has its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from litehouse.engines.torch.values import Tensor

ALIGNMENT = 256  # bytes: what kernels load at once never spans two weights


class Arena:
    """Tensors in one piece of device memory.

    Attributes:
        tensors: Them, by key.
        memory: The memory, as bytes.
    """

    def __init__(self, tensors: Mapping[Any, Tensor], place: torch.device) -> None:
        """Copy tensors of the CPU to the device; their order of elements stays as it is."""
        offsets, size = {}, 0
        tensors = {key: tensor if _is_dense(tensor) else tensor.contiguous() for key, tensor in tensors.items()}
        for key, tensor in tensors.items():
            offsets[key] = size
            size += -(-_span(tensor) * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        self.memory = torch.empty(max(size, 1), dtype=torch.uint8, device=place)
        self.tensors: dict[Any, Tensor] = {}
        for key, tensor in tensors.items():
            self.tensors[key] = self._view(tensor, offsets[key])
            self.tensors[key].copy_(tensor)

    def _view(self, like: Tensor, offset: int) -> Tensor:
        size = _span(like) * like.element_size()
        flat = self.memory[offset : offset + size].view(like.dtype) if size else like.new_empty(0, device="cpu")
        if not size:
            return torch.empty(like.shape, dtype=like.dtype, device=self.memory.device)
        return flat.as_strided(like.shape, like.stride())


def _is_dense(tensor: Tensor) -> bool:
    """Whether each element has a place of its own, and there are none between them."""
    return bool(_span(tensor) == tensor.numel() and torch.empty_like(tensor).stride() == tensor.stride())


def _span(tensor: Tensor) -> int:
    """How many elements lie between the first and the last, both of them counted."""
    if not tensor.numel():
        return 0
    last: int = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return last + 1

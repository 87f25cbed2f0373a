"""Arithmetic, element by element."""

from __future__ import annotations

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor


@op("Add")
def add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


@op("Relu")
def relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)

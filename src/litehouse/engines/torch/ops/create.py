"""Tensors from their sizes."""

from __future__ import annotations

import math
from typing import Any

import torch

from litehouse.engines.torch.registry import MICROSOFT, op
from litehouse.engines.torch.values import Tensor


@op("ConstantOfShape", known=["shape"])
def constant_of_shape(shape: Tensor, *, value: Any = None) -> Tensor:
    sizes = shape.tolist()
    return torch.zeros(sizes, dtype=torch.float32) if value is None else value.reshape(-1)[0].repeat(sizes)


@op("Range", known=["start", "limit", "delta"])
@op("Range", domain=MICROSOFT, known=["start", "limit", "delta"])
def range_(start: Tensor, limit: Tensor, delta: Tensor | None = None) -> Tensor:
    kind = start.dtype
    delta = torch.ones_like(start) if delta is None else delta
    first, last, step = (each.item() for each in (start, limit, delta))
    count = max(math.ceil((last - first) / step), 0) if kind.is_floating_point else max(-((first - last) // step), 0)
    return torch.arange(count).to(kind) * delta.reshape(()) + start.reshape(())

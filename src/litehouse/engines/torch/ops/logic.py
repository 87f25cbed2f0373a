"""Comparisons, truth values, and choices by them."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor


@op("And")
def and_(a: Tensor, b: Tensor) -> Tensor:
    return torch.logical_and(a, b)


@op("Or")
def or_(a: Tensor, b: Tensor) -> Tensor:
    return torch.logical_or(a, b)


@op("Xor")
def xor(a: Tensor, b: Tensor) -> Tensor:
    return torch.logical_xor(a, b)


@op("Not")
def not_(x: Tensor) -> Tensor:
    return torch.logical_not(x)


@op("Equal")
def equal(a: Tensor, b: Tensor) -> Tensor:
    return torch.eq(a, b)


@op("Less")
def less(a: Tensor, b: Tensor) -> Tensor:
    return torch.lt(a, b)


@op("LessOrEqual")
def less_or_equal(a: Tensor, b: Tensor) -> Tensor:
    return torch.le(a, b)


@op("Greater")
def greater(a: Tensor, b: Tensor) -> Tensor:
    return torch.gt(a, b)


@op("GreaterOrEqual")
def greater_or_equal(a: Tensor, b: Tensor) -> Tensor:
    return torch.ge(a, b)


@op("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)

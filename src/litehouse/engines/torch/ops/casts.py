"""From one dtype to another."""

from __future__ import annotations

import math

import torch

from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz})

E4M3FN_ROUNDED = 464.0  # from here on, numbers are too large even if rounded; that dtype has no inf


@op("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:  # noqa: ARG001
    """`round_mode` is for a dtype that torch has no numbers of."""
    return cast_to(x, _dtype(to), saturate)


@op("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:  # noqa: ARG001
    return cast_to(x, like.dtype, saturate)


@op("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.view(_dtype(to))


def _dtype(number: int) -> torch.dtype:
    dtype = dtype_of(number)
    if dtype is None:
        raise LackingError(f"the dtype {number}")
    return dtype


def cast_to(x: Tensor, dtype: torch.dtype, saturate: int = 1) -> Tensor:
    """A tensor in another dtype; numbers too large for one of 8 bits become its largest, or inf or NaN."""
    if dtype not in FLOAT8 or x.dtype == dtype:
        return x.to(dtype)
    x, largest = x.float(), torch.finfo(dtype).max
    if saturate:
        x = x.clamp(-largest, largest)
    elif dtype == torch.float8_e4m3fn:
        x = x.masked_fill(x.abs() > E4M3FN_ROUNDED, math.nan)
    return x.to(dtype)

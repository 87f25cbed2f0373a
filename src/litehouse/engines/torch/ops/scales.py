"""What ops on quantised numbers share: scales, zero points, rounding, and exact products.

Products of small integers are summed in float64, which holds them exactly: torch has no such products on a GPU.
"""

from __future__ import annotations

import torch

from litehouse.engines.torch.values import Tensor

# Zero points of uint16 arrive as int32, which has none of its own; and the result goes back to uint16.
LIMITS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-32768, 32767),
    torch.uint16: (0, 65535),
    torch.int32: (0, 65535),
}


def spread(value: Tensor, x: Tensor, axis: int, block_size: int = 0) -> Tensor:
    """A scale or zero point for all of a tensor, for each place of an axis, or for blocks along it."""
    if block_size:
        return value.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])
    if value.numel() == 1:
        return value.reshape(())
    return value.reshape([-1 if place == axis % x.ndim else 1 for place in range(x.ndim)])


def rounded(x: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Floats as integers of a dtype: rounded, shifted, and held within it."""
    x = x.round()
    return (x if zero is None else x + zero).clamp(*LIMITS[dtype]).to(dtype)


def quantised(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Floats as integers of a dtype, by one scale and one zero point."""
    return rounded(x / scale.reshape(()), None if zero is None else zero.reshape(()), dtype)


def dequantised(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """The floats that integers stand for, by one scale and one zero point."""
    return less(x, zero).float() * scale.reshape(())


def less(x: Tensor, zero: Tensor | None) -> Tensor:
    """Integers less their one zero point, in a dtype that holds that."""
    return x.int() if zero is None else x.int() - zero.reshape(())


def by_row(value: Tensor) -> Tensor:
    """A scale or zero point, one for each row where there are several."""
    return value.unsqueeze(-1) if value.ndim == 1 and value.numel() > 1 else value


def by_filter(value: Tensor, rank: int) -> Tensor:
    """A scale or zero point of weights, one for each filter where there are several."""
    return value.reshape([-1] + [1] * (rank - 1)) if value.numel() > 1 else value.reshape(())


def product(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """The exact product of matrices of integers, less their zero points, as float64."""
    a = a.double() if a_zero is None else a.double() - by_row(a_zero)
    return a @ (b.double() if b_zero is None else b.double() - b_zero)

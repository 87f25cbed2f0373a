"""ONNX Runtime's own pooling of numbers of 8 bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from litehouse.engines.torch.ops.pooling import counts, max_pool, paddings
from litehouse.engines.torch.ops.scales import dequantised, less, rounded
from litehouse.engines.torch.ops.windows import Axis, axes_of, padded
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


def _summed(x: Tensor, axes: Sequence[Axis]) -> Tensor:
    """The sum of each window, in the kernel's order: that decides where halves go."""
    image = padded(x, paddings(axes))
    total: Tensor | None = None
    for place in itertools.product(*(range(axis.kernel) for axis in axes)):
        spans = (
            slice(start, start + (axis.count - 1) * axis.stride + 1, axis.stride)
            for start, axis in zip(place, axes, strict=True)
        )
        part = image[(..., *spans)]
        total = part if total is None else total + part
    assert total is not None
    return total


@op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    x = x.movedim(-1, 1) if channels_last else x
    axes = axes_of(x.shape[2:], kernel_shape, auto_pad, strides, pads, None, is_ceil=bool(ceil_mode))
    sums = _summed(dequantised(x, x_scale, x_zero), axes)
    size = torch.full((), float(math.prod(kernel_shape)), device=x.device)
    if not count_include_pad:
        size = torch.ones_like(size)
        for axis in axes:
            size = size.unsqueeze(-1) * counts(axis, sums, is_pad_counted=False)
    found = sums / size / y_scale.reshape(())
    found = rounded(found if y_zero is None else found + y_zero.reshape(()), None, x.dtype)
    return found.movedim(1, -1) if channels_last else found


@op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, y_zero: Tensor, *, channels_last: int = 0
) -> Tensor:
    spatial = list(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    size = math.prod(x.shape[axis] for axis in spatial)
    scale = x_scale.reshape(()) / (y_scale.reshape(()) * size)
    return rounded(less(x, x_zero).sum(spatial, keepdim=True).float() * scale, y_zero.reshape(()), x.dtype)


@op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and any(each != 1 for each in dilations or []):
        raise LackingError("a padding for windows with gaps")  # the kernel makes it as if there were none
    found: Tensor = max_pool(
        x.movedim(-1, 1),
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    return found.movedim(1, -1)

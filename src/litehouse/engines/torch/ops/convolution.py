"""Convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.ops.windows import Axis, axes_of, padded
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

Convolution = Callable[..., Tensor]
FORWARD: list[Convolution] = [functional.conv1d, functional.conv2d, functional.conv3d]
TRANSPOSED: list[Convolution] = [
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
]


def _of_rank(functions: Sequence[Convolution], w: Tensor) -> Convolution:
    axes = int(w.ndim) - 2
    if not 1 <= axes <= len(functions):
        raise LackingError(f"a convolution with {axes} axes")
    return functions[axes - 1]


@op("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    function = _of_rank(FORWARD, w)
    axes = axes_of(x.shape[2:], kernel_shape or w.shape[2:], auto_pad, strides, pads, dilations)
    if any(axis.begin != axis.end or axis.begin < 0 for axis in axes):
        x = padded(x, [(axis.begin, axis.end) for axis in axes])
        padding = [0] * len(axes)
    else:
        padding = [axis.begin for axis in axes]
    return function(x, w, b, [a.stride for a in axes], padding, [a.dilation for a in axes], group)


@op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    function = _of_rank(TRANSPOSED, w)
    axes = axes_of(x.shape[2:], kernel_shape or w.shape[2:], "NOTSET", strides, pads, dilations)
    extra = output_padding or [0] * len(axes)
    wanted = output_shape[-len(axes) :] if output_shape else [None] * len(axes)
    crops = [_crop(axis, auto_pad, *row) for axis, row in zip(axes, zip(extra, wanted, strict=True), strict=True)]
    padding, inside, outside = zip(*(_cut(axis, *crop) for axis, crop in zip(axes, crops, strict=True)), strict=True)
    strides, dilations = [axis.stride for axis in axes], [axis.dilation for axis in axes]
    if all(begin <= 0 and end <= 0 for begin, end in outside):
        return padded(function(x, w, b, strides, padding, inside, group, dilations), outside)
    y = padded(function(x, w, None, strides, padding, inside, group, dilations), outside)
    return y if b is None else y + b.reshape(-1, *([1] * len(axes)))


def _crop(axis: Axis, auto_pad: str, extra: int, wanted: int | None) -> tuple[int, int]:
    """How much is cut off the two ends of all that a transposed convolution gives; less than nothing is added."""
    whole = (axis.size - 1) * axis.stride + axis.extent
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = axis.size * axis.stride
        if whole + extra < wanted:
            raise LackingError("more output than there is")  # ONNX Runtime gives less than ONNX says
    if wanted is None:
        begin, end = (0, 0) if auto_pad == "VALID" else (axis.begin, axis.end)
        return begin, end - extra
    total = whole + extra - wanted
    half = max(total, 0) // 2
    begin = half if auto_pad == "SAME_UPPER" else max(total, 0) - half
    return begin, total - begin - extra


def _cut(axis: Axis, begin: int, end: int) -> tuple[int, int, tuple[int, int]]:
    """How torch cuts off two ends: its padding, its padding of the output, and what is then added before and behind."""
    most = max(axis.stride, axis.dilation) - 1
    if begin >= 0 and 0 <= begin - end <= most:
        return begin, begin - end, (0, 0)
    padding = max(min(begin, end), 0)
    return padding, 0, (padding - begin, padding - end)


@op("ConvTransposeWithDynamicPads", domain=MICROSOFT, known=["pads"])
def conv_transpose_with_pads(
    x: Tensor,
    w: Tensor,
    pads: Tensor | None = None,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    y: Tensor = conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=None if pads is None else pads.tolist(),
        strides=strides,
    )
    return y


@op("DeformConv")
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    if x.ndim != 4:
        raise LackingError(f"a deformable convolution with {x.ndim - 2} axes")
    rows, columns = axes_of(x.shape[2:], kernel_shape or w.shape[2:], "NOTSET", strides, pads, dilations)
    dtype, x, offset, w = x.dtype, wide(x), wide(offset), wide(w)
    moved = offset.reshape(x.shape[0], offset_group, rows.kernel, columns.kernel, 2, rows.count, columns.count)
    places_y = moved[:, :, :, :, 0] + _starts(rows, x).reshape(rows.kernel, 1, rows.count, 1)
    places_x = moved[:, :, :, :, 1] + _starts(columns, x).reshape(1, columns.kernel, 1, columns.count)
    image = x.reshape(x.shape[0], offset_group, x.shape[1] // offset_group, rows.size * columns.size)
    taken = _taken(image, places_y.flatten(2), places_x.flatten(2), rows.size, columns.size)
    if mask is not None:
        taken = taken * mask.reshape(x.shape[0], offset_group, 1, taken.shape[3])
    shares = w.reshape(group, w.shape[0] // group, -1)
    y = shares @ taken.reshape(x.shape[0], group, shares.shape[2], rows.count * columns.count)
    y = y.reshape(x.shape[0], w.shape[0], rows.count, columns.count)
    return (y if b is None else y + b.reshape(-1, 1, 1)).to(dtype)


def _starts(axis: Axis, like: Tensor) -> Tensor:
    """Where each element of each window is, (kernel, count)."""
    inside = torch.arange(axis.kernel, device=like.device, dtype=like.dtype) * axis.dilation
    return inside[:, None] + torch.arange(axis.count, device=like.device, dtype=like.dtype) * axis.stride - axis.begin


def _taken(image: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """What is at places between the pixels of an image (N, groups, C, H * W); beyond it there are zeros."""
    top, left = y.floor(), x.floor()
    total: Tensor | None = None
    for down, right in itertools.product((0, 1), (0, 1)):
        row, column = top + down, left + right
        share = (1 - (y - row).abs()) * (1 - (x - column).abs())
        is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        index = row.where(is_inside, 0).long() * width + column.where(is_inside, 0).long()
        values = image.gather(3, index[:, :, None].expand(-1, -1, image.shape[2], -1))
        part = torch.where(is_inside[:, :, None], values * share[:, :, None], 0)
        total = part if total is None else total + part
    assert total is not None
    return total


@op("Col2Im", known=["image_shape", "block_shape"])
def col2im(
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    axes = axes_of(image_shape.tolist(), block_shape.tolist(), "NOTSET", strides, pads, dilations)
    if len(axes) == 2 and all(axis.begin == axis.end for axis in axes):
        kernel, dilation = [axis.kernel for axis in axes], [axis.dilation for axis in axes]
        sizes, padding, stride = zip(*((axis.size, axis.begin, axis.stride) for axis in axes), strict=True)
        return functional.fold(x, sizes, kernel, dilation, padding, stride)
    blocks = x.reshape(x.shape[0], -1, *(axis.kernel for axis in axes), *(axis.count for axis in axes))
    y = x.new_zeros(x.shape[0], blocks.shape[1], *(axis.begin + axis.size + axis.end for axis in axes))
    for place in itertools.product(*(range(axis.kernel) for axis in axes)):
        starts = [inside * axis.dilation for inside, axis in zip(place, axes, strict=True)]
        spans = [
            slice(start, start + (axis.count - 1) * axis.stride + 1, axis.stride)
            for start, axis in zip(starts, axes, strict=True)
        ]
        y[:, :, *spans] += blocks[:, :, *place]
    return y[:, :, *(slice(axis.begin, axis.begin + axis.size) for axis in axes)]


@op("CausalConvWithState")
def causal_conv_with_state(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    past: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    carried = w.shape[2] - 1
    whole = functional.pad(x, [carried, 0]) if past is None else torch.cat([past, x], 2)
    y = functional.conv1d(whole, w, b, groups=w.shape[0])
    if activation not in ("none", "silu", "swish"):
        raise LackingError(f"the activation {activation}")
    return y if activation == "none" else functional.silu(y), whole[:, :, whole.shape[2] - carried :]

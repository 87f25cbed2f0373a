"""Pooling: one number for each window of an image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import divided, from_zero, wide
from litehouse.engines.torch.ops.windows import Axis, axes_of, padded
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor

MAX: list[Callable[..., Tensor]] = [functional.max_pool1d, functional.max_pool2d, functional.max_pool3d]
AVERAGE: list[Callable[..., Tensor]] = [functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d]


def _of_rank(functions: Sequence[Callable[..., Tensor]], axes: Sequence[Axis]) -> Callable[..., Tensor]:
    if not 1 <= len(axes) <= len(functions):
        raise LackingError(f"pooling over {len(axes)} axes")
    return functions[len(axes) - 1]


def _is_direct(axes: Sequence[Axis]) -> bool:
    """Whether torch has such paddings: as much on both sides, and at most half a window."""
    return all(axis.begin == axis.end and 0 <= 2 * axis.begin <= axis.kernel for axis in axes)


def paddings(axes: Sequence[Axis]) -> list[tuple[int, int]]:
    """How much lies before and behind the image, so that the last windows have all of their elements."""
    return [(axis.begin, axis.end + axis.overhang) for axis in axes]


@op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    axes = axes_of(x.shape[2:], kernel_shape, auto_pad, strides, pads, dilations, is_ceil=bool(ceil_mode))
    function = _of_rank(MAX, axes)
    sizes = [[axis.kernel for axis in axes], [axis.stride for axis in axes]]
    dilation, image = [axis.dilation for axis in axes], x
    if x.dtype in (torch.int8, torch.uint8):
        image = x.to(torch.float32)  # torch has no such pooling on all devices
    if _is_direct(axes):
        pooled = function(image, *sizes, [axis.begin for axis in axes], dilation, bool(ceil_mode), outputs > 1)
        offsets = [0] * len(axes)
    else:
        image = padded(image, paddings(axes), -math.inf)
        pooled = function(image, *sizes, 0, dilation, False, outputs > 1)
        offsets = [axis.begin for axis in axes]
    if outputs == 1:
        return pooled.to(x.dtype)
    values, places = pooled
    return values.to(x.dtype), _indices(places, image.shape[2:], x.shape, offsets, is_reversed=bool(storage_order))


def _indices(
    places: Tensor, padded_sizes: Sequence[int], shape: Sequence[int], offsets: Sequence[int], *, is_reversed: bool
) -> Tensor:
    """From places inside each padded image to places in the whole tensor, all axes taken together."""
    sizes = list(shape[2:])
    if any(offsets) or list(padded_sizes) != sizes or is_reversed:
        parts = []
        for size, offset in zip(reversed(padded_sizes), reversed(offsets), strict=True):
            parts.append(places % size - offset)
            places = places.div(size, rounding_mode="floor")
        order = zip(reversed(parts), sizes, strict=True) if not is_reversed else zip(parts, sizes[::-1], strict=True)
        places = torch.zeros_like(places)
        for part, size in order:
            places = places * size + part
    images = torch.arange(shape[0] * shape[1], device=places.device) * math.prod(sizes)
    return places + images.reshape(shape[0], shape[1], *([1] * len(sizes)))


@op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    axes = axes_of(x.shape[2:], kernel_shape, auto_pad, strides, pads, dilations, is_ceil=bool(ceil_mode))
    if _is_direct(axes) and all(axis.dilation == 1 for axis in axes) and len(axes) <= len(AVERAGE):
        sizes = [[getattr(axis, name) for axis in axes] for name in ("kernel", "stride", "begin")]
        image = wide(x) if len(axes) == 3 else x  # torch has no pooling of volumes in 16 bits on the CPU
        return _of_rank(AVERAGE, axes)(image, *sizes, bool(ceil_mode), bool(count_include_pad)).to(x.dtype)
    sums = _sums(wide(x), axes)
    for place, axis in enumerate(axes):
        size = counts(axis, sums, is_pad_counted=bool(count_include_pad))
        sums = sums / size.reshape(-1, *([1] * (len(axes) - 1 - place)))
    return sums.to(x.dtype)


def _sums(x: Tensor, axes: Sequence[Axis]) -> Tensor:
    """The sum of each window; zeros are around the image."""
    x = padded(x, paddings(axes))
    for place, axis in enumerate(axes):
        length = (axis.count - 1) * axis.stride + 1
        parts = [x.narrow(2 + place, start, length) for start in range(0, axis.extent, axis.dilation)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        x = total[(slice(None),) * (2 + place) + (slice(None, None, axis.stride),)]
    return x


def counts(axis: Axis, like: Tensor, *, is_pad_counted: bool) -> Tensor:
    """How many elements of each window count: those of the image, and those of the padding if it counts."""
    first, last = (-axis.begin, axis.size + axis.end) if is_pad_counted else (0, axis.size)
    starts = torch.arange(axis.count, device=like.device) * axis.stride - axis.begin
    places = starts[:, None] + torch.arange(axis.kernel, device=like.device) * axis.dilation
    return ((places >= first) & (places < last)).sum(1).to(like.dtype)


@op("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    axes = axes_of(x.shape[2:], kernel_shape, auto_pad, strides, pads, dilations, is_ceil=bool(ceil_mode))
    image = wide(x)
    sums = _sums(image * image if p == 2 else image.abs() ** p, axes)
    return (sums.sqrt() if p == 2 else sums ** (1 / p)).to(x.dtype)


def _spatial(x: Tensor) -> list[int]:
    return list(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(_spatial(x), keepdim=True) if x.ndim > 2 else x


@op("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(_spatial(x), keepdim=True) if x.ndim > 2 else x


@op("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(x, p, _spatial(x), keepdim=True) if x.ndim > 2 else x.abs()


@op("MaxUnpool", known=["output_shape"])
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    rank = len(kernel_shape)
    pads, strides = pads or [0] * (2 * rank), strides or [1] * rank
    sizes = [
        (size - 1) * stride + kernel - begin - end
        for size, stride, kernel, begin, end in zip(
            x.shape[2:], strides, kernel_shape, pads[:rank], pads[rank:], strict=True
        )
    ]
    shape = [*x.shape[:2], *sizes]
    flat = x.new_zeros(math.prod(shape))
    places = from_zero(indices.reshape(-1), flat.shape[0], counts_back=False)
    y = flat.scatter(0, places, x.reshape(-1)).reshape(shape)
    if output_shape is None or output_shape.tolist() == shape:
        return y
    return padded(y, [(0, wanted - size) for wanted, size in zip(output_shape.tolist()[2:], sizes, strict=True)])


@op("MaxRoiPool")
def max_roi_pool(x: Tensor, rois: Tensor, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> Tensor:
    """The greatest number of each part of each region; 0 for a part with nothing in it."""
    images = x.index_select(0, from_zero(rois[:, 0], x.shape[0], counts_back=False))
    places = wide(rois)[:, 1:] * spatial_scale
    left, top, right, bottom = (torch.floor(places.abs() + 0.5) * places.sign()).unbind(1)  # halves away from zero
    rows = _bins(top, bottom, pooled_shape[0], x.shape[2])
    columns = _bins(left, right, pooled_shape[1], x.shape[3])
    lowest = torch.full((), -math.inf, dtype=x.dtype, device=x.device)
    parts = []
    for row, column in itertools.product(range(pooled_shape[0]), range(pooled_shape[1])):
        is_inside = rows[:, row, :, None] & columns[:, column, None, :]
        found = torch.where(is_inside[:, None], images, lowest).amax((2, 3))
        parts.append(torch.where(is_inside.any(2).any(1)[:, None], found, 0))
    return torch.stack(parts, 2).reshape(rois.shape[0], x.shape[1], *pooled_shape)


def _bins(start: Tensor, end: Tensor, count: int, size: int) -> Tensor:
    """Which elements of an axis belong to each of the parts of each region, (regions, parts, size)."""
    length = divided((end - start + 1).clamp(min=1), count)
    number = torch.arange(count, device=start.device, dtype=start.dtype)
    first = torch.floor(number * length[:, None]) + start[:, None]
    last = torch.ceil((number + 1) * length[:, None]) + start[:, None]
    places = torch.arange(size, device=start.device)
    return (places >= first.clamp(0, size)[..., None]) & (places < last.clamp(0, size)[..., None])

"""Elements of images in other places."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import divided, from_zero, wide
from litehouse.engines.torch.ops.windows import padded
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

MODES = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic", "bicubic": "bicubic"}
MOST_ON_CPU = 1 << 26  # elements of the images of all regions, from which on ONNX Runtime is faster


@op("GridSample")
@op("GridSample", domain=MICROSOFT)
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    name = MODES.get(mode)
    if name is None or not 4 <= x.ndim <= (4 if name == "bicubic" else 5) or not x.is_floating_point():
        raise LackingError(f"{mode} of {x.ndim - 2} axes")
    dtype = torch.promote_types(x.dtype, grid.dtype)
    y = functional.grid_sample(x.to(dtype), grid.to(dtype), name, padding_mode, bool(align_corners))
    return y.to(x.dtype)


@op("AffineGrid", known=["size"])
def affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    sizes = size.tolist()
    if 0 in sizes:
        raise LackingError("no places")
    return functional.affine_grid(theta, sizes, bool(align_corners))


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    depth = c // (blocksize * blocksize)
    if mode == "DCR":
        parts = x.reshape(n, blocksize, blocksize, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, depth, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, depth, h * blocksize, w * blocksize)


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    rows, columns = h // blocksize, w // blocksize
    parts = x.reshape(n, c, rows, blocksize, columns, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(n, c * blocksize * blocksize, rows, columns)


@op("CenterCropPad", known=["shape"])
def center_crop_pad(x: Tensor, shape: Tensor, *, axes: list[int] | None = None) -> Tensor:
    pads = [(0, 0)] * x.ndim
    for axis, wanted in zip(axes if axes is not None else range(x.ndim), shape.tolist(), strict=True):
        more = wanted - x.shape[axis]
        begin = more // 2 if more >= 0 else -(-more // 2)
        pads[axis] = (begin, more - begin)
    return padded(x, pads)


@op("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    dtype, x = x.dtype, wide(x)
    left, top, right, bottom = (rois.to(x.dtype) * spatial_scale - shift).unbind(1)
    height, width = bottom - top, right - left
    if not shift:
        height, width = height.clamp(min=1), width.clamp(min=1)
    images = from_zero(batch_indices, x.shape[0], counts_back=False)
    if sampling_ratio <= 0:
        if mode != "avg" or (not x.is_cuda and rois.shape[0] * math.prod(x.shape[1:]) > MOST_ON_CPU):
            raise LackingError("regions with another number of samples each")
        rows = _shares(top, height, output_height, x.shape[2])
        columns = _shares(left, width, output_width, x.shape[3])
        return _products(x, images, rows, columns).to(dtype)
    rows = _places(top, height, output_height, sampling_ratio)
    columns = _places(left, width, output_width, sampling_ratio)
    taken = _taken(x, images, rows, columns, is_greatest=mode == "max")
    taken = taken.reshape(rois.shape[0], output_height, sampling_ratio, output_width, sampling_ratio, x.shape[1])
    return (taken.amax((2, 4)) if mode == "max" else taken.mean((2, 4))).permute(0, 3, 1, 2).to(dtype)


@op("RoiAlign", since=10)
def roi_align_10(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    result: Tensor = roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )
    return result


def _places(start: Tensor, length: Tensor, bins: int, samples: int) -> Tensor:
    """Where along an axis the samples of each region are, (regions, bins * samples)."""
    numbers = torch.arange(bins * samples, device=start.device, dtype=start.dtype)
    return start[:, None] + (numbers + 0.5) * divided(length, bins * samples)[:, None]


def _ends(places: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The two elements around each place, with their shares: none for a place that is far outside."""
    is_near = (places >= -1) & (places <= size)
    inside = places.where(is_near, 0).clamp(0, size - 1)  # NaN is nowhere
    below = inside.floor()
    share = inside - below
    yield below.long(), torch.where(is_near, 1 - share, 0)
    yield (below + 1).clamp(max=size - 1).long(), torch.where(is_near, share, 0)


def _taken(x: Tensor, images: Tensor, rows: Tensor, columns: Tensor, *, is_greatest: bool) -> Tensor:
    """The samples of each region (regions, rows, columns, C), or the greatest of their four parts."""
    pairs = itertools.product(_ends(rows, x.shape[2]), _ends(columns, x.shape[3]))
    parts = (
        x[images[:, None, None], :, row[:, :, None], column[:, None, :]]
        * (row_share[:, :, None] * column_share[:, None, :])[..., None]
        for (row, row_share), (column, column_share) in pairs
    )
    return functools.reduce(torch.maximum if is_greatest else torch.add, parts)


def _shares(start: Tensor, length: Tensor, bins: int, size: int) -> Tensor:
    """The share of each element in each bin of each region, (regions, bins, size).

    A bin has as many samples as it is long; those that are inside are at most twice as many as there are elements.
    """
    step = divided(length, bins)[:, None]
    count = step.ceil()
    gap = step / count.clamp(min=1)
    first = start[:, None] + torch.arange(bins, device=start.device, dtype=start.dtype) * step + gap / 2
    skipped = ((-1 - first) / gap).ceil().clamp(min=0)
    skipped = torch.where(gap > 0, skipped, 0)
    numbers = skipped[..., None] + torch.arange(2 * size + 6, device=start.device, dtype=start.dtype)
    places = first[..., None] + numbers * gap[..., None]
    total = places.new_zeros(*first.shape, size)
    for index, share in _ends(places, size):
        total = total.scatter_add(2, index, torch.where(numbers < count[..., None], share, 0))
    return total / count.clamp(min=1)[..., None]


def _products(x: Tensor, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The sums of the images' elements by shares of their rows and columns, (regions, C, bins, bins)."""
    at_once = max(1, MOST_ON_CPU // max(1, math.prod(x.shape[1:])))
    parts = []
    for own, row, column in zip(images.split(at_once), rows.split(at_once), columns.split(at_once), strict=True):
        high = row[:, None] @ x.index_select(0, own)
        parts.append(high @ column[:, None].transpose(2, 3))
    return torch.cat(parts)


@op("CropAndResize", domain=MICROSOFT, known=["sizes"])
def crop_and_resize(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    sizes: Tensor,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Tensor:
    top, left, bottom, right = rois.unbind(-1)
    height, width = sizes.tolist()
    y = _spread(top, bottom, x.shape[2], height).unsqueeze(2)
    x_places = _spread(left, right, x.shape[3], width).unsqueeze(1)
    is_inside = (y >= 0) & (y <= x.shape[2] - 1) & (x_places >= 0) & (x_places <= x.shape[3] - 1)
    images = from_zero(batch_indices, x.shape[0], counts_back=False)[:, None, None]
    places = torch.where(is_inside, y, 0), torch.where(is_inside, x_places, 0)
    pixels = x.permute(0, 2, 3, 1)
    if mode == "nearest":
        row, column = ((place + 0.5).floor().long() for place in places)  # halves away from zero
        found = pixels[images, row, column]
    else:
        (above, beside), (below, behind) = ([to(place).long() for place in places] for to in (torch.floor, torch.ceil))
        down, along = (wide(place - place.floor()).unsqueeze(-1) for place in places)
        upper, lower = (
            torch.lerp(wide(pixels[images, row, beside]), wide(pixels[images, row, behind]), along)
            for row in (above, below)
        )
        found = torch.lerp(upper, lower, down).to(x.dtype)
    return found.masked_fill(~is_inside.unsqueeze(-1), extrapolation_value).permute(0, 3, 1, 2)


def _spread(first: Tensor, last: Tensor, size: int, count: int) -> Tensor:
    """Places from one to another of each row, both ends included, where 0 to 1 is an axis of this size."""
    if count == 1:
        return (0.5 * (first + last) * (size - 1)).unsqueeze(-1)
    first, last = first.unsqueeze(-1), last.unsqueeze(-1)
    step = divided((last - first) * (size - 1), count - 1)
    return torch.cat([first * (size - 1) + torch.arange(count - 1, device=first.device) * step, last * (size - 1)], -1)

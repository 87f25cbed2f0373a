"""Resizing: each output is taken from the inputs around a place, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor

LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
HALVES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
ROUNDING = 1e-6  # how far a place may be off that is halfway between two elements


@dataclass(frozen=True, slots=True)
class Way:
    """How to resize: the attributes of the op that say so."""

    mode: str
    transformation: str
    nearest: str = "floor"
    a: float = -0.75
    is_outside_excluded: bool = False
    is_antialiased: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis that is resized.

    Attributes:
        place: Which one it is.
        size: Its size before.
        wanted: Its size afterwards.
        scale: The factor between them, which may be a little off.
        start: Where the part begins that is taken, from 0 to 1.
        end: Where it ends.
    """

    place: int
    size: int
    wanted: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def is_exact(self) -> bool:
        """Whether the factor is just that between the sizes."""
        return self.scale == float(np.float32(self.wanted) / np.float32(self.size or 1))


@op("Resize", since=11, known=["roi", "scales", "sizes"])
def resize(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    places = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    taken = _found(places, [x.shape[place] for place in places], scales, sizes, keep_aspect_ratio_policy)
    way = Way(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        bool(antialias) and mode != "nearest",
    )
    if coordinate_transformation_mode != "tf_crop_and_resize":
        return _resized(x, [axis for axis in taken if axis.size != axis.wanted or axis.scale != 1], way)
    parts = [] if roi is None else [float(part) for part in roi.tolist()]
    if len(parts) != 2 * len(taken):
        raise LackingError("a part of the image that is not told")
    starts, ends = parts[: len(taken)], parts[len(taken) :]
    cropped = [
        Axis(axis.place, axis.size, axis.wanted, axis.scale, start, end)
        for axis, start, end in zip(taken, starts, ends, strict=True)
        if (axis.size, axis.scale, start, end) != (axis.wanted, 1, 0, 1)
    ]
    return _without_outside(_by_axis(x, cropped, way), cropped, extrapolation_value)


@op("Resize", since=10, known=["scales"])
def resize_10(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    axes = _found(list(range(x.ndim)), list(x.shape), scales, None, "stretch")
    name = "linear" if mode in ("linear", "bilinear") else mode
    return _resized(x, [axis for axis in axes if axis.scale != 1], Way(name, "asymmetric", "simple"))


@op("Upsample", since=9, known=["scales"])
def upsample(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    result: Tensor = resize_10(x, scales, mode=mode)
    return result


@op("Upsample", since=7)
def upsample_7(x: Tensor, *, scales: list[float], mode: str = "nearest") -> Tensor:
    result: Tensor = resize_10(x, torch.tensor(scales), mode=mode)
    return result


def _found(
    places: list[int], before: list[int], scales: Tensor | None, sizes: Tensor | None, policy: str
) -> list[Axis]:
    """The axes, by factors or by the sizes that are wanted; all factors are numbers of 32 bits."""
    if scales is not None and scales.numel():
        factors = [np.float32(scale) for scale in scales.tolist()]
        after = [int(scale * np.float32(size)) for scale, size in zip(factors, before, strict=True)]
    else:
        assert sizes is not None
        after = sizes.tolist()
        factors = [np.float32(new) / np.float32(old or 1) for new, old in zip(after, before, strict=True)]
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(factors)
            after = [math.floor(scale * np.float32(size) + 0.5) for scale, size in zip(factors, before, strict=True)]
    return [Axis(*row) for row in zip(places, before, after, map(float, factors), strict=True)]


def _resized(x: Tensor, axes: Sequence[Axis], way: Way) -> Tensor:
    if not axes:
        return x
    if x.numel() and x.ndim in LINEAR and all(axis.place >= 2 for axis in axes):
        sizes = list(x.shape[2:])
        for axis in axes:
            sizes[axis.place - 2] = axis.wanted
        if way.mode == "nearest" and _is_repetition(x, axes, way):
            return functional.interpolate(x, size=sizes, mode="nearest")
        if _is_torch_way(x, axes, way):
            mode = "bicubic" if way.mode == "cubic" else LINEAR[x.ndim]
            return functional.interpolate(x, size=sizes, mode=mode, align_corners=way.transformation == "align_corners")
    return _by_axis(x, axes, way)


def _is_repetition(x: Tensor, axes: Sequence[Axis], way: Way) -> bool:
    """Whether each element is repeated, a power of two times: then nothing is rounded anywhere."""
    is_plain = way.transformation == "asymmetric" and way.nearest in ("floor", "simple")
    is_centred = way.transformation in HALVES and way.nearest in ("round_prefer_floor", "round_prefer_ceil")
    times = [axis.scale for axis in axes]
    is_whole = all(scale in (2, 4, 8, 16, 32) for scale in times) and all(axis.is_exact for axis in axes)
    return is_whole and (is_plain or is_centred) and (x.is_floating_point() or x.dtype == torch.uint8)


def _is_torch_way(x: Tensor, axes: Sequence[Axis], way: Way) -> bool:
    """Whether torch's own function computes just this."""
    if not x.is_floating_point() or (way.is_antialiased and any(axis.scale < 1 for axis in axes)):
        return False
    if way.mode == "cubic" and (x.ndim != 4 or way.a != -0.75 or way.is_outside_excluded):
        return False
    if way.mode not in ("linear", "cubic"):
        return False
    if way.transformation == "align_corners":
        return True
    is_single = way.transformation == "pytorch_half_pixel" and any(axis.wanted == 1 for axis in axes)
    return way.transformation in HALVES and all(axis.is_exact for axis in axes) and not is_single


def _by_axis(x: Tensor, axes: Sequence[Axis], way: Way) -> Tensor:
    """Resize one axis after the other."""
    if way.mode == "nearest":
        for axis in axes:
            x = x.index_select(axis.place, _nearest(_coordinates(axis, way, x), axis, way))
        return x
    if not x.is_floating_point():
        raise LackingError("whole numbers between others")
    dtype, x = x.dtype, wide(x)
    for axis in axes:
        indices, shares = _taps(_coordinates(axis, way, x), axis, way)
        taps, ones = indices.shape[1], [1] * (x.ndim - 1 - axis.place)
        if taps == 2:
            low, high = (x.index_select(axis.place, part) for part in indices.unbind(1))
            x = torch.lerp(low, high, shares[:, 1].reshape(-1, *ones))
            continue
        values = x.index_select(axis.place, indices.reshape(-1)).unflatten(axis.place, (axis.wanted, taps))
        x = (values * shares.reshape(axis.wanted, taps, *ones)).sum(axis.place + 1)
    return x.to(dtype)


def _coordinates(axis: Axis, way: Way, like: Tensor) -> Tensor:
    """Where in the input each output is taken from. Scalars divide as tensors, as else they may be rounded twice."""
    dtype = torch.float64 if like.dtype == torch.float64 and way.mode != "nearest" else torch.float32
    out = torch.arange(axis.wanted, device=like.device, dtype=dtype)
    scale = torch.full((), axis.scale, device=like.device, dtype=dtype)
    name, last = way.transformation, axis.size - 1
    if name == "asymmetric":
        return out / scale
    if name == "half_pixel" or (name == "pytorch_half_pixel" and axis.wanted > 1):
        return (out + 0.5) / scale - 0.5
    if name == "pytorch_half_pixel" or (name == "align_corners" and axis.wanted == 1):
        return torch.zeros_like(out)
    if name == "tf_half_pixel_for_nn":
        return (out + 0.5) / scale
    if name == "half_pixel_symmetric":
        size = np.float32(axis.size)
        offset = size / 2 * (1 - np.float32(axis.wanted) / (np.float32(axis.scale) * size))
        return (float(offset) + (out.double() + 0.5) / scale.double() - 0.5).to(dtype)
    between = torch.full((), axis.wanted - 1, device=like.device, dtype=dtype)
    if name == "align_corners":
        return out * last / between
    if name == "tf_crop_and_resize" and axis.wanted > 1:  # rounded as ONNX Runtime does: some are just at the edge
        part = float(np.float32(axis.end) - np.float32(axis.start))
        return axis.start * last + out * part * last / between
    if name == "tf_crop_and_resize":
        return torch.full_like(out, 0.5 * (axis.start + axis.end) * last)
    raise LackingError(f"the coordinates {name}")


def _nearest(x: Tensor, axis: Axis, way: Way) -> Tensor:
    """The index of the nearest element."""
    below = x.floor()
    if way.nearest == "round_prefer_floor":
        found = below + (x - below > 0.5 + ROUNDING)
    elif way.nearest == "round_prefer_ceil":
        found = below + (x - below >= 0.5 - ROUNDING)
    elif way.nearest == "ceil" or (way.nearest == "simple" and axis.scale < 1):
        found = x.ceil()
    elif way.nearest in ("floor", "simple"):
        found = below
    else:
        raise LackingError(f"the nearest element by {way.nearest}")
    return found.clamp(0, axis.size - 1).long()


def _taps(x: Tensor, axis: Axis, way: Way) -> tuple[Tensor, Tensor]:
    """Which elements make each output, and their shares: two tensors (wanted, taps)."""
    if way.mode not in ("linear", "cubic"):
        raise LackingError(f"the mode {way.mode}")
    shrink = min(axis.scale, 1.0) if way.is_antialiased else 1.0
    reach = math.ceil((1 if way.mode == "linear" else 2) / shrink)
    below = x.floor()
    indices = below[:, None] + torch.arange(1 - reach, reach + 1, device=x.device, dtype=x.dtype)
    distance = ((indices - x[:, None]) * shrink).abs()
    shares = (1 - distance).clamp(min=0) if way.mode == "linear" else _cubic(distance, way.a)
    if way.is_antialiased:
        shares = shares / shares.sum(1, keepdim=True)
    if way.is_outside_excluded:
        shares = torch.where((indices >= 0) & (indices < axis.size), shares, 0)
        shares = shares / shares.sum(1, keepdim=True)
    return indices.clamp(0, axis.size - 1).long(), shares


def _cubic(distance: Tensor, a: float) -> Tensor:
    """A cubic filter, at distances that are not negative."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return torch.where(distance <= 1, near, torch.where(distance < 2, far, 0))


def _without_outside(y: Tensor, axes: Sequence[Axis], value: float) -> Tensor:
    """Another value for all outputs whose place is beyond the input."""
    way = Way("linear", "tf_crop_and_resize")
    for axis in axes:
        x = _coordinates(axis, way, y)
        is_outside = ((x < 0) | (x > axis.size - 1)).reshape(-1, *([1] * (y.ndim - 1 - axis.place)))
        y = y.masked_fill(is_outside, value)
    return y

"""Operators that take numbers at places which offsets have moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.formula import Number, call
from litehouse.formats.mge.ops.convolution import flipped, geometry
from litehouse.formats.mge.ops.layouts import plain_weight
from litehouse.formats.mge.ops.local import require_planes
from litehouse.formats.mge.quantised import round_half_away
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
LEAST_SIDE = 0.1  # of a region


@op("DeformableConv")
def deformable_conv(
    t: MgeTape, x: ir.Value, w: ir.Value, offset: ir.Value, mask: ir.Value, *, format: str, **params: Any
) -> Any:
    """A convolution of numbers at places that are moved by offsets, and weighted by a mask."""
    require_planes(t, format)
    weight, group = plain_weight(t, w, format, params["sparse"])
    weight = flipped(t, weight, params["mode"])
    height, width = t.sizes(weight)[2:]
    groups = t.sizes(offset)[1] // max(2 * height * width, 1)
    return t.op(
        "DeformConv",
        [x, weight, offset, None, mask],
        group=group,
        offset_group=groups,
        kernel_shape=[height, width],
        **geometry(params, "hw"),
    )


@op("DeformablePSROIPooling")
def deformable_psroi_pooling(
    t: MgeTape,
    x: ir.Value,
    rois: ir.Value,
    trans: ir.Value,
    *,
    no_trans: bool,
    spatial_scale: float,
    trans_std: float,
    pooled_h: int,
    pooled_w: int,
    part_size: int,
    sample_per_part: int,
) -> Any:
    """Means over samples in the fields of regions, whose fields are moved; and how many samples lay on the plane."""
    moves = None
    if 0 in (pooled_h, pooled_w, sample_per_part):
        t.refuse(f"{pooled_h} x {pooled_w} fields of {sample_per_part} samples")
    if not no_trans:
        if t.known_sizes(trans)[1:] != (2, pooled_h, pooled_w) or not part_size == pooled_h == pooled_w:
            t.refuse(f"offsets of shape {t.known_sizes(trans)} for {pooled_h} x {pooled_w} fields, {part_size} parts")
        moves = trans
    planes = Planes(t, x)
    places, inside = [], []
    for axis, count, size in ((0, pooled_w, planes.width), (1, pooled_h, planes.height)):
        move = None if moves is None else _picked(t, moves, axis, 3) * trans_std
        place = _samples(t, rois, move, axis, count, sample_per_part, spatial_scale)
        inside.append(call("And", place >= -0.5, place <= size - 0.5))
        places.append(call("Clip", place, 0, size - 1))
    kept = call("And", inside[0], inside[1]).cast(FLOAT)
    sums = planes.at(_picked(t, rois, 0, 1), places[0], places[1], kept)
    sums = t.op("Transpose", [sums], perm=[0, 3, 1, 2])
    counts = t.op("Unsqueeze", [t.op("ReduceSum", [kept.value, t.ints([3, 4])], keepdims=0), t.ints(1)])
    means = t.op("Div", [sums, t.op("Max", [counts, t.constant(1, FLOAT)])])
    return means, t.op("Expand", [counts, t.op("Shape", [means])])


def _picked(t: MgeTape, values: ir.Value, place: int, rank: int) -> Number:
    """One of the numbers along axis 1, for [regions, rows, columns, samples, samples]."""
    found = t.op("Gather", [values, t.constant(place, INT64)], axis=1)
    return Number(t, t.op("Unsqueeze", [found, t.ints(list(range(rank, 5)))]))


def _samples(t: MgeTape, rois: ir.Value, move: Number | None, axis: int, count: int, each: int, scale: float) -> Number:
    """Where the samples of regions lie along the x axis (0) or the y axis (1)."""
    ends = [Number(t, round_half_away(t, _picked(t, rois, 1 + axis + 2 * end, 1).value)) for end in (0, 1)]
    start, stop = ends[0] * scale - 0.5, (ends[1] + 1) * scale - 0.5
    length = call("Max", stop - start, LEAST_SIDE)
    field = length / count
    place = _steps(t, count, 2 - axis) * field + start
    if move is not None:
        place = place + move * length
    return place + _steps(t, each, 4 - axis) * (field / each)


def _steps(t: MgeTape, count: int, axis: int) -> Number:
    shape = [1] * 5
    shape[axis] = t.bounded(count)
    return Number(t, t.constant(np.arange(count, dtype=np.float32).reshape(shape)))


class Planes:
    """Planes of [N, C, H, W], to take numbers from between their places."""

    def __init__(self, t: MgeTape, x: ir.Value) -> None:
        """Put the channels of a place behind each other."""
        batch, channels, self.height, self.width = t.sizes(x)
        moved = t.op("Transpose", [x], perm=[0, 2, 3, 1])
        self._t = t
        self._pixels = t.op("Reshape", [moved, t.ints([batch * self.height * self.width, channels])])

    def at(self, sample: Number, x: Number, y: Number, weight: Number) -> ir.Value:
        """Sums over the last two axes of weighted numbers between four places; channels come last."""
        total = None
        for near_x in (True, False):
            for near_y in (True, False):
                part = self._corner(sample, _edge(x, near_x), _edge(y, near_y))
                share = _share(x, near_x) * _share(y, near_y) * weight
                part = part * Number(self._t, self._t.op("Unsqueeze", [share.value, self._t.ints(-1)]))
                total = part if total is None else total + part
        assert total is not None
        summed: ir.Value = self._t.op("ReduceSum", [total.value, self._t.ints([3, 4])], keepdims=0)
        return summed

    def _corner(self, sample: Number, x: Number, y: Number) -> Number:
        place = (sample.cast(INT64) * self.height + y.cast(INT64)) * self.width + x.cast(INT64)
        return Number(self._t, self._t.op("Gather", [self._pixels, place.value], axis=0))


def _edge(place: Number, near: bool) -> Number:
    return call("Floor" if near else "Ceil", place)


def _share(place: Number, near: bool) -> Number:
    beyond = place - call("Floor", place)
    return 1 - beyond if near else beyond

"""Boxes: suppression of overlapping ones, and pooling of regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.quantised import round_half_away
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

BOOL, FLOAT, INT32, INT64 = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
MOST_KEPT = 1 << 24
LEAST_THRESHOLD = 1e-20
LARGEST_ROI = 4096  # rows or columns of one whose bins are looked up


# Suppression ----------------------------------------------------------------------------------------------------------


@op("NMSKeepMGB")
def nms_keep(t: MgeTape, boxes: ir.Value, *, iou_thresh: float, max_output: int) -> Any:
    """Which of the boxes, sorted by score, to keep: indices, filled up with the last one, and how many there are."""
    batch = t.known_sizes(boxes)[0] if t.rank(boxes) == 3 else None
    if batch is None or iou_thresh < 0 or not 0 < max_output <= MOST_KEPT:
        t.refuse(f"{batch} batches of boxes, threshold {iou_thresh}, at most {max_output} boxes kept")
    keep, counts = [], []
    for index in range(t.bounded(batch)):
        own = boxes if batch == 1 else _rows(t, boxes, index)
        found = _kept(t, own, iou_thresh, max_output)
        count = t.cast(t.op("Shape", [found]), INT32)
        # Where none is kept, the index 0 is never read.
        found = t.op("Concat", [t.cast(found, INT32), t.constant([0], INT32)], axis=0)
        zero, one = t.constant(0, INT32), t.constant(1, INT32)
        places = t.op("Range", [zero, t.constant(max_output, INT32), one])
        places = t.op("Max", [t.op("Min", [places, t.op("Sub", [count, one])]), zero])
        keep.append(t.op("Unsqueeze", [t.op("Gather", [found, places], axis=0), t.constant([0], INT64)]))
        counts.append(count)
    return _joined(t, keep), _joined(t, counts)


def _kept(t: MgeTape, boxes: ir.Value, threshold: float, most: int) -> ir.Value:
    """The indices of the boxes to keep, of one batch."""
    start, end = _columns(t, boxes, 0, 2), _columns(t, boxes, 2, 4)
    areas = t.op("ReduceProd", [t.op("Sub", [end, start]), t.constant([2], INT64)], keepdims=0)
    areas = t.op("Squeeze", [areas, t.constant([0], INT64)])
    # Boxes without area overlap none: in place of those with an edge before its start, and where no overlap counts.
    if threshold >= 1:
        boxes, threshold = t.op("Concat", [start, start], axis=2), 0.5
    else:
        boxes = t.op("Concat", [start, t.op("Max", [start, end], like=start)], axis=2)
    count = t.op("Squeeze", [t.op("Shape", [boxes], start=1, end=2), t.constant([0], INT64)])
    scores = t.cast(t.op("Range", [count, t.constant(0, INT64), t.constant(-1, INT64)]), FLOAT)
    if threshold > 0:
        scores = _without_negative(t, boxes, areas, scores, threshold, most)
    return _suppress(t, boxes, scores, threshold, most)


def _suppress(t: MgeTape, boxes: ir.Value, scores: ir.Value, threshold: float, most: int) -> ir.Value:
    """The indices of boxes by descending scores, less those that overlap one before; all below zero are left out."""
    # Engines differ in whether a box at the threshold is kept; MegEngine keeps it.
    threshold = max(float(np.nextafter(np.float32(threshold), np.float32(2))), LEAST_THRESHOLD)
    scores = t.op("Unsqueeze", [scores, t.constant([0, 1], INT64)])
    limits = [t.constant([most], INT64), t.constant([threshold], FLOAT), t.constant([0], FLOAT)]
    chosen = t.op("NonMaxSuppression", [boxes, scores, *limits], dtype=INT64, shape=[None, 3])
    kept: ir.Value = t.op("Gather", [chosen, t.constant(2, INT64)], axis=1)
    return kept


def _without_negative(
    t: MgeTape, boxes: ir.Value, areas: ir.Value, scores: ir.Value, threshold: float, most: int
) -> ir.Value:
    """The scores, -1 for all boxes that go because of a negative area, their own or another's.

    MegEngine takes the areas of two boxes together, so a box with one inverted edge suppresses, and is suppressed by,
    every smaller one. So one such box is kept at most: the first one that all boxes kept before are as large as.
    """
    negative = t.op("Less", [areas, t.constant(0, FLOAT)])
    flags = t.op("Concat", [t.cast(negative, INT32), t.constant([0], INT32)], axis=0)
    condition = t.cast(t.op("ReduceMax", [flags], keepdims=0), BOOL)
    with t.into([]) as nodes:
        chosen = _scores_by_area(t, boxes, areas, scores, threshold, most)
    then = ir.Graph([], [chosen], nodes=nodes, name=t.name())
    with t.into([]) as nodes:
        same = t.op("Identity", [scores], like=scores)
    otherwise = ir.Graph([], [same], nodes=nodes, name=t.name())
    made: ir.Value = t.op("If", [condition], then_branch=then, else_branch=otherwise, like=scores)
    return made


def _scores_by_area(
    t: MgeTape, boxes: ir.Value, areas: ir.Value, scores: ir.Value, threshold: float, most: int
) -> ir.Value:
    zero, none = t.constant(0, FLOAT), t.constant(-1, FLOAT)
    sound = t.op("GreaterOrEqual", [areas, zero])
    kept = _suppress(t, boxes, t.op("Where", [sound, scores, none]), threshold, most)
    # The smallest area that is kept before each box.
    kept_scores, kept_areas = (t.op("Gather", [value, kept], axis=0) for value in (scores, areas))
    before = t.op("Less", [t.op("Unsqueeze", [scores, t.constant([1], INT64)]), kept_scores])
    far = t.constant(np.float32(np.inf))
    smallest = t.op("Where", [before, kept_areas, far])
    ends = t.op("Expand", [far, t.op("Concat", [t.op("Shape", [scores]), t.constant([1], INT64)], axis=0)])
    smallest = t.op("Concat", [smallest, ends], axis=1)
    smallest = t.op("ReduceMin", [smallest, t.constant([1], INT64)], keepdims=0)
    size = t.op("Neg", [areas])
    stays = t.op("And", [t.op("Not", [sound]), t.op("LessOrEqual", [size, smallest])])
    # The score and the size of the first one that stays; no box is behind a score of zero.
    score = t.op("ReduceMax", [t.op("Where", [stays, scores, zero])], keepdims=0)
    first = t.op("Equal", [scores, score])
    size = t.op("ReduceMax", [t.op("Where", [first, size, zero])], keepdims=0)
    smaller = t.op("And", [t.op("Less", [scores, score]), t.op("Less", [areas, size])])
    remains = t.op("Or", [t.op("And", [sound, t.op("Not", [smaller])]), first])
    made: ir.Value = t.op("Where", [remains, scores, none])
    return made


def _columns(t: MgeTape, value: ir.Value, start: int, end: int) -> ir.Value:
    """A part of the last axis."""
    bounds = [t.constant([number], INT64) for number in (start, end, -1)]
    made: ir.Value = t.op("Slice", [value, *bounds])
    return made


def _rows(t: MgeTape, value: ir.Value, index: int) -> ir.Value:
    bounds = [t.constant([number], INT64) for number in (index, index + 1, 0)]
    made: ir.Value = t.op("Slice", [value, *bounds])
    return made


def _joined(t: MgeTape, values: list[ir.Value]) -> ir.Value:
    joined: ir.Value = values[0] if len(values) == 1 else t.op("Concat", values, axis=0)
    return joined


# Regions of interest --------------------------------------------------------------------------------------------------


@op("ROIAlign")
def roi_align(
    t: MgeTape,
    x: ir.Value,
    rois: ir.Value,
    *,
    mode: str,
    format: str,
    spatial_scale: float,
    offset: float,
    pooled_height: int,
    pooled_width: int,
    sample_height: int,
    sample_width: int,
) -> Any:
    """Samples on a grid in each region, pooled. What lies outside the image is zero."""
    pooled, samples = (pooled_height, pooled_width), (sample_height, sample_width)
    if format != "NCHW" or min(*pooled, *samples) < 1:
        t.refuse(f"format {format}, {pooled} bins of {samples} samples")
    _check(t, x, rois)
    dtype = t.dtype(x)
    if t.known_sizes(rois)[0] == 0:  # engines may fail on a shape that is known to be empty
        return _nothing(t, x, pooled)
    # ONNX repeats the edge of the image one pixel far: a frame of zeros makes that what MegEngine computes.
    framed = t.op("Pad", [t.cast(x, FLOAT), t.constant([0, 0, 1, 1, 0, 0, 1, 1], INT64)])
    boxes = t.cast(_columns(t, rois, 1, 5), FLOAT)
    if spatial_scale != 1:
        boxes = t.op("Mul", [boxes, t.constant(spatial_scale, FLOAT)])
    boxes = t.op("Add", [boxes, t.constant(1.5 - offset, FLOAT)])  # ONNX takes half a pixel off
    start, end = _columns(t, boxes, 0, 2), _columns(t, boxes, 2, 4)
    boxes = t.op("Concat", [start, t.op("Max", [start, end])], axis=1)
    operands = [framed, boxes, _batches(t, rois)]
    if mode == "AVERAGE" and sample_height == sample_width:
        return t.cast(_aligned(t, operands, pooled, sample_height), dtype), None
    grid = _aligned(t, operands, (pooled[0] * samples[0], pooled[1] * samples[1]), 1)
    pool = "AveragePool" if mode == "AVERAGE" else "MaxPool"
    result = t.op(pool, [grid], kernel_shape=samples, strides=samples)
    index = _sample_index(t, grid, pooled, samples) if mode == "MAX" else None
    return t.cast(result, dtype), index


def _check(t: MgeTape, x: ir.Value, rois: ir.Value) -> None:
    if t.rank(x) != 4 or t.rank(rois) != 2 or t.known_sizes(rois)[1] != 5:
        t.refuse(f"images of rank {t.rank(x)} and regions of shape {t.known_sizes(rois)}")


def _nothing(t: MgeTape, x: ir.Value, pooled: Sequence[int]) -> tuple[ir.Value, ir.Value]:
    """The results for no regions."""
    shape = [0, t.sizes(x)[1], *pooled]
    return t.constant(np.zeros(shape), t.dtype(x)), t.constant(np.zeros(shape), INT32)


def _batches(t: MgeTape, rois: ir.Value) -> ir.Value:
    """The image that each region is of."""
    return t.cast(t.op("Gather", [rois, t.constant(0, INT64)], axis=1), INT64)


def _aligned(t: MgeTape, operands: list[ir.Value], size: tuple[int, int], ratio: int) -> ir.Value:
    height, width = size
    made: ir.Value = t.op(
        "RoiAlign",
        operands,
        coordinate_transformation_mode="half_pixel",
        mode="avg",
        output_height=height,
        output_width=width,
        sampling_ratio=ratio,
        spatial_scale=1.0,
        dtype=FLOAT,
        shape=[t.known_sizes(operands[1])[0], t.known_sizes(operands[0])[1], height, width],
    )
    return made


def _sample_index(t: MgeTape, grid: ir.Value, pooled: tuple[int, int], samples: tuple[int, int]) -> ir.Value:
    """Which sample of each bin is the largest."""
    channels = t.known_sizes(grid)[1]
    if channels is None:
        t.refuse("a number of channels that depends on the data")
    split = [-1, channels, pooled[0], samples[0], pooled[1], samples[1]]
    bins = t.op("Reshape", [grid, t.constant(split, INT64)])
    bins = t.op("Transpose", [bins], perm=[0, 1, 2, 4, 3, 5])
    bins = t.op("Reshape", [bins, t.constant([-1, channels, *pooled, samples[0] * samples[1]], INT64)])
    return t.cast(t.op("ArgMax", [bins], axis=-1, keepdims=0), INT32)


@op("ROIPooling")
def roi_pooling(t: MgeTape, x: ir.Value, rois: ir.Value, size: ir.Value, *, mode: str, scale: float) -> Any:
    """The largest or the mean pixel of each bin of each region, and which one is the largest."""
    _check(t, x, rois)
    pooled = t.literal(t.ints(size))
    if len(pooled) != 2 or min(pooled) < 1:
        t.refuse(f"{pooled} bins")
    if t.known_sizes(rois)[0] == 0:
        return _nothing(t, x, pooled)
    dtype = t.dtype(x)
    x, rois = t.cast(x, FLOAT), t.cast(rois, FLOAT)
    rows, columns = _bins(t, rois, scale, pooled, t.sizes(x))
    if mode == "AVERAGE":
        return t.cast(_bin_means(t, x, _batches(t, rois), rows, columns), dtype), None
    shape = [t.known_sizes(rois)[0], t.sizes(x)[1], *pooled]
    result = t.op("MaxRoiPool", [x, rois], pooled_shape=pooled, spatial_scale=scale, dtype=FLOAT, shape=shape)
    return t.cast(result, dtype), _largest(t, x, _batches(t, rois), rows, columns)


def _bins(
    t: MgeTape, rois: ir.Value, scale: float, pooled: tuple[int, int], sizes: tuple[int, ...]
) -> tuple[ir.Value, ir.Value]:
    """Which rows and which columns of the image belong to the bins: bools of shape regions x bins x pixels."""
    corners = round_half_away(t, t.op("Mul", [_columns(t, rois, 1, 5), t.constant(scale, FLOAT)]))
    masks = []
    for first, bins, pixels in ((1, pooled[0], sizes[2]), (0, pooled[1], sizes[3])):
        start, end = _columns(t, corners, first, first + 1), _columns(t, corners, first + 2, first + 3)
        one = t.constant(1, FLOAT)
        length = t.op("Max", [t.op("Add", [t.op("Sub", [end, start]), one]), one])
        step = _quotient(t, length, t.bounded(bins))
        number = np.arange(bins, dtype=np.float32)[None]
        low = t.op("Add", [t.op("Floor", [t.op("Mul", [t.constant(number), step])]), start])
        high = t.op("Add", [t.op("Ceil", [t.op("Mul", [t.constant(number + 1), step])]), start])
        low, high = (t.op("Unsqueeze", [bound, t.constant([2], INT64)]) for bound in (low, high))
        pixel = t.constant(np.arange(pixels, dtype=np.float32))
        inside = [t.op("LessOrEqual", [low, pixel]), t.op("Less", [pixel, high])]
        masks.append(t.op("And", inside))
    return masks[0], masks[1]


def _quotient(t: MgeTape, length: ir.Value, bins: int) -> ir.Value:
    """Whole positive floats divided by an integer; looked up, where an engine may multiply by the inverse instead."""
    table = np.arange(LARGEST_ROI + 1, dtype=np.float32) / np.float32(bins)
    place = t.cast(t.op("Min", [length, t.constant(LARGEST_ROI, FLOAT)]), INT32)
    found = t.op("Gather", [t.constant(table), place], axis=0)
    small = t.op("LessOrEqual", [length, t.constant(LARGEST_ROI, FLOAT)])
    made: ir.Value = t.op("Where", [small, found, t.op("Div", [length, t.constant(bins, FLOAT)])])
    return made


def _bin_means(t: MgeTape, x: ir.Value, batches: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
    """The mean pixel of each bin, 0 of an empty one: the sums are products with the bins' masks."""
    images, channels, height, width = t.sizes(x)
    bins = t.known_sizes(rows)[1]
    rows, columns = t.cast(rows, FLOAT), t.cast(columns, FLOAT)
    per_row, per_column = (t.op("ReduceSum", [mask, t.constant([2], INT64)]) for mask in (rows, columns))
    # The images below each other; a region has rows in its own only.
    own = t.op("Equal", [t.op("Unsqueeze", [batches, t.constant([1], INT64)]), t.constant(np.arange(images)[None])])
    own = t.op("Unsqueeze", [t.cast(own, FLOAT), t.constant([1, 3], INT64)])
    rows = t.op("Mul", [t.op("Unsqueeze", [rows, t.constant([2], INT64)]), own])
    rows = t.op("Reshape", [rows, t.constant([-1, 1, bins, images * height], INT64)])
    stacked = t.op("Transpose", [x], perm=[1, 0, 2, 3])
    stacked = t.op("Reshape", [stacked, t.constant([1, channels, images * height, width], INT64)])
    columns = t.op("Unsqueeze", [t.op("Transpose", [columns], perm=[0, 2, 1]), t.constant([1], INT64)])
    sums = t.op("MatMul", [t.op("MatMul", [rows, stacked]), columns])
    count = t.op("Mul", [per_row, t.op("Transpose", [per_column], perm=[0, 2, 1])])
    count = t.op("Unsqueeze", [t.op("Max", [count, t.constant(1, FLOAT)]), t.constant([1], INT64)])
    means: ir.Value = t.op("Div", [sums, count])
    return means


def _largest(t: MgeTape, x: ir.Value, batches: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
    """Which pixel of the image is the largest of each bin; -1 of an empty one."""
    _, channels, height, width = t.sizes(x)
    bins = [t.known_sizes(rows)[1], t.known_sizes(columns)[1]]
    rows = t.op("Unsqueeze", [rows, t.constant([2, 4], INT64)])
    columns = t.op("Unsqueeze", [columns, t.constant([1, 3], INT64)])
    inside = t.op("And", [rows, columns])
    inside = t.op("Reshape", [inside, t.constant([-1, 1, *bins, height * width], INT64)])
    pixels = t.op("Gather", [x, batches], axis=0)
    pixels = t.op("Reshape", [pixels, t.constant([-1, channels, 1, 1, height * width], INT64)])
    lowest = t.constant(np.finfo(np.float32).min)
    index = t.cast(t.op("ArgMax", [t.op("Where", [inside, pixels, lowest])], axis=-1, keepdims=0), INT32)
    any_pixel = t.op("ReduceMax", [t.cast(inside, INT32), t.constant([4], INT64)], keepdims=0)
    made: ir.Value = t.op("Where", [t.cast(any_pixel, BOOL), index, t.constant(-1, INT32)])
    return made

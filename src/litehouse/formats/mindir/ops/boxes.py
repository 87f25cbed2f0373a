"""Bounding boxes, as corners (x0, y0, x1, y1)."""

import math
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
TINY = 1e-10


def _split(t: MindirTape, boxes: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The two corners, each with columns (x, y)."""
    first, second = t.op("Split", [t.cast(boxes, FLOAT)], axis=1, num_outputs=2, outputs=2)
    return first, second


def _number(t: MindirTape, *values: float) -> ir.Value:
    return t.constant(values[0] if len(values) == 1 else [list(values)], FLOAT)


# Overlap --------------------------------------------------------------------------------------------------------------


@op("IOU")
def intersection_over_union(t: MindirTape, anchor_boxes: ir.Value, gt_boxes: ir.Value, *, mode: str = "iou") -> Any:
    """A row per true box, a column per anchor. Corners are pixels that belong to the box."""
    anchors, anchor_ends = (t.op("Unsqueeze", [corner, t.ints(0)]) for corner in _split(t, anchor_boxes))
    truths, truth_ends = (t.op("Unsqueeze", [corner, t.ints(1)]) for corner in _split(t, gt_boxes))

    def area(start: ir.Value, end: ir.Value) -> ir.Value:
        sides = t.op("Relu", [t.op("Add", [t.op("Sub", [end, start]), _number(t, 1)])])
        product: ir.Value = t.op("ReduceProd", [sides, t.ints(2)], keepdims=0, dtype=FLOAT)
        return product

    common = area(t.op("Max", [anchors, truths]), t.op("Min", [anchor_ends, truth_ends]))
    whole = area(truths, truth_ends)
    if mode == "iou":
        whole = t.op("Sub", [t.op("Add", [whole, area(anchors, anchor_ends)]), common])
    share = t.op(
        "Div", [common, t.op("Max", [whole, _number(t, TINY)])], dtype=FLOAT
    )  # boxes without area share nothing
    return t.cast(share, t.result_dtype())


@op("NMSWithMask")
def nms_with_mask(t: MindirTape, bboxes: ir.Value, *, iou_threshold: float = 0.5) -> Any:
    """Boxes with scores, sorted; their numbers; and which of them no better box overlaps too much."""
    table = t.cast(bboxes, FLOAT)
    count = t.op("Shape", [bboxes], start=0, end=1)
    scores = t.op("Squeeze", [t.op("Gather", [table, t.ints(4)], axis=1), t.ints(1)])
    _, order = t.op("TopK", [scores, count], outputs=2)
    sorted_boxes = t.op("Gather", [bboxes, order], axis=0, dtype=bboxes.dtype)
    corners = t.op("Slice", [t.cast(sorted_boxes, FLOAT), t.ints(0), t.ints(4), t.ints(1)])
    # Falling numbers in place of the scores: equal scores must keep the order that they have now.
    rank = t.op("Range", [t.op("Squeeze", [count]), t.constant(0, INT64), t.constant(-1, INT64)], dtype=INT64)
    batch = t.op("Reshape", [corners, t.ints((1, -1, 4))])
    ranks = t.op("Unsqueeze", [t.cast(rank, FLOAT), t.ints((0, 1))])
    kept = t.op("NonMaxSuppression", [batch, ranks, count, t.constant([iou_threshold], FLOAT)], center_point_box=0)
    places = t.op("Squeeze", [t.op("Gather", [kept, t.ints(2)], axis=1), t.ints(1)])
    zeros = t.op("Expand", [t.constant(0, INT64), count])
    ones = t.op("Expand", [t.constant(1, INT64), t.op("Shape", [places])])
    mask = t.op("ScatterElements", [zeros, places, ones], axis=0, dtype=INT64)
    numbers = t.op("Range", [t.constant(0, INT64), t.op("Squeeze", [count]), t.constant(1, INT64)], dtype=INT64)
    return (sorted_boxes, t.cast(numbers, t.result_dtype(1)), t.cast(mask, ir.DataType.BOOL))


@op("NonMaxSuppressionV3")
def non_max_suppression(
    t: MindirTape,
    boxes: ir.Value,
    scores: ir.Value,
    max_output_size: Any,
    iou_threshold: Any,
    score_threshold: Any,
) -> Any:
    """The places of the boxes that no better box overlaps too much, the best first."""
    batch = t.op("Reshape", [t.cast(boxes, FLOAT), t.ints((1, -1, 4))])
    ranks = t.op("Unsqueeze", [t.cast(scores, FLOAT), t.ints((0, 1))])
    limits = [t.op("Reshape", [t.tensor(limit, FLOAT), t.ints(1)]) for limit in (iou_threshold, score_threshold)]
    kept = t.op("NonMaxSuppression", [batch, ranks, t.ints(max_output_size), *limits], center_point_box=0)
    places = t.op("Squeeze", [t.op("Gather", [kept, t.ints(2)], axis=1), t.ints(1)], dtype=INT64)
    return t.cast(places, t.result_dtype())


# Offsets from anchors -------------------------------------------------------------------------------------------------


@op("BoundingBoxDecode")
def bounding_box_decode(
    t: MindirTape,
    anchor_box: ir.Value,
    deltas: ir.Value,
    *,
    max_shape: Any = None,
    means: Any = (0.0, 0.0, 0.0, 0.0),
    stds: Any = (1.0, 1.0, 1.0, 1.0),
    wh_ratio_clip: float = 0.016,
) -> Any:
    centre, size = _centre_and_size(t, anchor_box)
    moves = t.op("Add", [t.op("Mul", [t.cast(deltas, FLOAT), _number(t, *stds)]), _number(t, *means)])
    shift, growth = t.op("Split", [moves], axis=1, num_outputs=2, outputs=2)
    limit = abs(math.log(wh_ratio_clip))
    new_size = t.op("Mul", [size, t.op("Exp", [t.op("Clip", [growth, _number(t, -limit), _number(t, limit)])])])
    new_centre = t.op("Add", [centre, t.op("Mul", [size, shift])])
    reach = t.op("Sub", [t.op("Mul", [new_size, _number(t, 0.5)]), _number(t, 0.5)])
    corners = [t.op("Sub", [new_centre, reach]), t.op("Add", [new_centre, reach])]
    if max_shape is not None:
        height, width = max_shape
        limits = _number(t, width, height)
        corners = [t.op("Max", [t.op("Min", [corner, limits]), _number(t, 0)]) for corner in corners]
    return t.cast(t.op("Concat", corners, axis=1, dtype=FLOAT), t.dtype(anchor_box))


@op("BoundingBoxEncode")
def bounding_box_encode(
    t: MindirTape,
    anchor_box: ir.Value,
    groundtruth_box: ir.Value,
    *,
    means: Any = (0.0, 0.0, 0.0, 0.0),
    stds: Any = (1.0, 1.0, 1.0, 1.0),
) -> Any:
    centre, size = _centre_and_size(t, anchor_box)
    true_centre, true_size = _centre_and_size(t, groundtruth_box)
    shift = t.op("Div", [t.op("Sub", [true_centre, centre]), size])
    growth = t.op("Log", [t.op("Div", [true_size, size])])
    moves = t.op("Sub", [t.op("Concat", [shift, growth], axis=1), _number(t, *means)])
    return t.cast(t.op("Div", [moves, _number(t, *stds)], dtype=FLOAT), t.dtype(anchor_box))


def _centre_and_size(t: MindirTape, boxes: ir.Value) -> tuple[ir.Value, ir.Value]:
    start, end = _split(t, boxes)
    centre = t.op("Mul", [t.op("Add", [start, end]), _number(t, 0.5)])
    return centre, t.op("Add", [t.op("Sub", [end, start]), _number(t, 1)])


@op("CheckValid")
def check_valid(t: MindirTape, bboxes: ir.Value, img_metas: ir.Value) -> Any:
    """Whether each box lies inside an image of (height, width) times a ratio."""
    start, end = _split(t, bboxes)
    metas = t.cast(img_metas, FLOAT)
    sides = t.op("Mul", [t.op("Gather", [metas, t.ints((1, 0))]), t.op("Gather", [metas, t.ints(2)])])
    limits = t.op("Sub", [sides, _number(t, 1)])
    inside = t.op("And", [t.op("GreaterOrEqual", [start, _number(t, 0)]), t.op("LessOrEqual", [end, limits])])
    lowest = t.op("ReduceMin", [t.op("Cast", [inside], to=int(ir.DataType.INT32)), t.ints(1)], keepdims=0)
    return t.op("Cast", [lowest], to=int(ir.DataType.BOOL))

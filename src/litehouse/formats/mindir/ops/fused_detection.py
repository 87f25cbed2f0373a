"""The last step of object detectors in MindSpore Lite's dialect: anchors, and choosing among boxes."""

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.layout import is_channels_last
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


@op("PriorBox")
def prior_box(
    t: MindirTape,
    features: ir.Value,
    image: ir.Value | None = None,
    *,
    min_sizes: Any,
    max_sizes: Any = (),
    aspect_ratios: Any = (),
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    image_size_w: Any = 0,
    image_size_h: Any = 0,
    step_w: Any = 0.0,
    step_h: Any = 0.0,
    clip: Any = False,
    flip: Any = False,
    offset: Any = 0.5,
    format: Any = 0,
) -> Any:
    """The anchors of every place of a feature map, then as many variances; both depend on sizes alone."""
    first = 1 if is_channels_last(t, format) else 2
    rows, columns = t.sizes(features)[first : first + 2]
    height, width = (image_size_h, image_size_w)
    if not (height and width):
        if image is None:
            t.refuse("the size of the image is not stated")
        height, width = t.sizes(image)[first : first + 2]
    sides = _sides(min_sizes, max_sizes, aspect_ratios, bool(flip))
    scale = np.array([(step_w or width / columns) * columns, (step_h or height / rows) * rows])
    halves = np.array(sides) / scale / 2
    t.bounded(rows * columns * len(sides))
    across, down = (np.arange(columns) + offset) / columns, (np.arange(rows) + offset) / rows
    centres = np.stack(np.meshgrid(across, down), axis=-1)[:, :, None]
    boxes = np.concatenate([centres - halves, centres + halves], axis=-1)
    boxes = np.clip(boxes, 0, 1) if clip else boxes
    spread = np.broadcast_to(np.resize(variances, 4), boxes.shape)
    flat = np.concatenate([boxes.ravel(), spread.ravel()])
    return t.constant(flat.reshape(1, -1, 1, 2), FLOAT)


def _sides(min_sizes: Any, max_sizes: Any, aspect_ratios: Any, flip: bool) -> list[tuple[float, float]]:
    """Widths and heights: of each size itself, of what lies between it and the next, then of the other ratios."""
    ratios = [1.0]
    for ratio in aspect_ratios:
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    sides = []
    for place, size in enumerate(min_sizes):
        sides.append((float(size), float(size)))
        if max_sizes:
            sides.append((math.sqrt(size * max_sizes[place]),) * 2)
        sides += [(size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios[1:]]
    return sides


@op("DetectionPostProcess")
def detection_post_process(
    t: MindirTape,
    boxes: ir.Value,
    scores: ir.Value,
    anchors: ir.Value,
    *,
    scale: Any,
    nms_iou_threshold: Any,
    nms_score_threshold: Any,
    max_detections: Any,
    detections_per_class: Any = 100,
    max_classes_per_detection: Any = 1,
    num_classes: Any,
    use_regular_nms: Any = False,
) -> Any:
    """Boxes, classes, scores and their count, the best first, with zeros behind them.

    The fast way takes the best class of each box; the regular one looks for the best boxes of each class.
    """
    if t.literal(max_classes_per_detection) != 1:
        t.refuse("several classes for one box")
    most = t.bounded(t.literal(max_detections))
    corners = _decoded(t, boxes, anchors, t.literal(scale))
    # Without the background, which comes first where there is one.
    real = t.op("Slice", [t.cast(scores, FLOAT), t.ints(-t.literal(num_classes)), t.ints(2**31), t.ints(2)])
    by_class = t.op("Transpose", [real], perm=(0, 2, 1))
    ranked = by_class if use_regular_nms else t.op("ReduceMax", [by_class, t.ints(1)], keepdims=1)
    limit = t.literal(detections_per_class) if use_regular_nms else most
    least = np.nextafter(np.float32(nms_score_threshold), np.float32(-np.inf))  # a score may be as small as that
    thresholds = [t.constant([number], FLOAT) for number in (nms_iou_threshold, least)]
    kept = t.op("NonMaxSuppression", [corners, ranked, t.ints(limit), *thresholds], dtype=INT64)
    _, row, place = (t.op("Gather", [kept, t.constant(column, INT64)], axis=1) for column in range(3))
    at = t.op("Concat", [t.op("Unsqueeze", [each, t.ints(1)]) for each in (row, place)], axis=1)
    found = t.op("GatherND", [t.op("Squeeze", [ranked, t.ints(0)]), at], dtype=FLOAT)
    count = t.op("Min", [t.op("Shape", [found]), t.ints(most)], dtype=INT64)
    best, order = t.op("TopK", [found, count], outputs=2)
    place, row = (t.op("Gather", [each, order]) for each in (place, row))
    if not use_regular_nms:
        row = t.op("Gather", [t.op("Squeeze", [t.op("ArgMax", [by_class], axis=1, keepdims=0), t.ints(0)]), place])
    chosen = t.op("Gather", [t.op("Squeeze", [corners, t.ints(0)]), place])
    missing = t.op("Sub", [t.ints(most), count])
    classes = t.op("Cast", [row], to=int(FLOAT))
    return (
        _padded(t, chosen, missing, 2),
        _padded(t, classes, missing, 1),
        _padded(t, best, missing, 1),
        t.cast(count, FLOAT),
    )


def _decoded(t: MindirTape, boxes: ir.Value, anchors: ir.Value, scale: Any) -> ir.Value:
    """Corners (y, x, y, x) from centres and sizes (y, x, h, w) that are stated relative to the anchors."""
    shift, growth = t.op("Split", [t.cast(boxes, FLOAT)], axis=-1, num_outputs=2, outputs=2)
    middle, size = t.op("Split", [t.cast(anchors, FLOAT)], axis=-1, num_outputs=2, outputs=2)
    moved = t.op("Mul", [t.op("Div", [shift, t.constant(scale[:2], FLOAT)]), size])
    centre = t.op("Add", [moved, middle])
    grown = t.op("Mul", [t.op("Exp", [t.op("Div", [growth, t.constant(scale[2:], FLOAT)])]), size])
    half = t.op("Mul", [grown, t.constant(0.5, FLOAT)])
    corners: ir.Value = t.op("Concat", [t.op("Sub", [centre, half]), t.op("Add", [centre, half])], axis=-1, dtype=FLOAT)
    return corners


def _padded(t: MindirTape, rows: ir.Value, missing: ir.Value, rank: int) -> ir.Value:
    """The rows with zeros behind them, and an axis for the batch in front."""
    behind = t.op("Concat", [t.ints((0,) * rank), missing, *([t.ints(0)] if rank == 2 else [])], axis=0)
    batch: ir.Value = t.op("Unsqueeze", [t.op("Pad", [rows, behind]), t.ints(0)], dtype=FLOAT)
    return batch

"""Detection cases: regions of interest, suppression of overlapping boxes."""

import megengine as mge
import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import RAW, add, applied, case, f32, run_op, values

X = f32(2, 2, 8, 9)
INSIDE = values([[0, 1, 1, 6, 5], [1, 2.3, 0.7, 7.1, 6.9], [0, 3, 2, 4.5, 6]])
OUTSIDE = values([[0, -3, -2, 4, 5], [1, 5, 4, 14, 13], [1, 2, 2, 2, 2], [0, 6, 5, 3, 1], [0, 20, 20, 30, 30]])
for name, rois in {"inside": INSIDE, "outside": OUTSIDE}.items():
    for mode in ("average", "max"):
        add(f"roi_align_{mode}_{name}", lambda x, y, mode=mode: F.vision.roi_align(x, y, (3, 2), mode=mode), X, rois)
        add(
            f"roi_align_{mode}_{name}_not_aligned",
            lambda x, y, mode=mode: F.vision.roi_align(x, y, (2, 2), mode=mode, aligned=False),
            X,
            rois,
        )
        add(
            f"roi_align_{mode}_{name}_scaled",
            lambda x, y, mode=mode: F.vision.roi_align(x, y, 2, mode=mode, spatial_scale=0.5, sample_points=3),
            X,
            rois,
        )
        add(
            f"roi_pooling_{mode}_{name}", lambda x, y, mode=mode: F.vision.roi_pooling(x, y, (3, 2), mode=mode), X, rois
        )
        add(
            f"roi_pooling_{mode}_{name}_scaled",
            lambda x, y, mode=mode: F.vision.roi_pooling(x, y, 2, mode=mode, scale=0.5),
            X,
            rois,
        )
add("roi_align_samples_3x1", lambda x, y: F.vision.roi_align(x, y, (2, 3), sample_points=(3, 1)), X, INSIDE)
add(
    "roi_align_indices",
    applied(builtin.ROIAlign(mode="MAX", pooled_height=2, pooled_width=2, sample_height=2, sample_width=2)),
    X,
    INSIDE,
    **RAW,
)
add(
    "roi_pooling_indices",
    lambda x, y: run_op(builtin.ROIPooling(mode="MAX", scale=1.0), x, y, mge.Tensor([2, 3], dtype="int32")),
    X,
    INSIDE,
    **RAW,
)
add(
    "roi_align_resized",
    lambda x, y: F.vision.roi_align(x, y, (2, 2)),
    X,
    INSIDE,
    resized=[f32(2, 2, 11, 7), INSIDE[:2]],
)
add("roi_align_v1", lambda x, y: F.vision.roi_align(x, y, (2, 2)), X, INSIDE, dump_format="FBS")
add(
    "deformable_psroi_pooling_no_trans",
    lambda x, y, z: F.nn.deformable_psroi_pooling(x, y, z, True, 2, 4, 2, 2, 1.0, 0.1),
    f32(2, 8, 8, 9),
    INSIDE,
    f32(3, 2, 2, 2, low=-1, high=1),
)
add(
    "deformable_psroi_pooling",
    lambda x, y, z: F.nn.deformable_psroi_pooling(x, y, z, False, 2, 2, 2, 3, 0.7, 0.3),
    f32(2, 8, 8, 9),
    INSIDE,
    f32(3, 2, 2, 2, low=-1, high=1),
)

BOXES = values([[0, 0, 4, 4], [1, 1, 5, 5], [0, 0, 4, 4], [6, 6, 9, 9], [6, 6.5, 9, 9], [2, 2, 2, 2], [10, 0, 12, 3]])
SCORES = values([0.3, 0.9, 0.6, 0.2, 0.8, 0.7, 0.1])
for threshold in (0.3, 0.5, 0.9):
    add(f"nms_{str(threshold).replace('.', '')}", lambda x, y, t=threshold: F.vision.nms(x, y, t), BOXES, SCORES)
add("nms_max_output", lambda x, y: F.vision.nms(x, y, 0.5, max_output=2), BOXES, SCORES)
add(
    "nms_threshold_reached",
    lambda x, y: F.vision.nms(x, y, 0.5),
    values([[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 2, 4]]),
    values([0.9, 0.8, 0.7]),
)
add("nms_resized", lambda x, y: F.vision.nms(x, y, 0.5), BOXES, SCORES, resized=[BOXES[:4], SCORES[:4]])
INVERTED = values([[5, 3, 4, 1], [2, 4, 8, 7], [6, 5, 1, 8], [5, 1, 2, 2], [3, 3, 3, 6]])
add("nms_inverted_boxes", lambda x, y: F.vision.nms(x, y, 0.4), INVERTED, SCORES[:5])
add("nms_gathered", lambda x, y: x[F.vision.nms(x, y, 0.5)], BOXES, SCORES)
add(
    "nms_keep_op", applied(builtin.NMSKeep(iou_thresh=0.4, max_output=5)), values(np.stack([BOXES, BOXES[::-1]])), **RAW
)
for threshold in (0, 1):
    add(f"nms_{threshold}", lambda x, y, t=float(threshold): F.vision.nms(x, y, t, max_output=7), BOXES, SCORES)
add(
    "nms_keep_filled",
    applied(builtin.NMSKeep(iou_thresh=0.1, max_output=12)),
    values(np.stack([BOXES, BOXES[::-1], BOXES * 0])),
    **RAW,
)
# As many boxes and regions as the data say.
add(
    "nms_keep_chosen",
    lambda x, y: run_op(builtin.NMSKeep(iou_thresh=0.3, max_output=5), F.reshape(x[y > 0.25], (1, -1, 4))),
    BOXES,
    SCORES,
)
add(
    "nms_keep_none",
    lambda x, y: run_op(builtin.NMSKeep(iou_thresh=0.3, max_output=5), F.reshape(x[y > 5], (1, -1, 4)))[1],
    BOXES,
    SCORES,
)
for mode in ("average", "max"):
    add(
        f"roi_align_{mode}_chosen",
        lambda x, y, z, mode=mode: F.vision.roi_align(x, y[z > 0], (3, 2), mode=mode),
        X,
        INSIDE,
        values([1, -1, 2]),
    )
    add(
        f"roi_pooling_{mode}_chosen",
        lambda x, y, z, mode=mode: F.vision.roi_pooling(x, y[z > 0], (3, 2), mode=mode),
        X,
        INSIDE,
        values([1, -1, 2]),
    )


@case(f32(1, 4, 6, 6), resized=[f32(1, 4, 8, 5)])
def anchors_and_boxes(x):
    """Box decoding on a grid whose size comes from the shape."""
    height, width = x.shape[2], x.shape[3]
    ys, xs = F.arange(height) * 8 + 4, F.arange(width) * 8 + 4
    ys = F.reshape(F.broadcast_to(F.reshape(ys, (-1, 1)), (height, width)), (-1,))
    xs = F.reshape(F.broadcast_to(F.reshape(xs, (1, -1)), (height, width)), (-1,))
    delta = F.reshape(F.transpose(x, (0, 2, 3, 1)), (-1, 4))
    centre_x, centre_y = xs + delta[:, 0] * 8, ys + delta[:, 1] * 8
    half_w, half_h = F.exp(delta[:, 2]) * 4, F.exp(delta[:, 3]) * 4
    return F.stack([centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h], axis=1)

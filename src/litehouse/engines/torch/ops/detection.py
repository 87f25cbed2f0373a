"""Detection: the boxes that are kept."""

from __future__ import annotations

import numpy as np
import torch

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor

SCALARS = ["max_output_boxes_per_class", "iou_threshold", "score_threshold"]


@op("NonMaxSuppression", known=["boxes", "scores", *SCALARS])
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Tensor | None = None,
    iou_threshold: Tensor | None = None,
    score_threshold: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class)
    limit = np.float32(0 if iou_threshold is None else float(iou_threshold))
    found: list[np.ndarray] = []
    if most > 0:
        least = None if score_threshold is None else np.float32(float(score_threshold))
        for image, corners in enumerate(_corners(boxes.numpy(), is_centred=bool(center_point_box))):
            for kind, own in enumerate(scores[image].numpy()):
                kept = _kept(corners, own, most, limit, least)
                found.append(np.stack([np.full_like(kept, image), np.full_like(kept, kind), kept], 1))
    return torch.from_numpy(np.concatenate(found)) if found else torch.zeros(0, 3, dtype=torch.int64)


def _corners(boxes: np.ndarray, *, is_centred: bool) -> np.ndarray:
    """The boxes as (top, left, bottom, right)."""
    if is_centred:
        x, y, width, height = (boxes[..., place] for place in range(4))
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _kept(
    boxes: np.ndarray, scores: np.ndarray, most: int, limit: np.floating, least: np.floating | None
) -> np.ndarray:
    """The places of the boxes that no better one overlaps too much, the best one first."""
    places = np.arange(len(scores)) if least is None else np.flatnonzero(scores > least)
    places = places[np.argsort(-scores[places], kind="stable")]
    kept: list[int] = []
    while len(places) and len(kept) < most:
        best, places = places[0], places[1:]
        kept.append(int(best))
        places = places[~_is_overlapped(boxes[best], boxes[places], limit)]
    return np.array(kept, np.int64)


def _is_overlapped(box: np.ndarray, others: np.ndarray, limit: np.floating) -> np.ndarray:
    """Whether the common part of a box and each other is more than the limit, of what both cover."""
    sizes = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = sizes[:, 0] * sizes[:, 1]
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    whole = area + areas - common
    is_there: np.ndarray = (sizes > 0).all(1) & (area > 0) & (areas > 0) & (whole > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_there &= common / whole > limit
    return is_there

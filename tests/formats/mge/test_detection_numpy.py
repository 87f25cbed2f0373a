"""Boxes and regions against their rules in NumPy, and what is refused."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import assert_close

COUNT, MOST = 30, 8
ALIGN: dict[str, Any] = {"mode": "AVERAGE", "format": "NCHW", "spatial_scale": 1.0, "offset": 0.5}
ALIGN |= {"pooled_height": 2, "pooled_width": 2, "sample_height": 2, "sample_width": 2}
X = np.zeros((1, 2, 5, 6), np.float32)
ROIS = np.zeros((3, 5), np.float32)


def kept(boxes: np.ndarray, threshold: float) -> list[int]:
    """One box after the other is kept, unless it overlaps a kept one too much: MegEngine's rule, in its own floats."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    found: list[int] = []
    for index, box in enumerate(boxes):
        others = boxes[found]
        start, end = np.maximum(others[:, :2], box[:2]), np.minimum(others[:, 2:], box[2:])
        shared = np.maximum(end - start, np.float32(0)).prod(1)
        if len(found) < MOST and not np.any(shared > (areas[index] + areas[found] - shared) * np.float32(threshold)):
            found.append(index)
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("inverted", [0.0, 0.03, 0.4])
def test_suppression(engine: str, threshold: float, inverted: float) -> None:
    """Boxes of whole coordinates, which meet thresholds exactly; some have their edges the wrong way round."""
    params = {"iou_thresh": threshold, "max_output": MOST}
    operand = np.zeros((1, COUNT, 4), np.float32)
    model = ir.to_proto(translated("NMSKeepMGB", [operand], params, (0, 1))).SerializeToString()
    session = litehouse.load(model, engine=engine, threads=1)
    rng = np.random.default_rng(5)
    for _ in range(12):
        corners = np.sort(rng.integers(0, 16, (COUNT, 2, 2)), axis=1)
        turned = np.where(rng.random((COUNT, 1, 2)) < inverted, corners[:, ::-1], corners)
        boxes = turned.reshape(COUNT, 4).astype(np.float32)
        indices, count = session.run({"x0": boxes[None]})
        expected = kept(boxes, threshold)
        assert count.tolist() == [len(expected)]
        assert indices.tolist() == [expected + expected[-1:] * (MOST - len(expected))]


def test_means_of_whole_bins(engine: str) -> None:
    """Bins that end on a pixel exactly must not reach for the next one."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 44, 40)).astype(np.float32)
    rois = np.array([[0, 1, 1, 7, 42], [1, 2, 3, 36, 9], [1, 0, 0, 13, 20]], np.float32)
    params = {"mode": "AVERAGE", "scale": 1.0}
    operands = [x, rois]
    model = ir.to_proto(translated("ROIPooling", operands, params, constants=[np.array([7, 7], np.int32)]))
    (y,) = litehouse.load(model.SerializeToString(), engine=engine, threads=1).run({"x0": x, "x1": rois})
    for region, (image, left, top, right, bottom) in enumerate(rois.astype(int)):
        rows, columns = np.float32((bottom - top + 1) / 7), np.float32((right - left + 1) / 7)
        for row in range(7):
            for column in range(7):
                inside = x[
                    image,
                    :,
                    top + int(np.floor(row * rows)) : top + int(np.ceil((row + 1) * rows)),
                    left + int(np.floor(column * columns)) : left + int(np.ceil((column + 1) * columns)),
                ]
                assert_close(y[region, :, row, column], inside.mean((1, 2)))


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("NMSKeepMGB", [np.zeros((1, 3, 4), np.float32)], {"iou_thresh": -0.5, "max_output": 3}, "threshold -0.5"),
        ("NMSKeepMGB", [np.zeros((1, 3, 4), np.float32)], {"iou_thresh": 0.5, "max_output": 0}, "at most 0"),
        ("NMSKeepMGB", [np.zeros((3, 4), np.float32)], {"iou_thresh": 0.5, "max_output": 3}, "None batches"),
        ("ROIAlign", [X, ROIS], ALIGN | {"format": "NHWC"}, "NHWC"),
        ("ROIAlign", [X, ROIS], ALIGN | {"sample_width": 0}, r"\(2, 0\) samples"),
        ("ROIAlign", [X, ROIS[:, :4]], ALIGN, r"regions of shape \(3, 4\)"),
        ("ROIPooling", [X, ROIS, np.array([2, 2], np.int32)], {"mode": "MAX", "scale": 1.0}, "must be constant"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params)


def test_regions_of_no_bins() -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=r"\(0, 2\) bins"):
        translated("ROIPooling", [X, ROIS], {"mode": "MAX", "scale": 1.0}, constants=[np.array([0, 2], np.int32)])


def test_no_region() -> None:
    (y,) = run_operator("onnxruntime", "ROIAlign", [X, ROIS[:0]], ALIGN)
    assert y.shape == (0, 2, 2, 2)

import numpy as np
import pytest
from engines.torch.against import agrees, numbers

PADDINGS = ["zeros", "border", "reflection"]


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("mode", "opset"), [("bilinear", 16), ("nearest", 16), ("bicubic", 16), ("linear", 20)])
def test_grid_sample(mode, opset, padding, align):
    inputs = [numbers(2, 3, 6, 7), 1.2 * numbers(2, 4, 5, 2, seed=1)]
    agrees("GridSample", inputs, opset=opset, mode=mode, padding_mode=padding, align_corners=align, tolerance=1e-4)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grid_sample_of_volumes(mode, padding, align):
    inputs = [numbers(2, 3, 4, 6, 5), 1.2 * numbers(2, 3, 4, 5, 3, seed=1)]
    agrees("GridSample", inputs, opset=20, mode=mode, padding_mode=padding, align_corners=align, tolerance=1e-4)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid(align):
    theta = numbers(2, 2, 3)
    agrees("AffineGrid", [theta, np.array([2, 3, 5, 6])], known=[1], opset=20, align_corners=align)


ROIS = np.array([[1, 2, 9, 14], [0, 0, 3, 3], [-5, -4, 30, 8.5], [4, 4, 4.2, 4.1], [8, 2, 3, 1]], np.float32)


@pytest.mark.parametrize("samples", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_roi_align(coordinates, mode, samples):
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": samples, "spatial_scale": 0.5}
    inputs = [
        numbers(2, 3, 9, 11),
        ROIS[:4] if samples == 0 else ROIS,
        np.array([0, 1, 1, 0, 1][: 4 if samples == 0 else 5]),
    ]
    lacks = samples == 0 and mode == "max"
    agrees("RoiAlign", inputs, opset=16, mode=mode, coordinate_transformation_mode=coordinates, lacks=lacks, **sizes)
    if coordinates == "output_half_pixel":
        agrees("RoiAlign", inputs, opset=10, mode=mode, lacks=lacks, **sizes)


def test_roi_align_of_great_regions():
    """Samples far outside are not counted one by one, but they count."""
    rois = np.array([[-5000, -3000, 200, 900], [0, 0, 5000, 40], [5, 5, 6, 4000]], np.float32)
    inputs = [numbers(1, 2, 9, 11), rois, np.array([0, 0, 0])]
    agrees("RoiAlign", inputs, opset=16, output_height=4, output_width=3, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("opset", [11, 13])
def test_depth_to_space(opset, mode):
    agrees("DepthToSpace", [numbers(2, 18, 3, 4)], opset=opset, blocksize=3, mode=mode, tolerance=0)


def test_space_to_depth():
    agrees("DepthToSpace", [numbers(2, 8, 3, 4)], opset=7, blocksize=2, tolerance=0)
    agrees("SpaceToDepth", [numbers(2, 3, 6, 4)], opset=7, blocksize=2, tolerance=0)
    agrees("SpaceToDepth", [numbers(2, 3, 6, 4)], opset=13, blocksize=2, tolerance=0)


@pytest.mark.parametrize("shape", [[5, 6, 7], [4, 9, 3], [8, 3, 10]])
def test_center_crop_pad(shape):
    agrees("CenterCropPad", [numbers(5, 6, 7), np.array(shape)], known=[1], opset=18, tolerance=0)
    agrees("CenterCropPad", [numbers(5, 6, 7), np.array(shape[:2])], known=[1], opset=18, axes=[-1, 0], tolerance=0)


def boxes(count, seed):
    corners = np.random.default_rng(seed).uniform(0, 1, (2, count, 4)).astype(np.float32)
    return np.round(corners * 16) / 16  # so that some have no size, and some overlaps are just at the limit


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("limit", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("opset", [10, 11])
def test_non_max_suppression(opset, limit, centred):
    scores = np.round(np.random.default_rng(7).uniform(0, 1, (2, 3, 60)).astype(np.float32) * 20) / 20  # with ties
    scalars = [np.array([most]) for most in (5, 100)]
    for most in scalars:
        for least in (None, np.array([0.35], np.float32)):
            inputs = [boxes(60, seed=3), scores, most, np.array([limit], np.float32), least]
            agrees("NonMaxSuppression", inputs, opset=opset, center_point_box=centred)


def test_non_max_suppression_with_nothing_to_keep():
    scores = np.full((2, 3, 60), 0.1, np.float32)
    agrees("NonMaxSuppression", [boxes(60, seed=3), scores], opset=11)
    inputs = [boxes(60, seed=3), scores, np.array([5]), np.array([0.5], np.float32), np.array([0.5], np.float32)]
    agrees("NonMaxSuppression", inputs, opset=11)

import itertools

import numpy as np
import pytest
from engines.torch.against import agrees, numbers

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
SCALES = [(2.0, 2.0), (3.0, 1.5), (0.5, 0.6), (0.4, 2.3), (1.0, 4.0), (5.0, 7.0)]
NOTHING = np.array([], np.float32)  # before version 13, no input can be left out
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def by_scales(x, scales, opset=13, **attributes):
    factors = np.array([1, 1, *scales], np.float32)
    inputs = [x, NOTHING, factors] if opset < 13 else [x, None, factors]
    agrees("Resize", inputs, known=[1, 2] if opset < 13 else [2], opset=opset, **attributes)


def by_sizes(x, sizes, opset=13, **attributes):
    wanted = np.array([*x.shape[:2], *sizes])
    inputs = [x, NOTHING, NOTHING, wanted] if opset < 13 else [x, None, None, wanted]
    agrees("Resize", inputs, known=[1, 2, 3] if opset < 13 else [3], opset=opset, **attributes)


@pytest.mark.parametrize("mode", NEAREST)
@pytest.mark.parametrize("coordinates", [*COORDINATES, "half_pixel_symmetric", "tf_half_pixel_for_nn"])
def test_nearest(coordinates, mode):
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": mode, "tolerance": 0}
    opset = {"half_pixel_symmetric": 19, "tf_half_pixel_for_nn": 11}.get(coordinates, 13)
    x = numbers(1, 2, 15, 14)
    for scales in SCALES:
        by_scales(x, scales, opset=opset, **attributes)
    for sizes in itertools.product([1, 7, 29, 60], [13, 28, 97]):
        by_sizes(x, sizes, opset=opset, **attributes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_nearest_of_types(dtype):
    x = np.arange(60).astype(dtype).reshape(1, 2, 5, 6)
    by_scales(x, [2, 2], coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    by_sizes(x, [7, 11])


@pytest.mark.parametrize(
    ("coordinates", "opset"), [*itertools.product(COORDINATES, [11, 13, 18, 19]), ("half_pixel_symmetric", 19)]
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_between(mode, coordinates, opset):
    attributes = {"coordinate_transformation_mode": coordinates, "mode": mode, "opset": opset, "tolerance": 1e-4}
    x = numbers(1, 2, 9, 8)
    for scales in SCALES:
        by_scales(x, scales, **attributes)
    for sizes in itertools.product([1, 4, 20], [5, 16]):
        by_sizes(x, sizes, **attributes)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize(("a", "exclude"), [(-0.5, 0), (-0.75, 1), (-0.5, 1)])
def test_cubic(a, exclude, coordinates):
    attributes = {"cubic_coeff_a": a, "exclude_outside": exclude, "coordinate_transformation_mode": coordinates}
    for scales in SCALES:
        by_scales(numbers(1, 2, 9, 8), scales, mode="cubic", tolerance=1e-4, **attributes)


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias(mode, exclude):
    for scales in SCALES:
        attributes = {"mode": mode, "antialias": 1, "exclude_outside": exclude, "tolerance": 1e-4}
        by_scales(numbers(1, 2, 19, 18), scales, opset=18, **attributes)
        by_sizes(numbers(1, 2, 19, 18), [3, 40], opset=18, **attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop(mode):
    x = numbers(1, 2, 9, 8)
    roi = np.array([0, 0, 0.2, -0.3, 1, 1, 1.3, 0.7], np.float32)
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": mode, "extrapolation_value": 7.0}
    for sizes in ([5, 4], [1, 12], [20, 1]):
        wanted = np.array([1, 2, *sizes])
        agrees("Resize", [x, roi, None, wanted], known=[1, 3], opset=13, tolerance=1e-4, **attributes)


def test_crop_that_ends_just_at_the_edge():
    """The last place is rounded: it is the last element, or beyond it."""
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "nearest", "extrapolation_value": 7.0}
    for start, size in itertools.product((0.1, -0.2, 0.3), (2, 3, 5, 7, 9, 11)):
        roi = np.array([start, 1], np.float32)
        agrees("Resize", [numbers(8), roi, None, np.array([size])], known=[1, 3], opset=13, **attributes)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_aspect(mode, policy):
    x = numbers(1, 2, 9, 8)
    for sizes in ([5, 9], [20, 11], [30, 30]):
        attributes = {"mode": mode, "keep_aspect_ratio_policy": policy, "axes": [2, 3], "tolerance": 1e-4}
        agrees("Resize", [x, None, None, np.array(sizes)], known=[3], opset=18, **attributes)


@pytest.mark.parametrize("opset", [11, 19])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_ranks(mode, opset):
    for shape, scales in [((5, 6), (2.5, 0.7)), ((1, 2, 4, 5, 6), (1, 1, 2, 1.5, 0.5)), ((2, 3, 7), (1, 1, 2))]:
        if mode == "linear" and len(shape) == 3:
            continue
        factors = np.array(scales, np.float32)
        agrees("Resize", [numbers(*shape), NOTHING, factors], known=[1, 2], opset=opset, mode=mode, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_that_are_not_known_before(mode):
    scales = np.array([1, 1, 2, 3], np.float32)
    agrees("Resize", [numbers(1, 2, 4, 5), None, scales], mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", SCALES)
def test_resize_10(scales, mode):
    factors = np.array([1, 1, *scales], np.float32)
    agrees("Resize", [numbers(1, 2, 15, 14), factors], known=[1], opset=10, mode=mode, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (3.0, 1.5), (1.0, 4.0)])
def test_upsample(scales, mode):
    x, factors = numbers(1, 2, 5, 4), [1.0, 1.0, *scales]
    agrees("Upsample", [x], opset=7, mode=mode, scales=factors)
    agrees("Upsample", [x, np.array(factors, np.float32)], known=[1], opset=9, mode=mode)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize("antialias", [0, 1])
def test_whole_numbers_between_others(dtype, antialias):
    x = np.random.default_rng(0).integers(-100, 100, (1, 2, 7, 8)).astype(dtype)
    by_scales(x, [1.5, 0.7], opset=18, mode="linear", antialias=antialias, lacks=True)

"""Normalisation and resizing without a fixture, against numpy. Sizes are dynamic."""

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close

RANDOM = np.random.default_rng(9)
X = RANDOM.standard_normal((2, 3, 4, 5)).astype(np.float32)
GAMMA, BETA = (RANDOM.standard_normal(5).astype(np.float32) for _ in range(2))


def normalised(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    scale = 1 / np.sqrt(variance + epsilon)
    return (x - mean) * scale, mean, scale


def test_layer_norm_v3(engine: str) -> None:
    y, mean, scale = normalised(X, (3,), 1e-3)
    found = run_op("LayerNormV3", [X, GAMMA, BETA, -1, -1, 1e-3], ["float32"] * 3, engine)
    for result, expected in zip(found, (y * GAMMA + BETA, mean, scale), strict=True):
        assert_close(result, expected)


def test_layer_norm_with_weights_for_fewer_axes(engine: str) -> None:
    y, mean, _ = normalised(X, (2, 3), 1e-3)
    found = run_op("LayerNorm", [X, GAMMA, BETA, 2, 3, 1e-3], ["float32"] * 3, engine)
    assert_close(found[0], y * GAMMA + BETA)
    assert_close(found[1], mean)
    assert_close(found[2], X.var((2, 3), keepdims=True))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sums_that_are_normalised(dtype: str, engine: str) -> None:
    x1, x2 = X.astype(dtype), (X[::-1] * 2).astype(dtype)
    total = x1.astype(np.float32) + x2.astype(np.float32)
    y, mean, scale = normalised(total, (3,), 1e-5)
    operands = [x1, x2, GAMMA.astype(dtype), BETA.astype(dtype), 1e-5, True]
    found = run_op("AddLayerNormV2", operands, [dtype, "float32", "float32", dtype], engine)
    for result, expected in zip(
        found, ((y * GAMMA + BETA).astype(dtype), mean, scale, total.astype(dtype)), strict=True
    ):
        assert_close(result, expected)


@pytest.mark.parametrize("power", [0, 1, 2, 3.0, float("inf"), float("-inf")])
@pytest.mark.parametrize("axes", [(1,), (0, 2), None])
def test_norms(power: float, axes: tuple[int, ...] | None, engine: str) -> None:
    every = tuple(range(4)) if axes is None else axes
    sizes = np.abs(X)
    if np.isinf(power):
        expected = sizes.max(every) if power > 0 else sizes.min(every)
    else:
        expected = (sizes != 0).sum(every) if power == 0 else (sizes**power).sum(every) ** (1 / power)
    expected = np.asarray(expected, np.float32)
    for name in ("LpNormV2", "Norm", "LinalgVectorNorm"):
        operands = [X, power, axes, False, *(() if name == "LpNormV2" else (None,))]
        assert_close(run_op(name, operands, ["float32"], engine, [expected.ndim])[0], expected)


def test_batch_statistics_without_weights(engine: str) -> None:
    y, _, _ = normalised(X, (0, 2, 3), 1e-5)
    operands = [X, None, None, None, None, True, 0.1, 1e-5]
    assert_close(run_op("BatchNormExt", operands, ["float32", None, None], engine)[0], y)


# Resizing -------------------------------------------------------------------------------------------------------------


def lines(size: int, count: int, align: bool) -> np.ndarray:
    """Where in a line each place of the result lies."""
    place = np.arange(count)
    return place * (size - 1) / max(count - 1, 1) if align else (place + 0.5) * size / count - 0.5


def linear(size: int, count: int, align: bool) -> np.ndarray:
    matrix = np.zeros((count, size))
    for row, place in enumerate(lines(size, count, align).clip(0, size - 1)):
        low = min(int(place), size - 1)
        high = min(low + 1, size - 1)
        matrix[row, low] += 1 - (place - low)
        matrix[row, high] += place - low
    return matrix


def cubic(size: int, count: int, align: bool) -> np.ndarray:
    a = -0.75
    matrix = np.zeros((count, size))
    for row, place in enumerate(lines(size, count, align)):
        low = int(np.floor(place))
        for tap in range(low - 1, low + 3):
            d = abs(place - tap)
            weight = (a + 2) * d**3 - (a + 3) * d**2 + 1 if d < 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            matrix[row, min(max(tap, 0), size - 1)] += weight
    return matrix


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("sizes", [(7, 9), (2, 3), (4, 5)])
def test_bicubic_upsampling(align: bool, sizes: tuple[int, int], engine: str) -> None:
    expected = np.einsum("ih,nchw,jw->ncij", cubic(4, sizes[0], align), X, cubic(5, sizes[1], align))
    (y,) = run_op("UpsampleBicubic2D", [X, sizes, None, align], ["float32"], engine)
    assert_close(y, expected.astype(np.float32))


@pytest.mark.parametrize("align", [False, True])
def test_the_old_bilinear_op(align: bool, engine: str) -> None:
    expected = np.einsum("ih,nchw,jw->ncij", linear(4, 7, align), X, linear(5, 3, align))
    attributes = {"size": (7, 3), "align_corners": align, "half_pixel_centers": not align}
    assert_close(
        run_op("ResizeBilinear", [X], ["float32"], engine, attributes=attributes)[0], expected.astype(np.float32)
    )


@pytest.mark.parametrize(("before", "after"), [(14, 4), (20, 12), (3, 9), (5, 7), (6, 6)])
@pytest.mark.parametrize("static", [False, True])
def test_nearest_places_are_those_of_mindspore(before: int, after: int, static: bool, engine: str) -> None:
    x = np.arange(2 * before, dtype=np.float32).reshape(1, 1, 2, before)
    step = np.float32(before) / np.float32(after)
    places = np.floor(np.arange(after, dtype=np.float32) * step).astype(int)
    (y,) = run_op("ResizeNearestNeighborV2", [x, (4, after), False, False], ["float32"], engine, static=static)
    assert_close(y, x[:, :, [0, 0, 1, 1]][..., places])

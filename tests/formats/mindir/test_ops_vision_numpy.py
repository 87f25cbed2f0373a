"""Boxes and colours without a fixture, against numpy and colorsys."""

import colorsys

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close

RANDOM = np.random.default_rng(17)


def suppressed(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float) -> list[int]:
    kept: list[int] = []
    for index in np.argsort(-scores, stable=True):
        shares = []
        for other in kept:
            start, end = np.maximum(boxes[index, :2], boxes[other, :2]), np.minimum(boxes[index, 2:], boxes[other, 2:])
            common = np.prod(np.maximum(end - start, 0))
            areas = [np.prod(boxes[each, 2:] - boxes[each, :2]) for each in (index, other)]
            shares.append(common / (sum(areas) - common))
        if scores[index] > least and all(share <= overlap for share in shares) and len(kept) < most:
            kept.append(int(index))
    return kept


@pytest.mark.parametrize("overlap", [0.1, 0.5])
def test_non_max_suppression(overlap: float, engine: str) -> None:
    corners = RANDOM.uniform(0, 50, (40, 2))
    boxes = np.concatenate([corners, corners + RANDOM.uniform(5, 30, (40, 2))], 1).astype(np.float32)
    scores = RANDOM.permutation(40).astype(np.float32) / 40
    found = run_op("NonMaxSuppressionV3", [boxes, scores, 9, overlap, 0.2], ["int32"], engine, [1])
    assert found[0].tolist() == suppressed(boxes, scores, 9, overlap, 0.2)
    table = np.concatenate([boxes, scores[:, None]], 1)
    ordered, numbers, mask = run_op(
        "NMSWithMask", [table], ["float32", "int32", "bool"], engine, [2, 1, 1], {"iou_threshold": overlap}
    )
    order = np.argsort(-scores)
    assert_close(ordered, table[order])
    assert numbers.tolist() == list(range(40))
    assert order[mask].tolist() == suppressed(boxes, scores, 99, overlap, -1)


COLOURS = RANDOM.uniform(0, 1, (2, 3, 4, 3)).astype(np.float32)


def converted(x: np.ndarray, convert: object) -> np.ndarray:
    return np.array([convert(*pixel) for pixel in x.reshape(-1, 3)], np.float32).reshape(x.shape)  # type: ignore[operator]


def test_colours_there_and_back(engine: str) -> None:
    assert_close(run_op("RGBToHSV", [COLOURS], ["float32"], engine)[0], converted(COLOURS, colorsys.rgb_to_hsv))
    assert_close(run_op("HSVToRGB", [COLOURS], ["float32"], engine)[0], converted(COLOURS, colorsys.hsv_to_rgb))


@pytest.mark.parametrize("delta", [0.3, -0.7])
def test_hue(delta: float, engine: str) -> None:
    hsv = converted(COLOURS, colorsys.rgb_to_hsv) + np.array([delta, 0, 0], np.float32)
    expected = converted(hsv % np.array([1, 2, 2]), colorsys.hsv_to_rgb)
    assert_close(run_op("AdjustHue", [COLOURS, np.array(delta, np.float32)], ["float32"], engine)[0], expected)


def test_contrast(engine: str) -> None:
    mean = COLOURS.mean((1, 2), keepdims=True)
    expected = (COLOURS - mean) * np.float32(1.7) + mean
    assert_close(run_op("AdjustContrastv2", [COLOURS, np.array(1.7, np.float32)], ["float32"], engine)[0], expected)

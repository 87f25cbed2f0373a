"""Which pixels, by which weights, make a pixel of a resized image: MegEngine's rules as tables.

Images with the channels in front follow rules of MegEngine's own; images with the channels behind, where there are one
or three, those of OpenCV.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FIXED_BITS = 11  # of the weights that resize images of bytes
EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True)
class Taps:
    """The pixels of one axis that a result pixel is made of.

    Attributes:
        index: Result pixels x taps, int64.
        weight: Of the same shape.
    """

    index: np.ndarray
    weight: np.ndarray

    @property
    def count(self) -> int:
        """How many taps there are."""
        return int(self.index.shape[1])

    def matrix(self, size: int) -> np.ndarray:
        """Result pixels x pixels: the weights in their columns."""
        made = np.zeros((len(self.index), size), np.float32)
        np.add.at(made, (np.arange(len(self.index))[:, None], self.index), self.weight)
        return made


def nearest(source: int, result: int) -> np.ndarray:
    """The pixels of MegEngine's own rule."""
    scale = np.float32(result) / np.float32(source)
    found = np.arange(result, dtype=np.float32) / scale
    return np.asarray(np.minimum(np.floor(found), source - 1), np.int64)


def nearest_opencv(source: int, result: int) -> np.ndarray:
    """The pixels of OpenCV's rule."""
    found = np.floor(np.arange(result) * (1 / (result / source)))
    return np.asarray(np.clip(found, 0, source - 1), np.int64)


def linear(source: int, result: int) -> Taps:
    """Two taps around the centre of the pixel, by MegEngine's own rule."""
    scale = np.float32(result) / np.float32(source)
    return _two(_centres(result) / scale - np.float32(0.5), source)


def linear_fixed(source: int, result: int) -> Taps:
    """The same with integer weights, by OpenCV's rule."""
    scale = np.float32(1) / (np.float32(result) / np.float32(source))
    taps = _two(_centres(result) * scale - np.float32(0.5), source)
    second = (taps.weight[:, 1:] * np.float32(1 << FIXED_BITS)).astype(np.int32)
    return Taps(taps.index, np.concatenate([(1 << FIXED_BITS) - second, second], 1))


def _centres(result: int) -> np.ndarray:
    return np.arange(result, dtype=np.float32) + np.float32(0.5)


def _two(position: np.ndarray, source: int) -> Taps:
    first = np.floor(position).astype(np.int64)
    part = position - first.astype(np.float32)
    part = np.where(first < 0, 0, np.where(first + 1 >= source, 1, part)).astype(np.float32)
    first = np.clip(first, 0, max(source - 2, 0))
    index = np.stack([first, np.minimum(first + 1, source - 1)], 1)
    return Taps(index, np.stack([1 - part, part], 1))


def cubic(source: int, result: int) -> Taps:
    """Four taps, by MegEngine's own rule."""
    scale = np.float32(result) / np.float32(source)
    position = _centres(result) / scale - np.float32(0.5)
    first = np.floor(position)
    return _around(first, cubic_weights(position - first), source)


def smooth_opencv(source: int, result: int, imode: str) -> Taps:
    """Four taps of a cubic curve, or eight of Lanczos', by OpenCV's rule."""
    position = ((np.arange(result) + 0.5) * (1 / (result / source)) - 0.5).astype(np.float32)
    first = np.floor(position)
    weights = cubic_weights if imode == "CUBIC" else lanczos_weights
    return _around(first, weights(position - first), source)


def _around(first: np.ndarray, weight: np.ndarray, source: int) -> Taps:
    taps = weight.shape[1]
    index = first.astype(np.int64)[:, None] + np.arange(1 - taps // 2, taps // 2 + 1)
    return Taps(np.clip(index, 0, source - 1), weight)


def cubic_weights(part: np.ndarray) -> np.ndarray:
    """The weights of the four pixels around a point, by how far it is behind the second one."""
    a, x = np.float32(-0.75), part.astype(np.float32)
    one = np.float32(1)
    before = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    left = ((a + 2) * x - (a + 3)) * x * x + one
    right = ((a + 2) * (one - x) - (a + 3)) * (one - x) * (one - x) + one
    return np.stack([before, left, right, one - before - left - right], -1).astype(np.float32)


def lanczos_weights(part: np.ndarray, *, coarse: bool = True) -> np.ndarray:
    """The same for the eight pixels around a point, by how far it is behind the fourth one.

    Resizing takes a coarse pi, of single precision; warping does not.
    """
    x = part.astype(np.float32)[..., None]
    offsets = np.float32(-1) * (x + np.float32(3) - np.arange(8, dtype=np.float32))
    if coarse:
        angles = (offsets * np.float32(np.pi)).astype(np.float64) / 4
    else:
        angles = offsets.astype(np.float64) * (np.pi / 4)
    # The sine of each angle, up to its sign, by the sine and the cosine of the first one.
    turn = np.arange(8) * (5 * np.pi / 4)
    sines = np.cos(turn).round(15) * np.sin(angles[..., :1]) + np.sin(turn).round(15) * np.cos(angles[..., :1])
    weight = (sines / np.where(x < EPSILON, 1, angles) ** 2).astype(np.float32)
    weight = weight * (np.float32(1) / _sum(weight))
    middle = (np.arange(8) == 3).astype(np.float32)
    return np.asarray(np.where(x < EPSILON, middle, weight), np.float32)


def _sum(weight: np.ndarray) -> np.ndarray:
    """The sum along the last axis, rounded after each step."""
    total = np.zeros((*weight.shape[:-1], 1), np.float32)
    for tap in range(weight.shape[-1]):
        total = total + weight[..., tap : tap + 1]
    return total


def fixed(taps: Taps) -> Taps:
    """The same taps with integer weights."""
    return Taps(taps.index, np.rint(taps.weight * np.float32(1 << FIXED_BITS)).astype(np.int32))


def area_up(source: int, result: int) -> Taps:
    """Two taps of OpenCV's rule for areas, where the image does not shrink."""
    number = np.arange(result)
    first = np.floor(number * (1 / (result / source))).astype(np.int64)
    part = ((number + 1) - (first + 1) * (result / source)).astype(np.float32)
    part = np.where(part <= 0, 0, part - np.floor(part)).astype(np.float32)
    part = np.where(first >= source - 1, 0, part).astype(np.float32)
    first = np.minimum(first, source - 1)
    return Taps(np.stack([first, np.minimum(first + 1, source - 1)], 1), np.stack([1 - part, part], 1))


def area_down(source: int, result: int) -> Taps:
    """As many taps as pixels of the source lie in one of the result, by OpenCV's rule; unused ones weigh nothing."""
    scale = 1 / (result / source)
    rows = [_covered(number * scale, scale, source) for number in range(result)]
    longest = max(len(row) for row in rows)
    index = np.zeros((result, longest), np.int64)
    weight = np.zeros((result, longest), np.float32)
    for number, row in enumerate(rows):
        index[number, : len(row)] = [pixel for pixel, _ in row]
        weight[number, : len(row)] = [share for _, share in row]
    return Taps(index, weight)


def _covered(start: float, scale: float, source: int) -> list[tuple[int, float]]:
    end, width = start + scale, min(scale, source - start)
    last = min(int(np.floor(end)), source - 1)
    first = min(int(np.ceil(start)), last)
    taps = [(first - 1, (first - start) / width)] if first - start > 1e-3 else []
    taps += [(pixel, 1 / width) for pixel in range(first, last)]
    if end - last > 1e-3:
        taps.append((last, min(min(end - last, 1.0), width) / width))
    return taps


def is_whole(source: int, result: int) -> bool:
    """Whether a pixel of the result covers whole pixels of the source."""
    scale = 1 / (result / source)
    return abs(scale - round(scale)) < float(np.finfo(np.float64).eps)

"""Images turned, smoothed, cut into frequencies, and compared. Channels lie behind unless something else is said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.quantised import quantise
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, UINT8, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.INT64
LAST = -(2**31) + 1  # behind the first element, counted backwards


@op("Flip", keeps=True)
def flip(t: MgeTape, x: ir.Value, *, vertical: bool, horizontal: bool) -> Any:
    """Upside down, and left to right."""
    _sizes(t, x)
    return _backwards(t, x, [axis for axis, wanted in ((1, vertical), (2, horizontal)) if wanted])


@op("Rotate", keeps=True)
def rotate(t: MgeTape, x: ir.Value, *, clockwise: bool) -> Any:
    """A quarter of a turn."""
    _sizes(t, x)
    turned = t.op("Transpose", [x], perm=[0, 2, 1, 3])
    return _backwards(t, turned, [2 if clockwise else 1])


def _sizes(t: MgeTape, x: ir.Value) -> tuple[int, ...]:
    if t.rank(x) != 4:
        t.refuse(f"images of rank {t.rank(x)}")
    return t.sizes(x)


def _backwards(t: MgeTape, x: ir.Value, axes: list[int]) -> ir.Value:
    if not axes:
        return x
    ends = [t.ints((number,) * len(axes)) for number in (-1, LAST)]
    made: ir.Value = t.op("Slice", [x, *ends, t.ints(tuple(axes)), t.ints((-1,) * len(axes))])
    return made


# Smoothing ------------------------------------------------------------------------------------------------------------

SMALL = {3: (1, 2, 1), 5: (1, 4, 6, 4, 1), 7: (2, 7, 14, 18, 14, 7, 2)}
BYTE_BITS = 8  # of the whole numbers that stand for a byte image's weights


@op("GaussianBlur")
def gaussian_blur(
    t: MgeTape,
    x: ir.Value,
    *,
    border_mode: str,
    kernel_height: int,
    kernel_width: int,
    sigma_x: float,
    sigma_y: float,
) -> Any:
    """Each pixel as a weighted mean of those around it. Byte images have weights of whole numbers."""
    images, height, width, channels = _sizes(t, x)
    if channels not in (1, 3) or t.dtype(x) not in (FLOAT, UINT8):
        t.refuse(f"images of {channels} channels and dtype {t.dtype(x).name}")
    across = gaussian(t, kernel_width, sigma_x)
    down = gaussian(t, kernel_height, sigma_y if sigma_y > 0 else sigma_x)
    is_bytes = t.dtype(x) == UINT8
    y = t.op("Transpose", [t.cast(x, FLOAT)], perm=[0, 3, 1, 2])
    y = t.op("Reshape", [y, t.ints((images * channels, 1, height, width))])
    for axis, weights in ((2, down), (3, across)):
        if is_bytes:
            weights = np.floor(weights * (1 << BYTE_BITS))
        y = _bordered(t, y, axis, len(weights) // 2, border_mode)
        shape = (1, 1, -1, 1) if axis == 2 else (1, 1, 1, -1)
        y = t.op("Conv", [y, t.constant(weights.reshape(shape).astype(np.float32))])
    y = t.op("Transpose", [t.op("Reshape", [y, t.ints((images, channels, height, width))])], perm=[0, 2, 3, 1])
    return t.cast(_rounded(t, y, len(down)), UINT8) if is_bytes else y


def _rounded(t: MgeTape, y: ir.Value, kernel_height: int) -> ir.Value:
    """Sums over byte images as bytes.

    MegEngine on x86 takes four neighbours of a row at a time, and rounds halves to even numbers. What is left at the
    end of a row it rounds upwards, or cuts off where the kernel has three rows.
    """
    y = t.op("Mul", [y, t.constant(0.25**BYTE_BITS, FLOAT)])
    rounded: ir.Value = t.op("Round", [y])
    width, channels = t.sizes(y)[2:]
    count = width * channels
    if count % 4 == 0:
        return rounded
    raised = y if kernel_height == 3 else t.op("Add", [y, t.constant(0.5, FLOAT)])
    by_four = np.arange(count).reshape(width, channels) < count // 4 * 4
    chosen: ir.Value = t.op("Where", [t.constant(by_four), rounded, t.op("Floor", [raised])])
    return chosen


def gaussian(t: MgeTape, size: int, sigma: float) -> np.ndarray:
    """The weights of so many neighbours, whose sum is one; without a size, as many as matter."""
    if not size and sigma > 0:
        size = int(sigma * 8 + 1.5) | 1
    if size % 2 == 0:
        t.refuse(f"a kernel of size {size}")
    if sigma <= 0 and size in SMALL:
        weights = np.array(SMALL[size], np.float32)
    else:
        sigma = sigma if sigma > 0 else ((size - 1) * 0.5 - 1) * 0.3 + 0.8
        places = np.arange(t.bounded(size)) - (size - 1) * 0.5
        weights = np.exp(-0.5 / (sigma * sigma) * places * places).astype(np.float32)
    made: np.ndarray = (weights * (1 / weights.sum(dtype=np.float64))).astype(np.float32)
    return made


def _bordered(t: MgeTape, x: ir.Value, axis: int, count: int, border: str) -> ir.Value:
    """The image with so many more rows (or columns) on both sides."""
    if not count:
        return x
    if border == "CONSTANT":
        pads = [count if place % 4 == axis else 0 for place in range(8)]
        framed: ir.Value = t.op("Pad", [x, t.ints(tuple(pads))])
        return framed
    size = t.sizes(x)[axis]
    places = np.arange(-count, t.bounded(size) + count)
    if border == "REPLICATE":
        places = places.clip(0, size - 1)
    elif border in ("REFLECT", "REFLECT_101"):
        repeated = border == "REFLECT"
        period = max(2 * size - 2 * (not repeated), 1)
        places = places % period
        places = np.minimum(places, period - repeated - places) if size > 1 else places * 0
    else:
        t.refuse(f"border mode {border}, which MegEngine does not smooth with")
    made: ir.Value = t.op("Gather", [x, t.constant(places, INT64)], axis=axis)
    return made


# Frequencies ----------------------------------------------------------------------------------------------------------


@op("DctChannelSelect")
def dct_channel_select(
    t: MgeTape,
    x: ir.Value,
    ends: ir.Value | None = None,
    picked: ir.Value | None = None,
    *,
    format: str,
    dct_block_size: int,
) -> Any:
    """The cosine transform of each block of an image, its numbers as channels: all, or those picked for each channel.

    Channels lie in front. The picked ones of all channels lie behind each other; `ends` tells where those of each end.
    """
    images, channels, height, width = _sizes(t, x)
    size = dct_block_size
    if size < 1 or t.bounded(size**4) < 1 or height % size or width % size or t.dtype(x) != UINT8:
        t.refuse(f"blocks of {size} x {size} in an image of {height} x {width} and dtype {t.dtype(x).name}")
    planes = t.op("Reshape", [t.cast(x, FLOAT), t.ints((images * channels, 1, height, width))])
    y = t.op("Conv", [planes, t.constant(cosines(size))], strides=[size, size])
    y = t.op("Reshape", [y, t.ints((images, channels * size**2, height // size, width // size))])
    if ends is not None and picked is not None and t.sizes(ends) != (0,):
        y = t.op("Gather", [y, _channels(t, ends, picked, channels, size**2)], axis=1)
    if format == "NCHW" and t.output_dtype is None:
        return y
    if format != "NCHW4" or t.output_dtype is None or t.sizes(y)[1] % 4:
        t.refuse(f"{t.sizes(y)[1]} results in format {format}")
    blocked = t.op("Reshape", [y, t.ints((images, -1, 4, height // size, width // size))])
    return quantise(t, t.op("Transpose", [blocked], perm=[0, 1, 3, 4, 2]), t.output_dtype)


def cosines(size: int) -> np.ndarray:
    """The kernels of the transform, one for each pair of frequencies."""
    frequencies, places = np.arange(size)[:, None], np.arange(size)
    rows = np.sqrt(2 / size) * np.cos((2 * places + 1) * frequencies * math.pi / (2 * size))
    rows[0] = np.sqrt(1 / size)
    made: np.ndarray = np.einsum("ay,bx->abyx", rows, rows).reshape(-1, 1, size, size).astype(np.float32)
    return made


def _channels(t: MgeTape, ends: ir.Value, picked: ir.Value, channels: int, count: int) -> ir.Value:
    """Which of all results are picked."""
    if not t.is_known(ends):
        t.refuse("how many numbers are picked of each channel is computed when the model runs")
    places = t.literal(ends)
    in_order = list(places) == sorted(places) and (places[0], places[-1]) == (0, *t.sizes(picked))
    if len(places) != channels + 1 or not in_order:
        t.refuse(f"numbers picked up to {places} for {channels} channels")
    first = np.repeat(np.arange(channels) * count, np.diff(places))
    made: ir.Value = t.op("Add", [picked, t.constant(first, INT32)])
    return made


# Comparing ------------------------------------------------------------------------------------------------------------


@op("Correlation")
def correlation(
    t: MgeTape,
    a: ir.Value,
    b: ir.Value,
    *,
    format: str,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    pad_size: int,
    is_multiply: bool,
) -> Any:
    """How much windows of an image resemble those of another one around their place. Channels lie in front.

    The numbers for each displacement are channels of the result, those of one row of displacements behind each other.
    """
    if format != "NCHW" or not stride1 or not stride2 or not kernel_size or _sizes(t, a) != t.sizes(b):
        t.refuse(f"strides {stride1} and {stride2}, kernel size {kernel_size}, format {format}, or images of two sizes")
    window = (kernel_size - 1) // 2 * 2 + 1
    first, second = (_framed(t, t.cast(value, FLOAT), pad_size) for value in (a, b))
    # How many windows lie below and beside each other, and how many pixels they cover.
    counts = [-((2 * max_displacement + window - 1 - size) // stride1) for size in t.sizes(first)[2:]]
    if min(counts) < 1:
        t.refuse("an image that is smaller than a window with its displacements")
    covered = [(count - 1) * stride1 + window for count in counts]
    steps = max_displacement // stride2
    t.bounded((2 * steps + 1) ** 2)
    y = _compared(t, first, second, covered, np.arange(-steps, steps + 1) * stride2, max_displacement, is_multiply)
    if window > 1 or stride1 > 1:
        y = t.op("AveragePool", [y], kernel_shape=[window, window], strides=[stride1, stride1])
    return t.cast(y, t.dtype(a))


def _compared(
    t: MgeTape, a: ir.Value, b: ir.Value, covered: list[int], moves: np.ndarray, start: int, multiplied: bool
) -> ir.Value:
    """The mean products (or differences) of pixels of an image and moved ones of another; a channel for each move."""
    height, width = covered
    fixed = t.op("Unsqueeze", [_rows(t, _rows(t, a, 2, start, height), 3, start, width), t.ints(3)])
    columns = t.op("Range", [t.constant(number, INT64) for number in (start, start + width, 1)])
    columns = t.op("Add", [columns, t.constant(moves[:, None], INT64)])
    found = []
    for move in moves.tolist():
        moved = t.op("Gather", [_rows(t, b, 2, start + move, height), columns], axis=3)
        pairs = t.op("Mul", [fixed, moved]) if multiplied else t.op("Abs", [t.op("Sub", [fixed, moved])])
        found.append(t.op("Transpose", [t.op("ReduceMean", [pairs, t.ints(1)], keepdims=0)], perm=[0, 2, 1, 3]))
    made: ir.Value = t.op("Concat", found, axis=1)
    return made


def _framed(t: MgeTape, x: ir.Value, count: int) -> ir.Value:
    """The image with zeros around it."""
    return t.op("Pad", [x, t.ints((0, 0, count, count) * 2)]) if count else x


def _rows(t: MgeTape, x: ir.Value, axis: int, start: int, count: int) -> ir.Value:
    made: ir.Value = t.op("Slice", [x, t.ints(start), t.ints(start + count), t.ints(axis)])
    return made

"""Reads images at computed places, with MegEngine's rules for what lies outside of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.quantised import round_half_away
from litehouse.formats.mge.tape import MgeTape

FLOAT, FLOAT16, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64
INT8, UINT8 = ir.DataType.INT8, ir.DataType.UINT8
BORDERS = ("REPLICATE", "REFLECT", "REFLECT_101", "WRAP", "CONSTANT")
MARGINS = {"REPLICATE": 1, "CONSTANT": 2}  # rows and columns around an image, beyond which it stays the same
LARGEST = float(np.finfo(np.float32).max)

Compute = Callable[[ir.Value, ir.DataType], ir.Value]


def on_stored_numbers(t: MgeTape, x: ir.Value, compute: Compute) -> ir.Value:
    """What `compute` makes of the numbers of an image as they are stored, and of their dtype.

    Of a quantised image, which is handed on as floats, these are the integers: MegEngine interpolates them as if they
    were not quantised.
    """
    quantised = t.quantised(x)
    if quantised is None:
        return compute(x, t.dtype(x))
    if quantised.numpy is None:
        t.refuse(f"images of dtype {quantised.name}")
    zero = t.constant(quantised.zero_point, FLOAT)
    stored = t.op("Add", [x, zero]) if quantised.zero_point else x
    result = compute(stored, ir.DataType.from_numpy(quantised.numpy))
    if quantised.zero_point:
        result = t.op("Sub", [result, zero])
    elif result is x:
        result = t.op("Identity", [x], like=x)
    return t.as_quantised(result, quantised)


def to_bytes(t: MgeTape, x: ir.Value, kind: ir.DataType) -> ir.Value:
    """Floats rounded as MegEngine does: unsigned ones are held in their range, signed ones wrap around."""
    if kind == UINT8:
        x = t.op("Clip", [x, t.constant(0, FLOAT), t.constant(255, FLOAT)], like=x)
        return round_half_away(t, x)
    whole = t.cast(round_half_away(t, x), INT32)
    wrapped = t.op("Mod", [t.op("Add", [whole, t.constant(128, INT32)]), t.constant(256, INT32)])
    return t.cast(t.op("Sub", [wrapped, t.constant(128, INT32)]), FLOAT)


@dataclass(frozen=True, slots=True)
class Image:
    """Images to read from.

    Attributes:
        x: The images, floats.
        form: Their format, NCHW or NHWC.
        border: What lies outside.
        constant: What lies outside, where the border is constant.
        images: How many there are.
        channels: How many channels.
        height: How many rows.
        width: How many columns.
    """

    x: ir.Value
    form: str
    border: str
    constant: float
    images: int
    channels: int
    height: int
    width: int


def as_image(t: MgeTape, x: ir.Value, form: str, border: str, constant: float) -> Image:
    """The images of a tensor."""
    if border not in BORDERS:
        t.refuse(f"border mode {border}")
    order = (0, 1, 2, 3) if form == "NCHW" else (0, 3, 1, 2)
    return Image(t.cast(x, FLOAT), form, border, constant, *(t.sizes(x)[axis] for axis in order))


def read(t: MgeTape, image: Image, batches: ir.Value, rows: ir.Value, columns: ir.Value, taps: int) -> ir.Value:
    """The neighbours of points: taps * taps x channels x points.

    Args:
        t: The tape.
        image: What is read from.
        batches: Which image each result reads from, int32.
        rows: The row at or before each point, int32, results x height x width; any number will do.
        columns: The column at or before each point.
        taps: How many rows and columns of neighbours.
    """
    points = t.shape(rows)
    size = image.images * image.height * image.width
    # A table of squares pays where not much more is read into it than out of it.
    if taps == 2 and image.border in MARGINS and points is not None and 4 * math.prod(points) >= size:
        return _read_squares(t, image, batches, rows, columns)
    frame = int(image.border == "CONSTANT")
    x = _framed(t, image, frame)
    height, width = image.height + 2 * frame, image.width + 2 * frame
    if image.form == "NCHW":
        x = t.op("Transpose", [x], perm=[0, 2, 3, 1])
    rows = _places(t, rows, taps, height, image.border)
    rows = t.op("Unsqueeze", [_rows_of(t, batches, rows, height, width), t.constant([1], INT64)])
    columns = t.op("Unsqueeze", [_places(t, columns, taps, width, image.border), t.constant([0], INT64)])
    index = t.op("Reshape", [t.op("Add", [rows, columns]), t.constant([taps * taps, -1], INT64)])
    pixels = t.op("Reshape", [x, t.constant([-1, image.channels], INT64)])
    found: ir.Value = t.op("Transpose", [t.op("Gather", [pixels, index], axis=0)], perm=[0, 2, 1])
    return found


def _read_squares(t: MgeTape, image: Image, batches: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
    """The four neighbours of points, read at once: reading single pixels is what engines are slow at."""
    margin = MARGINS[image.border]
    x = _framed(t, image, margin)
    if image.form == "NHWC":
        x = t.op("Transpose", [x], perm=[0, 3, 1, 2])
    height, width = image.height + 2 * margin - 1, image.width + 2 * margin - 1
    corners = []
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        start, end = t.constant([row, column], INT64), t.constant([row + height, column + width], INT64)
        corners.append(t.op("Slice", [x, start, end, t.constant([2, 3], INT64)]))
    squares = t.op("Transpose", [t.op("Concat", corners, axis=1)], perm=[0, 2, 3, 1])
    squares = t.op("Reshape", [squares, t.constant([-1, 4 * image.channels], INT64)])
    places = []
    for place, size in ((rows, height), (columns, width)):
        place = t.op("Max", [t.op("Add", [place, t.constant(margin, INT32)]), t.constant(0, INT32)])
        places.append(t.op("Min", [place, t.constant(size - 1, INT32)]))
    index = t.op("Add", [_rows_of(t, batches, places[0], height, width), places[1]])
    found = t.op("Gather", [squares, t.op("Reshape", [index, t.constant([-1], INT64)])], axis=0)
    made: ir.Value = t.op(
        "Reshape", [t.op("Transpose", [found], perm=[1, 0]), t.constant([4, image.channels, -1], INT64)]
    )
    return made


def _framed(t: MgeTape, image: Image, margin: int) -> ir.Value:
    """The images with more rows and columns around them."""
    if not margin:
        return image.x
    pads = t.constant(([0, 0, margin, margin] if image.form == "NCHW" else [0, margin, margin, 0]) * 2, INT64)
    if image.border == "CONSTANT":
        made: ir.Value = t.op("Pad", [image.x, pads, t.constant(image.constant, FLOAT)])
    else:
        made = t.op("Pad", [image.x, pads], mode="edge")
    return made


def _rows_of(t: MgeTape, batches: ir.Value, rows: ir.Value, height: int, width: int) -> ir.Value:
    """The number of the first pixel of rows, among those of all images."""
    rows = t.op("Mul", [rows, t.constant(width, INT32)])
    start = t.op("Mul", [batches, t.constant(height * width, INT32)])
    if t.is_known(start) and not any(t.literal(start)):
        return rows
    made: ir.Value = t.op("Add", [rows, t.op("Reshape", [start, t.constant([-1, 1, 1], INT64)])])
    return made


def _places(t: MgeTape, first: ir.Value, taps: int, size: int, border: str) -> ir.Value:
    """The rows (or columns) of `taps` neighbours, `first` among them, within the image: on a new axis in front.

    An image with a constant border has one more row at each end.
    """
    offsets = np.arange(1 - taps // 2, taps // 2 + 1) if taps > 1 else np.zeros(1)
    index = t.op("Unsqueeze", [first, t.constant([0], INT64)])
    index = t.op("Add", [index, t.constant((offsets + (border == "CONSTANT")).reshape(-1, 1, 1, 1), INT32)])
    if border in ("REPLICATE", "CONSTANT"):
        index = t.op("Max", [index, t.constant(0, INT32)])
        index = t.op("Min", [index, t.constant(size - 1, INT32)])
    elif border == "WRAP":
        index = t.op("Mod", [index, t.constant(size, INT32)])
    else:
        period, last = (2 * size, 2 * size - 1) if border == "REFLECT" else (max(2 * size - 2, 1), 2 * size - 2)
        index = t.op("Mod", [index, t.constant(period, INT32)])
        index = t.op("Min", [index, t.op("Sub", [t.constant(last, INT32), index])])
    return index  # type: ignore[no-any-return]


def combine(t: MgeTape, pixels: ir.Value, rows: ir.Value, columns: ir.Value, *, ordered: bool = False) -> ir.Value:
    """The sums of what `read` found, by the weights of rows and columns: channels x points.

    Args:
        t: The tape.
        pixels: Taps * taps x channels x points.
        rows: Taps x results x height x width.
        columns: The same.
        ordered: Whether to multiply by the weights one after the other, as MegEngine does: where the sum is rounded to
            an integer, the last bit of it may decide.
    """
    taps = t.known_sizes(rows)[0]
    assert taps is not None
    rows = t.op("Reshape", [rows, t.constant([taps, 1, 1, -1], INT64)])
    columns = t.op("Reshape", [columns, t.constant([1, taps, 1, -1], INT64)])
    if not ordered:
        return add_up(
            t, pixels, t.op("Reshape", [t.op("Mul", [rows, columns]), t.constant([taps * taps, 1, -1], INT64)])
        )
    count, channels, _ = t.known_sizes(pixels)
    pixels = t.op("Reshape", [pixels, t.constant([taps, taps, channels, -1], INT64)])
    pixels = t.op("Mul", [pixels, columns])
    pixels = t.op("Reshape", [t.op("Mul", [pixels, rows]), t.constant([count, channels, -1], INT64)])
    made: ir.Value = t.op("ReduceSum", [pixels, t.constant([0], INT64)], keepdims=0)
    return made


def linear_weights(t: MgeTape, part: ir.Value) -> ir.Value:
    """The weights of the two neighbours of points, by how far these are behind the first; on a new axis in front."""
    part = t.op("Unsqueeze", [part, t.constant([0], INT64)])
    made: ir.Value = t.op("Concat", [t.op("Sub", [t.constant(1, FLOAT), part]), part], axis=0)
    return made


def add_up(t: MgeTape, pixels: ir.Value, weights: ir.Value) -> ir.Value:
    """The sum of what `read` found, by weights of taps * taps x 1 x points: channels x points."""
    made: ir.Value = t.op("ReduceSum", [t.op("Mul", [pixels, weights]), t.constant([0], INT64)], keepdims=0)
    return made


def write_image(t: MgeTape, result: ir.Value, count: int, size: ir.Value, form: str) -> ir.Value:
    """Channels x points as `count` images of a format."""
    channels = t.known_sizes(result)[0]
    one = 1 in (count, channels)  # then they may change places
    lead = t.constant([count, channels] if one else [channels, count], INT64)
    made: ir.Value = t.op("Reshape", [result, t.op("Concat", [lead, size], axis=0)])
    if form == "NCHW":
        return made if one else t.op("Transpose", [made], perm=[1, 0, 2, 3])
    return t.op("Transpose", [made], perm=[0, 2, 3, 1] if one else [1, 2, 3, 0])  # type: ignore[no-any-return]


def matrix_entries(t: MgeTape, matrix: ir.Value) -> Sequence[ir.Value]:
    """The numbers of matrices, row by row, each as images x 1 x 1."""
    _, rows, columns = t.sizes(matrix)
    flat = t.op("Reshape", [matrix, t.constant([-1, rows * columns, 1, 1], INT64)])
    return [t.op("Gather", [flat, t.constant(place, INT64)], axis=1) for place in range(rows * columns)]


def counted(t: MgeTape, size: ir.Value, axis: int) -> ir.Value:
    """The numbers of rows (of axis 0) or columns, int64, in the place of their axis of images x height x width."""
    count = t.op("Gather", [size, t.constant(axis, INT64)], axis=0)
    numbers = t.op("Range", [t.constant(0, INT64), count, t.constant(1, INT64)])
    made: ir.Value = t.op("Reshape", [numbers, t.constant([1, -1, 1] if axis == 0 else [1, 1, -1], INT64)])
    return made

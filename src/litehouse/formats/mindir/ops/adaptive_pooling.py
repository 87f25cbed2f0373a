"""Adaptive pooling: windows whose number is given, and whose sizes follow from the operand's.

Window i of n along an axis of size s covers what lies from floor(i * s / n) up to ceil((i + 1) * s / n). All of it is
computed from the shape when the model runs, so that other input sizes work; engines fold it where the shape is fixed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import matrix_along, positions, size_along
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows along one axis.

    Attributes:
        size: The axis's size.
        starts: Where each window begins.
        ends: Where each window ends.
    """

    size: ir.Value
    starts: ir.Value
    ends: ir.Value


def _windows(t: MindirTape, x: ir.Value, axis: int, count: int | None) -> Windows:
    """The windows along an axis; a count of None or -1 keeps the axis as it is."""
    size = size_along(t, x, axis)
    if count is None or count < 0:
        starts = positions(t, size)
        return Windows(size, starts, t.op("Add", [starts, t.ints(1)]))
    index, divisor = np.arange(t.bounded(count)), t.ints(count)
    starts = t.op("Div", [t.op("Mul", [size, t.ints(index.tolist())]), divisor])
    reach = t.op("Add", [t.op("Mul", [size, t.ints((index + 1).tolist())]), t.ints(count - 1)])
    return Windows(size, starts, t.op("Div", [reach, divisor]))


def _column(t: MindirTape, values: ir.Value) -> ir.Value:
    column: ir.Value = t.op("Unsqueeze", [values, t.ints(1)])
    return column


def _counts(t: MindirTape, output_size: Any, axes: int) -> tuple[int | None, ...]:
    counts = t.literal(output_size)
    counts = counts if isinstance(counts, tuple) else (counts,) * axes
    return (counts * axes if len(counts) == 1 else counts)[-axes:]


# Means ----------------------------------------------------------------------------------------------------------------


@op("AdaptiveAvgPool1D")
def adaptive_avg_pool1d(t: MindirTape, input: ir.Value, output_size: Any) -> Any:
    return _means(t, input, _counts(t, output_size, 1))


@op("AdaptiveAvgPool2D", "AdaptiveAvgPool2DExt")
def adaptive_avg_pool2d(t: MindirTape, input: ir.Value, output_size: Any) -> Any:
    return _means(t, input, _counts(t, output_size, 2))


@op("AdaptiveAvgPool3D", "AdaptiveAvgPool3DExt")
def adaptive_avg_pool3d(t: MindirTape, input: ir.Value, output_size: Any) -> Any:
    return _means(t, input, _counts(t, output_size, 3))


def _means(t: MindirTape, x: ir.Value, counts: tuple[int | None, ...]) -> ir.Value:
    axes = range(-len(counts), 0)
    whole = [axis for axis, count in zip(axes, counts, strict=True) if count == 1]
    parts = [(axis, count) for axis, count in zip(axes, counts, strict=True) if count not in (1, None, -1)]
    y: ir.Value = t.op("ReduceMean", [x, t.ints(whole)], keepdims=1, like=x) if whole else t.op("Identity", [x], like=x)
    for axis, count in parts:
        y = matrix_along(t, y, axis, _shares(t, _windows(t, y, axis, count), t.dtype(x)))
    return y


def _shares(t: MindirTape, windows: Windows, dtype: ir.DataType) -> ir.Value:
    """The matrix that takes means: a row per window, with 1 / length where the window lies."""
    place = positions(t, windows.size)
    starts, ends = _column(t, windows.starts), _column(t, windows.ends)
    inside = t.op("And", [t.op("GreaterOrEqual", [place, starts]), t.op("Less", [place, ends])])
    length = t.op("Cast", [t.op("Sub", [ends, starts])], to=int(dtype))
    shares: ir.Value = t.op("Div", [t.op("Cast", [inside], to=int(dtype)), length])
    return shares


# Maxima ---------------------------------------------------------------------------------------------------------------


@op("AdaptiveMaxPool1D")
def adaptive_max_pool1d(t: MindirTape, input: ir.Value, output_size: Any) -> Any:
    return _maxima(t, input, _counts(t, output_size, 1))


@op("AdaptiveMaxPool2D")
def adaptive_max_pool2d(t: MindirTape, input: ir.Value, output_size: Any) -> Any:
    return _maxima(t, input, _counts(t, output_size, 2))


@op("AdaptiveMaxPool3D")
def adaptive_max_pool3d(t: MindirTape, x: ir.Value, output_size: Any) -> Any:
    return _maxima(t, x, _counts(t, output_size, 3))


def _maxima(t: MindirTape, x: ir.Value, counts: tuple[int | None, ...]) -> tuple[ir.Value, ir.Value]:
    """The largest of each window, and its place in the plane (all spatial axes in one number)."""
    rank, axes = t.rank(x), len(counts)
    outer = rank - axes
    windows = [_windows(t, x, axis, count) for axis, count in zip(range(-axes, 0), counts, strict=True)]
    lengths = [t.op("ReduceMax", [t.op("Sub", [w.ends, w.starts])], keepdims=0) for w in windows]
    y = x
    for axis in reversed(range(axes)):  # each becomes two: the windows, and the places in the longest of them
        window = windows[axis]
        places = t.op("Add", [_column(t, window.starts), positions(t, lengths[axis])])
        places = t.op("Min", [places, _column(t, t.op("Sub", [window.ends, t.ints(1)]))])  # shorter: the last again
        y = t.op("Gather", [y, places], axis=outer + axis)
    inner = range(outer, outer + 2 * axes)
    y = t.op("Transpose", [y], perm=(*range(outer), *inner[::2], *inner[1::2]))
    maxima = t.op("ReduceMax", [y, t.ints(tuple(range(rank, rank + axes)))], keepdims=0)
    flat = t.op("Reshape", [y, t.op("Concat", [t.op("Shape", [y], end=rank), t.ints(-1)], axis=0)])
    local = t.op("ArgMax", [flat], axis=-1, keepdims=0)
    return maxima, t.cast(_plane_places(t, local, windows, lengths), t.result_dtype(1))


def _plane_places(t: MindirTape, local: ir.Value, windows: list[Windows], lengths: list[ir.Value]) -> ir.Value:
    """Places in the plane from places in the windows."""
    axes = len(windows)
    place = t.constant(0, ir.DataType.INT64)
    stride = t.constant(1, ir.DataType.INT64)
    for axis in reversed(range(axes)):
        along = t.op("Mod", [local, lengths[axis]])
        local = t.op("Div", [local, lengths[axis]])
        starts = t.op("Reshape", [windows[axis].starts, t.ints((-1,) + (1,) * (axes - 1 - axis))])
        place = t.op("Add", [place, t.op("Mul", [t.op("Add", [along, starts]), stride])], dtype=ir.DataType.INT64)
        stride = t.op("Mul", [stride, windows[axis].size])
    return place

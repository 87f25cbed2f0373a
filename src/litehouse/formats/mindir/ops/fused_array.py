"""Shapes, slices, padding and constants in MindSpore Lite's dialect."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.array import tile
from litehouse.formats.mindir.ops.common import axis_of, choose
from litehouse.formats.mindir.ops.index import LAST, entries, non_zero, slice_axes, total
from litehouse.formats.mindir.ops.layout import turned
from litehouse.formats.mindir.ops.padding import pad_sizes, pad_with
from litehouse.formats.mindir.ops.scatter import scatter_elements, scatter_nd
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
PADDING_MODES = {0: "constant", 1: "reflect", 2: "symmetric"}
TO_CHANNELS_FIRST, TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
TRANSPOSES = {(1, 0): TO_CHANNELS_FIRST, (0, 1): TO_CHANNELS_LAST}

# Parts ----------------------------------------------------------------------------------------------------------------


@op("SliceFusion")
def slice_fusion(t: MindirTape, x: ir.Value, begin: Any, size: Any, *, axes: Any = ()) -> Any:
    """Of each axis so many places from a beginning; -1 for all that follow."""
    firsts, counts = entries(t, begin), entries(t, size)
    along = t.literal(axes) or tuple(range(len(firsts)))
    parts = []
    for axis, first, count in zip(along, firsts, counts, strict=True):
        end = LAST if isinstance(count, int) and count == -1 else total(t, first, count)
        parts.append((axis_of(t, axis, t.rank(x)), first, end, 1))
    return slice_axes(t, x, parts)


@op("Crop")
def crop(t: MindirTape, x: ir.Value, model: ir.Value, *, axis: Any = 2, offsets: Any = 0) -> Any:
    """From `axis` on as large as another value, beginning at the offsets: one for each axis, or one for all."""
    first = axis_of(t, axis, t.rank(x))
    count = t.rank(x) - first
    starts = t.literal(offsets) or (0,)
    starts = starts if isinstance(starts, tuple) else (starts,)
    begins = t.ints(starts * count if len(starts) == 1 else starts)
    ends = t.op("Add", [begins, t.op("Shape", [model], start=first)])
    return t.op("Slice", [x, begins, ends, t.ints(tuple(range(first, t.rank(x))))])


@op("PadFusion")
def pad_fusion(
    t: MindirTape,
    x: ir.Value,
    paddings: Any,
    value: Any = None,
    *,
    padding_mode: Any = 0,
    constant_value: Any = 0.0,
) -> Any:
    mode = PADDING_MODES.get(t.literal(padding_mode))
    if mode is None:
        t.refuse(f"padding mode {padding_mode!r} is not supported")
    sizes = pad_sizes(t, paddings, 2 * t.rank(x))
    sizes = (*(0,) * (2 * t.rank(x) - len(sizes)), *sizes)
    return pad_with(t, x, sizes, mode, constant_value if value is None else _scalar(t, value))


def _scalar(t: MindirTape, value: Any) -> Any:
    if not isinstance(value, ir.Value) or (value.shape is not None and value.shape.rank() == 0):
        return value
    return t.op("Reshape", [value, t.constant(np.zeros(0, np.int64))], dtype=value.dtype, shape=[])


@op("TileFusion")
def tile_fusion(t: MindirTape, x: ir.Value, repeats: Any, *, dims: Any = ()) -> Any:
    """With `dims`, the repeats are those of these axes."""
    along = t.literal(dims)
    if not along:
        return tile(t, x, repeats)
    times = [1] * t.rank(x)
    for axis, count in zip(along, entries(t, repeats), strict=True):
        times[axis_of(t, axis, t.rank(x))] = count
    return t.op("Tile", [x, t.ints(tuple(times))])


@op("SplitWithOverlap")
def split_with_overlap(
    t: MindirTape, x: ir.Value, *, split_dim: Any, number_split: Any, ratio: Any, extend_top: Any, extend_bottom: Any
) -> Any:
    """Pieces whose sizes are as the ratios, each with some more at its beginning and end."""
    axis = axis_of(t, split_dim, t.rank(x))
    size, shares = t.sizes(x)[axis], t.literal(ratio)
    borders = [-(-size * sum(shares[:index]) // sum(shares)) for index in range(t.literal(number_split) + 1)]
    pieces = []
    extra = zip(t.literal(extend_top), t.literal(extend_bottom), strict=True)
    for index, (before, behind) in enumerate(extra):
        pieces.append(slice_axes(t, x, [(axis, borders[index] - before, borders[index + 1] + behind, 1)]))
    return tuple(pieces)


@op("FormatTranspose")
def format_transpose(t: MindirTape, x: ir.Value, *, src_format: Any = 1, dst_format: Any = 1) -> Any:
    change = (t.literal(src_format), t.literal(dst_format))
    if change[0] == change[1] or t.rank(x) != 4:
        return t.op("Identity", [x])
    if change not in TRANSPOSES:
        t.refuse(f"a change of layout from {change[0]} to {change[1]} is not supported")
    return turned(t, x, TRANSPOSES[change])


# Made from numbers ----------------------------------------------------------------------------------------------------


@op("ConstantOfShape")
def constant_of_shape(t: MindirTape, shape: Any, *, value: Any = (0.0,), data_type: Any = None) -> Any:
    number = np.ravel(t.literal(value) or (0.0,))[0]
    return t.op("Expand", [t.constant(number, t.result_dtype()), t.ints(shape)])


@op("SparseToDense")
def sparse_to_dense(t: MindirTape, indices: Any, shape: Any, values: Any, default: Any = 0) -> Any:
    """A tensor of that shape full of the default, with the values at their places."""
    if isinstance(values, tuple):  # MindSpore itself has the values before the shape
        shape, values = values, shape
    dtype, places = t.result_dtype(), t.tensor(indices, INT64)
    whole = t.op("Expand", [_scalar(t, t.tensor(default, dtype)), t.ints(shape)], dtype=dtype)
    rank = t.rank(places)
    if rank < 2:
        places = t.op("Reshape", [places, t.ints((-1, 1))], dtype=INT64)
    count = t.op("Shape", [places], start=0, end=1)
    updates = t.op("Expand", [t.tensor(values, dtype), count], dtype=dtype)
    return scatter_nd(t, whole, places, updates, "none")


# By condition and index -----------------------------------------------------------------------------------------------


@op("Where")
def where(t: MindirTape, condition: ir.Value, x: Any = None, y: Any = None) -> Any:
    """With one operand the places that are not 0, a row each."""
    if x is None:
        return t.cast(non_zero(t, condition), t.result_dtype())
    first, second = t.promote(x, y)
    return choose(t, t.cast(condition, ir.DataType.BOOL), first, second)


@op("LiteNonZero")
def lite_non_zero(t: MindirTape, x: ir.Value) -> Any:
    """Lite's op of the name NonZero: the places that are not 0, a column each."""
    return t.cast(t.op("NonZero", [t.cast(x, ir.DataType.BOOL)], dtype=INT64), t.result_dtype())


@op("NonMaxSuppression")
def non_max_suppression(
    t: MindirTape,
    boxes: ir.Value,
    scores: ir.Value,
    max_output: Any = 0,
    iou_threshold: Any = 0.0,
    score_threshold: Any = None,
    *,
    center_point_box: Any = 0,
) -> Any:
    """Rows of batch, class and place."""
    stated = [limit for limit in (iou_threshold, score_threshold) if limit is not None]
    limits = [t.op("Reshape", [t.tensor(limit, FLOAT), t.ints(1)]) for limit in stated]
    kept = t.op(
        "NonMaxSuppression",
        [t.cast(boxes, FLOAT), t.cast(scores, FLOAT), t.ints(max_output), *limits],
        center_point_box=int(t.literal(center_point_box)),
        dtype=INT64,
    )
    return t.cast(kept, t.result_dtype())


@op("ScatterElements")
def scatter_elements_op(t: MindirTape, x: ir.Value, indices: Any, updates: ir.Value, *, axis: Any = 0) -> Any:
    return scatter_elements(t, x, axis, indices, updates, "none")


@op("Custom")
def custom(t: MindirTape, *operands: Any, type: Any = "") -> Any:
    t.refuse(f"a custom op of type {type!r}, whose meaning is not in the file")

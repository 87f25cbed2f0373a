"""Writing parts of tensors: at indices, along an axis, under a mask."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.memory import replaced
from litehouse.formats.mindir.ops.common import axis_of, cast_around, choose, int64_op, positions, size_along
from litehouse.formats.mindir.ops.index import indices, joined_indices, strided_slice
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
LACKS_REDUCTION = {ir.DataType.FLOAT16: ir.DataType.FLOAT}
REDUCTIONS = {0: "none", 1: "add", "none": "none", "add": "add"}
KINDS = {"Update": "none", "Add": "add", "Sub": "add", "Mul": "mul", "Div": "mul", "Max": "max", "Min": "min"}
SEGMENT_STARTS: dict[str, tuple[str, Any]] = {
    "Sum": ("add", 0),
    "Prod": ("mul", 1),
    "Max": ("max", "min"),
    "Min": ("min", "max"),
}

# At indices into the first axes ---------------------------------------------------------------------------------------


def scatter_nd(t: MindirTape, x: ir.Value, index: Any, updates: Any, reduction: str) -> ir.Value:
    """The value with rows replaced by, or combined with, the updates."""
    lacking = {} if reduction == "none" else LACKS_REDUCTION
    place = t.tensor(index, INT64)
    return cast_around(t, lacking, "ScatterND", x, place, t.tensor(updates, t.dtype(x)), reduction=reduction)


def _combine(kind: str) -> Callable[..., ir.Value]:
    """The converter of one kind of TensorScatter op, and of the ScatterNd op that writes to a variable."""

    def convert(t: MindirTape, input_x: ir.Value, indices: Any, updates: Any) -> ir.Value:
        dtype, parts = t.dtype(input_x), t.tensor(updates, t.dtype(input_x))
        if kind == "Sub":
            parts = t.op("Neg", [parts], dtype=dtype)
        elif kind == "Div":
            if not dtype.is_floating_point():
                t.refuse("division of integers")
            parts = t.op("Reciprocal", [parts], dtype=dtype)
        return scatter_nd(t, input_x, indices, parts, KINDS[kind])

    return convert


def _combine_rows(kind: str) -> Callable[..., ir.Value]:
    """The converter of one kind of Scatter op: rows of a variable, by their numbers."""

    def convert(t: MindirTape, input_x: ir.Value, indices: Any, updates: Any) -> ir.Value:
        places = t.op("Unsqueeze", [t.tensor(indices, INT64), t.ints(-1)], dtype=INT64)
        return _combine(kind)(t, input_x, places, updates)

    return convert


for _kind in KINDS:
    op(f"TensorScatter{_kind}")(_combine(_kind))
    op(f"ScatterNd{_kind}", writes=True)(_combine(_kind))
    op(f"Scatter{_kind}", writes=True)(_combine_rows(_kind))


@op("ScatterNd")
def scatter_nd_onto_zeros(t: MindirTape, indices: Any, updates: ir.Value, shape: Any) -> Any:
    zero = t.constant(0, t.dtype(updates))
    return scatter_nd(t, t.op("Expand", [zero, t.ints(shape)], dtype=updates.dtype), indices, updates, "add")


@op("Assign", writes=True)
def assign(t: MindirTape, variable: ir.Value, value: Any) -> Any:
    return t.op("Identity", [t.tensor(value, t.dtype(variable))])


@op("AssignAdd", writes=True)
def assign_add(t: MindirTape, variable: ir.Value, value: Any) -> Any:
    return t.op("Add", [variable, t.tensor(value, t.dtype(variable))])


@op("AssignSub", writes=True)
def assign_sub(t: MindirTape, variable: ir.Value, value: Any) -> Any:
    return t.op("Sub", [variable, t.tensor(value, t.dtype(variable))])


@op("InplaceIndexPut", writes=True)
@op("IndexPut")
def index_put(t: MindirTape, input: ir.Value, indices: tuple[Any, ...], values: Any, accumulate: Any = False) -> Any:
    place = joined_indices(t, indices)
    rest = t.op("Shape", [input], start=len(indices)) if len(indices) < t.rank(input) else None
    shape = t.op("Shape", [place], start=0, end=-1)
    shape = shape if rest is None else t.op("Concat", [shape, rest], axis=0)
    updates = t.op("Expand", [t.tensor(values, t.dtype(input)), shape], dtype=input.dtype)
    return scatter_nd(t, input, place, updates, "add" if t.literal(accumulate) else "none")


def _segments(kind: str) -> Callable[..., ir.Value]:
    """The converter that combines the rows of each segment. A segment without rows keeps what it starts with."""
    reduction, start = SEGMENT_STARTS[kind]

    def convert(t: MindirTape, input_x: ir.Value, segment_ids: Any, num_segments: Any) -> ir.Value:
        dtype, ids = t.dtype(input_x), t.tensor(segment_ids, INT64)
        first = start if isinstance(start, int) else getattr(_limits(dtype), start)
        count = t.op("Reshape", [t.tensor(num_segments, INT64), t.ints(1)], dtype=INT64)
        # Rows of negative segments go to one more, which is left out at the end.
        kept = t.op("GreaterOrEqual", [ids, t.constant(0, INT64)])
        places = t.op("Unsqueeze", [choose(t, kept, ids, count), t.ints(-1)], dtype=INT64)
        shape = [int64_op(t, "Add", count, 1)]
        if t.rank(ids) < t.rank(input_x):
            shape.append(t.op("Shape", [input_x], start=t.rank(ids)))
        rows = t.op("Expand", [t.constant(first, dtype), t.op("Concat", shape, axis=0)], dtype=dtype)
        done = scatter_nd(t, rows, places, input_x, reduction)
        part: ir.Value = t.op("Slice", [done, t.ints(0), count, t.ints(0)])
        return part

    return convert


def _limits(dtype: ir.DataType) -> Any:
    return np.finfo(dtype.numpy()) if dtype.is_floating_point() else np.iinfo(dtype.numpy())


for _kind in SEGMENT_STARTS:
    op(f"UnsortedSegment{_kind}")(_segments(_kind))


# Along an axis --------------------------------------------------------------------------------------------------------


def scatter_elements(t: MindirTape, x: ir.Value, axis: Any, index: Any, updates: ir.Value, reduce: Any) -> ir.Value:
    """The value with elements along an axis replaced by, or added to, the updates."""
    reduction = REDUCTIONS.get(t.literal(reduce))
    if reduction is None:
        t.refuse(f"reduction {reduce!r}")
    axis = axis_of(t, axis, t.rank(x))
    lacking = {} if reduction == "none" else LACKS_REDUCTION
    place, parts = indices(t, index), t.cast(updates, t.dtype(x))
    return cast_around(t, lacking, "ScatterElements", x, place, parts, axis=axis, reduction=reduction)


@op("TensorScatterElements")
def tensor_scatter_elements(
    t: MindirTape,
    data: ir.Value,
    indices: Any,
    updates: ir.Value,
    axis: Any = 0,
    reduce: Any = "none",
    *,
    reduction: Any = None,
) -> Any:
    return scatter_elements(t, data, axis, indices, updates, reduction or reduce)


@op("InplaceScatterSrc", "InplaceScatterSrcReduce", writes=True)
@op("Scatter")
def scatter(t: MindirTape, input: ir.Value, dim: Any, index: ir.Value, src: ir.Value, reduce: Any = 0) -> Any:
    return scatter_elements(t, input, dim, index, _as_large_as(t, index, src), reduce)


@op("InplaceScatterValue", "InplaceScatterValueReduce", writes=True)
@op("ScatterValue")
def scatter_value(t: MindirTape, input: ir.Value, dim: Any, index: ir.Value, src: Any, reduce: Any = 0) -> Any:
    value = t.op("Expand", [t.tensor(src, t.dtype(input)), t.op("Shape", [index])], dtype=input.dtype)
    return scatter_elements(t, input, dim, index, value, reduce)


@op("InplaceScatterAdd", writes=True)
@op("ScatterAddExt")
def scatter_add(t: MindirTape, input: ir.Value, dim: Any, index: ir.Value, src: ir.Value) -> Any:
    return scatter_elements(t, input, dim, index, _as_large_as(t, index, src), "add")


def _as_large_as(t: MindirTape, index: ir.Value, source: ir.Value) -> ir.Value:
    """The part of the source that the index speaks of; the rest is not used."""
    if index.shape is not None and index.shape == source.shape:
        return source
    rank = t.rank(index)
    inputs = [source, t.ints((0,) * rank), t.op("Shape", [index]), t.ints(tuple(range(rank)))]
    part: ir.Value = t.op("Slice", inputs, dtype=source.dtype)
    return part


def _along(t: MindirTape, index: Any, axis: int, source: ir.Value) -> ir.Value:
    """A 1-D index for whole slices along an axis, repeated for each element of the source."""
    place = t.op("Reshape", [indices(t, index), t.ints((-1, *(1,) * (t.rank(source) - 1 - axis)))])
    wide: ir.Value = t.op("Expand", [place, t.op("Shape", [source])], dtype=indices(t, index).dtype)
    return wide


@op("InplaceIndexAddExt", writes=True)
@op("IndexAddExt")
def index_add_ext(t: MindirTape, input: ir.Value, dim: Any, index: Any, source: ir.Value, alpha: Any = 1) -> Any:
    axis = axis_of(t, dim, t.rank(input))
    place, added = _along(t, index, axis, source), t.cast(source, t.dtype(input))
    if not t.is_literal(alpha) or t.literal(alpha) != 1:
        added = t.op("Mul", [added, t.tensor(alpha, t.dtype(input))], dtype=input.dtype)
    return scatter_elements(t, input, axis, place, added, "add")


@op("IndexAdd", "InplaceIndexAdd", writes=True)
def index_add(t: MindirTape, x: ir.Value, indices: Any, y: ir.Value, *, axis: Any) -> Any:
    return index_add_ext(t, x, axis, indices, y)


@op("ScatterAddWithAxis")
def scatter_add_with_axis(t: MindirTape, input_x: ir.Value, indices: Any, updates: ir.Value, *, axis: Any = 0) -> Any:
    return scatter_elements(t, input_x, axis, indices, updates, "add")


def _rows(t: MindirTape, indices: Any) -> ir.Value:
    """Numbers of rows as indices into the first axis."""
    places: ir.Value = t.op("Unsqueeze", [t.ints(indices), t.ints(1)], dtype=INT64)
    return places


@op("InplaceAdd")
def inplace_add(t: MindirTape, x: ir.Value, input_v: ir.Value, *, indices: Any) -> Any:
    """Despite its name a new tensor, as are those of the next two."""
    return scatter_nd(t, x, _rows(t, indices), input_v, "add")


@op("InplaceSub")
def inplace_sub(t: MindirTape, x: ir.Value, input_v: ir.Value, *, indices: Any) -> Any:
    return scatter_nd(t, x, _rows(t, indices), t.op("Neg", [input_v], like=input_v), "add")


@op("InplaceUpdateV2")
def inplace_update(t: MindirTape, x: ir.Value, indices: Any, v: ir.Value) -> Any:
    return scatter_nd(t, x, _rows(t, indices), v, "none")


@op("InplaceIndexCopy", writes=True)
def index_copy(t: MindirTape, input: ir.Value, dim: Any, index: Any, tensor: ir.Value) -> Any:
    axis = axis_of(t, dim, t.rank(input))
    return scatter_elements(t, input, axis, _along(t, index, axis, tensor), tensor, "none")


@op("InplaceIndexFillScalar", "InplaceIndexFillTensor", writes=True)
@op("IndexFill", "IndexFillScalar", "IndexFillTensor")
def index_fill(t: MindirTape, input: ir.Value, dim: Any, index: Any, value: Any) -> Any:
    axis = axis_of(t, dim, t.rank(input))
    size = size_along(t, input, axis)
    place = int64_op(t, "Mod", t.cast(indices(t, index), INT64), size)
    equal = t.op("Equal", [t.op("Reshape", [place, t.ints((-1, 1))]), positions(t, size)])
    count = t.op("ReduceSum", [t.op("Cast", [equal], to=int(INT64)), t.ints(0)], keepdims=0)
    filled = t.op("Greater", [count, t.constant(0, INT64)])
    filled = t.op("Reshape", [filled, t.ints((-1, *(1,) * (t.rank(input) - 1 - axis)))])
    return choose(t, t.op("Not", [filled]), input, value)


# Slices, masks, diagonals ---------------------------------------------------------------------------------------------


@op("TensorCopySlices")
def tensor_copy_slices(t: MindirTape, x: ir.Value, value: ir.Value, begin: Any, end: Any, strides: Any) -> Any:
    return replaced(t, x, lambda base: strided_slice(t, base, begin, end, strides), t.cast(value, t.dtype(x)))


@op("InplaceMaskedScatter", writes=True)
@op("MaskedScatter")
def masked_scatter(t: MindirTape, input: ir.Value, mask: ir.Value, source: ir.Value) -> Any:
    """The n-th true place of the mask takes the n-th element of the source."""
    wide = t.op("Expand", [mask, t.op("Shape", [input])])
    flat = t.op("Cast", [t.op("Reshape", [wide, t.ints(-1)])], to=int(INT64))
    number = int64_op(t, "Max", int64_op(t, "Sub", t.op("CumSum", [flat, t.constant(0, INT64)]), 1), 0)
    taken = t.op("Gather", [t.op("Reshape", [t.cast(source, t.dtype(input)), t.ints(-1)]), number], axis=0)
    taken = t.op("Reshape", [taken, t.op("Shape", [input])], dtype=input.dtype)
    return choose(t, wide, taken, input)


@op("InplacePut", writes=True)
def put(t: MindirTape, input: ir.Value, index: ir.Value, source: ir.Value, accumulate: Any = False) -> Any:
    flat = t.op("Reshape", [input, t.ints(-1)], dtype=input.dtype, shape=[None])
    place = t.op("Reshape", [indices(t, index), t.ints(-1)], dtype=indices(t, index).dtype)
    added = t.op("Reshape", [source, t.ints(-1)], dtype=source.dtype)
    done = scatter_elements(t, flat, 0, place, added, "add" if t.literal(accumulate) else "none")
    return t.op("Reshape", [done, t.op("Shape", [input])])

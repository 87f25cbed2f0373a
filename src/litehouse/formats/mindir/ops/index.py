"""Reading parts of tensors: slices, and elements or rows by index."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import axis_of, choose, int64_op, length, positions, size_along
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
INDEX_DTYPES = (ir.DataType.INT32, INT64)
FROM_ONNX = 2  # The source format that a converted file records for its nodes.
FIRST, LAST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)

# Slices ---------------------------------------------------------------------------------------------------------------


def slice_axes(t: MindirTape, x: ir.Value, parts: list[tuple[int, Any, Any, int]]) -> ir.Value:
    """The part of a value from begin to end, by a step, for each (axis, begin, end, step)."""
    if not parts:
        whole: ir.Value = t.op("Identity", [x], like=x)
        return whole
    axes, begins, ends, steps = (tuple(column) for column in zip(*parts, strict=True))
    part: ir.Value = t.op("Slice", [x, t.ints(begins), t.ints(ends), t.ints(axes), t.ints(steps)], dtype=x.dtype)
    return part


def entries(t: MindirTape, value: Any) -> list[Any]:
    """The numbers of a shape-like operand: ints, and run-time scalars where they are not in the file."""
    if t.is_literal(value):
        value = t.literal(value)
        return list(value) if isinstance(value, tuple) else [value]
    if isinstance(value, tuple):
        return [t.literal(item) if t.is_literal(item) else item for item in value]
    if t.rank(value) == 0:
        return [value]
    items = range(length(t, value))
    return [t.op("Gather", [value, t.constant(item, INT64)], dtype=value.dtype, shape=[]) for item in items]


@op("StridedSlice")
def strided_slice(
    t: MindirTape,
    input_x: ir.Value,
    begin: Any,
    end: Any,
    strides: Any,
    begin_mask: Any = 0,
    end_mask: Any = 0,
    ellipsis_mask: Any = 0,
    new_axis_mask: Any = 0,
    shrink_axis_mask: Any = 0,
    *,
    fmk_type: Any = None,
) -> Any:
    """Bit i of a mask speaks of entry i; bits beyond the entries mean nothing. Converted files may list the axes."""
    if fmk_type == FROM_ONNX or not isinstance(begin_mask, int):
        return _onnx_slice(t, input_x, begin, end, axes=strides, steps=begin_mask)
    begins, ends, steps = entries(t, begin), entries(t, end), t.literal(tuple(entries(t, strides)))
    whole_begin, whole_end, ellipsis, new, shrink = (
        [bool(t.literal(mask) >> entry & 1) for entry in range(len(begins))]
        for mask in (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    )
    rank, axis = t.rank(input_x), 0
    parts: list[tuple[int, Any, Any, int]] = []
    picked: dict[int, Any] = {}
    added: list[int] = []
    for entry, step in enumerate(steps):
        if ellipsis[entry]:
            axis = rank - sum(not new[later] for later in range(entry + 1, len(steps)))
        elif new[entry]:
            added.append(axis - len(picked) + len(added))
        elif shrink[entry]:
            picked[axis] = begins[entry]
            axis += 1
        else:
            low, high = (0, LAST) if step > 0 else (LAST, FIRST)
            first = low if whole_begin[entry] else begins[entry]
            last = high if whole_end[entry] else ends[entry]
            if (first, last, step) != (0, LAST, 1):
                parts.append((axis, first, last, step))
            axis += 1
    return _unsqueezed(t, pick(t, slice_axes(t, input_x, parts), picked), added)


def _onnx_slice(t: MindirTape, x: ir.Value, begin: Any, end: Any, axes: Any, steps: Any) -> ir.Value:
    """A slice as the converter writes it: begin, end, axes and steps are operands, and there are no masks."""
    lists = [entries(t, operand) for operand in (begin, end)] + [t.literal(axes), t.literal(steps)]
    order = [axis_of(t, axis, t.rank(x)) for axis in lists[2]]
    return slice_axes(t, x, list(zip(order, lists[0], lists[1], lists[3], strict=True)))


def _unsqueezed(t: MindirTape, x: ir.Value, axes: list[int]) -> ir.Value:
    return t.op("Unsqueeze", [x, t.ints(tuple(axes))]) if axes else x


def pick(t: MindirTape, x: ir.Value, places: dict[int, Any]) -> ir.Value:
    """One place of each given axis; the axes go."""
    for axis in sorted(places, reverse=True):
        place = places[axis]
        index = t.tensor(place, INT64)
        if isinstance(place, ir.Value):
            index = t.op("Reshape", [index, t.constant(np.zeros(0, np.int64))], dtype=INT64, shape=[])
        x = t.op("Gather", [x, index], axis=axis, dtype=x.dtype)
    return x


@op("Slice")
def slice_(t: MindirTape, input: ir.Value, begin: Any, size: Any) -> Any:
    parts = []
    for axis, (first, count) in enumerate(zip(entries(t, begin), entries(t, size), strict=True)):
        end = LAST if isinstance(count, int) and count == -1 else total(t, first, count)
        parts.append((axis, first, end, 1))
    return slice_axes(t, input, parts)


def total(t: MindirTape, first: Any, second: Any) -> Any:
    """The sum of two numbers, either of them an int or a run-time scalar."""
    if isinstance(first, int) and isinstance(second, int):
        return first + second
    return int64_op(t, "Add", *(value if isinstance(value, int) else t.cast(value, INT64) for value in (first, second)))


@op("SliceExtView", view=True)
@op("SliceExt")
def slice_ext(t: MindirTape, input: ir.Value, dim: Any = 0, start: Any = 0, end: Any = None, step: Any = 1) -> Any:
    first, last = (0 if start is None else start), (LAST if end is None else end)
    return slice_axes(t, input, [(axis_of(t, dim, t.rank(input)), first, last, t.literal(step))])


@op("NarrowView", view=True)
@op("Narrow")
def narrow(t: MindirTape, input: ir.Value, dim: Any, start: Any, length: Any) -> Any:
    axis = axis_of(t, dim, t.rank(input))
    (first,), (count,) = entries(t, start), entries(t, length)
    if isinstance(first, int) and first < 0:
        first = int64_op(t, "Add", size_along(t, input, axis), first)
    return slice_axes(t, input, [(axis, first, total(t, first, count), 1)])


@op("SelectExtView", view=True)
@op("SelectExt")
def select_ext(t: MindirTape, input: ir.Value, dim: Any, index: Any) -> Any:
    return pick(t, input, {axis_of(t, dim, t.rank(input)): index})


# Elements and rows by index -------------------------------------------------------------------------------------------


def indices(t: MindirTape, value: Any) -> ir.Value:
    """Indices in a dtype that every engine takes."""
    index = t.tensor(value)
    return index if index.dtype in INDEX_DTYPES else t.cast(index, INT64)


@op("Gather", "GatherV2", "SparseGatherV2")
def gather(t: MindirTape, input_params: ir.Value, input_indices: Any, axis: Any = 0, batch_dims: Any = 0) -> Any:
    rank, index = t.rank(input_params), indices(t, input_indices)
    axis = axis_of(t, axis, rank)
    batch = t.literal(batch_dims)
    if not batch:
        return t.op("Gather", [input_params, index], axis=axis)
    index_rank = t.rank(index)
    batch = batch % index_rank if batch < 0 else batch
    if not batch <= axis:
        t.refuse(f"batch_dims {batch} beyond axis {axis}")
    # (batch, between, axis, rest) becomes (batch, axis, between, rest), and the index axes go back behind `between`.
    front = [*range(batch), axis, *(item for item in range(batch, rank) if item != axis)]
    moved = t.op("Transpose", [input_params], perm=front)
    last = t.ints(-1)
    picked = t.op("GatherND", [moved, t.op("Unsqueeze", [t.cast(index, INT64), last])], batch_dims=batch)
    between, own = axis - batch, index_rank - batch
    back = [
        *range(batch),
        *range(batch + own, batch + own + between),
        *range(batch, batch + own),
        *range(batch + own + between, rank - 1 + own),
    ]
    return t.op("Transpose", [picked], perm=back)


@op("GatherD")
def gather_elements(t: MindirTape, x: ir.Value, dim: Any, index: Any) -> Any:
    place, rank = indices(t, index), t.rank(x)
    axis = axis_of(t, dim, rank)
    for other in range(rank):
        # The index may be shorter along the other axes. Not every engine allows that, nor a Slice that sees to it.
        if other != axis and (place.shape is None or x.shape is None or place.shape[other] != x.shape[other]):
            rows = positions(t, size_along(t, place, other))
            x = t.op("Gather", [x, rows], axis=other, dtype=x.dtype, shape=[None] * rank)
    return t.op("GatherElements", [x, place], axis=axis)


@op("GatherNd", "GatherNdExt")
def gather_nd(t: MindirTape, input_x: ir.Value, indices: ir.Value) -> Any:
    return t.op("GatherND", [input_x, t.cast(indices, INT64)])


@op("IndexSelect")
def index_select(t: MindirTape, input: ir.Value, dim: Any, index: Any) -> Any:
    return t.op("Gather", [input, indices(t, index)], axis=axis_of(t, dim, t.rank(input)))


@op("Take")
def take(t: MindirTape, input: ir.Value, index: Any) -> Any:
    return t.op("Gather", [t.op("Reshape", [input, t.ints(-1)]), indices(t, index)], axis=0)


@op("Index")
def index(t: MindirTape, input: ir.Value, indices: tuple[ir.Value, ...]) -> Any:
    return t.op("GatherND", [input, joined_indices(t, indices)])


def joined_indices(t: MindirTape, given: tuple[Any, ...]) -> ir.Value:
    """Index tensors for the first axes, side by side as ONNX takes them. Masks and left-out axes are refused."""
    values = [t.tensor(item) for item in given]
    if not values or any(t.dtype(value) not in INDEX_DTYPES or 0 in (value.shape or ()) for value in values):
        t.refuse("indexing by masks, or with axes left out")
    summed = values[0]
    for value in values[1:]:
        summed = t.op("Add", [t.cast(summed, INT64), t.cast(value, INT64)], dtype=INT64)
    shape = t.op("Shape", [summed])
    wide = [t.op("Expand", [t.cast(value, INT64), shape]) for value in values]
    side: ir.Value = t.op("Concat", [t.op("Unsqueeze", [value, t.ints(-1)]) for value in wide], axis=-1, dtype=INT64)
    return side


@op("Embedding")
def embedding(
    t: MindirTape,
    input: Any,
    weight: ir.Value,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: Any = 2.0,
    scale_grad_by_freq: Any = False,
) -> Any:
    if t.literal(max_norm) is not None:
        t.refuse("max_norm, which changes the weight when the model runs")
    return t.op("Gather", [weight, indices(t, input)], axis=0)


@op("EmbeddingLookup")
def embedding_lookup(t: MindirTape, input_params: ir.Value, input_indices: Any, offset: Any = 0) -> Any:
    """Rows by index; indices outside the table give zeros."""
    place = int64_op(t, "Sub", t.tensor(input_indices, INT64), t.tensor(offset, INT64))
    inside = t.op(
        "And",
        [
            t.op("GreaterOrEqual", [place, t.constant(0, INT64)]),
            t.op("Less", [place, size_along(t, input_params, 0)]),
        ],
    )
    rows = t.op("Gather", [input_params, choose(t, inside, place, 0)], axis=0, dtype=input_params.dtype)
    for _ in range(t.rank(input_params) - 1):
        inside = t.op("Unsqueeze", [inside, t.ints(-1)])
    return choose(t, inside, rows, 0)


@op("OneHot", "OneHotExt")
def one_hot(t: MindirTape, indices: ir.Value, depth: Any, on_value: Any, off_value: Any = None, axis: Any = -1) -> Any:
    """Written as a comparison: ONNX's own op counts negative indices from the end, MindSpore leaves them out."""
    if off_value is None:  # Converted files: one operand with both.
        off_value, on_value = entries(t, on_value)
    index = t.cast(indices, INT64)
    (depth,) = entries(t, depth)
    if isinstance(depth, ir.Value):
        depth = t.cast(depth, INT64)
    elif depth < 0:
        depth = int64_op(t, "Add", t.op("ReduceMax", [index], keepdims=0, dtype=INT64), 1)
    axis = axis_of(t, axis, t.rank(index) + 1)
    places = t.op("Reshape", [positions(t, depth), t.ints((-1, *(1,) * (t.rank(index) - axis)))])
    hot = t.op("Equal", [t.op("Unsqueeze", [index, t.ints(axis)]), places])
    return choose(t, hot, t.tensor(on_value, t.result_dtype()), off_value)


# By mask --------------------------------------------------------------------------------------------------------------


@op("MaskedSelect")
def masked_select(t: MindirTape, input: ir.Value, mask: ir.Value) -> Any:
    wide = t.op("Expand", [input, t.op("Shape", [mask])])
    places = non_zero(t, t.op("Expand", [mask, t.op("Shape", [wide])], dtype=mask.dtype))
    return t.op("GatherND", [wide, places])


@op("NonZero")
def non_zero(t: MindirTape, input: ir.Value) -> Any:
    return t.op("Transpose", [_places(t, input)], perm=[1, 0])


@op("NonZeroExt")
def non_zero_ext(t: MindirTape, input: ir.Value) -> Any:
    places, rank = _places(t, input), t.rank(input)
    return tuple(pick(t, places, {0: axis}) for axis in range(rank))


def _places(t: MindirTape, x: ir.Value) -> ir.Value:
    places: ir.Value = t.op("NonZero", [t.cast(x, ir.DataType.BOOL)], dtype=INT64)
    return places


# Places by other rules ------------------------------------------------------------------------------------------------


@op("UnravelIndex")
def unravel_index(t: MindirTape, indices: ir.Value, dims: Any) -> Any:
    """The place in a tensor of those sizes, a row for each axis, of numbers in the order of its elements."""
    rest, rows = t.op("Reshape", [indices, t.ints(-1)], dtype=indices.dtype), []
    for size in reversed(entries(t, dims)):
        count = t.op("Reshape", [t.tensor(size, t.dtype(indices)), t.ints(1)])
        rows.append(t.op("Mod", [rest, count]))
        rest = t.op("Div", [rest, count])
    table = t.op("Concat", [t.op("Unsqueeze", [row, t.ints(0)]) for row in reversed(rows)], axis=0)
    return table if t.rank(indices) else t.op("Squeeze", [table, t.ints(1)])


def _format_places(t: MindirTape, src_format: Any, dst_format: Any) -> ir.Value:
    """For each axis of one layout, the place where another has it."""
    source, target = t.literal(src_format), t.literal(dst_format)
    if sorted(source) != sorted(target):
        t.refuse(f"layouts {source!r} and {target!r}")
    return t.ints([source.index(letter) for letter in target])


@op("DataFormatDimMap")
def data_format_dim_map(t: MindirTape, x: ir.Value, *, src_format: Any = "NHWC", dst_format: Any = "NCHW") -> Any:
    return t.cast(t.op("Gather", [_format_places(t, src_format, dst_format), x], dtype=INT64), t.dtype(x))


@op("DataFormatVecPermute")
def data_format_vec_permute(t: MindirTape, x: ir.Value, *, src_format: Any = "NHWC", dst_format: Any = "NCHW") -> Any:
    if x.shape is None or x.shape[0] != len(t.literal(src_format)):
        t.refuse("sizes of the inner axes alone")
    return t.op("Gather", [x, _format_places(t, src_format, dst_format)], axis=0)

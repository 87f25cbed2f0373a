"""Ops that arrange the elements of tensors: shapes, axes, joining, splitting, repeating."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.memory import content
from litehouse.formats.mindir.ops.common import axis_of, int64_op, length, positions, size_along
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
LOWEST = int(np.iinfo(np.int64).min)

# Shape ----------------------------------------------------------------------------------------------------------------


@op("View", view=True)
@op("Reshape")
def reshape(t: MindirTape, input: ir.Value, shape: Any, *, allowzero: Any = None) -> Any:
    """A 0 means "empty", where ONNX takes it for "as before"; so do converted files, which state it.

    With a -1 beside it, "empty" cannot be meant.
    """
    literal = t.literal(shape) if t.is_literal(shape) else None
    keep = 1 if allowzero is None and (literal is None or -1 not in np.atleast_1d(literal)) else allowzero
    return t.op("Reshape", [input, t.ints(shape)], allowzero=keep)


@op("ViewAs", structural=True)
def view_as(t: MindirTape, input: Any, other: Any, *_: Any) -> Any:
    """The same memory where the shape stays as it is, a copy where not: so it was seen in MindSpore."""
    value, model = content(input), content(other)
    same = value.shape is not None and value.shape == model.shape and value.shape.is_static()
    return input if same else t.op("Reshape", [value, t.op("Shape", [model])], allowzero=1)


@op("Flatten")
def flatten(t: MindirTape, input_x: ir.Value, *, axis: Any = 1) -> Any:
    return t.op("Flatten", [input_x], axis=t.literal(axis))


@op("FlattenExt")
def flatten_ext(t: MindirTape, input: ir.Value, start_dim: Any = 0, end_dim: Any = -1) -> Any:
    rank = t.rank(input)
    if rank == 0:
        return t.op("Reshape", [input, t.ints(1)])
    start, end = axis_of(t, start_dim, rank), axis_of(t, end_dim, rank)
    return merge_axes(t, input, start, end)


def merge_axes(t: MindirTape, x: ir.Value, start: int, end: int) -> ir.Value:
    """The value with the axes from `start` to `end` made one."""
    parts = [t.ints(-1)]
    if start > 0:
        parts.insert(0, t.op("Shape", [x], start=0, end=start))
    if end + 1 < t.rank(x):
        parts.append(t.op("Shape", [x], start=end + 1))
    shape = parts[0] if len(parts) == 1 else t.op("Concat", parts, axis=0)
    merged: ir.Value = t.op("Reshape", [x, shape])
    return merged


@op("ExpandDimsView", view=True)
@op("ExpandDims", "Unsqueeze")
def expand_dims(t: MindirTape, input_x: ir.Value, axis: Any) -> Any:
    return t.op("Unsqueeze", [input_x, t.ints(axis)])


@op("Squeeze")
def squeeze(t: MindirTape, input: ir.Value, axis: Any = ()) -> Any:
    rank = t.rank(input)
    axes = t.literal(axis)
    axes = tuple(axis_of(t, item, rank) for item in (axes if isinstance(axes, tuple) else (axes,)))
    wanted = t.recorded_rank()
    if wanted is None and axes:
        return t.op("Squeeze", [input, t.ints(axes)])
    if not axes or rank - len(axes) != wanted:
        # Axes of another size than 1 stay.
        sizes = t.known_sizes(input)
        axes = tuple(item for item in axes or range(rank) if sizes[item] == 1)
    if wanted is not None and rank - len(axes) != wanted:
        t.refuse("an axis of dynamic size may or may not be dropped")
    return t.op("Squeeze", [input, t.ints(axes)]) if axes else t.op("Identity", [input])


# Axes -----------------------------------------------------------------------------------------------------------------


@op("TransposeView", view=True)
@op("Transpose")
def transpose(t: MindirTape, input: ir.Value, dims: Any) -> Any:
    rank = t.rank(input)
    return t.op("Transpose", [input], perm=[axis_of(t, axis, rank) for axis in t.literal(dims)])


@op("TransposeExtView", view=True)
@op("TransposeExt")
def transpose_ext(t: MindirTape, input: ir.Value, dim0: Any, dim1: Any) -> Any:
    return t.op("Transpose", [input], perm=swapped_axes(t, input, dim0, dim1))


@op("TExt", view=True)
def transpose_matrix(t: MindirTape, input: ir.Value) -> Any:
    if t.rank(input) > 2:
        t.refuse("a value of more than two axes")
    return t.op("Transpose", [input], perm=list(reversed(range(t.rank(input)))))


def swapped_axes(t: MindirTape, x: ir.Value, first: Any, second: Any) -> list[int]:
    """The order of axes in which two have changed places."""
    rank = t.rank(x)
    order = list(range(rank))
    a, b = axis_of(t, first, max(rank, 1)), axis_of(t, second, max(rank, 1))
    if rank:
        order[a], order[b] = b, a
    return order


# Joining and splitting ------------------------------------------------------------------------------------------------


def _tensors(t: MindirTape, operands: tuple[Any, ...], axis: Any) -> tuple[list[ir.Value], int]:
    """The tensors to join, in the result's dtype, and the axis: given as a tuple, or one by one."""
    if isinstance(operands[0], tuple):
        axis = operands[1] if len(operands) > 1 else axis
        operands = operands[0]
    if not operands:
        t.refuse("an empty sequence of tensors")
    floating = [t.dtype(item).is_floating_point() for item in operands if isinstance(item, ir.Value)]
    if any(floating) and not floating[0]:
        # MindSpore's kernel turns all into the first one's dtype, though it states a floating point result.
        t.refuse("integers joined with floating point tensors; cast them to one dtype before the export")
    return [t.tensor(item, t.result_dtype()) for item in operands], axis


@op("Concat", "SequenceConcat")
def concat(t: MindirTape, *tensors: Any, axis: Any = 0) -> Any:
    values, axis = _tensors(t, tensors, axis)
    return t.op("Concat", values, axis=axis_of(t, axis, t.rank(values[0])))


@op("IdentityN", structural=True)
def identity_n(t: MindirTape, values: Any) -> Any:
    return values


@op("ParallelConcat")
def parallel_concat(t: MindirTape, values: Any) -> Any:
    return concat(t, values, axis=0)


@op("Stack", "Pack", "StackExt", "SequenceStack")
def stack(t: MindirTape, *tensors: Any, axis: Any = 0) -> Any:
    values, axis = _tensors(t, tensors, axis)
    axis = axis_of(t, axis, t.rank(values[0]) + 1)
    return t.op("Concat", [t.op("Unsqueeze", [value, t.ints(axis)]) for value in values], axis=axis)


def split_into(t: MindirTape, x: ir.Value, axis: Any, sizes: Any) -> tuple[ir.Value, ...]:
    """The pieces of those sizes. The engine refuses an axis that has another size in all."""
    sizes = tuple(sizes)
    pieces = t.op("Split", [x, t.ints(sizes)], outputs=len(sizes), axis=axis_of(t, axis, t.rank(x)))
    return pieces if isinstance(pieces, tuple) else (pieces,)


def _recorded_sizes(t: MindirTape, x: ir.Value, axis: Any) -> tuple[int, ...]:
    """The sizes along an axis that the file records for the pieces of a split."""
    axis = axis_of(t, axis, t.rank(x))
    items = t.expected if isinstance(t.expected, tuple) else ()
    sizes = [item.shape[axis] if isinstance(item, TensorType) and item.shape else None for item in items]
    if not sizes or None in sizes:
        t.refuse("a split of an axis of dynamic size")
    return tuple(size for size in sizes if size is not None)


@op("Split")
def split(
    t: MindirTape, input_x: ir.Value, *operands: Any, axis: Any = 0, output_num: Any = 1, size_splits: Any = ()
) -> Any:
    """The operands are axis and count; or, in converted files, the sizes of the pieces."""
    if len(operands) == 1 and isinstance(t.literal(operands[0]), tuple):
        size_splits = operands[0]
    elif operands:
        axis, output_num = (*operands, output_num)[:2]
    if t.literal(size_splits):
        return split_into(t, input_x, axis, t.literal(size_splits))
    count = t.literal(output_num)
    if count == 1:
        return (t.op("Identity", [input_x]),)
    return t.op("Split", [input_x], outputs=count, axis=axis_of(t, axis, t.rank(input_x)), num_outputs=count)


@op("SplitTensorView", view=True)
@op("SplitTensor")
def split_tensor(t: MindirTape, input: ir.Value, split_size: Any, dim: Any = 0) -> Any:
    return split_into(t, input, dim, _recorded_sizes(t, input, dim))


@op("ChunkView", view=True)
@op("Chunk")
def chunk(t: MindirTape, input: ir.Value, chunks: Any, dim: Any = 0) -> Any:
    return split_into(t, input, dim, _recorded_sizes(t, input, dim))


@op("SplitWithSizeView", view=True)
@op("SplitWithSize", "SplitV")
def split_with_size(t: MindirTape, input: ir.Value, split_size: Any, dim: Any = 0, *, size_splits: Any = ()) -> Any:
    return split_into(t, input, dim, t.literal(split_size))


@op("UnstackExtView", view=True)
@op("UnstackExt")
def unstack_ext(t: MindirTape, input: ir.Value, dim: Any = 0) -> Any:
    return unstack(t, input, axis=dim)


@op("Unstack", "Unpack")
def unstack(t: MindirTape, input: ir.Value, *, axis: Any = 0, num: Any = None) -> Any:
    count = len(t.expected) if isinstance(t.expected, tuple) else t.literal(num)
    if not count:
        t.refuse("the number of pieces is not recorded")
    pieces = split_into(t, input, axis, (1,) * t.bounded(count))
    return tuple(t.op("Squeeze", [piece, t.ints(axis)]) for piece in pieces)


# Repeating ------------------------------------------------------------------------------------------------------------


@op("Tile", "Repeat")
def tile(t: MindirTape, input: ir.Value, dims: Any) -> Any:
    rank, repeats = t.rank(input), t.ints(dims)
    count = length(t, dims) if isinstance(dims, ir.Value) else len(dims)
    if count < rank:
        repeats = t.op("Concat", [t.ints((1,) * (rank - count)), repeats], axis=0)
    wide = t.op("Unsqueeze", [input, t.ints(tuple(range(count - rank)))]) if count > rank else input
    return t.op("Tile", [wide, repeats])


@op("BroadcastToView", view=True, overlaps=True)
@op("BroadcastTo")
def broadcast_to(t: MindirTape, input: ir.Value, shape: Any) -> Any:
    """A size of -1 stands for the operand's own, which ONNX writes as 1."""
    if isinstance(shape, tuple):
        return t.op("Expand", [input, t.ints(tuple(1 if item == -1 else item for item in shape))])
    return t.op("Expand", [input, t.op("Abs", [t.ints(shape)])])


@op("ExpandAs", view=True, overlaps=True)
def expand_as(t: MindirTape, input: ir.Value, other: ir.Value, dtype: Any = None) -> Any:
    return t.op("Expand", [input, t.op("Shape", [other])])


@op("RepeatInterleaveInt")
def repeat_interleave_int(
    t: MindirTape, input: ir.Value, repeats: Any, dim: Any = None, output_size: Any = None
) -> Any:
    x, axis = _flat_unless(t, input, dim)
    times = t.literal(repeats)
    count = int64_op(t, "Mul", size_along(t, x, axis), times)
    return t.op("Gather", [x, int64_op(t, "Div", positions(t, count), times)], axis=axis)


@op("RepeatInterleaveTensor")
def repeat_interleave_tensor(
    t: MindirTape, input: ir.Value, repeats: Any, dim: Any = None, output_size: Any = None
) -> Any:
    x, axis = _flat_unless(t, input, dim)
    size = t.op("Unsqueeze", [size_along(t, x, axis), t.ints(0)])
    ends = t.op("CumSum", [t.op("Expand", [t.ints(repeats), size]), t.constant(0, INT64)])
    total = t.op("ReduceMax", [ends], keepdims=0)
    # Place p shows the item whose predecessors end at or before p.
    passed = t.op("LessOrEqual", [t.op("Unsqueeze", [ends, t.ints(1)]), positions(t, total)])
    source = t.op("ReduceSum", [t.op("Cast", [passed], to=int(INT64)), t.ints(0)], keepdims=0)
    return t.op("Gather", [x, source], axis=axis)


def _flat_unless(t: MindirTape, x: ir.Value, axis: Any) -> tuple[ir.Value, int]:
    """The value and the axis, or the value made 1-D where no axis is given."""
    if t.literal(axis) is None:
        return t.op("Reshape", [x, t.ints(-1)], dtype=x.dtype, shape=[None]), 0
    return x, axis_of(t, axis, t.rank(x))


# Turning --------------------------------------------------------------------------------------------------------------


@op("ReverseV2")
def reverse(t: MindirTape, input: ir.Value, axis: Any) -> Any:
    axes = t.literal(axis)
    axes = axes if isinstance(axes, tuple) else (axes,)
    if not axes:
        return t.op("Identity", [input])
    count = len(axes)
    return t.op("Slice", [input, t.ints((-1,) * count), t.ints((LOWEST,) * count), t.ints(axes), t.ints((-1,) * count)])


@op("Roll")
def roll(t: MindirTape, input: ir.Value, shifts: Any, dims: Any = ()) -> Any:
    shifts, dims = t.literal(shifts), t.literal(dims)
    shifts = shifts if isinstance(shifts, tuple) else (shifts,)
    dims = () if dims is None else dims if isinstance(dims, tuple) else (dims,)
    if not dims:
        flat = t.op("Reshape", [input, t.ints(-1)], dtype=input.dtype, shape=[None])
        return t.op("Reshape", [roll(t, flat, (sum(shifts),), (0,)), t.op("Shape", [input])], allowzero=1)
    if len(shifts) != len(dims):
        t.refuse(f"{len(shifts)} shifts for {len(dims)} axes")
    x = input
    for shift, dim in zip(shifts, dims, strict=True):
        axis = axis_of(t, dim, t.rank(input))
        size = size_along(t, x, axis)
        source = int64_op(t, "Mod", int64_op(t, "Sub", positions(t, size), shift), size)
        x = t.op("Gather", [x, source], axis=axis)
    return x


@op("ReverseSequence")
def reverse_sequence(t: MindirTape, x: ir.Value, seq_lengths: ir.Value, *, seq_dim: Any, batch_dim: Any = 0) -> Any:
    axes = (axis_of(t, seq_dim, t.rank(x)), axis_of(t, batch_dim, t.rank(x)))
    if set(axes) != {0, 1}:
        t.refuse("a sequence or batch axis beyond the first two")
    lengths = t.cast(seq_lengths, INT64)
    return t.op("ReverseSequence", [x, lengths], time_axis=axes[0], batch_axis=axes[1])

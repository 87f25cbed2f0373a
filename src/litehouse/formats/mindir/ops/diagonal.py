"""Triangles, bands and diagonals of matrices."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.array import merge_axes
from litehouse.formats.mindir.ops.common import SUMMABLE, axis_of, cast_around, choose, int64_op, positions, size_along
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
LACKS_TRILU = {
    ir.DataType.INT8: INT64,
    ir.DataType.INT16: INT64,
    ir.DataType.UINT8: INT64,
    ir.DataType.UINT16: INT64,
    ir.DataType.UINT32: INT64,
    ir.DataType.UINT64: INT64,
}

# Triangles and bands --------------------------------------------------------------------------------------------------


@op("Tril", "TrilExt")
def tril(t: MindirTape, input: ir.Value, diagonal: Any = 0) -> Any:
    return cast_around(t, LACKS_TRILU, "Trilu", input, t.tensor(diagonal, INT64), upper=0)


@op("Triu")
def triu(t: MindirTape, input: ir.Value, diagonal: Any = 0) -> Any:
    return cast_around(t, LACKS_TRILU, "Trilu", input, t.tensor(diagonal, INT64), upper=1)


@op("MatrixBandPart")
def matrix_band_part(t: MindirTape, x: ir.Value, lower: Any, upper: Any) -> Any:
    """The diagonals from `lower` below the main one to `upper` above it; a negative number stands for all."""
    rank = t.rank(x)
    down = t.op("Reshape", [positions(t, size_along(t, x, rank - 2)), t.ints((-1, 1))])
    below = int64_op(t, "Sub", down, positions(t, size_along(t, x, rank - 1)))
    kept = []
    for limit, distance in ((lower, below), (upper, t.op("Neg", [below]))):
        bound = t.tensor(limit, INT64)
        near = t.op("LessOrEqual", [distance, bound])
        kept.append(t.op("Or", [near, t.op("Less", [bound, t.constant(0, INT64)])]))
    return choose(t, t.op("And", kept), x, 0)


# Diagonals as tensors of their own ------------------------------------------------------------------------------------


@op("DiagonalView", view=True)
@op("Diagonal")
def diagonal(t: MindirTape, input: ir.Value, offset: Any = 0, dim1: Any = 0, dim2: Any = 1) -> Any:
    rank, offset = t.rank(input), t.literal(offset)
    rows, columns = axis_of(t, dim1, rank), axis_of(t, dim2, rank)
    others = [axis for axis in range(rank) if axis not in (rows, columns)]
    height, width = size_along(t, input, rows), size_along(t, input, columns)
    length = int64_op(t, "Min", int64_op(t, "Add", height, min(offset, 0)), int64_op(t, "Sub", width, max(offset, 0)))
    step = int64_op(t, "Add", width, 1)
    start = int64_op(t, "Mul", width, -offset) if offset < 0 else t.constant(offset, INT64)
    places = int64_op(t, "Add", int64_op(t, "Mul", positions(t, int64_op(t, "Max", length, 0)), step), start)
    moved = t.op("Transpose", [input], perm=[*others, rows, columns], dtype=input.dtype, shape=[None] * rank)
    return t.op("Gather", [merge_axes(t, moved, rank - 2, rank - 1), places], axis=rank - 2, dtype=input.dtype)


diagonal_of = diagonal


@op("DiagPart")
def diag_part(t: MindirTape, x: ir.Value) -> Any:
    half = t.rank(x) // 2
    square = t.op("Flatten", [x], axis=half, dtype=x.dtype, shape=[None, None])
    return t.op("Reshape", [diagonal(t, square), t.op("Shape", [x], start=0, end=half)])


@op("MatrixDiagPartV3")
def matrix_diag_part(t: MindirTape, x: ir.Value, k: Any, padding_value: Any = 0, *, align: Any = None) -> Any:
    return diagonal(t, x, _one_offset(t, k), -2, -1)


def _one_offset(t: MindirTape, k: Any) -> int:
    """The offset of a single diagonal; a band of several is refused."""
    offsets = t.literal(k)
    offsets = offsets if isinstance(offsets, tuple) else (offsets,)
    if len(set(offsets)) != 1:
        t.refuse("a band of several diagonals")
    return int(offsets[0])


# Matrices with a diagonal ---------------------------------------------------------------------------------------------


def on_diagonal(t: MindirTape, rows: ir.Value, columns: ir.Value, offset: int = 0) -> ir.Value:
    """Whether column = row + offset, for each place of a matrix."""
    down = t.op("Reshape", [positions(t, rows), t.ints((-1, 1))])
    on: ir.Value = t.op("Equal", [int64_op(t, "Add", down, offset), positions(t, columns)])
    return on


def diagonal_matrix(t: MindirTape, lines: ir.Value, offset: int, fill: Any = 0) -> ir.Value:
    """The square matrices with lines of numbers on one of their diagonals."""
    axis = t.rank(lines) - 1
    length = size_along(t, lines, axis)
    size = int64_op(t, "Add", length, abs(offset))
    return _placed(t, lines, on_diagonal(t, size, size, offset), size, offset, t.tensor(fill, t.dtype(lines)))


def _placed(t: MindirTape, lines: ir.Value, on: ir.Value, size: ir.Value, offset: int, others: ir.Value) -> ir.Value:
    """The numbers of the lines where `on` holds, down the rows for diagonals above the main one, else along columns."""
    axis = t.rank(lines) - 1
    last = int64_op(t, "Sub", size_along(t, lines, axis), 1)
    spread = t.op("Gather", [lines, int64_op(t, "Min", positions(t, size), last)], axis=axis, dtype=lines.dtype)
    spread = t.op("Unsqueeze", [spread, t.ints(-1 if offset >= 0 else -2)], dtype=lines.dtype)
    return choose(t, on, spread, others)


@op("Diag")
def diag(t: MindirTape, input: ir.Value) -> Any:
    flat = t.op("Reshape", [input, t.ints(-1)], dtype=input.dtype, shape=[None])
    shape = t.op("Shape", [input])
    return t.op("Reshape", [diagonal_matrix(t, flat, 0), t.op("Concat", [shape, shape], axis=0)])


@op("DiagExt")
def diag_ext(t: MindirTape, input: ir.Value, diagonal: Any = 0) -> Any:
    if t.rank(input) == 1:
        return diagonal_matrix(t, input, t.literal(diagonal))
    return diagonal_of(t, input, diagonal)


@op("MatrixDiagV3")
def matrix_diag(
    t: MindirTape,
    x: ir.Value,
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    *,
    align: Any = None,
) -> Any:
    if t.literal(num_rows) != -1 or t.literal(num_cols) != -1:
        t.refuse("a matrix that is larger than its diagonal")
    return diagonal_matrix(t, x, _one_offset(t, k), padding_value)


@op("MatrixSetDiagV3")
def matrix_set_diag(t: MindirTape, x: ir.Value, diagonal: ir.Value, k: Any = 0, *, align: Any = None) -> Any:
    rank, offset = t.rank(x), _one_offset(t, k)
    height, width = size_along(t, x, rank - 2), size_along(t, x, rank - 1)
    on = on_diagonal(t, height, width, offset)
    return _placed(t, diagonal, on, height if offset >= 0 else width, offset, x)


@op("InplaceFillDiagonal", writes=True)
@op("FillDiagonal")
def fill_diagonal(t: MindirTape, input: ir.Value, fill_value: Any, wrap: Any = False) -> Any:
    if t.rank(input) != 2 or t.literal(wrap):
        t.refuse("a diagonal of more than two axes, or one that starts again below")
    on = on_diagonal(t, size_along(t, input, 0), size_along(t, input, 1))
    return choose(t, t.op("Not", [on]), input, fill_value)


@op("TraceV2")
def trace_of(t: MindirTape, input: ir.Value, offset: Any = 0, axis1: Any = 1, axis2: Any = 0, dtype: Any = None) -> Any:
    target = t.result_dtype()
    line = t.cast(diagonal_of(t, input, offset, axis1, axis2), SUMMABLE.get(target, target))
    return t.cast(t.op("ReduceSum", [line, t.ints(-1)], keepdims=0, dtype=line.dtype), target)

"""Products of matrices and vectors, inverses and diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.formula import Number, call
from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.ops.index import transposed
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, INT8, INT16, INT32, INT64 = (
    ir.DataType.FLOAT,
    ir.DataType.INT8,
    ir.DataType.INT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
)
LARGEST_INVERSE = 32  # rows; the steps of an inversion are written out


@op("MatrixMul", "BatchedMatrixMul", quantised=True)
def matrix_mul(t: MgeTape, a: ir.Value, b: ir.Value, *, transpose_a: bool, transpose_b: bool, format: str) -> Any:
    """The product of two matrices, or of each pair in two batches of them."""
    if format != "DEFAULT":
        t.refuse(f"the layout {format} is not supported")
    first, second = t.quantised(a), t.quantised(b)
    if (first is None) != (second is None):
        t.refuse("a quantised operand with a plain one")
    factors = [_turned(t, a, transpose=transpose_a), _turned(t, b, transpose=transpose_b)]
    if first is not None and second is not None:
        return t.as_quantised(t.op("MatMul", factors), DType("QuantizedS32", first.scale * second.scale))
    if t.dtype(a).is_floating_point():
        return t.op("MatMul", factors)
    if t.dtype(a) != INT8:
        t.refuse(f"matrices of {t.dtype(a).name.lower()}")
    product = t.op("MatMulInteger", factors, dtype=INT32)
    return t.cast(product, INT16) if t.output_dtype == DType("Int16") else product


def _turned(t: MgeTape, value: ir.Value, *, transpose: bool) -> ir.Value:
    rank = t.rank(value)
    return transposed(t, value, [*range(rank - 2), rank - 1, rank - 2]) if transpose else value


def spread_product(t: MgeTape, x: ir.Value, shape: tuple[int, ...]) -> ir.Value | None:
    """A product of matrices that had their outer axes merged for it, in a shape that has them again.

    MegEngine only knows products of rank 2 and 3. Without the detour engines fuse what stands around them.
    """
    node = x.producer()
    if node is None or node.op_type != "MatMul":
        return None
    a, b = node.inputs
    assert a is not None
    assert b is not None
    batched = t.rank(b) == 3
    outer = shape[:-2] if batched else shape[:-1]
    if shape[len(outer) :] != t.known_sizes(x)[1:]:
        return None
    left = _spread(t, a, outer)
    right = _spread(t, b, outer) if batched else b
    made: ir.Value | None = None if left is None or right is None else t.op("MatMul", [left, right])
    return made


def _spread(t: MgeTape, x: ir.Value, outer: tuple[int, ...]) -> ir.Value | None:
    """A value with other outer axes instead of its first one; None where it would need a node more."""
    node = x.producer()
    source = None if node is None else node.inputs[0]
    if node is None or source is None:
        return None
    if node.op_type == "Transpose" and list(node.attributes["perm"].as_ints()) == [0, 2, 1]:
        found = _spread(t, source, outer)
        return None if found is None else _turned(t, found, transpose=True)
    if node.op_type != "Reshape":
        return None
    inner = t.known_sizes(x)[1:]
    if None in inner:
        return None
    made: ir.Value = source
    if t.shape(source) != outer + inner:
        made = t.op("Reshape", [source, t.ints(outer + inner)])
    return made


@op("Dot")
def dot(t: MgeTape, a: ir.Value, b: ir.Value) -> Any:
    """The sum of products of two vectors; one number stands for a whole vector of it."""
    dtype = t.dtype(a)
    if dtype.is_floating_point() and t.shape(a) == t.shape(b) is not None:
        return t.op("MatMul", [t.op("Unsqueeze", [a, t.ints(0)]), b])
    wide = dtype if dtype.is_floating_point() else INT64  # MegEngine computes in the dtype, where it may overflow
    products = t.op("Mul", [t.cast(a, wide), t.cast(b, wide)])
    return t.cast(t.op("ReduceSum", [products, t.ints(0)]), dtype)


@op("Cross")
def cross(t: MgeTape, a: ir.Value, b: ir.Value, *, axis_a: int, axis_b: int, axis_c: int) -> Any:
    """The cross products of the vectors along one axis of each operand, along one of the result."""
    dtype, rank = t.dtype(a), t.rank(a)
    a, b = _last(t, t.cast(a, wider(dtype)), axis_a), _last(t, t.cast(b, wider(dtype)), axis_b)
    following, preceding = t.ints([1, 2, 0]), t.ints([2, 0, 1])
    left = Number(t, t.op("Gather", [a, following], axis=-1)) * Number(t, t.op("Gather", [b, preceding], axis=-1))
    right = Number(t, t.op("Gather", [a, preceding], axis=-1)) * Number(t, t.op("Gather", [b, following], axis=-1))
    order = list(range(rank - 1))
    order.insert(axis_c % rank, rank - 1)
    return t.cast(transposed(t, (left - right).value, order), dtype)


def _last(t: MgeTape, value: ir.Value, axis: int) -> ir.Value:
    rank = t.rank(value)
    if not -rank <= axis < rank:
        t.refuse(f"axis {axis} of an operand of rank {rank}")
    return transposed(t, value, [*(other for other in range(rank) if other != axis % rank), axis % rank])


@op("Diag")
def diag(t: MgeTape, x: ir.Value, *, k: int) -> Any:
    """A diagonal of a matrix, or the matrix that has a vector as its diagonal and zeros elsewhere."""
    flat = t.op("Reshape", [x, t.ints(-1)])
    if t.rank(x) == 2:
        rows, columns = t.sizes(x)
        count = min(rows, columns - k) if k >= 0 else min(rows + k, columns)
        return t.op("Gather", [flat, t.constant(_diagonal(t, count, columns, k))], axis=0)
    if t.rank(x) != 1:
        t.refuse(f"an operand of rank {t.rank(x)}")
    count = t.sizes(x)[0]
    size = count + abs(k)
    zeros = t.op("ConstantOfShape", [t.ints(t.bounded(size) ** 2)], value=ir.Tensor(np.zeros(1, t.dtype(x).numpy())))
    places = t.constant(_diagonal(t, count, size, k))
    return t.op("Reshape", [t.op("ScatterElements", [zeros, places, x], axis=0), t.ints([size, size])])


def _diagonal(t: MgeTape, count: int, columns: int, k: int) -> np.ndarray:
    """The places of the elements of a diagonal, in memory order."""
    return max(k, 0) + max(-k, 0) * columns + np.arange(t.bounded(count)) * (columns + 1)


# The inverse ----------------------------------------------------------------------------------------------------------


@op("MatrixInverse")
def matrix_inverse(t: MgeTape, x: ir.Value) -> Any:
    """The inverse of a matrix, or of each of a batch: elimination, with the largest pivot of a column first."""
    dtype, size = t.dtype(x), t.known_sizes(x)[-1]
    if size is None or not 0 < size <= LARGEST_INVERSE:
        t.refuse(f"the inverse of matrices of {size} rows")
    x = t.cast(x, FLOAT)
    shape = t.op("Concat", [t.op("Shape", [x], end=-2), t.ints([size, size])], axis=0)
    identity = t.op("Expand", [t.constant(np.eye(size, dtype=np.float32)), shape])
    work = Number(t, t.op("Concat", [x, identity], axis=-1))
    for step in range(size):
        work = _eliminated(work, step, size)
    return t.cast(_piece(work, -1, size, 2 * size).value, dtype)


def _eliminated(work: Number, step: int, size: int) -> Number:
    """One step: the column becomes that of the identity, what was so before stays."""
    t, rows = work.t, np.arange(size)[:, None]
    column = call("Abs", _piece(work, -1, step, step + 1)).value
    open_rows = t.op("Where", [t.constant(rows >= step), column, t.constant(np.float32(-1))])
    best = t.op("ArgMax", [open_rows], axis=-2)
    chosen = t.op("Equal", [t.constant(rows), best])
    pivots = t.op("Where", [chosen, work.value, t.constant(np.float32(0))])
    pivot = Number(t, t.op("ReduceSum", [pivots, t.ints(-2)]))
    # The row at hand takes the place of the pivot's.
    work = Number(t, t.op("Where", [chosen, _piece(work, -2, step, step + 1).value, work.value]))
    pivot = pivot / _piece(pivot, -1, step, step + 1)
    others = work - _piece(work, -1, step, step + 1) * pivot
    return Number(t, t.op("Where", [t.constant(rows == step), pivot.value, others.value]))


def _piece(x: Number, axis: int, begin: int, end: int) -> Number:
    return Number(x.t, x.t.op("Slice", [x.value, *(x.t.ints(bound) for bound in (begin, end, axis))]))

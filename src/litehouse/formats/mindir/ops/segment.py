"""Sums and extremes of neighbouring rows, and sparse tensors."""

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.scatter import scatter_nd, scatter_nd_onto_zeros
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
KINDS = {"Sum": ("add", 0), "Mean": ("add", 0), "Prod": ("mul", 1), "Max": ("max", 0), "Min": ("min", 0)}


def _segments(kind: str) -> Callable[..., ir.Value]:
    """The converter of one kind: rows of one number, which only grows from row to row, are one segment."""

    def convert(t: MindirTape, input_x: ir.Value, segment_ids: ir.Value) -> ir.Value:
        dtype = t.dtype(input_x)
        inside = dtype if dtype.is_floating_point() else INT64
        rows = t.cast(input_x, inside)
        ids = t.op("Unsqueeze", [t.cast(segment_ids, INT64), t.ints(1)], dtype=INT64)
        last = t.op("Reshape", [t.op("ReduceMax", [ids]), t.ints(1)])
        count = t.op("Add", [last, t.ints(1)])
        shape = t.op("Concat", [count, t.op("Shape", [rows], start=1)], axis=0) if t.rank(rows) > 1 else count
        reduction, start = KINDS[kind]
        if kind in ("Max", "Min"):
            # Segments start with a row of their own; those without any keep the 0.
            first = t.op("Expand", [t.constant(start, inside), shape], dtype=inside)
            base = scatter_nd(t, first, ids, rows, "none")
        else:
            base = t.op("Expand", [t.constant(start, inside), shape], dtype=inside)
        made = scatter_nd(t, base, ids, rows, reduction)
        if kind == "Mean":
            ones = t.op("Expand", [t.constant(1, inside), t.op("Shape", [rows])], dtype=inside)
            counts = scatter_nd(t, base, ids, ones, "add")
            made = t.op("Div", [made, t.op("Max", [counts, t.constant(1, inside)])], dtype=inside)
        return t.cast(made, dtype)

    return convert


for _kind in KINDS:
    op(f"Segment{_kind}")(_segments(_kind))


# Sparse tensors: places and values -----------------------------------------------------------------------------------


@op("SparseTensorDenseMatmul")
def sparse_tensor_dense_matmul(
    t: MindirTape,
    indices: ir.Value,
    values: ir.Value,
    sparse_shape: Any,
    dense: ir.Value,
    *,
    adjoint_st: Any = False,
    adjoint_dt: Any = False,
) -> Any:
    whole = scatter_nd_onto_zeros(t, indices, values, sparse_shape)
    left = t.op("Transpose", [whole], perm=(1, 0)) if t.literal(adjoint_st) else whole
    right = t.op("Transpose", [dense], perm=(1, 0)) if t.literal(adjoint_dt) else dense
    return t.op("MatMul", [left, right])

"""Reductions, extremes and their places in MindSpore Lite's dialect."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import SUMMABLE, axis_of
from litehouse.formats.mindir.ops.ordering import orderable, top
from litehouse.formats.mindir.ops.reduction import reduce
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

MODES = {
    0: "ReduceMean",
    1: "ReduceMax",
    2: "ReduceMin",
    3: "ReduceProd",
    4: "ReduceSum",
    5: "ReduceSumSquare",
    6: "ReduceL1",
    8: "ReduceL2",
}
ALL = 7


@op("ReduceFusion")
def reduce_fusion(
    t: MindirTape,
    x: ir.Value,
    axes: Any = None,
    *,
    mode: Any = 0,
    keep_dims: Any = False,
    reduce_to_end: Any = False,
    coeff: Any = 0.0,
) -> Any:
    """With `reduce_to_end` the one axis stands for all from it on, and the result is multiplied."""
    dtype, kind = t.result_dtype(), t.literal(mode)
    over = axes
    if t.literal(reduce_to_end):
        over, keep_dims = tuple(range(axis_of(t, axes, t.rank(x)), t.rank(x))), False
    if kind == ALL:
        return t.cast(reduce(t, "ReduceMin", t.cast(x, ir.DataType.BOOL), over, keep_dims), dtype)
    if kind not in MODES:
        t.refuse(f"mode {kind!r} is not supported")
    y = reduce(t, MODES[kind], t.cast(x, SUMMABLE.get(dtype, dtype)), over, keep_dims)
    if t.literal(reduce_to_end) and coeff not in (0, 1):
        y = t.op("Mul", [y, t.constant(coeff, t.dtype(y))], dtype=y.dtype)
    return t.cast(y, dtype)


@op("All")
def all_(t: MindirTape, x: ir.Value, axis: Any = None, *, keep_dims: Any = False) -> Any:
    return t.cast(reduce(t, "ReduceMin", t.cast(x, ir.DataType.BOOL), axis, bool(keep_dims)), t.result_dtype())


@op("ArgMaxFusion")
def arg_max_fusion(
    t: MindirTape, x: ir.Value, *, axis: Any = 0, top_k: Any = 1, keep_dims: Any = False, out_max_value: Any = False
) -> Any:
    return _extreme(t, x, axis, top_k, keep_dims, out_max_value, largest=True)


@op("ArgMinFusion")
def arg_min_fusion(
    t: MindirTape, x: ir.Value, *, axis: Any = 0, top_k: Any = 1, keep_dims: Any = False, out_max_value: Any = False
) -> Any:
    return _extreme(t, x, axis, top_k, keep_dims, out_max_value, largest=False)


def _extreme(
    t: MindirTape, x: ir.Value, axis: Any, top_k: Any, keep_dims: Any, out_value: Any, *, largest: bool
) -> Any:
    """The places of the first `top_k` along an axis, or their values, or both where the file wants two results."""
    along, count = axis_of(t, axis, t.rank(x)), t.literal(top_k) or 1
    values, places = top(t, x, count, along, largest)
    if count == 1 and not t.literal(keep_dims):
        values, places = (t.op("Squeeze", [each, t.ints(along)], dtype=each.dtype) for each in (values, places))
    if isinstance(t.expected, tuple):
        return t.cast(places, t.result_dtype(0)), t.cast(values, t.result_dtype(1))
    return t.cast(values if t.literal(out_value) else places, t.result_dtype())


@op("TopKFusion")
def top_k_fusion(t: MindirTape, x: ir.Value, k: Any, *, axis: Any = -1, largest: Any = 1, sorted: Any = True) -> Any:
    """Without `sorted`, the chosen ones stay in the order that they have in the operand."""
    along = axis_of(t, axis, t.rank(x))
    values, places = top(t, x, k, along, bool(t.literal(largest)))
    if not t.literal(sorted):
        places, _ = top(t, places, k, along, False)
        values = t.op("GatherElements", [x, places], axis=along)
    return values, t.cast(places, t.result_dtype(1))


@op("InvertPermutation")
def invert_permutation(t: MindirTape, x: ir.Value) -> Any:
    """The places of 0, 1, 2, … in the operand: those that sort it."""
    _, places = top(t, orderable(t, x), t.op("Shape", [x]), 0, False)
    return t.cast(places, t.result_dtype())

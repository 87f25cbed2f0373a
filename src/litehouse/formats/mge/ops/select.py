"""Elements that masks, conditions and maps select."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

BOOL, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64
COMPARISONS = {
    "EQ": "Equal",
    "NEQ": "Equal",
    "LT": "Less",
    "LEQ": "LessOrEqual",
    "GT": "Greater",
    "GEQ": "GreaterOrEqual",
}


@op("Where")
def where(t: MgeTape, mask: ir.Value, x: ir.Value, y: ir.Value) -> Any:
    """One operand where the mask holds, the other elsewhere."""
    return _choose(t, t.cast(mask, BOOL), x, y)


@op("MaskedFill")
def masked_fill(t: MgeTape, x: ir.Value, mask: ir.Value, *, value: float) -> Any:
    """A constant where the mask holds; the mask may have fewer axes, the first ones."""
    missing = range(t.rank(mask), t.rank(x))
    if missing:
        mask = t.op("Unsqueeze", [mask, t.ints(list(missing))])
    fill = np.float32(value).astype(t.dtype(x).numpy())
    return _choose(t, t.cast(mask, BOOL), t.constant(fill), x)


def _choose(t: MgeTape, mask: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    dtype = wider(t.dtype(x))
    made = t.op("Where", [mask, t.cast(x, dtype), t.cast(y, dtype)])
    return t.cast(made, t.dtype(x))


@op("CondTake")
def cond_take(t: MgeTape, x: ir.Value, mask: ir.Value, *, mode: str, val: float, eps: float) -> Any:
    """The elements, in memory order, where the mask compares to a number, and their places."""
    condition = t.op("Reshape", [_condition(t, mask, mode, val, eps), t.ints(-1)])
    places = t.op("Reshape", [t.op("NonZero", [condition]), t.ints(-1)])
    return t.op("Gather", [t.op("Reshape", [x, t.ints(-1)]), places], axis=0), t.cast(places, INT32)


def _condition(t: MgeTape, mask: ir.Value, mode: str, number: float, tolerance: float) -> ir.Value:
    dtype = t.dtype(mask)
    wanted = np.float32(number).astype(dtype.numpy())
    if dtype == BOOL and mode in ("EQ", "NEQ"):
        holds: ir.Value = mask if wanted == (mode == "EQ") else t.op("Not", [mask])
        return holds
    numbers, constant = t.cast(mask, wider(dtype)), t.constant(wanted, wider(dtype))
    if dtype.is_floating_point() and mode in ("EQ", "NEQ"):
        distance = t.op("Abs", [t.op("Sub", [constant, numbers])])
        holds = t.op("Less", [distance, t.constant(tolerance, dtype)])
    else:
        holds = t.op(COMPARISONS[mode], [numbers, constant])
    return t.op("Not", [holds]) if mode == "NEQ" else holds


@op("NonZero")
def non_zero(t: MgeTape, x: ir.Value) -> Any:
    """Where elements are not zero: a row for each axis."""
    return t.cast(t.op("NonZero", [t.cast(x, wider(t.dtype(x)))]), INT32)


@op("IndexingOneHot", keeps=True)
def indexing_one_hot(t: MgeTape, x: ir.Value, index: ir.Value, *, axis: int) -> Any:
    """One element of each row along an axis, which stays with size one."""
    return t.op("GatherElements", [x, t.op("Unsqueeze", [index, t.ints(axis)])], axis=axis)


@op("IndexingSetOneHot", keeps=True)
def indexing_set_one_hot(t: MgeTape, x: ir.Value, index: ir.Value, new: ir.Value, *, axis: int) -> Any:
    """Another value of one element of each row along an axis."""
    if t.quantised(x) != t.quantised(new):
        t.refuse("operands of different quantised dtypes")
    return t.op("ScatterElements", [x, t.op("Unsqueeze", [index, t.ints(axis)]), new], axis=axis)


@op("IndexingRemap", keeps=True)
def indexing_remap(t: MgeTape, x: ir.Value, places: ir.Value) -> Any:
    """The elements whose places the last axis of the map holds."""
    return t.op("GatherND", [x, t.cast(places, INT64)])

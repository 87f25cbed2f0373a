"""Reductions, running sums and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.quantised import round_half_away
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, FLOAT16, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64
MAX_RANK = 7  # a larger axis means: to the shape of the second operand
REDUCTIONS = {
    "SUM": "ReduceSum",
    "SUM_SQR": "ReduceSumSquare",
    "PRODUCT": "ReduceProd",
    "MIN": "ReduceMin",
    "MAX": "ReduceMax",
    "MEAN": "ReduceMean",
}
CHAINED = {"ReduceSum", "ReduceProd", "ReduceMean"}
QUANTISED = {("SUM", "QuantizedS8"), ("MEAN", "QuantizedS8"), ("MEAN", "Quantized8Asymm")}  # besides MIN and MAX
# The dtype of the result, where it is not the operand's; the computation is in float32.
FLOAT_RESULTS = {"FLOAT_O32xC32": FLOAT, "FLOAT_O16xC32": FLOAT16, "FLOAT_IO16xC32": FLOAT16}


@op("Reduce", quantised=True)
def reduce(t: MgeTape, x: ir.Value, target: ir.Value | None = None, *, mode: str, axis: int, data_type: str) -> Any:
    """One axis, or all that a target shape does not have, reduced to size one."""
    shape = None
    if -MAX_RANK <= axis < MAX_RANK:
        axes = [_axis(t, x, axis)]
    elif target is None:
        t.refuse(f"axis {axis} without a shape to reduce to")
    else:
        wanted = t.ints(target)
        if not t.is_known(wanted):
            t.refuse("a reduction to a shape that depends on the data")
        shape = list(t.literal(wanted))
        if shape == [1]:
            x = _reshaped(t, x, [-1])
        axes = _missing_axes(t, x, shape)
    made = _reduced_quantised(t, x, axes, mode, data_type) if t.quantised(x) else _reduced(t, x, axes, mode, data_type)
    return made if shape is None else _reshaped(t, made, shape)


def _axis(t: MgeTape, x: ir.Value, axis: int) -> int:
    """The axis, counted from the front."""
    rank = t.rank(x)
    if not -rank <= axis < rank:
        t.refuse(f"axis {axis} of an operand of rank {rank}")
    return axis % rank


def _missing_axes(t: MgeTape, x: ir.Value, shape: Sequence[int]) -> list[int]:
    """The axes that must vanish to give the shape, which may lack some at the front."""
    sizes = t.known_sizes(x)
    wanted = [1] * (len(sizes) - len(shape)) + list(shape)
    if len(wanted) > len(sizes) or any(new not in (1, old) for old, new in zip(sizes, wanted, strict=True) if old):
        t.refuse(f"a reduction of the shape {list(sizes)} to {list(shape)}")
    return [axis for axis, (old, new) in enumerate(zip(sizes, wanted, strict=True)) if new == 1 != old]


def _reshaped(t: MgeTape, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    if t.rank(x) == len(shape):
        return x
    made: ir.Value = t.op("Reshape", [x, t.ints(list(shape))])
    dtype = t.quantised(x)
    return made if dtype is None else t.as_quantised(made, dtype)


def _reduced(t: MgeTape, x: ir.Value, axes: Sequence[int], mode: str, data_type: str) -> ir.Value:
    dtype = t.dtype(x)
    if data_type in FLOAT_RESULTS:
        return t.cast(_reduced_float(t, t.cast(x, FLOAT), axes, mode), FLOAT_RESULTS[data_type])
    if data_type != "DEFAULT":
        t.refuse(f"data_type {data_type} with plain numbers")
    if dtype.is_floating_point():
        return t.cast(_reduced_float(t, t.cast(x, wider(dtype)), axes, mode), dtype)
    if mode in ("MIN", "MAX"):
        return t.cast(_onnx(t, t.cast(x, wider(dtype)), axes, mode), dtype)
    # MegEngine computes in the dtype itself, where a sum may overflow; a mean is rounded to zero.
    wide = t.cast(x, INT64)
    if mode == "SUM_SQR":
        wide, mode = t.op("Mul", [wide, wide]), "SUM"
    made = t.cast(_onnx(t, wide, axes, "SUM" if mode == "MEAN" else mode), dtype)
    if mode != "MEAN":
        return made
    count = np.prod([t.sizes(x)[axis] for axis in axes], dtype=np.int64).astype(dtype.numpy())
    if not count:
        t.refuse("a mean of so many integers that their count overflows")
    return t.cast(t.op("Div", [t.cast(made, wider(dtype)), t.constant(count, wider(dtype))]), dtype)


def _reduced_float(t: MgeTape, x: ir.Value, axes: Sequence[int], mode: str) -> ir.Value:
    if not axes:
        return t.op("Mul", [x, x], like=x) if mode == "SUM_SQR" else x
    made = _onnx(t, x, axes, mode)
    # MegEngine starts from the largest finite number, so infinities alone give that. (It also passes NaN on, which the
    # engines do not.)
    limits = np.finfo(t.dtype(x).numpy())
    if mode == "MAX":
        made = t.op("Max", [made, t.constant(limits.min)], like=made)
    elif mode == "MIN":
        made = t.op("Min", [made, t.constant(limits.max)], like=made)
    return made


def _onnx(t: MgeTape, x: ir.Value, axes: Sequence[int], mode: str) -> ir.Value:
    """The ONNX reduction. MegEngine reduces one axis after the other; that is written as one."""
    if not axes:
        return x
    kind, node, first = REDUCTIONS[mode], x.producer(), t.ints(list(axes))
    made: ir.Value
    if kind not in CHAINED or node is None or node.op_type != kind:
        made = t.op(kind, [x, first], dtype=x.dtype)
        return made
    source, before = node.inputs
    assert source is not None
    rank, kept = t.rank(source), node.attributes.get_int("keepdims", 1)
    reduced = {axis % rank for axis in t.literal(before)}
    places = [axis for axis in range(rank) if kept or axis not in reduced]
    every = sorted(reduced | {places[axis] for axis in axes})
    made = t.op(kind, [source, t.ints(every)], dtype=x.dtype, keepdims=kept)
    return made if kept else t.op("Unsqueeze", [made, first])


def _reduced_quantised(t: MgeTape, x: ir.Value, axes: Sequence[int], mode: str, data_type: str) -> ir.Value:
    dtype = t.quantised(x)
    assert dtype is not None
    if data_type != "DEFAULT" or (mode not in ("MIN", "MAX") and (mode, dtype.name) not in QUANTISED):
        t.refuse(f"mode {mode} with data_type {data_type} of {dtype.name}")
    made = _onnx(t, x, axes, mode)
    if mode == "MEAN":
        made = round_half_away(t, made)
    elif mode == "SUM":
        made = t.op("Clip", [made, t.constant(-128, FLOAT), t.constant(127, FLOAT)], like=made)
    return t.as_quantised(made, dtype)


# Along an axis --------------------------------------------------------------------------------------------------------


@op("Argmax")
def argmax(t: MgeTape, x: ir.Value, *, axis: int) -> Any:
    """Where the largest number of an axis is; the first of equal ones."""
    return t.cast(t.op("ArgMax", [t.cast(x, FLOAT)], axis=_axis(t, x, axis)), INT32)


@op("Argmin")
def argmin(t: MgeTape, x: ir.Value, *, axis: int) -> Any:
    """Where the smallest number of an axis is; the first of equal ones."""
    return t.cast(t.op("ArgMin", [t.cast(x, FLOAT)], axis=_axis(t, x, axis)), INT32)


@op("Cumsum")
def cumsum(t: MgeTape, x: ir.Value, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Running sums, with or without the number at hand, from the front or from the back."""
    dtype, along = t.dtype(x), t.constant(_axis(t, x, axis), INT32)
    made = t.op("CumSum", [t.cast(x, wider(dtype)), along], exclusive=int(exclusive), reverse=int(reverse))
    return t.cast(made, dtype)


@op("Softmax")
def softmax(t: MgeTape, x: ir.Value, *, axis: int) -> Any:
    """Exponentials that add up to one along an axis."""
    return t.op("Softmax", [x], axis=_axis(t, x, axis), like=x)

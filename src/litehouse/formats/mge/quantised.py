"""Quantised numbers: between MegEngine's integers, their real values, and the float32 values that stand for them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.records import DType
from litehouse.formats.mge.tape import MgeTape

FLOAT = ir.DataType.FLOAT


def from_integers(t: MgeTape, value: ir.Value, dtype: DType) -> ir.Value:
    """A tensor as the file has it, as the value that converters take: quantised integers less their zero point."""
    if not dtype.is_quantised:
        return value
    centred = t.cast(value, FLOAT)
    if dtype.zero_point:
        centred = t.op("Sub", [centred, t.constant(dtype.zero_point, FLOAT)], like=centred)
    if centred is value:
        centred = t.op("Identity", [value], like=value)
    return t.as_quantised(centred, dtype)


def to_integers(t: MgeTape, value: ir.Value) -> ir.Value:
    """The stored integers of a quantised value; a plain value as it is."""
    dtype = t.quantised(value)
    if dtype is None:
        return value
    if dtype.numpy is None:
        t.refuse(f"results of dtype {dtype.name} are not supported")
    if dtype.zero_point:
        value = t.op("Add", [value, t.constant(dtype.zero_point, FLOAT)], like=value)
    return t.cast(value, ir.DataType.from_numpy(dtype.numpy))


def real(t: MgeTape, value: ir.Value) -> ir.Value:
    """The real numbers of a value, quantised or not."""
    dtype = t.quantised(value)
    if dtype is None:
        return value
    made: ir.Value = t.op("Mul", [value, t.constant(np.float32(dtype.scale))], like=value, dtype=FLOAT)
    return made


def quantise(t: MgeTape, value: ir.Value, dtype: DType) -> ir.Value:
    """Real numbers in a quantised dtype: divided by the scale, rounded half away from zero, clamped to its range."""
    scaled = t.op("Div", [value, t.constant(np.float32(dtype.scale))], like=value)
    return settle(t, scaled, dtype)


def settle(t: MgeTape, scaled: ir.Value, dtype: DType, *, positive: bool = False) -> ir.Value:
    """Multiples of the scale in a quantised dtype: rounded half away from zero, clamped to its range.

    With `positive`, negative numbers become 0, and it takes less work.
    """
    if dtype.numpy is None:
        t.refuse(f"the dtype {dtype.name} is not supported")
    if positive:
        rounded = t.op("Floor", [t.op("Add", [scaled, t.constant(0.5, scaled.dtype)], like=scaled)], like=scaled)
    else:
        rounded = round_half_away(t, scaled)
    if dtype.name != "QuantizedS32":
        limits = np.iinfo(dtype.numpy)
        low = 0 if positive else limits.min - dtype.zero_point
        bounds = [t.constant(bound, FLOAT) for bound in (low, limits.max - dtype.zero_point)]
        rounded = t.op("Clip", [rounded, *bounds], like=rounded)
    elif positive:
        rounded = t.op("Relu", [rounded], like=rounded)
    return t.as_quantised(rounded, dtype)


def round_half_away(t: MgeTape, value: ir.Value) -> ir.Value:
    """The nearest integers, halves away from zero."""
    raised = t.op("Add", [t.op("Abs", [value], like=value), t.constant(0.5, value.dtype)], like=value)
    floor = t.op("Floor", [raised], like=value)
    made: ir.Value = t.op("Mul", [t.op("Sign", [value], like=value), floor], like=value)
    return made

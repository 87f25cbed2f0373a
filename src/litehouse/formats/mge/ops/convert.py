"""Operators that change the dtype, or round numbers as a change of dtype would; and constant powers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.formula import Number, call
from litehouse.formats.mge.ops.common import bools_behind
from litehouse.formats.mge.ops.elemwise import compute
from litehouse.formats.mge.ops.elemwise_special import rounded
from litehouse.formats.mge.quantised import quantise, real, settle
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32
# Between these MegEngine divides the scales; otherwise it multiplies by the inverse of the wanted one.
DIVIDED = {"QuantizedS8", "QuantizedS32"}


@op("TypeCvt", quantised=True)
def type_cvt(t: MgeTape, x: ir.Value, *, dtype: DType) -> Any:
    """The numbers in another dtype. Fractions are cut off, and integers keep their lowest bits."""
    source = t.quantised(x)
    if source == dtype:
        return x
    if dtype.is_quantised:
        return _quantised(t, x, source, dtype)
    if dtype.numpy is None:
        t.refuse(f"the dtype {dtype.name} is not supported")
    return _plain(t, real(t, x), ir.DataType.from_numpy(dtype.numpy))


def _quantised(t: MgeTape, x: ir.Value, source: DType | None, dtype: DType) -> ir.Value:
    if dtype.name == "QuantizedS16" or (source is not None and source.name == "QuantizedS16"):
        return quantise(t, t.cast(real(t, x), FLOAT), dtype)
    scale = np.float32(1) if source is None else np.float32(source.scale)
    wanted = np.float32(dtype.scale)
    # The roundings on the way decide where a result lies half way between two integers.
    divided = source is not None and (source.name == "QuantizedS32" or {source.name, dtype.name} <= DIVIDED)
    factor = scale / wanted if divided else scale * (np.float32(1) / wanted)
    return settle(t, t.op("Mul", [t.cast(x, FLOAT), t.constant(factor)]), dtype)


def _plain(t: MgeTape, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    if dtype == ir.DataType.BOOL and (bools := bools_behind(x)) is not None:
        return bools
    if t.dtype(x).is_floating_point() and dtype.is_integer() and dtype != INT32:
        x = t.cast(x, INT32)  # from which the lowest bits are taken
    return t.cast(x, dtype)


@op("PowC")
def pow_c(t: MgeTape, x: ir.Value, *, exp: float) -> Any:
    """A constant power."""
    if exp == 1:
        return x
    return compute(t, "SQUARE", [x]) if exp == 2 else compute(t, "POW", [x, t.constant([exp], t.dtype(x))])


@op("FakeQuant")
def fake_quant(t: MgeTape, x: ir.Value, scale: ir.Value, zero_point: ir.Value, *, qmin: int, qmax: int) -> Any:
    """The nearest of the real numbers that an integer between the limits can stand for."""
    number, step, zero = (Number(t, value) for value in (x, scale, zero_point))
    found = call("Clip", rounded(number / step) + zero, qmin, qmax)
    return ((found - zero) * step).value


@op("TQT")
def tqt(t: MgeTape, x: ir.Value, scale: ir.Value, *, qmin: int, qmax: int) -> Any:
    """As FakeQuant, without a zero point, and with the logarithm of the scale."""
    step = call("Pow", Number(t, t.constant(2, FLOAT)), Number(t, scale))
    return (call("Clip", rounded(Number(t, x) / step), qmin, qmax) * step).value


@op("LSQ")
def lsq(
    t: MgeTape, x: ir.Value, scale: ir.Value, zero_point: ir.Value, _grad_scale: ir.Value, *, qmin: int, qmax: int
) -> Any:
    """As FakeQuant, but rounded after the zero point and the limits; the last operand is for training."""
    number, step, zero = (Number(t, value) for value in (x, scale, zero_point))
    found = rounded(call("Clip", number / step + zero, qmin, qmax))
    return ((found - zero) * step).value

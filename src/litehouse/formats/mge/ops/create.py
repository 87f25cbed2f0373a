"""Operators that make tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

DOUBLE, FLOAT, INT64 = ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.INT64


@op("Linspace")
def linspace(t: MgeTape, start: ir.Value, stop: ir.Value, count: ir.Value, *, endpoint: bool) -> Any:
    """Numbers at equal distances, with or without the last one."""
    start, stop, length = t.cast(start, DOUBLE), t.cast(stop, DOUBLE), t.ints(count)
    gaps = t.op("Max", [t.op("Sub", [length, t.ints(1)]) if endpoint else length, t.ints(1)])
    step = t.op("Div", [t.op("Sub", [stop, start]), t.cast(gaps, DOUBLE)])
    places = t.op("Range", [t.constant(0, INT64), t.op("Squeeze", [length]), t.constant(1, INT64)])
    return t.cast(t.op("Add", [start, t.op("Mul", [t.cast(places, DOUBLE), step])]), FLOAT)


@op("Eye")
def eye(t: MgeTape, shape: ir.Value, *, k: int, dtype: str) -> Any:
    """Ones on a diagonal, zeros elsewhere."""
    wanted = _dtype(t, DType(dtype))
    sizes = t.ints(shape)
    if t.sizes(sizes) == (1,):
        sizes = t.op("Concat", [sizes, sizes], axis=0)
    ones = t.op("EyeLike", [_zeros(t, sizes, FLOAT)], k=k)
    return t.cast(ones, wanted)


@op("Alloc")
def alloc(t: MgeTape, shape: ir.Value, *, dtype: str) -> Any:
    """A tensor whose numbers MegEngine leaves open: zeros."""
    return _zeros(t, t.ints(shape), _dtype(t, DType(dtype)))


def _dtype(t: MgeTape, dtype: DType) -> ir.DataType:
    if dtype.numpy is None or dtype.is_quantised:
        t.refuse(f"the dtype {dtype.name} is not supported")
    return ir.DataType.from_numpy(dtype.numpy)


def _zeros(t: MgeTape, shape: ir.Value, dtype: ir.DataType) -> ir.Value:
    zero = ir.Tensor(np.zeros(1, wider(dtype).numpy()))
    made: ir.Value = t.op("ConstantOfShape", [shape], value=zero)
    return t.cast(made, dtype)

"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.blocked import arranged, layout_of, plain
from litehouse.formats.mge.quantised import FLOAT, round_half_away
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

INT64 = ir.DataType.INT64


@op("Pooling", quantised=True)
def pooling(t: MgeTape, x: ir.Value, *, mode: str, format: str, **params: int) -> Any:
    """The largest or the mean number of each window."""
    layout = layout_of(t, format)
    pads, strides, window = ([params[f"{name}_{axis}"] for axis in "hw"] for name in ("pad", "stride", "window"))
    return arranged(t, _pooled(t, plain(t, x, layout), mode, window, strides, pads), layout)


@op("AdaptivePooling", quantised=True)
def adaptive_pooling(t: MgeTape, x: ir.Value, shape: ir.Value, *, mode: str, format: str) -> Any:
    """A pool that gives so many numbers: its windows are all of one size, and overlap where that does not come out."""
    layout = layout_of(t, format)
    x = plain(t, x, layout)
    wanted = t.ints(shape)
    if t.sizes(wanted) == (1,):
        wanted = t.op("Concat", [wanted, wanted], axis=0)
    if not t.is_known(wanted):
        return arranged(t, _pooled_to(t, x, wanted, mode), layout)
    sizes = t.sizes(x)[2:]
    counts = t.literal(wanted)
    if any(not 0 < count <= size for count, size in zip(counts, sizes, strict=True)):
        t.refuse(f"a result of {list(counts)} from planes of {list(sizes)}")
    strides = [size // count for count, size in zip(counts, sizes, strict=True)]
    window = [size - (count - 1) * step for count, size, step in zip(counts, sizes, strides, strict=True)]
    return arranged(t, _pooled(t, x, mode, window, strides, [0, 0]), layout)


def _pooled_to(t: MgeTape, x: ir.Value, wanted: ir.Value, mode: str) -> ir.Value:
    """The same for a result whose size is only known when the model runs."""
    if t.quantised(x) is not None or not t.dtype(x).is_floating_point():
        t.refuse("integers, and a size of the result that is computed when the model runs")
    dtype = t.dtype(x)
    for axis, size in ((2, t.sizes(x)[2]), (3, t.sizes(x)[3])):
        inside, window = _windows_to(t, size, t.op("Gather", [wanted, t.ints(axis - 2)], axis=0))
        if mode == "MAX":
            inside = t.op("Unsqueeze", [inside, t.ints(2)]) if axis == 2 else inside
            least = t.constant(-np.inf, dtype)
            taken = t.op("Where", [inside, t.op("Unsqueeze", [x, t.ints(axis)]), least])
            x = t.op("ReduceMax", [taken, t.ints(axis + 1)], keepdims=0)
        else:
            shares = t.op("Div", [t.cast(inside, dtype), t.cast(window, dtype)])
            transposed = t.op("Transpose", [shares], perm=[1, 0])
            x = t.op("MatMul", [shares, x] if axis == 2 else [x, transposed])
    return x


def _windows_to(t: MgeTape, size: int, count: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Which places of an axis belong to each of so many windows, and how many do."""
    stride = t.op("Div", [t.ints(size), count])
    window = t.op("Sub", [t.ints(size), t.op("Mul", [t.op("Sub", [count, t.ints(1)]), stride])])
    numbers = t.op("Range", [t.constant(0, INT64), t.op("Squeeze", [count]), t.constant(1, INT64)])
    first = t.op("Unsqueeze", [t.op("Mul", [numbers, stride]), t.ints(1)])
    places = t.constant(np.arange(size)[None])
    before_end = t.op("Less", [places, t.op("Add", [first, window])])
    return t.op("And", [t.op("GreaterOrEqual", [places, first]), before_end]), window


def _pooled(
    t: MgeTape, x: ir.Value, mode: str, window: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> ir.Value:
    """A pool of planes, of the operand's dtype."""
    if any(pad >= size for pad, size in zip(pads, window, strict=True)):
        t.refuse(f"a padding of {list(pads)} around windows of {list(window)}")
    geometry: dict[str, Any] = {"kernel_shape": window, "strides": strides, "pads": [*pads, *pads]}
    dtype, kind = t.dtype(x), t.quantised(x)
    numbers = x if dtype.is_floating_point() else t.cast(x, FLOAT)
    if mode == "MAX":
        made = t.op("MaxPool", [numbers], **geometry)
    else:
        made = t.op("AveragePool", [numbers], count_include_pad=int(mode == "AVERAGE"), **geometry)
    if kind is None:
        made = made if mode == "MAX" or dtype.is_floating_point() else _whole(t, made, mode)
        return t.cast(made, dtype)
    return t.as_quantised(made if mode == "MAX" else _nearest(t, made, kind), kind)


def _nearest(t: MgeTape, mean: ir.Value, dtype: DType) -> ir.Value:
    """The nearest integers, halves away from zero. Zero is where the integers of the file have it."""
    if dtype.name != "Quantized8Asymm":
        return round_half_away(t, mean)
    made: ir.Value = t.op("Floor", [t.op("Add", [mean, t.constant(0.5, FLOAT)], like=mean)], like=mean)
    return made


def _whole(t: MgeTape, mean: ir.Value, mode: str) -> ir.Value:
    """Means of plain integers: where padding counts they are cut off towards zero, else rounded."""
    if mode != "AVERAGE":
        return round_half_away(t, mean)
    cut = t.op("Floor", [t.op("Abs", [mean], like=mean)], like=mean)
    made: ir.Value = t.op("Mul", [t.op("Sign", [mean], like=mean), cut], like=mean)
    return made

"""Sorting, and the largest or smallest numbers.

MegEngine sorts pairs of a number and its place. So of equal numbers the first comes first where the smallest do, and
the last comes first where the largest do; ONNX always takes the first.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.ops.index import FAR, number
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64
Sorted = tuple[ir.Value, ir.Value]


@op("Argsort")
def argsort(t: MgeTape, x: ir.Value, *, order: str) -> Any:
    """The numbers of the last axis in order, and where they were."""
    return _first(t, x, _length(t, x), largest=order == "DESCENDING")


@op("TopK")
def top_k(t: MgeTape, x: ir.Value, k: ir.Value, *, mode: str) -> Any:
    """The k smallest numbers of the last axis, or the -k largest, and where they are; or only the last of these."""
    count = number(t, k)
    if isinstance(count, int):
        size = t.known_sizes(x)[-1]  # MegEngine gives what there is, where more are asked for
        least = abs(count) if size is None else min(abs(count), size)
        values, places = _first(t, x, t.ints(least), largest=count < 0)
    else:
        values, places = _first_of_any_sign(t, x, count)
    if mode != "KTH_ONLY":
        return values, places
    return t.op("Gather", [values, t.constant(-1, INT64)], axis=-1)


def _length(t: MgeTape, x: ir.Value) -> ir.Value:
    made: ir.Value = t.op("Shape", [x], start=t.rank(x) - 1)
    return made


def _first(t: MgeTape, x: ir.Value, count: ir.Value, *, largest: bool) -> Sorted:
    dtype = t.dtype(x)
    x = t.cast(x, wider(dtype))
    if largest:
        x = t.op("Slice", [x, t.ints(FAR), t.ints(-FAR), t.ints(-1), t.ints(-1)])
    values, places = t.op("TopK", [x, count], outputs=2, largest=int(largest))
    if largest:
        places = t.op("Sub", [t.op("Sub", [_length(t, x), t.ints(1)]), places])
    return t.cast(values, dtype), t.cast(places, INT32)


def _first_of_any_sign(t: MgeTape, x: ir.Value, count: ir.Value) -> Sorted:
    """For a count that is only known when the model runs: from the front of all in order, or from their back."""
    values, places = _first(t, x, _length(t, x), largest=False)
    backward = t.op("Less", [count, t.ints(0)])
    begin = t.op("Where", [backward, t.ints(FAR), t.ints(0)])
    end = t.op("Where", [backward, t.op("Sub", [count, t.ints(1)]), count])
    bounds = [begin, end, t.ints(-1), t.op("Sign", [t.op("Add", [t.op("Mul", [count, t.ints(2)]), t.ints(1)])])]
    return t.op("Slice", [values, *bounds]), t.op("Slice", [places, *bounds])

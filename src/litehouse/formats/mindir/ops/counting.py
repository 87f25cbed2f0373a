"""Counting values: histograms, classes, bounds, sets."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.ops.ordering import search_sorted, sort_ext, unique
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _counted(t: MindirTape, places: ir.Value, amounts: ir.Value, count: ir.Value) -> ir.Value:
    """The sums of the amounts at each place, for a list of one number of places."""
    zeros = t.op("Expand", [t.constant(0, amounts.dtype), count])
    flat = [t.op("Reshape", [value, t.ints(-1)]) for value in (places, amounts)]
    total: ir.Value = t.op("ScatterElements", [zeros, *flat], axis=0, reduction="add", dtype=amounts.dtype)
    return t.cast(total, t.result_dtype())


def _within(t: MindirTape, places: ir.Value, amounts: ir.Value, inside: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Places and amounts, 0 where they do not count."""
    nowhere = t.constant(0, INT64)
    return (
        t.op("Where", [inside, places, nowhere], dtype=INT64),
        t.op("Where", [inside, amounts, t.constant(0, amounts.dtype)], dtype=amounts.dtype),
    )


# Histograms ----------------------------------------------------------------------------------------------------------


@op("Bincount")
def bincount(t: MindirTape, array: ir.Value, size: Any, weights: ir.Value) -> Any:
    """How often each number below the size occurs, or the sum of its weights."""
    if weights.shape is not None and 0 in tuple(weights.shape):
        t.refuse("empty weights")
    count, places = t.ints(size), t.cast(array, INT64)
    amounts = weights if t.dtype(weights).is_floating_point() else t.cast(weights, INT64)
    return _counted(t, *_within(t, places, amounts, t.op("Less", [places, count])), count)


@op("BincountExt")
def bincount_ext(t: MindirTape, input: ir.Value, weights: Any = None, minlength: Any = 0) -> Any:
    places = t.cast(input, INT64)
    largest = t.op("ReduceMax", [places, t.ints(0)], keepdims=1)
    count = t.op("Max", [t.op("Add", [largest, t.ints(1)]), t.ints(minlength)])
    ones = t.op("Expand", [t.constant(1, INT64), t.op("Shape", [places])], dtype=INT64)
    return _counted(t, places, ones if weights is None else weights, count)


@op("Histogram")
def histogram(t: MindirTape, x: ir.Value, *, bins: Any = 100, min: Any = 0.0, max: Any = 0.0) -> Any:
    return histc(t, x, bins, min, max)


@op("HistcExt")
def histc(t: MindirTape, input: ir.Value, bins: Any = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many values lie in each of some ranges of equal width; those outside do not count."""
    m, count = Formula(t, t.dtype(input)), t.bounded(int(t.literal(bins)))
    (x,) = m.operands(input)
    low, high = m.operands(t.literal(min), t.literal(max))
    if t.literal(min) == t.literal(max):
        if t.literal(min) == 0:
            low, high = (t.op(name, [x], keepdims=0, dtype=m.dtype) for name in ("ReduceMin", "ReduceMax"))
        same = m("Equal", low, high)
        low, high = m.where(same, m("Sub", low, 1), low), m.where(same, m("Add", high, 1), high)
    inside = m("And", m("GreaterOrEqual", x, low), m("LessOrEqual", x, high))
    place = m("Div", m("Mul", m("Sub", x, low), count), m("Sub", high, low))
    place = m("Min", m("Floor", m.where(inside, place, 0)), count - 1)
    places, ones = _within(t, t.cast(place, INT64), t.constant(1, INT64), inside)
    return _counted(t, places, ones, t.ints(count))


@op("HistogramFixedWidth")
def histogram_fixed_width(t: MindirTape, x: ir.Value, range: ir.Value, *, nbins: Any, dtype: Any = None) -> Any:
    """How many values lie in each of some ranges of equal width; those outside count at the ends."""
    m, count = Formula(t, t.dtype(x)), t.bounded(int(t.literal(nbins)))
    values, limits = m.operands(x, range)
    low, high = (t.op("Gather", [limits, t.constant(end, INT64)], dtype=m.dtype) for end in (0, 1))
    place = m("Div", m("Mul", m("Sub", values, low), count), m("Sub", high, low))
    places = t.cast(m("Floor", m("Min", m("Max", place, 0), count - 1)), INT64)
    ones = t.op("Expand", [t.constant(1, INT64), t.op("Shape", [places])], dtype=INT64)
    return _counted(t, places, ones, t.ints(count))


@op("EqualCount")
def equal_count(t: MindirTape, x: ir.Value, y: ir.Value) -> Any:
    equal = t.op("Cast", [t.op("Equal", [x, y])], to=int(FLOAT))
    count = t.op("ReduceSum", [t.op("Reshape", [equal, t.ints(-1)]), t.ints(0)], dtype=FLOAT)
    return t.cast(count, t.result_dtype())


# Bounds and sets -----------------------------------------------------------------------------------------------------


@op("LowerBound")
def lower_bound(t: MindirTape, sorted_x: ir.Value, values: ir.Value) -> Any:
    """How many numbers of a row are smaller."""
    return search_sorted(t, sorted_x, values)


@op("UpperBound")
def upper_bound(t: MindirTape, sorted_x: ir.Value, values: ir.Value) -> Any:
    """How many numbers of a row are not larger."""
    return search_sorted(t, sorted_x, values, right=True)


@op("Bucketize")
def bucketize(t: MindirTape, input: ir.Value, *, boundaries: Any) -> Any:
    """How many boundaries are not larger than each value."""
    return search_sorted(t, t.constant(t.literal(boundaries), FLOAT), t.cast(input, FLOAT), right=True)


@op("NthElement")
def nth_element(t: MindirTape, input: ir.Value, n: Any, *, reverse: Any = False) -> Any:
    values = sort_ext(t, input, -1, reverse)[0]
    return t.op("Squeeze", [t.op("Gather", [values, t.ints(n)], axis=-1), t.ints(-1)])


@op("ListDiff")
def list_diff(t: MindirTape, x: ir.Value, y: ir.Value) -> Any:
    """The values that are not in another list, and their places."""
    equal = t.op("Equal", [t.op("Unsqueeze", [x, t.ints(1)]), t.op("Unsqueeze", [y, t.ints(0)])])
    count = t.op("ReduceSum", [t.op("Cast", [equal], to=int(INT64)), t.ints(1)], keepdims=0)
    places = t.op("Reshape", [t.op("NonZero", [t.op("Equal", [count, t.ints(0)])]), t.ints(-1)], dtype=INT64)
    return t.op("Gather", [x, places], axis=0), t.cast(places, t.result_dtype(1))


@op("UniqueWithPad")
def unique_with_pad(t: MindirTape, x: ir.Value, pad_num: Any) -> Any:
    """The distinct values, filled up to as many as there are values."""
    values, places = unique(t, x)
    missing = t.op("Sub", [t.op("Shape", [x]), t.op("Shape", [values])])
    padding = t.op("Reshape", [t.tensor(pad_num, t.dtype(x)), t.ints(1)])
    return t.op("Concat", [values, t.op("Expand", [padding, missing])], axis=0), places

"""Places of extremes, sorting, searching, and distinct values."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import SUMMABLE
from litehouse.formats.mindir.ops.reduction import reduce, require_orderable
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT32, INT64, BOOL = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL


def orderable(t: MindirTape, x: ir.Value) -> ir.Value:
    """The operand in a dtype that the engines order."""
    dtype = t.dtype(x)
    require_orderable(t, dtype)
    return t.cast(x, SUMMABLE.get(dtype, dtype))


def _place(t: MindirTape, op_type: str, x: ir.Value, axis: Any, keep_dims: Any, index: int = 0) -> ir.Value:
    """The place of an extreme along an axis, the first of equal ones, in the dtype of an item of the result."""
    keep = int(bool(t.literal(keep_dims)))
    found = t.op(op_type, [orderable(t, x)], axis=int(t.literal(axis)), keepdims=keep, dtype=INT64)
    return t.cast(found, t.result_dtype(index))


def _value(t: MindirTape, op_type: str, x: ir.Value, axis: Any, keep_dims: Any) -> ir.Value:
    """The extreme itself."""
    return t.cast(reduce(t, op_type, orderable(t, x), axis, keep_dims), t.dtype(x))


# Places of extremes --------------------------------------------------------------------------------------------------


@op("Argmax")
def argmax(t: MindirTape, input_x: ir.Value, axis: Any = -1, output_type: Any = None) -> Any:
    return _place(t, "ArgMax", input_x, axis, False)


@op("Argmin")
def argmin(t: MindirTape, x: ir.Value, axis: Any = -1, output_type: Any = None) -> Any:
    return _place(t, "ArgMin", x, axis, False)


def _place_anywhere(t: MindirTape, op_type: str, x: ir.Value, dim: Any, keepdim: Any) -> ir.Value:
    if dim is not None:
        return _place(t, op_type, x, dim, keepdim)
    flat = t.op("Reshape", [x, t.ints(-1)], dtype=t.dtype(x))
    place = _place(t, op_type, flat, 0, False)
    if t.literal(keepdim):
        place = t.op("Reshape", [place, t.ints((1,) * t.rank(x))])
    return place


@op("ArgMaxExt")
def argmax_ext(t: MindirTape, input: ir.Value, dim: Any = None, keepdim: Any = False) -> Any:
    return _place_anywhere(t, "ArgMax", input, dim, keepdim)


@op("ArgMinExt")
def argmin_ext(t: MindirTape, input: ir.Value, dim: Any = None, keepdim: Any = False) -> Any:
    return _place_anywhere(t, "ArgMin", input, dim, keepdim)


@op("ArgMaxWithValue")
def arg_max_with_value(t: MindirTape, input: ir.Value, axis: Any = 0, keep_dims: Any = False) -> Any:
    return _place(t, "ArgMax", input, axis, keep_dims), _value(t, "ReduceMax", input, axis, keep_dims)


@op("ArgMinWithValue")
def arg_min_with_value(t: MindirTape, input: ir.Value, axis: Any = 0, keep_dims: Any = False) -> Any:
    return _place(t, "ArgMin", input, axis, keep_dims), _value(t, "ReduceMin", input, axis, keep_dims)


@op("MaxDim")
def max_dim(t: MindirTape, input: ir.Value, dim: Any, keepdim: Any = False) -> Any:
    return _value(t, "ReduceMax", input, dim, keepdim), _place(t, "ArgMax", input, dim, keepdim, 1)


@op("MinDim")
def min_dim(t: MindirTape, input: ir.Value, dim: Any, keepdim: Any = False) -> Any:
    return _value(t, "ReduceMin", input, dim, keepdim), _place(t, "ArgMin", input, dim, keepdim, 1)


# Sorting -------------------------------------------------------------------------------------------------------------


def top(t: MindirTape, x: ir.Value, k: Any, axis: int, largest: bool) -> tuple[ir.Value, ir.Value]:
    """The first `k` values in order, and their places as int64. Of equal values, the first comes first."""
    order = int(largest)
    values, places = t.op("TopK", [orderable(t, x), t.ints(k)], outputs=2, axis=axis, largest=order, sorted=1)
    places.dtype = INT64
    return (t.cast(values, t.dtype(x)) if t.dtype(x) in SUMMABLE else values), places


def _size(t: MindirTape, x: ir.Value, axis: int) -> ir.Value:
    """The size of one axis, as a list of one number."""
    axis = axis % t.rank(x)
    size: ir.Value = t.op("Shape", [x], start=axis, end=axis + 1, dtype=INT64, shape=[1])
    return size


def _sorted(t: MindirTape, x: ir.Value, axis: Any, descending: Any) -> tuple[ir.Value, ir.Value]:
    if t.rank(x) == 0:
        return x, t.constant(0, INT64)
    axis = int(t.literal(axis))
    return top(t, x, _size(t, x, axis), axis, bool(t.literal(descending)))


@op("TopK")
def top_k(t: MindirTape, input_x: ir.Value, k: Any, *, sorted: Any = True) -> Any:
    values, places = top(t, input_x, k, -1, True)
    return values, t.cast(places, INT32)


@op("TopkExt")
def topk_ext(t: MindirTape, input: ir.Value, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True) -> Any:
    return top(t, input, k, int(t.literal(dim)), bool(t.literal(largest)))


@op("Sort")
def sort(t: MindirTape, x: ir.Value, *, axis: Any = -1, descending: Any = False) -> Any:
    values, places = _sorted(t, x, axis, descending)
    return values, t.cast(places, INT32)


@op("SortExt")
def sort_ext(t: MindirTape, input: ir.Value, dim: Any = -1, descending: Any = False, stable: Any = False) -> Any:
    return _sorted(t, input, dim, descending)


@op("ArgSort")
def arg_sort(t: MindirTape, input: ir.Value, dim: Any = -1, descending: Any = False, stable: Any = False) -> Any:
    return t.cast(_sorted(t, input, dim, descending)[1], t.result_dtype())


def _ranked(t: MindirTape, x: ir.Value, rank: ir.Value, axis: int, keepdim: Any) -> tuple[ir.Value, ir.Value]:
    """The value at a rank (a list of one number, from 0) in ascending order along an axis, and its place."""
    items = tuple(t.op("Gather", [item, rank], axis=axis, dtype=item.dtype) for item in _sorted(t, x, axis, False))
    if not t.literal(keepdim):
        items = tuple(t.op("Squeeze", [item, t.ints(axis)], dtype=item.dtype) for item in items)
    return items[0], items[1]


def _middle(t: MindirTape, x: ir.Value, axis: int) -> ir.Value:
    """The rank of the median; of two middle values, the lower one counts."""
    before = t.op("Sub", [_size(t, x, axis), t.ints(1)])
    middle: ir.Value = t.op("Div", [before, t.ints(2)], dtype=INT64, shape=[1])
    return middle


@op("Kthvalue")
def kth_value(t: MindirTape, input: ir.Value, k: Any, dim: Any = -1, keepdim: Any = False) -> Any:
    return _ranked(t, input, t.ints(t.literal(k) - 1), int(t.literal(dim)), keepdim)


@op("MedianDim")
def median_dim(t: MindirTape, input: ir.Value, dim: Any = -1, keepdim: Any = False) -> Any:
    axis = int(t.literal(dim))
    return _ranked(t, input, _middle(t, input, axis), axis, keepdim)


@op("MedianExt")
def median_ext(t: MindirTape, input: ir.Value) -> Any:
    flat = t.op("Reshape", [input, t.ints(-1)], dtype=t.dtype(input), shape=[None])
    return median_dim(t, flat, 0)[0]


@op("Median")
def median(
    t: MindirTape,
    x: ir.Value,
    *,
    global_median: Any = False,
    axis: Any = 0,
    keep_dims: Any = False,
    ignore_nan: Any = False,
) -> Any:
    if t.literal(ignore_nan):
        return _median_of_numbers(t, x, int(t.literal(axis)), keep_dims, bool(t.literal(global_median)))
    if not t.literal(global_median):
        return median_dim(t, x, axis, keep_dims)
    return median_ext(t, x), None  # the place has no meaning in MindSpore


def _median_of_numbers(t: MindirTape, x: ir.Value, axis: int, keep_dims: Any, whole: bool) -> tuple[Any, Any]:
    """The median of the numbers alone, which sort before what is none."""
    if whole:
        x, axis = t.op("Reshape", [x, t.ints(-1)], dtype=t.dtype(x), shape=[None]), 0
    missing = t.op("IsNaN", [x])
    values, places = _sorted(t, t.op("Where", [missing, t.constant(np.inf, t.dtype(x)), x], like=x), axis, False)
    count = t.op("ReduceSum", [t.op("Cast", [t.op("Not", [missing])], to=int(INT64)), t.ints(axis)])
    middle = t.op("Div", [t.op("Max", [t.op("Sub", [count, t.ints(1)]), t.ints(0)]), t.ints(2)])
    value, place = (t.op("GatherElements", [item, middle], axis=axis, dtype=item.dtype) for item in (values, places))
    value = t.op("Where", [t.op("Equal", [count, t.ints(0)]), t.constant(np.nan, t.dtype(x)), value])
    if whole or not t.literal(keep_dims):
        value, place = (t.op("Squeeze", [item, t.ints(axis)]) for item in (value, place))
    return value, None if whole else place


# Searching and distinct values ---------------------------------------------------------------------------------------


@op("SearchSorted")
def search_sorted(
    t: MindirTape, sorted_sequence: ir.Value, values: Any, sorter: Any = None, dtype: Any = None, right: Any = False
) -> Any:
    """How many items of the sequence come before each value, by comparing all pairs."""
    if sorter is not None:
        places = t.cast(sorter, INT64)
        sorted_sequence = t.op("GatherElements", [sorted_sequence, places], axis=-1, like=sorted_sequence)
    sequence, wanted = t.operands(orderable(t, sorted_sequence), values)
    if t.rank(sequence) > 1:
        sequence = t.op("Unsqueeze", [sequence, t.ints(-2)])
    wanted = t.op("Unsqueeze", [wanted, t.ints(-1)])
    before = t.op("LessOrEqual" if t.literal(right) else "Less", [sequence, wanted])
    count = t.op("ReduceSum", [t.op("Cast", [before], to=int(INT32)), t.ints(-1)], keepdims=0, dtype=INT32)
    return t.cast(count, t.result_dtype())


@op("InTopK")
def in_top_k(t: MindirTape, x1: ir.Value, x2: ir.Value, *, k: Any) -> Any:
    """Whether fewer than k predictions are larger than the target's."""
    places = t.op("Unsqueeze", [t.cast(x2, INT64), t.ints(-1)])
    target = t.op("GatherElements", [x1, places], axis=1)
    larger = t.op("Cast", [t.op("Greater", [x1, target])], to=int(INT32))
    count = t.op("ReduceSum", [larger, t.ints(1)], keepdims=0)
    near = t.op("Less", [count, t.constant(t.literal(k), INT32)])
    finite = t.op("Not", [t.op("Or", [t.op("IsNaN", [target]), t.op("IsInf", [target])])])
    return t.op("And", [near, t.op("Squeeze", [finite, t.ints(1)])])


def _comparable(dtype: ir.DataType) -> ir.DataType:
    """A dtype that ONNX Runtime finds distinct values in; it knows few."""
    if dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE, INT64):
        return dtype
    return ir.DataType.FLOAT if dtype.is_floating_point() else INT64


def _unique(t: MindirTape, x: ir.Value, sorted: bool) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The distinct values, the place of each operand's value among them, and how often each occurs."""
    dtype, kernel = t.dtype(x), _comparable(t.dtype(x))
    values, first, places, counts = t.op("Unique", [t.cast(x, kernel)], outputs=4, sorted=1)
    if not sorted:
        # Put in order of appearance by hand: OpenVINO gives zeros for floats that it is not to sort.
        first.dtype = INT64
        _, order = top(t, first, t.op("Shape", [first]), 0, False)
        _, back = top(t, order, t.op("Shape", [first]), 0, False)
        values, counts = (t.op("Gather", [each, order]) for each in (values, counts))
        places = t.op("Gather", [back, places])
    values.dtype = kernel
    places = t.op("Reshape", [places, t.op("Shape", [x])], dtype=INT64)
    counts.dtype = INT64
    return t.cast(values, dtype), places, counts


@op("Unique")
def unique(t: MindirTape, x: ir.Value) -> Any:
    values, places, _ = _unique(t, x, False)
    return values, t.cast(places, t.result_dtype(1))


@op("Unique2")
def unique2(
    t: MindirTape, input: ir.Value, sorted: Any = True, return_inverse: Any = False, return_counts: Any = False
) -> Any:
    return _unique(t, input, bool(t.literal(sorted)))


@op("UniqueDim")
def unique_dim(t: MindirTape, input: ir.Value, sorted: Any = True, return_inverse: Any = False, dim: Any = 0) -> Any:
    """The distinct slices along an axis in order, the place of each slice among them, and how often each occurs."""
    axis, kernel = int(t.literal(dim)), _comparable(t.dtype(input))
    values, _, places, counts = t.op("Unique", [t.cast(input, kernel)], outputs=4, sorted=1, axis=axis)
    values.dtype = kernel
    return t.cast(values, t.dtype(input)), places, counts


@op("UniqueConsecutive")
def unique_consecutive(
    t: MindirTape,
    input: ir.Value,
    return_inverse: Any = False,
    return_counts: Any = False,
    dim: Any = None,
    *,
    axis: Any = 1000,
) -> Any:
    if dim is not None or t.literal(axis) != 1000:  # as MindSpore 2.0 writes None
        t.refuse("distinct neighbours along one axis; only those of the whole tensor are supported")
    x = t.op("Reshape", [orderable(t, input), t.ints(-1)])
    first, last, end = t.ints(0), t.ints(-1), t.ints(np.iinfo(np.int64).max)
    after, before = t.op("Slice", [x, t.ints(1), end]), t.op("Slice", [x, first, last])
    head = t.op("Expand", [t.constant(True), t.op("Min", [t.op("Shape", [x]), t.ints(1)])])
    starts = t.op("Concat", [head, t.op("Not", [t.op("Equal", [after, before])])], axis=0)
    values = t.op("Compress", [t.op("Reshape", [input, t.ints(-1)]), starts], axis=0)
    runs = t.op("Cast", [starts], to=int(INT64))
    inverse = t.op("Sub", [t.op("CumSum", [runs, t.constant(0, INT64)]), t.ints(1)])
    borders = t.op("Concat", [t.op("Reshape", [t.op("NonZero", [starts]), t.ints(-1)]), t.op("Shape", [x])], axis=0)
    counts = t.op("Sub", [t.op("Slice", [borders, t.ints(1), end]), t.op("Slice", [borders, first, last])])
    inverse = t.op("Reshape", [inverse, t.op("Shape", [input])], dtype=INT64)
    return values, t.cast(inverse, t.result_dtype(1)), t.cast(counts, t.result_dtype(2))

"""Reductions: sums, extremes, statistics."""

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import SUMMABLE
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

# MindIR name: the ONNX op of the same meaning, for an operand of the result's dtype.
SAME = {
    "ReduceMean": "ReduceMean",
    "ReduceMax": "ReduceMax",
    "ReduceMin": "ReduceMin",
    "ReduceProd": "ReduceProd",
    "EuclideanNorm": "ReduceL2",
}
# As above, with PyTorch's parameters.
EXTENDED = {"SumExt": "ReduceSum", "MeanExt": "ReduceMean", "ProdExt": "ReduceProd"}


def reduce(t: MindirTape, op_type: str, x: ir.Value, axis: Any, keep_dims: Any) -> ir.Value:
    """An ONNX reduction; an empty axis tuple, or None, means all axes."""
    reduced: ir.Value = t.op(op_type, [x, _axes(t, x, axis)], dtype=x.dtype, keepdims=int(t.literal(keep_dims)))
    return reduced


def _axes(t: MindirTape, x: ir.Value, axis: Any) -> ir.Value:
    """The axes, all by name where the file names none: OpenVINO wants to see them when sizes are dynamic."""
    everything = axis is None or (t.is_literal(axis) and t.literal(axis) == ())
    return t.ints(tuple(range(t.rank(x))) if everything else axis)


def _reduced(t: MindirTape, op_type: str, x: Any, axis: Any, keep_dims: Any) -> ir.Value:
    """A reduction in the result's dtype, or in one that the engines have kernels for."""
    dtype = t.result_dtype()
    if op_type not in ("ReduceSum", "ReduceProd"):
        require_orderable(t, dtype)
    return t.cast(reduce(t, op_type, t.tensor(x, SUMMABLE.get(dtype, dtype)), axis, keep_dims), dtype)


def require_orderable(t: MindirTape, dtype: ir.DataType) -> None:
    """Refuse uint64, which no engine orders: as int64, its upper half would come first."""
    if dtype == ir.DataType.UINT64:
        t.refuse("the order of uint64 values is not supported; cast them to int64 before the op")


def _same(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, x: ir.Value, axis: Any = (), keep_dims: Any = False) -> Any:
        return _reduced(t, onnx_op, x, axis, keep_dims)

    return convert


def _extended(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, input: ir.Value, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Any:
        return _reduced(t, onnx_op, input, dim, keepdim)

    return convert


for table, maker in ((SAME, _same), (EXTENDED, _extended)):
    for _name, _onnx_op in table.items():
        op(_name)(maker(_onnx_op))


@op("ReduceSum")
def reduce_sum(t: MindirTape, x: ir.Value, axis: Any = (), keep_dims: Any = False, skip_mode: Any = False) -> Any:
    if t.literal(skip_mode) and t.is_literal(axis) and t.literal(axis) in ((), None):
        return t.promote(x)[0]
    return _reduced(t, "ReduceSum", x, axis, keep_dims)


@op("Nansum")
def nansum(t: MindirTape, input: ir.Value, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Any:
    if not t.dtype(input).is_floating_point():
        return _reduced(t, "ReduceSum", input, dim, keepdim)
    numbers = t.op("Where", [t.op("IsNaN", [input]), t.constant(0, t.dtype(input)), input], like=input)
    return _reduced(t, "ReduceSum", numbers, dim, keepdim)


@op("Max")
def max_(t: MindirTape, input: ir.Value) -> Any:
    return _reduced(t, "ReduceMax", input, None, False)


@op("Min")
def min_(t: MindirTape, input: ir.Value) -> Any:
    return _reduced(t, "ReduceMin", input, None, False)


@op("ReduceAll")
def reduce_all(t: MindirTape, input: ir.Value, axis: Any = (), keep_dims: Any = False) -> Any:
    return t.cast(reduce(t, "ReduceMin", t.cast(input, ir.DataType.BOOL), axis, keep_dims), t.result_dtype())


@op("ReduceAny")
def reduce_any(t: MindirTape, x: ir.Value, axis: Any = (), keep_dims: Any = False) -> Any:
    return t.cast(reduce(t, "ReduceMax", t.cast(x, ir.DataType.BOOL), axis, keep_dims), t.result_dtype())


@op("Any", "AnyExt")
def any_ext(t: MindirTape, input: ir.Value, dim: Any = None, keepdim: Any = False) -> Any:
    return reduce_any(t, input, dim, keepdim)


@op("CountNonZero")
def count_non_zero(t: MindirTape, input: ir.Value, dim: Any = None, *, dims: Any = None) -> Any:
    return _reduced(t, "ReduceSum", t.cast(input, ir.DataType.BOOL), dims if dim is None else dim, False)


@op("LogSumExp")
def log_sum_exp(t: MindirTape, input: ir.Value, dim: Any = None, keepdim: Any = False) -> Any:
    return _reduced(t, "ReduceLogSumExp", input, dim, keepdim)


@op("SquareSumAll")
def square_sum_all(t: MindirTape, x: ir.Value, y: ir.Value) -> Any:
    return tuple(reduce(t, "ReduceSumSquare", value, None, False) for value in t.promote(x, y))


@op("L2Loss")
def l2_loss(t: MindirTape, input_x: ir.Value) -> Any:
    (x,) = t.promote(input_x)
    return t.op("Div", [reduce(t, "ReduceSumSquare", x, None, False), t.constant(2, t.result_dtype())])


# Statistics ----------------------------------------------------------------------------------------------------------


def _variance_mean(t: MindirTape, x: ir.Value, axis: Any, correction: Any, keep_dims: Any) -> tuple[ir.Value, ir.Value]:
    """The mean squared distance from the mean, and the mean. The sum is divided by the count less the correction."""
    axes = _axes(t, x, axis)
    mean = t.op("ReduceMean", [x, axes], keepdims=1)
    distance = t.op("Sub", [x, mean])
    square = t.op("Mul", [distance, distance], like=x)
    less = int(t.literal(correction))
    if less:
        sizes = t.op("Gather", [t.op("Shape", [x]), axes])
        count = t.op("ReduceProd", [sizes, t.ints(0)], keepdims=0, dtype=ir.DataType.INT64)
        divisor = t.cast(t.op("Sub", [count, t.constant(less, ir.DataType.INT64)], dtype=ir.DataType.INT64), t.dtype(x))
        variance = t.op("Div", [reduce(t, "ReduceSum", square, axis, keep_dims), divisor])
    else:
        variance = reduce(t, "ReduceMean", square, axis, keep_dims)
    return variance, mean if t.literal(keep_dims) else t.op("Squeeze", [mean, axes])


@op("Var")
def var(t: MindirTape, input: ir.Value, dim: Any = None, correction: Any = 1, keepdim: Any = False) -> Any:
    return _variance_mean(t, t.promote(input)[0], dim, correction, keepdim)[0]


@op("Std")
def std(t: MindirTape, input: ir.Value, dim: Any = None, correction: Any = 1, keepdim: Any = False) -> Any:
    return t.op("Sqrt", [var(t, input, dim, correction, keepdim)])


@op("VarMean")
def var_mean(t: MindirTape, input: ir.Value, dim: Any = None, correction: Any = 1, keepdim: Any = False) -> Any:
    return _variance_mean(t, t.promote(input)[0], dim, correction, keepdim)


@op("StdMean")
def std_mean(t: MindirTape, input: ir.Value, dim: Any = None, correction: Any = 1, keepdim: Any = False) -> Any:
    variance, mean = _variance_mean(t, t.promote(input)[0], dim, correction, keepdim)
    return t.op("Sqrt", [variance]), mean


@op("ReduceStd")
def reduce_std(t: MindirTape, x: ir.Value, axis: Any = (), unbiased: Any = True, keep_dims: Any = False) -> Any:
    return std_mean(t, x, axis, int(t.literal(unbiased)), keep_dims)

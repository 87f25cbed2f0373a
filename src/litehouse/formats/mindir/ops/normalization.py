"""Normalisation. What a training step would also want (saved statistics) is None where its meaning is private."""

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.ops.common import through
from litehouse.formats.mindir.ops.layout import as_format, channels_first
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def widened(t: MindirTape, x: ir.Value) -> ir.Value:
    """The operand in a dtype that sums many numbers well."""
    return x if t.dtype(x) in WIDE else t.cast(x, ir.DataType.FLOAT)


def statistics(t: MindirTape, x: ir.Value, axes: Sequence[int]) -> tuple[ir.Value, ir.Value]:
    """Mean and (biased) variance over axes, which are kept as size 1."""
    x, over = widened(t, x), t.ints(tuple(axes))
    mean = t.op("ReduceMean", [x, over], keepdims=1, dtype=x.dtype)
    centred = t.op("Sub", [x, mean])
    return mean, t.op("ReduceMean", [t.op("Mul", [centred, centred]), over], keepdims=1, dtype=x.dtype)


def inverse_root(t: MindirTape, variance: ir.Value, epsilon: Any) -> ir.Value:
    """1 / sqrt(variance + epsilon)."""
    total = t.op("Add", [variance, t.constant(t.literal(epsilon), t.dtype(variance))])
    root: ir.Value = t.op("Reciprocal", [t.op("Sqrt", [total])], dtype=variance.dtype)
    return root


def per_channel(t: MindirTape, values: ir.Value, rank: int, dtype: ir.DataType | None) -> ir.Value:
    """A number per channel, shaped for an operand of this rank."""
    shaped: ir.Value = t.op("Reshape", [values, t.ints((-1,) + (1,) * (rank - 2))], dtype=values.dtype)
    return shaped if dtype is None else t.cast(shaped, dtype)


# Over the batch -------------------------------------------------------------------------------------------------------


@op("BatchNorm")
def batch_norm(
    t: MindirTape,
    input: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
    is_training: Any = False,
    epsilon: Any = 1e-5,
    momentum: Any = 0.1,
    data_format: Any = "NCHW",
    *,
    format: Any = None,
) -> Any:
    layout = data_format if format is None else format
    operand = channels_first(t, input, layout)
    y = batch_normalized(t, operand, scale, bias, mean, variance, is_training, epsilon)
    y = as_format(t, y, layout, like=input)
    return y if isinstance(t.expected, TensorType) else (y, None, None, None, None)


@op("BatchNormExt")
def batch_norm_ext(
    t: MindirTape,
    input: ir.Value,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    running_mean: ir.Value | None = None,
    runnning_var: ir.Value | None = None,
    training: Any = False,
    momentum: Any = 0.1,
    epsilon: Any = 1e-5,
) -> Any:
    y = batch_normalized(t, input, weight, bias, running_mean, runnning_var, training, epsilon)
    return (y, None, None)


def batch_normalized(
    t: MindirTape,
    x: ir.Value,
    scale: ir.Value | None,
    bias: ir.Value | None,
    mean: ir.Value | None,
    variance: ir.Value | None,
    training: Any,
    epsilon: Any,
) -> ir.Value:
    """Batch normalisation by the stored statistics, or by those of the batch at hand."""
    if not t.literal(training) and mean is not None and variance is not None:
        channels = t.op("Shape", [mean])
        ones = t.op("Expand", [t.constant(1, t.dtype(mean)), channels], dtype=mean.dtype) if scale is None else scale
        zeros = t.op("Expand", [t.constant(0, t.dtype(mean)), channels], dtype=mean.dtype) if bias is None else bias
        operand = widened(t, x)
        y = through(t, "BatchNormalization", [operand, ones, zeros, mean, variance], epsilon=t.literal(epsilon))
        return t.cast(y, t.dtype(x))
    # The network asks for the statistics of the batch at hand.
    rank = t.rank(x)
    mean, variance = statistics(t, x, (0, *range(2, rank)))
    y = t.op("Mul", [t.op("Sub", [widened(t, x), mean]), inverse_root(t, variance, epsilon)], dtype=mean.dtype)
    return t.cast(_scaled(t, y, scale, bias, rank), t.dtype(x))


def _scaled(t: MindirTape, y: ir.Value, scale: ir.Value | None, bias: ir.Value | None, rank: int) -> ir.Value:
    """Times a number per channel, plus a number per channel."""
    if scale is not None:
        y = t.op("Mul", [y, per_channel(t, scale, rank, y.dtype)], dtype=y.dtype)
    return y if bias is None else t.op("Add", [y, per_channel(t, bias, rank, y.dtype)], dtype=y.dtype)


# Over the planes of each sample ---------------------------------------------------------------------------------------


@op("GroupNorm")
def group_norm(
    t: MindirTape,
    input: ir.Value,
    num_groups: Any,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: Any = 1e-5,
) -> Any:
    y, grouped = group_normalized(t, input, t.literal(num_groups), weight, bias, eps)
    mean, variance = statistics(t, grouped, (2,))
    per_group = (
        t.op("Squeeze", [each, t.ints(2)], dtype=each.dtype) for each in (mean, inverse_root(t, variance, eps))
    )
    return (y, *(t.cast(each, t.result_dtype(1)) for each in per_group))


def group_normalized(
    t: MindirTape, x: ir.Value, groups: int, scale: ir.Value | None, bias: ir.Value | None, epsilon: Any
) -> tuple[ir.Value, ir.Value]:
    """Group normalisation; and the operand with an axis for the groups, and one for all that is in a group."""
    grouped = t.op("Reshape", [x, t.ints((0, groups, -1))], dtype=x.dtype)
    ones, zeros = (t.constant([number] * t.bounded(groups), t.dtype(x)) for number in (1, 0))
    flat = through(t, "InstanceNormalization", [grouped, ones, zeros], epsilon=t.literal(epsilon))
    y = t.op("Reshape", [flat, t.op("Shape", [x])], dtype=x.dtype)
    return _scaled(t, y, scale, bias, t.rank(x)), grouped


@op("InstanceNorm")
def instance_norm(
    t: MindirTape,
    input_x: ir.Value,
    gamma: ir.Value,
    beta: ir.Value,
    mean: ir.Value | None = None,
    variance: ir.Value | None = None,
    *,
    epsilon: Any = 1e-5,
    format: Any = 0,
) -> Any:
    """Converted files have no statistics, neither as operands nor as results."""
    x = channels_first(t, input_x, format)
    y = through(t, "InstanceNormalization", [x, gamma, beta], epsilon=t.literal(epsilon))
    y = as_format(t, y, format, like=input_x)
    return y if isinstance(t.expected, TensorType) else (y, None, None)


@op("LRN")
def local_response_norm(
    t: MindirTape,
    x: ir.Value,
    *,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.75,
    norm_region: str = "ACROSS_CHANNELS",
    format: Any = 0,
) -> Any:
    """MindSpore states all numbers; where the Lite converter leaves some out, ONNX's defaults are meant."""
    if norm_region != "ACROSS_CHANNELS":
        t.refuse(f"the region {norm_region!r} is not supported, only ACROSS_CHANNELS")
    if bias <= 0:
        t.refuse(f"bias {bias} is not supported, only positive ones")
    # ONNX divides alpha by the size. The bias is taken out of the brackets: OpenVINO cuts it to a whole number.
    size = 2 * depth_radius + 1
    operand = channels_first(t, x, format)
    y = through(t, "LRN", [operand], size=size, alpha=alpha / bias * size, beta=beta, bias=1.0)
    y = as_format(t, y, format, like=x)
    return y if bias == 1 else t.op("Mul", [y, t.constant(bias**-beta, t.dtype(x))])


# Over the last axes ---------------------------------------------------------------------------------------------------


@op("LayerNorm")
def layer_norm(
    t: MindirTape,
    input_x: ir.Value,
    gamma: ir.Value,
    beta: ir.Value,
    begin_norm_axis: Any = 1,
    begin_params_axis: Any = 1,
    epsilon: Any = 1e-7,
) -> Any:
    axis, rank = t.literal(begin_norm_axis), t.rank(input_x)
    axes = range(axis % rank, rank)
    mean, variance = statistics(t, input_x, axes)
    if t.literal(begin_params_axis) % rank == axes[0]:
        y = through(t, "LayerNormalization", [input_x, gamma, beta], axis=axis, epsilon=t.literal(epsilon))
        return (y, mean, variance)
    factor = t.op("Mul", [inverse_root(t, variance, epsilon), t.cast(gamma, t.dtype(mean))])
    centred = t.op("Sub", [widened(t, input_x), mean])
    y = t.op("Add", [t.op("Mul", [centred, factor]), t.cast(beta, t.dtype(mean))], dtype=mean.dtype)
    return (t.cast(y, t.dtype(input_x)), mean, variance)


@op("LayerNormV3")
def layer_norm_v3(
    t: MindirTape,
    input_x: ir.Value,
    gamma: ir.Value,
    beta: ir.Value,
    begin_norm_axis: Any = 1,
    begin_params_axis: Any = 1,
    epsilon: Any = 1e-7,
) -> Any:
    y, mean, variance = layer_norm(t, input_x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon)
    return (y, mean, inverse_root(t, variance, epsilon))


@op("LayerNormExt")
def layer_norm_ext(
    t: MindirTape,
    input: ir.Value,
    normalized_shape: Any,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: Any = 1e-5,
) -> Any:
    sizes = t.literal(normalized_shape)
    axis = -len(sizes) if isinstance(sizes, tuple) else -1
    if weight is None:
        weight = t.op("Expand", [t.constant(1, t.dtype(input)), t.ints(normalized_shape)], dtype=input.dtype)
    y = through(t, "LayerNormalization", [input, weight, bias], axis=axis, epsilon=t.literal(eps))
    mean, variance = statistics(t, input, range(axis, 0))
    return (y, mean, inverse_root(t, variance, eps))


@op("RmsNorm")
def rms_norm(t: MindirTape, x: ir.Value, gamma: ir.Value, epsilon: Any = 1e-6) -> Any:
    operand = widened(t, x)
    axes = t.ints(tuple(range(-t.rank(gamma), 0)))
    # Written as the engines look for it when they fuse it into one op.
    squares = t.op("Pow", [operand, t.constant(2, t.dtype(operand))])
    mean = t.op("ReduceMean", [squares, axes], keepdims=1)
    root = t.op("Sqrt", [t.op("Add", [mean, t.constant(t.literal(epsilon), t.dtype(operand))])])
    y = t.op("Mul", [t.op("Div", [operand, root]), t.cast(gamma, t.dtype(operand))], dtype=operand.dtype)
    return (t.cast(y, t.dtype(x)), t.op("Reciprocal", [root]))


# Norms ----------------------------------------------------------------------------------------------------------------


@op("L2Normalize")
def l2_normalize(t: MindirTape, input_x: ir.Value, *, axis: Any = 0, epsilon: float = 1e-4) -> Any:
    squares = t.op("ReduceSumSquare", [input_x, t.ints(axis)], keepdims=1, dtype=input_x.dtype)
    limit = t.constant(epsilon, t.dtype(input_x))
    return t.op("Div", [input_x, t.op("Sqrt", [t.op("Max", [squares, limit])])])


@op("LpNorm")
def lp_norm(t: MindirTape, input: ir.Value, *, axis: Any, p: Any = 2, keep_dims: Any = False) -> Any:
    return power_norm(t, input, p, axis, keep_dims)


@op("LpNormV2")
def lp_norm_v2(
    t: MindirTape, input: ir.Value, p: Any = 2, dim: Any = None, keepdim: Any = False, epsilon: Any = 1e-12
) -> Any:
    return power_norm(t, input, p, dim, keepdim)


@op("LinalgVectorNorm")
def vector_norm(
    t: MindirTape, x: ir.Value, ord: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None
) -> Any:
    return power_norm(t, t.cast(x, t.type_id(dtype, t.dtype(x))), ord, dim, keepdim)


@op("Norm")
def norm(t: MindirTape, input: ir.Value, p: Any = 2.0, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Any:
    return power_norm(t, t.cast(input, t.type_id(dtype, t.dtype(input))), p, dim, keepdim)


def power_norm(t: MindirTape, x: ir.Value, power: Any, axes: Any, keep: Any) -> ir.Value:
    """The p-norm over axes (all of them when None or empty)."""
    power = t.literal(power)
    over = () if axes is None or axes == () else (t.ints(axes),)

    def reduced(op_type: str, values: ir.Value) -> ir.Value:
        made: ir.Value = t.op(op_type, [values, *over], keepdims=int(t.literal(keep)))
        return made

    if power in (1, 2):
        return reduced(f"ReduceL{int(power)}", x)
    if power == 0:
        return reduced("ReduceSum", t.op("Cast", [t.op("Cast", [x], to=int(ir.DataType.BOOL))], to=int(t.dtype(x))))
    sizes = t.op("Abs", [x])
    if math.isinf(power):
        return reduced("ReduceMax" if power > 0 else "ReduceMin", sizes)
    total = reduced("ReduceSum", t.op("Pow", [sizes, t.constant(power, t.dtype(x))]))
    found: ir.Value = t.op("Pow", [total, t.constant(1 / power, t.dtype(x))])
    return found

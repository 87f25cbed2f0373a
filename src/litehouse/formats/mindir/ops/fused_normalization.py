"""Normalisation of MindSpore Lite's dialect."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.ops.activation import prelu
from litehouse.formats.mindir.ops.common import through
from litehouse.formats.mindir.ops.fused_activation import activate
from litehouse.formats.mindir.ops.layout import as_format, channels_first, is_channels_last
from litehouse.formats.mindir.ops.normalization import batch_normalized, group_normalized, layer_norm
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op("LayerNormFusion")
def layer_norm_fusion(
    t: MindirTape,
    x: ir.Value,
    gamma: ir.Value,
    beta: ir.Value,
    *,
    begin_norm_axis: Any = -1,
    begin_params_axis: Any = -1,
    epsilon: Any = 1e-5,
) -> Any:
    """Files that come from MindSpore also want mean and variance."""
    results = layer_norm(t, x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon)
    return results[0] if isinstance(t.expected, TensorType) else results


@op("GroupNormFusion")
def group_norm_fusion(
    t: MindirTape,
    x: ir.Value,
    gamma: ir.Value,
    beta: ir.Value,
    *,
    num_groups: Any,
    epsilon: Any = 1e-5,
    format: Any = 0,
) -> Any:
    operand = channels_first(t, x, format)
    y, _ = group_normalized(t, operand, t.literal(num_groups), gamma, beta, epsilon)
    return as_format(t, y, format, like=x)


@op("FusedBatchNorm")
def fused_batch_norm(
    t: MindirTape,
    x: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
    *,
    epsilon: Any = 1e-4,
    format: Any = 0,
) -> Any:
    operand = channels_first(t, x, format)
    y = as_format(t, batch_normalized(t, operand, scale, bias, mean, variance, False, epsilon), format, like=x)
    return y if isinstance(t.expected, TensorType) else (y, None, None, None, None)


@op("PReLUFusion")
def prelu_fusion(t: MindirTape, x: ir.Value, slope: ir.Value, *, channel_shared: Any = False, format: Any = 0) -> Any:
    """A slope for each channel, or one for all; files keep the trailing axes of size 1 that the source had."""
    if sum(size != 1 for size in t.sizes(slope)) > 1:
        if is_channels_last(t, format) and t.rank(x) > 3:
            t.refuse("a slope for each place of an image, in an order that the file does not state")
        return through(t, "PRelu", [x, slope])
    operand = channels_first(t, x, format)
    return as_format(t, prelu(t, operand, t.op("Reshape", [slope, t.ints(-1)], dtype=slope.dtype)), format, like=x)


@op("L2NormalizeFusion")
def l2_normalize_fusion(
    t: MindirTape, x: ir.Value, *, axis: Any = -1, epsilon: Any = 1e-6, activation_type: Any = 0
) -> Any:
    """Divided by the root of the sum of squares, which is at least epsilon."""
    squares = t.op("ReduceSumSquare", [x, t.ints(axis)], keepdims=1, dtype=x.dtype)
    root = t.op("Sqrt", [t.op("Max", [squares, t.constant(t.literal(epsilon), t.dtype(x))])])
    return activate(t, t.op("Div", [x, root], like=x), activation_type)


@op("LpNormalization")
def lp_normalization(t: MindirTape, x: ir.Value, *, axis: Any = -1, p: Any = 2) -> Any:
    return through(t, "LpNormalization", [x], axis=t.literal(axis), p=t.literal(p))

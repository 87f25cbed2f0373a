"""Quantised numbers of MindSpore Lite's dialect. Litehouse computes with floats that have the quantised values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import axis_of, choose
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT = ir.DataType.FLOAT
LOWEST, HIGHEST = -128, 127
DEFAULT_RANGE = 0.01  # MindSpore Lite's word for the range of a tensor whose numbers are all the same


def quantized_axis(op_type: str, place: int, rank: int, attributes: Mapping[str, Any], *, kernel_last: bool) -> int:
    """The axis of a weight along which every slice has its own scale.

    Args:
        op_type: The op that uses the weight.
        place: Which of its operands it is.
        rank: The weight's rank.
        attributes: The op's attributes.
        kernel_last: Whether kernels have their channels last.
    """
    if op_type == "MatMulFusion" and place < 2:
        columns = bool(attributes.get("transpose_b")) if place else not attributes.get("transpose_a")
        return rank - 2 if columns else rank - 1
    if op_type == "Gather" and place == 0:
        return int(attributes.get("axis", 0)) % max(rank, 1)
    if op_type == "Conv2dTransposeFusion" and place == 1:
        group = attributes.get("group", 1)
        if not attributes.get("in_channel") == attributes.get("out_channel") == group:
            return rank - 1 if kernel_last else 1
    return 0


@op("QuantDTypeCast")
def quant_dtype_cast(
    t: MindirTape,
    x: ir.Value,
    *,
    scale_list: Sequence[float] = (),
    zero_point_list: Sequence[int] = (),
    var_corr_list: Sequence[float] = (),
    mean_corr_list: Sequence[float] = (),
    channel_axis: int = 0,
) -> Any:
    """Floats from quantised numbers, by the parameters that the file keeps beside the tensor: (q - zero) * scale.

    The corrections make up for what quantisation did to a channel's spread and mean.
    """
    if not scale_list or t.dtype(x).is_floating_point() or not t.result_dtype().is_floating_point():
        t.refuse("numbers that are quantised when the model runs")
    zeros = tuple(zero_point_list) or (0,) * len(scale_list)
    spreads = tuple(var_corr_list) or (1.0,) * len(scale_list)
    factors = [scale * spread for scale, spread in zip(scale_list, spreads, strict=True)]
    # By way of int32: OpenVINO 2026.4 takes a direct cast for its own kind of compressed weights, and then gathers
    # wrong numbers from those whose scales are not along the first axis.
    whole = t.cast(t.cast(x, ir.DataType.INT32), FLOAT)
    y = t.op("Sub", [whole, _along(t, x, zeros, channel_axis)], like=x, dtype=FLOAT)
    y = t.op("Mul", [y, _along(t, x, factors, channel_axis)], like=x, dtype=FLOAT)
    if any(mean_corr_list):
        y = t.op("Add", [y, _along(t, x, tuple(mean_corr_list), channel_axis)], like=x, dtype=FLOAT)
    return t.cast(y, t.result_dtype())


def _along(t: MindirTape, x: ir.Value, numbers: Sequence[float], axis: int) -> ir.Value:
    """One number for all, or one for each place along an axis."""
    if len(numbers) == 1:
        return t.constant(numbers[0], FLOAT)
    behind = t.rank(x) - 1 - axis_of(t, axis, t.rank(x))
    return t.constant(np.reshape(numbers, (-1, *(1,) * behind)), FLOAT)


@op("DynamicQuant")
def dynamic_quant(t: MindirTape, x: ir.Value, *, symmetric: Any = False, prefer_axes: Any = ()) -> Any:
    """The operand rounded to 256 steps (255 when symmetric) between its extremes, for the whole or for each channel."""
    kept = tuple(axis_of(t, axis, t.rank(x)) for axis in t.literal(prefer_axes) or ())
    axes = t.ints(tuple(axis for axis in range(t.rank(x)) if axis not in kept))
    operand = t.cast(x, FLOAT)
    low = t.op("ReduceMin", [operand, axes], keepdims=1, dtype=FLOAT)
    high = t.op("ReduceMax", [operand, axes], keepdims=1, dtype=FLOAT)
    if t.literal(symmetric):
        largest = t.op("Max", [t.op("Abs", [low]), t.op("Abs", [high])])
        scale, zero = t.op("Div", [largest, t.constant(HIGHEST, FLOAT)], dtype=FLOAT), t.constant(0, FLOAT)
        scale = choose(t, t.op("Greater", [scale, t.constant(0, FLOAT)]), scale, DEFAULT_RANGE)
    else:
        spread = t.op("Sub", [high, low], dtype=FLOAT)
        spread = choose(t, t.op("Greater", [spread, t.constant(0, FLOAT)]), spread, DEFAULT_RANGE)
        scale = t.op("Div", [spread, t.constant(HIGHEST - LOWEST, FLOAT)], dtype=FLOAT)
        zero = t.op("Round", [t.op("Sub", [t.constant(LOWEST, FLOAT), t.op("Div", [low, scale])])])
    steps = t.op("Round", [t.op("Add", [t.op("Div", [operand, scale]), zero])], dtype=FLOAT)
    inside = t.op("Clip", [steps, t.constant(LOWEST, FLOAT), t.constant(HIGHEST, FLOAT)])
    return t.cast(t.op("Mul", [t.op("Sub", [inside, zero]), scale], like=x, dtype=FLOAT), t.dtype(x))


@op("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(
    t: MindirTape, x: ir.Value, low: ir.Value, high: ir.Value, *, num_bits: Any = 8, narrow_range: Any = False
) -> Any:
    """Rounded to the steps between two bounds, which are moved so that 0 is a step; outside, the bounds themselves."""
    first, last = int(bool(narrow_range)), 2 ** t.literal(num_bits) - 1
    low, high = (t.cast(bound, FLOAT) for bound in (low, high))
    scale = t.op("Div", [t.op("Sub", [high, low]), t.constant(last - first, FLOAT)], dtype=FLOAT)
    ends = [t.constant(number, FLOAT) for number in (first, last)]
    half = t.constant(0.5, FLOAT)
    place = t.op("Floor", [t.op("Add", [t.op("Sub", [ends[0], t.op("Div", [low, scale])]), half])])
    zero = t.op("Clip", [place, *ends])
    bottom, top = (t.op("Mul", [t.op("Sub", [end, zero]), scale]) for end in ends)
    kept = t.op("Max", [t.op("Min", [t.cast(x, FLOAT), top]), bottom])
    steps = t.op("Floor", [t.op("Add", [t.op("Div", [t.op("Sub", [kept, bottom]), scale]), half])])
    return t.cast(t.op("Add", [t.op("Mul", [steps, scale]), bottom], dtype=FLOAT), t.dtype(x))

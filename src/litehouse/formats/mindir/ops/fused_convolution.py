"""Convolutions and pools of MindSpore Lite's dialect: bias and activation inside, channels first or last."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import convolution_geometry, last, onnx_pads, pad_mode_name, through
from litehouse.formats.mindir.ops.convolution import convolve
from litehouse.formats.mindir.ops.fused_activation import activate
from litehouse.formats.mindir.ops.layout import as_format, channels_first, kernel_first
from litehouse.formats.mindir.ops.pooling import largest, mean
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

NO_PADS = (0, 0, 0, 0)


@op("Conv2DFusion")
def conv2d_fusion(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    *,
    kernel_size: Any = None,
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    pad_mode: Any = 0,
    pad_list: Any = NO_PADS,
    group: Any = 1,
    activation_type: Any = 0,
    format: Any = 0,
) -> Any:
    filters, operand = kernel_first(t, weight, format), channels_first(t, x, format)
    kernel = last(t, kernel_size, 2) if t.literal(kernel_size) else t.sizes(filters)[2:]
    geometry = convolution_geometry(t, kernel, pad_mode, pad_list or NO_PADS, stride or 1, dilation or 1)
    y = convolve(t, operand, filters, kernel, geometry, t.literal(group) or 1, bias)
    return as_format(t, activate(t, y, activation_type), format)


@op("Conv2dTransposeFusion")
def conv2d_transpose_fusion(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    *,
    kernel_size: Any = None,
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    pad_mode: Any = 0,
    pad_list: Any = NO_PADS,
    output_paddings: Any = (0, 0),
    group: Any = 1,
    activation_type: Any = 0,
    format: Any = 0,
) -> Any:
    filters, operand = kernel_first(t, weight, format), channels_first(t, x, format)
    kernel = last(t, kernel_size, 2) if t.literal(kernel_size) else t.sizes(filters)[2:]
    strides, dilations = last(t, stride or 1, 2), last(t, dilation or 1, 2)
    pads, beyond = tuple(t.literal(pad_list) or NO_PADS), last(t, output_paddings or 0, 2)
    mode = pad_mode_name(t, pad_mode)
    if mode == "valid":
        pads = NO_PADS
    if mode == "same":
        # As large as the operand times the stride. What the file states, if it does, holds for one size alone.
        overlaps = [(k - 1) * d + 1 - s for k, d, s in zip(kernel, dilations, strides, strict=True)]
        surplus = [max(0, size) for size in overlaps]
        pads = tuple(part for size in surplus for part in (size // 2, size - size // 2))
        beyond = tuple(max(0, -size) for size in overlaps)
    y = through(
        t,
        "ConvTranspose",
        [operand, filters, bias],
        strides=strides,
        dilations=dilations,
        pads=onnx_pads(pads),
        output_padding=beyond,
        group=t.literal(group) or 1,
    )
    return as_format(t, activate(t, y, activation_type), format)


# Pools ----------------------------------------------------------------------------------------------------------------


@op("MaxPoolFusion")
def max_pool_fusion(
    t: MindirTape,
    x: ir.Value,
    *,
    kernel_size: Any = None,
    strides: Any = (1, 1),
    pad: Any = NO_PADS,
    pad_mode: Any = 0,
    round_mode: Any = 0,
    activation_type: Any = 0,
    format: Any = 0,
    global_: Any = False,
) -> Any:
    operand = channels_first(t, x, format)
    if t.literal(global_):
        y = through(t, "GlobalMaxPool", [operand])
    else:
        kernel, geometry = _pool_window(t, kernel_size, pad_mode, pad, strides)
        y = largest(t, operand, kernel, geometry, t.literal(round_mode) == 1)
    return as_format(t, activate(t, y, activation_type), format)


@op("AvgPoolFusion")
def avg_pool_fusion(
    t: MindirTape,
    x: ir.Value,
    *,
    kernel_size: Any = None,
    strides: Any = (1, 1),
    pad: Any = NO_PADS,
    pad_mode: Any = 0,
    round_mode: Any = 0,
    activation_type: Any = 0,
    format: Any = 0,
    global_: Any = False,
) -> Any:
    """A mean of what lies inside: the file does not say whether the source counted the padding."""
    operand = channels_first(t, x, format)
    if t.literal(global_):
        y = through(t, "GlobalAveragePool", [operand])
    else:
        kernel, geometry = _pool_window(t, kernel_size, pad_mode, pad, strides)
        y = mean(t, operand, kernel, geometry, t.literal(round_mode) == 1)
    return as_format(t, activate(t, y, activation_type), format)


def _pool_window(
    t: MindirTape, kernel_size: Any, pad_mode: Any, pad: Any, strides: Any
) -> tuple[Sequence[int], dict[str, Any]]:
    if not t.literal(kernel_size):
        t.refuse("a pool without the size of its window")
    kernel = last(t, kernel_size, 2)
    return kernel, convolution_geometry(t, kernel, pad_mode, t.literal(pad) or NO_PADS, strides or 1)

"""Convolutions."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import (
    convolution_geometry,
    last,
    onnx_pads,
    pad_mode_name,
    pad_planes,
    require_channels_first,
    same_pads,
    through,
)
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

# With the parameters as attributes -----------------------------------------------------------------------------------


@op("Conv2D")
def conv2d(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    *,
    kernel_size: Any = None,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0),
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    group: int = 1,
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    kernel = _kernel(t, kernel_size, weight)
    geometry = convolution_geometry(t, kernel, pad_mode, pad_list, stride, dilation)
    return convolve(t, x, weight, kernel, geometry, group)


@op("DepthwiseConv2dNative")
def depthwise_conv2d(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    *,
    channel_multiplier: int = 1,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0),
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    if channel_multiplier != 1:
        t.refuse(f"a channel multiplier of {channel_multiplier} is not supported, only 1")
    _, channels, *kernel = t.sizes(weight)
    geometry = convolution_geometry(t, kernel, pad_mode, pad_list, stride, dilation)
    filters = t.op("Transpose", [weight], perm=(1, 0, 2, 3), dtype=weight.dtype)
    return convolve(t, x, filters, kernel, geometry, channels)


@op("Conv3D")
def conv3d(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    *,
    kernel_size: Any = None,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0, 0, 0),
    strides: Any = (1, 1, 1),
    dilations: Any = (1, 1, 1),
    group: int = 1,
    format: Any = "NCDHW",
) -> Any:
    require_channels_first(t, format)
    kernel = _kernel(t, kernel_size, weight)
    geometry = convolution_geometry(t, kernel, pad_mode, pad_list, strides, dilations)
    return convolve(t, x, weight, kernel, geometry, group)


def _kernel(t: MindirTape, kernel_size: Any, weight: ir.Value) -> tuple[int, ...]:
    return t.sizes(weight)[2:] if kernel_size is None else last(t, kernel_size, t.rank(weight) - 2)


def convolve(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    kernel: Sequence[int],
    geometry: dict[str, Any],
    group: int,
    bias: ir.Value | None = None,
) -> ir.Value:
    """A convolution of a window with that geometry."""
    if "auto_pad" in geometry and set(geometry["dilations"]) != {1}:
        # Padding of its own: ONNX Runtime does not find it for a dilated window.
        geometry = {"strides": geometry["strides"], "dilations": geometry["dilations"]}
        pads = same_pads(t, x, kernel, **geometry)
        x = pad_planes(t, x, pads, len(kernel))
    return through(t, "Conv", [x, weight, bias], group=group, **geometry)


@op("Conv2DTranspose", "Conv2DBackpropInput")
def conv2d_transpose(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    input_sizes: Any,
    *,
    kernel_size: Any,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0),
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    group: int = 1,
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    window = _Window(t, 2, kernel_size, stride, dilation, pad_mode, pad_list)
    return _transposed(t, x, weight, input_sizes, window, group)


@op("Conv3DTranspose")
def conv3d_transpose(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    *,
    input_size: Any,
    kernel_size: Any,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0, 0, 0),
    strides: Any = (1, 1, 1),
    dilations: Any = (1, 1, 1),
    output_padding: Any = 0,
    group: int = 1,
    format: Any = "NCDHW",
) -> Any:
    require_channels_first(t, format)
    window = _Window(t, 3, kernel_size, strides, dilations, pad_mode, pad_list)
    window.beyond = [max(sizes) for sizes in zip(window.beyond, last(t, output_padding, 3), strict=True)]
    return _transposed(t, x, weight, input_size, window, group)


class _Window:
    """The window of a transposed convolution.

    Attributes:
        strides: Its steps.
        dilations: Its dilations.
        extents: The sizes that it covers, dilation included.
        pads: Begin and end, axis by axis, whatever the size of the input.
        stated: The same as the file states it for the exported size, where it does.
        beyond: What the result has at its end beyond the last window, whatever the size of the input.
    """

    def __init__(
        self, t: MindirTape, axes: int, kernel_size: Any, stride: Any, dilation: Any, pad_mode: Any, pad_list: Any
    ) -> None:
        self.strides = last(t, stride, axes)
        self.dilations = last(t, dilation, axes)
        kernel = last(t, kernel_size, axes)
        self.extents = [(size - 1) * step + 1 for size, step in zip(kernel, self.dilations, strict=True)]
        overlaps = [size - step for step, size in zip(self.strides, self.extents, strict=True)]
        mode = pad_mode_name(t, pad_mode)
        self.stated = tuple(t.literal(pad_list))
        self.pads = self.stated if mode == "pad" else (0,) * (2 * axes)
        self.beyond = [0 if mode == "pad" else max(0, -overlap) for overlap in overlaps]
        if mode == "same":
            surplus = [max(0, overlap) for overlap in overlaps]
            self.pads = tuple(part for size in surplus for part in (size // 2, size - size // 2))
        if min(self.stated) < 0:
            self.stated = self.pads


def _transposed(t: MindirTape, x: ir.Value, weight: ir.Value, sizes: Any, window: _Window, group: int) -> ir.Value:
    """A transposed convolution with a result of the stated sizes (batch and channels included)."""
    axes = len(window.strides)
    wanted = sizes[-axes:] if isinstance(sizes, tuple) else t.literal(sizes)[-axes:] if t.is_literal(sizes) else (None,)
    given: tuple[Any, ...] = (None,) if x.shape is None else tuple(x.shape[2 + axis] for axis in range(axes))
    geometry = {"strides": window.strides, "dilations": window.dilations, "group": group}
    if not all(isinstance(size, int) for size in (*wanted, *given)):
        return _cut(t, x, weight, sizes, window, geometry)
    if min(wanted) < 0:
        t.refuse("the file does not state the size of the result")
    beyond = []
    for axis, (size, start) in enumerate(zip(wanted, given, strict=True)):
        covered = (start - 1) * window.strides[axis] + window.extents[axis]
        beyond.append(size - covered + sum(window.stated[2 * axis : 2 * axis + 2]))
    if beyond != window.beyond or window.stated != window.pads:
        t.sizes(x)  # a size of the network's own, which holds for the exported input alone
    if not all(0 <= size < step for size, step in zip(beyond, window.strides, strict=True)):
        t.refuse(f"result size {tuple(wanted)} does not fit an input of size {given}")
    pads = onnx_pads(window.stated)
    return through(t, "ConvTranspose", [x, weight], pads=pads, output_padding=tuple(beyond), **geometry)


def _cut(
    t: MindirTape, x: ir.Value, weight: ir.Value, sizes: Any, window: _Window, geometry: dict[str, Any]
) -> ir.Value:
    """The same for sizes that are known when the model runs: all that can be covered, then the wanted part of it."""
    axes = len(window.strides)
    beyond = tuple(step - 1 for step in window.strides)
    whole = through(t, "ConvTranspose", [x, weight], output_padding=beyond, **geometry)
    starts = t.ints(window.pads[::2])
    wanted = t.op("Slice", [t.ints(sizes), t.ints(-axes), t.ints(2**31)])
    part: ir.Value = t.op("Slice", [whole, starts, t.op("Add", [starts, wanted]), t.ints(tuple(range(2, 2 + axes)))])
    return part


# With the parameters as operands --------------------------------------------------------------------------------------


@op("Conv1DExt", "Conv2DExt", "Conv3DExt")
def conv_ext(
    t: MindirTape,
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Any:
    return convolution(t, input, weight, bias, stride, padding, dilation, groups=groups)


@op("ConvTranspose2D")
def conv_transpose2d(
    t: MindirTape,
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> Any:
    return convolution(t, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@op("Convolution")
def convolution(
    t: MindirTape,
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: Any = False,
    output_padding: Any = 0,
    groups: Any = 1,
) -> Any:
    axes = t.rank(weight) - 2
    geometry: dict[str, Any] = {
        "strides": last(t, stride, axes),
        "dilations": last(t, dilation, axes),
        "pads": last(t, padding, axes) * 2,
    }
    if t.literal(transposed):
        geometry["output_padding"] = last(t, output_padding, axes)
    op_type = "ConvTranspose" if t.literal(transposed) else "Conv"
    return _with_batch(t, op_type, input, weight, bias, group=t.literal(groups), **geometry)


@op("Conv1DPadding", "Conv2DPadding", "Conv3DPadding")
def conv_padding(
    t: MindirTape,
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
    groups: Any = 1,
) -> Any:
    return convolution_str(t, input, weight, bias, stride, padding, dilation, groups=groups)


@op("ConvolutionStr")
def convolution_str(
    t: MindirTape,
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
    transposed: Any = False,
    output_padding: Any = 0,
    groups: Any = 1,
) -> Any:
    """The padding is `same` or `valid` here, or the number of that mode."""
    if t.literal(transposed) or pad_mode_name(t, padding) == "pad":
        t.refuse("a transposed convolution, or a padding that is not `same` or `valid`, is not supported here")
    kernel = t.sizes(weight)[2:]
    geometry = convolution_geometry(t, kernel, padding, None, stride, dilation)
    if "auto_pad" in geometry:
        t.refuse("padding `same` with a stride is not supported")
    return _with_batch(t, "Conv", input, weight, bias, group=t.literal(groups), **geometry)


def _with_batch(
    t: MindirTape, op_type: str, x: ir.Value, weight: ir.Value, bias: ir.Value | None, **geometry: Any
) -> ir.Value:
    """A convolution of a batch, or of one sample without a batch axis."""
    if t.rank(x) == t.rank(weight):
        return through(t, op_type, [x, weight, bias], **geometry)
    batch = t.op("Unsqueeze", [x, t.ints(0)], dtype=x.dtype)
    sample: ir.Value = t.op("Squeeze", [through(t, op_type, [batch, weight, bias], **geometry), t.ints(0)])
    return sample


@op("ConvTbc")
def conv_tbc(t: MindirTape, input: ir.Value, weight: ir.Value, bias: ir.Value, pad: Any = 0) -> Any:
    """A 1-D convolution over (time, batch, channel) with weights (kernel, in, out)."""
    x = t.op("Transpose", [input], perm=(1, 2, 0), dtype=input.dtype)
    filters = t.op("Transpose", [weight], perm=(2, 1, 0), dtype=weight.dtype)
    y = through(t, "Conv", [x, filters, bias], pads=last(t, pad, 1) * 2)
    return t.op("Transpose", [y], perm=(2, 0, 1))

"""Pooling."""

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import (
    convolution_geometry,
    kernel_dtype,
    last,
    pad_planes,
    require_channels_first,
    through,
)
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

# The largest of each window -------------------------------------------------------------------------------------------


@op("MaxPool")
def max_pool(
    t: MindirTape,
    x: ir.Value,
    *,
    kernel_size: Any = 1,
    strides: Any = 1,
    pad_mode: Any = "valid",
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    kernel = last(t, kernel_size, 2)
    return largest(t, x, kernel, convolution_geometry(t, kernel, pad_mode, None, strides))


@op("MaxPool3D")
def max_pool3d(
    t: MindirTape,
    x: ir.Value,
    *,
    kernel_size: Any = 1,
    strides: Any = 1,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0, 0, 0),
    ceil_mode: Any = False,
    format: Any = "NCDHW",
) -> Any:
    require_channels_first(t, format)
    kernel = last(t, kernel_size, 3)
    return largest(t, x, kernel, convolution_geometry(t, kernel, pad_mode, pad_list, strides), ceil_mode)


@op("MaxPool3DWithArgmax")
def max_pool3d_with_argmax(
    t: MindirTape,
    x: ir.Value,
    *,
    ksize: Any,
    strides: Any,
    pads: Any,
    dilation: Any = 1,
    ceil_mode: Any = False,
    format: Any = "NCDHW",
) -> Any:
    require_channels_first(t, format)
    return _max_and_place(t, x, 3, ksize, strides, pads, dilation, ceil_mode)


@op("MaxPoolWithArgmaxV2", "MaxPoolWithIndices")
def max_pool_with_argmax(
    t: MindirTape,
    x: ir.Value,
    kernel_size: Any,
    strides: Any = None,
    pads: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
    argmax_type: Any = None,
) -> Any:
    return _max_and_place(t, x, 2, kernel_size, strides, pads, dilation, ceil_mode)


@op("MaxPoolWithArgmax")
def max_pool_with_argmax_old(
    t: MindirTape, x: ir.Value, *, kernel_size: Any = 1, strides: Any = 1, pad_mode: Any = "valid", format: Any = "NCHW"
) -> Any:
    require_channels_first(t, format)
    # Sizes are written as (1, height, width, 1) here, whatever the format, and places count through all channels.
    kernel, steps = (last(t, t.literal(sizes)[:3], 2) for sizes in (kernel_size, strides))
    geometry = convolution_geometry(t, kernel, pad_mode, None, steps)
    return largest(t, x, kernel, geometry), _place(t, x, kernel, geometry, False, start=1)


@op("MaxPoolWithMask")
def max_pool_with_mask(
    t: MindirTape,
    x: ir.Value,
    kernel_size: Any,
    strides: Any = None,
    pads: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
    argmax_type: Any = None,
) -> Any:
    y, _ = _max_and_place(t, x, 2, kernel_size, strides, pads, dilation, ceil_mode)
    return (y, None)  # the mask is packed bits in a private layout, for training


def _max_and_place(
    t: MindirTape, x: ir.Value, axes: int, kernel_size: Any, strides: Any, pads: Any, dilation: Any, ceil_mode: Any
) -> tuple[ir.Value, ir.Value]:
    """The largest of each window, and its place in the plane (all spatial axes in one number)."""
    kernel = last(t, kernel_size, axes)
    pairs = [pad for size in last(t, pads, axes) for pad in (size, size)]
    geometry = convolution_geometry(t, kernel, "pad", pairs, kernel if strides is None else strides, dilation)
    return largest(t, x, kernel, geometry, ceil_mode), _place(t, x, kernel, geometry, ceil_mode)


@op("FuncMaxPool2D")
def func_max_pool2d(
    t: MindirTape,
    input: ir.Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
    return_indices: Any = False,
) -> Any:
    y, place = _max_and_place(t, input, 2, kernel_size, stride, padding, dilation, ceil_mode)
    return (y, place) if t.literal(return_indices) or isinstance(t.expected, tuple) else y


def largest(
    t: MindirTape, x: ir.Value, kernel: Sequence[int], geometry: dict[str, Any], ceil_mode: Any = False
) -> ir.Value:
    """The largest of each window; with `ceil_mode` also of windows that reach over the end."""
    ceil = int(t.literal(ceil_mode))
    y = through(t, "MaxPool", [x], kernel_shape=kernel, ceil_mode=ceil, **geometry)
    return _within(t, y, x, kernel, geometry) if ceil else y


def _place(
    t: MindirTape, x: ir.Value, kernel: Sequence[int], geometry: dict[str, Any], ceil_mode: Any, start: int = 2
) -> ir.Value:
    ceil = int(t.literal(ceil_mode))
    operand = t.cast(x, kernel_dtype(t, "MaxPool", t.dtype(x)))
    _, places = t.op("MaxPool", [operand], outputs=2, kernel_shape=kernel, ceil_mode=ceil, **geometry)
    # ONNX counts through the whole tensor, MindSpore within each plane, or within the axes from `start` on.
    plane = t.op("ReduceProd", [t.op("Shape", [x], start=start)], keepdims=1)
    places = t.op("Mod", [places, plane], dtype=ir.DataType.INT64)
    return t.cast(_within(t, places, x, kernel, geometry) if ceil else places, t.result_dtype(1))


def _within(t: MindirTape, y: ir.Value, x: ir.Value, kernel: Sequence[int], geometry: dict[str, Any]) -> ir.Value:
    """The windows that begin before the padding at the end; with ceil_mode, engines differ in keeping the others."""
    pads, strides, dilations = geometry["pads"][: len(kernel)], geometry["strides"], geometry["dilations"]
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    if all(extent > pad + step - 1 for extent, pad, step in zip(extents, pads, strides, strict=True)):
        return y
    reach = t.op("Add", [t.op("Shape", [x], start=2), t.ints([p + s - 1 for p, s in zip(pads, strides, strict=True)])])
    ends = t.op("Div", [reach, t.ints(strides)])
    axes = t.ints(tuple(range(2, 2 + len(kernel))))
    part: ir.Value = t.op("Slice", [y, t.ints((0,) * len(kernel)), ends, axes], dtype=y.dtype)
    return part


# The mean of each window ----------------------------------------------------------------------------------------------


@op("AvgPool")
def avg_pool(
    t: MindirTape,
    x: ir.Value,
    kernel_size: Any = 1,
    strides: Any = 1,
    pad_mode: Any = "valid",
    data_format: Any = "NCHW",
    *,
    format: Any = None,
) -> Any:
    require_channels_first(t, data_format if format is None else format)
    kernel = last(t, kernel_size, 2)
    return mean(t, x, kernel, convolution_geometry(t, kernel, pad_mode, None, strides), include=False)


@op("AvgPool3D")
def avg_pool3d(
    t: MindirTape,
    x: ir.Value,
    *,
    kernel_size: Any = 1,
    strides: Any = 1,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0, 0, 0),
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = 0,
    format: Any = "NCDHW",
) -> Any:
    require_channels_first(t, format)
    kernel = last(t, kernel_size, 3)
    geometry = convolution_geometry(t, kernel, pad_mode, pad_list, strides)
    return mean(t, x, kernel, geometry, ceil_mode, t.literal(count_include_pad), t.literal(divisor_override))


@op("AvgPool1D")
def avg_pool1d_ext(
    t: MindirTape,
    input: ir.Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
) -> Any:
    return _mean_ext(t, 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@op("AvgPool2D")
def avg_pool2d_ext(
    t: MindirTape,
    input: ir.Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Any:
    return _mean_ext(t, 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("AvgPool3DExt")
def avg_pool3d_ext(
    t: MindirTape,
    input: ir.Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Any:
    return _mean_ext(t, 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _mean_ext(
    t: MindirTape,
    axes: int,
    x: ir.Value,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    include: Any,
    divisor: Any,
) -> ir.Value:
    kernel = last(t, kernel_size, axes)
    pairs = [pad for size in last(t, padding, axes) for pad in (size, size)]
    strides = kernel if stride is None or t.literal(stride) == () else stride
    geometry = convolution_geometry(t, kernel, "pad", pairs, strides)
    batched = t.rank(x) == axes + 2
    x = x if batched else t.op("Unsqueeze", [x, t.ints(0)], dtype=x.dtype)
    y = mean(t, x, kernel, geometry, ceil_mode, t.literal(include), t.literal(divisor) or 0)
    return y if batched else t.op("Squeeze", [y, t.ints(0)])


def mean(
    t: MindirTape,
    x: ir.Value,
    kernel: Sequence[int],
    geometry: dict[str, Any],
    ceil_mode: Any = False,
    include: bool = False,
    divisor: int = 0,
) -> ir.Value:
    """Means of windows; what lies outside counts when `include`, and a `divisor` that is not 0 replaces the count."""
    ceil = bool(t.literal(ceil_mode))
    window = {name: value for name, value in geometry.items() if name != "dilations"}
    if not divisor and not (include and ceil and any(window.get("pads", ()))):
        return through(
            t, "AveragePool", [x], kernel_shape=kernel, ceil_mode=int(ceil), count_include_pad=int(include), **window
        )
    if "auto_pad" in window:
        t.refuse("a divisor with pad mode `same` is not supported")
    # Zeros written out. For a divisor, also those that windows at the end reach, so that every count is the same.
    axes, pads = len(kernel), window["pads"]
    reach = [step - 1 if ceil and divisor else 0 for step in window["strides"]]
    amounts = t.ints((*pads[:axes], *(pad + more for pad, more in zip(pads[axes:], reach, strict=True))))
    padded = pad_planes(t, x, amounts, axes)
    y = through(
        t, "AveragePool", [padded], kernel_shape=kernel, strides=window["strides"], ceil_mode=int(ceil and not divisor)
    )
    y = _within(t, y, x, kernel, geometry) if ceil else y
    return t.op("Mul", [y, t.constant(math.prod(kernel) / divisor, t.dtype(x))], dtype=x.dtype) if divisor else y


# Back -----------------------------------------------------------------------------------------------------------------


@op("MaxUnpool2D", "MaxUnpool3D")
def max_unpool(
    t: MindirTape,
    x: ir.Value,
    argmax: ir.Value,
    *,
    ksize: Any,
    strides: Any = 0,
    pads: Any = 0,
    output_shape: Any = (),
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    return _unpooled(t, x, argmax, ksize, strides, pads, t.literal(output_shape) or None)


@op("MaxUnpool2DExt")
def max_unpool2d_ext(
    t: MindirTape,
    input: ir.Value,
    indices: ir.Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Any:
    return _unpooled(t, input, indices, kernel_size, stride, padding, output_size)


def _unpooled(
    t: MindirTape, x: ir.Value, places: ir.Value, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> ir.Value:
    """Zeros, but for the operand's numbers at their places in each channel."""
    axes = t.rank(x) - 2
    kernel = last(t, kernel_size, axes)
    strides = last(t, stride, axes) if stride is not None and t.literal(stride) not in ((), 0) else kernel
    if output_size is None or t.literal(output_size) == ():
        steps = t.op("Mul", [t.op("Sub", [t.op("Shape", [x], start=-axes), t.ints(1)]), t.ints(strides)])
        pads = last(t, padding, axes)
        sizes = t.op("Add", [steps, t.ints([size - 2 * pad for size, pad in zip(kernel, pads, strict=True)])])
    else:
        sizes = t.ints(last(t, output_size, axes))
    outer = t.op("Shape", [x], end=-axes)
    flat = t.op("Concat", [outer, t.ints(-1)], axis=0)
    whole = t.op("Concat", [outer, t.op("ReduceProd", [sizes])], axis=0)
    zeros = t.op("Expand", [t.constant(0, t.dtype(x)), whole])
    spots = t.op("Reshape", [t.cast(places, ir.DataType.INT64), flat])
    filled = t.op("ScatterElements", [zeros, spots, t.op("Reshape", [x, flat])], axis=-1)
    made: ir.Value = t.op("Reshape", [filled, t.op("Concat", [outer, sizes], axis=0)])
    return made

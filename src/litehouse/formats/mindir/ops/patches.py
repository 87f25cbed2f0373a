"""Ops that cut images into patches and put them together, or move pixels between channels and places."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import (
    kernel_dtype,
    last,
    pad_mode_name,
    pad_planes,
    positions,
    same_pads,
    size_along,
)
from litehouse.formats.mindir.ops.layout import as_format, channels_first
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
REARRANGED = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8)


# Patches of windows ---------------------------------------------------------------------------------------------------


def cut_windows(
    t: MindirTape, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Any
) -> ir.Value:
    """(batch, channel, *places in a window, *windows), after padding with zeros: `pads` as ONNX orders them."""
    axes = range(2, 2 + len(kernel))
    if pads is not None:
        x = pad_planes(t, x, pads, len(kernel))
    y = x
    for axis, size, step, spread in reversed(list(zip(axes, kernel, strides, dilations, strict=True))):
        room = t.op("Sub", [size_along(t, x, axis), t.constant((size - 1) * spread + 1, INT64)])
        count = t.op("Add", [t.op("Div", [room, t.constant(step, INT64)]), t.constant(1, INT64)])
        starts = t.op("Mul", [positions(t, count), t.constant(step, INT64)])
        within = t.constant([[place * spread] for place in range(size)], INT64)
        y = t.op("Gather", [y, t.op("Add", [within, starts])], axis=axis)
    order = range(2, 2 + 2 * len(kernel))
    windows: ir.Value = t.op("Transpose", [y], perm=(0, 1, *order[::2], *order[1::2]), dtype=x.dtype)
    return windows


@op("Im2Col")
def im2col(
    t: MindirTape,
    x: ir.Value,
    *,
    ksizes: Any,
    strides: Any = 1,
    dilations: Any = 1,
    pads: Any = 0,
    padding_mode: Any = "CALCULATED",
) -> Any:
    if pad_mode_name(t, padding_mode) != "pad":
        t.refuse(f"padding mode {padding_mode!r} is not supported, only CALCULATED")
    return _unfolded(t, x, ksizes, dilations, pads, strides, t.ints((0, 0, -1)))


@op("Im2ColExt")
def im2col_ext(
    t: MindirTape, input: ir.Value, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    if t.rank(input) == 4:
        return _unfolded(t, input, kernel_size, dilation, padding, stride, t.ints((0, -1)))
    batch = t.op("Unsqueeze", [input, t.ints(0)], dtype=input.dtype)
    return t.op("Squeeze", [_unfolded(t, batch, kernel_size, dilation, padding, stride, t.ints((0, -1))), t.ints(0)])


def _unfolded(
    t: MindirTape, x: ir.Value, kernel: Any, dilation: Any, padding: Any, stride: Any, outer: ir.Value
) -> ir.Value:
    """All windows in one axis, after axes of the `outer` sizes."""
    sizes, (strides, dilations, pads) = last(t, kernel, 2), (last(t, each, 2) for each in (stride, dilation, padding))
    windows = cut_windows(t, x, sizes, strides, dilations, t.ints(pads * 2))
    count = t.op("ReduceProd", [t.op("Shape", [windows], start=4)], keepdims=1)
    unfolded: ir.Value = t.op("Reshape", [windows, t.op("Concat", [outer, count], axis=0)])
    return unfolded


@op("ExtractImagePatches")
def extract_image_patches(
    t: MindirTape, input_x: ir.Value, ksizes: Any, strides: Any, rates: Any, padding: Any = "VALID"
) -> Any:
    return _patches_as_channels(t, input_x, 2, ksizes, strides, rates, padding)


@op("ExtractVolumePatches")
def extract_volume_patches(t: MindirTape, input_x: ir.Value, *, kernel_size: Any, strides: Any, padding: Any) -> Any:
    return _patches_as_channels(t, input_x, 3, kernel_size, strides, 1, padding)


def _patches_as_channels(
    t: MindirTape, x: ir.Value, axes: int, kernel_size: Any, stride: Any, dilation: Any, padding: Any
) -> ir.Value:
    """A channel for each place in a window and channel of the operand, the latter running fastest."""
    kernel, strides, dilations = (last(t, each, axes) for each in (kernel_size, stride, dilation))
    pads = same_pads(t, x, kernel, strides, dilations) if pad_mode_name(t, padding) == "same" else None
    windows = cut_windows(t, x, kernel, strides, dilations, pads)
    inner = range(2, 2 + axes)
    turned = t.op("Transpose", [windows], perm=(0, *inner, 1, *range(2 + axes, 2 + 2 * axes)))
    shape = t.op("Concat", [t.ints((0, -1)), t.op("Shape", [windows], start=2 + axes)], axis=0)
    made: ir.Value = t.op("Reshape", [turned, shape])
    return made


@op("Col2Im")
def col2im(
    t: MindirTape,
    x: ir.Value,
    output_size: Any,
    *,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    columns = t.op("Concat", [t.ints((0, -1)), t.op("Shape", [x], start=3)], axis=0)
    flat = t.op("Reshape", [x, columns], dtype=x.dtype)
    return _folded(t, flat, output_size, kernel_size, dilation, padding, stride)


@op("Col2ImExt")
def col2im_ext(
    t: MindirTape,
    input: ir.Value,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    if t.rank(input) == 3:
        return _folded(t, input, output_size, kernel_size, dilation, padding, stride)
    batch = t.op("Unsqueeze", [input, t.ints(0)], dtype=input.dtype)
    return t.op("Squeeze", [_folded(t, batch, output_size, kernel_size, dilation, padding, stride), t.ints(0)])


def _folded(t: MindirTape, x: ir.Value, sizes: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> ir.Value:
    """Images from (batch, channels and places in a window, windows); what overlaps is added up."""
    dtype = kernel_dtype(t, "Col2Im", t.dtype(x))
    images = t.op(
        "Col2Im",
        [t.cast(x, dtype), t.ints(sizes), t.ints(last(t, kernel, 2))],
        dilations=last(t, dilation, 2),
        pads=last(t, padding, 2) * 2,
        strides=last(t, stride, 2),
        dtype=dtype,
    )
    return t.cast(images, t.dtype(x))


# Between channels and places ------------------------------------------------------------------------------------------


@op("DepthToSpace")
def depth_to_space(t: MindirTape, x: ir.Value, *, block_size: int, format: Any = "NCHW", mode: Any = "DCR") -> Any:
    images = channels_first(t, x, format)
    if (mode or "DCR") == "CRD":
        y = pixel_shuffle(t, images, block_size)
    elif t.dtype(x) in REARRANGED:
        y = t.op("DepthToSpace", [images], blocksize=block_size, mode="DCR", dtype=x.dtype)
    else:
        y = _blocks_to_places(t, images, block_size, (block_size, block_size, -1), (0, 3, 4, 1, 5, 2))
    return as_format(t, y, format)


@op("PixelShuffle")
def pixel_shuffle(t: MindirTape, input: ir.Value, upscale_factor: Any) -> Any:
    factor, rank = t.literal(upscale_factor), t.rank(input)
    if rank == 4 and t.dtype(input) in REARRANGED:
        return t.op("DepthToSpace", [input], blocksize=factor, mode="CRD")
    images = t.op("Reshape", [input, t.op("Concat", [t.ints(-1), t.op("Shape", [input], start=-3)], axis=0)])
    made = _blocks_to_places(t, images, factor, (-1, factor, factor), (0, 1, 4, 2, 5, 3))
    return t.op(
        "Reshape", [made, t.op("Concat", [t.op("Shape", [input], end=-3), t.op("Shape", [made], start=1)], axis=0)]
    )


def _blocks_to_places(
    t: MindirTape, x: ir.Value, block: int, channels: Sequence[int], order: Sequence[int]
) -> ir.Value:
    """(batch, channels, height, width) with the channels cut into parts, of which those of a block become places."""
    plane = t.op("Shape", [x], start=2)
    parts = t.op("Reshape", [x, t.op("Concat", [t.ints((0, *channels)), plane], axis=0)])
    shape = t.op("Concat", [t.ints((0, -1)), t.op("Mul", [plane, t.ints(block)])], axis=0)
    made: ir.Value = t.op("Reshape", [t.op("Transpose", [parts], perm=order), shape])
    return made


@op("SpaceToDepth")
def space_to_depth(t: MindirTape, x: ir.Value, *, block_size: int, format: Any = "NCHW") -> Any:
    return as_format(t, _space_to_depth(t, channels_first(t, x, format), block_size), format)


def _space_to_depth(t: MindirTape, x: ir.Value, block_size: int) -> ir.Value:
    made: ir.Value
    if t.dtype(x) in REARRANGED:
        made = t.op("SpaceToDepth", [x], blocksize=block_size, dtype=x.dtype)
        return made
    plane = t.op("Div", [t.op("Shape", [x], start=2), t.ints(block_size)])
    height, width = t.op("Split", [plane], num_outputs=2, outputs=2)
    block = t.ints(block_size)
    parts = t.op("Reshape", [x, t.op("Concat", [t.ints((0, 0)), height, block, width, block], axis=0)])
    turned = t.op("Transpose", [parts], perm=(0, 3, 5, 1, 2, 4))
    made = t.op("Reshape", [turned, t.op("Concat", [t.ints((0, -1)), plane], axis=0)], dtype=x.dtype)
    return made


@op("ChannelShuffle")
def channel_shuffle(t: MindirTape, x: ir.Value, *, group: int) -> Any:
    """Channels dealt out in turn from each group; the channels are the third axis from the end."""
    rank = t.rank(x)
    outer = t.op("Shape", [x], end=-3)
    parts = t.op("Concat", [outer, t.ints((group, -1)), t.op("Shape", [x], start=-2)], axis=0)
    order = list(range(rank + 1))
    order[rank - 3], order[rank - 2] = order[rank - 2], order[rank - 3]
    turned = t.op("Transpose", [t.op("Reshape", [x, parts])], perm=order)
    return t.op("Reshape", [turned, t.op("Shape", [x])])

"""Layouts of images and kernels. Converters compute channels first; files of MindSpore Lite may be channels last."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import CHANNELS_FIRST
from litehouse.formats.mindir.tape import MindirTape

CHANNELS_LAST = ("NHWC", "NDHWC", "NWC", 1)


def is_channels_last(t: MindirTape, format: Any) -> bool:
    """Whether a layout, given as text or as MindSpore Lite's number, has the channels as its last axis."""
    layout = t.literal(format)
    if layout not in CHANNELS_FIRST and layout not in CHANNELS_LAST:
        t.refuse(f"layout {layout!r} is not supported, only NCHW and NHWC")
    return layout in CHANNELS_LAST


def turned(t: MindirTape, x: ir.Value, order: Sequence[int]) -> ir.Value:
    """The value with its axes in another order, its sizes kept where they are known."""
    shape = None if x.shape is None else [x.shape[axis] for axis in order]
    made: ir.Value = t.op("Transpose", [x], perm=tuple(order), dtype=x.dtype, shape=shape)
    return made


def channels_first(t: MindirTape, x: ir.Value, format: Any) -> ir.Value:
    """An operand of the layout `format` with its channels as the second axis."""
    if not is_channels_last(t, format):
        return x
    rank = 4 if x.shape is None else x.shape.rank()
    return turned(t, x, (0, rank - 1, *range(1, rank - 1)))


def as_format(t: MindirTape, y: ir.Value, format: Any, like: ir.Value | None = None) -> ir.Value:
    """A channels-first result in the layout `format`: a batch of images, or of the rank of `like`."""
    if not is_channels_last(t, format):
        return y
    rank = 4 if like is None or like.shape is None else like.shape.rank()
    return turned(t, y, (0, *range(2, rank), 1))


def kernel_first(t: MindirTape, weight: ir.Value, format: Any) -> ir.Value:
    """A kernel with its two channel axes in front: NHWC graphs store [out, h, w, in]."""
    return channels_first(t, weight, format)


def channel_axis(t: MindirTape, rank: int, format: Any) -> int:
    """Which axis of a value of that rank the channels are."""
    return rank - 1 if is_channels_last(t, format) else min(1, rank - 1)

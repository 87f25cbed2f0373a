"""Images in other colours. Channels lie behind; bytes are computed in whole numbers that float32 holds exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, UINT8, INT32 = ir.DataType.FLOAT, ir.DataType.UINT8, ir.DataType.INT32
BITS = 14  # of the whole numbers that stand for fractions
HALF = 128  # what stands for no colour

# By mode: the source channels of the result's.
PICKED = {"RGBA2RGB": (0, 1, 2), "RGBA2BGR": (2, 1, 0), "RGB2BGR": (2, 1, 0), "BGR2RGB": (2, 1, 0)}
GREY_BYTES, GREY_FLOATS = (4899, 9617, 1868), (0.299, 0.587, 0.114)
GREY_ORDERS = {"RGB2GRAY": (0, 1, 2), "BGR2GRAY": (2, 1, 0), "RGBA2GRAY": (0, 1, 2)}
# By layout: whether U and V lie in planes of their own, and whether U comes first.
LAYOUTS = {"NV21": (False, False), "NV12": (False, True), "YV12": (True, False), "YU12": (True, True)}
# What red, green and blue have of U and of V.
JPEG = ((0, 88, 454), (359, 183, 0))
BT601 = ((0, -25, 128), (102, -52, 0))
BT601_START, BT601_SLOPE = -1160, 18997


@op("CvtColor")
def cvt_color(t: MgeTape, x: ir.Value, *, mode: str) -> Any:
    """Images of height x width x channels in other colours."""
    if t.rank(x) != 4 or t.dtype(x) not in (FLOAT, UINT8):
        t.refuse(f"images of rank {t.rank(x)} and dtype {t.dtype(x).name}")
    if mode == "GRAY2RGB":
        return t.op("Expand", [x, t.ints((1, 1, 1, 3))])
    if mode in GREY_ORDERS and (t.dtype(x) == UINT8 or mode != "RGBA2GRAY"):
        return _grey(t, x, GREY_ORDERS[mode])
    if mode in ("RGB2YUV", "YUV2RGB"):
        return _yuv(t, x, mode)
    if t.dtype(x) != UINT8:
        t.refuse(f"mode {mode} of float32, which MegEngine has for uint8 alone")
    if mode in PICKED:
        return t.op("Gather", [x, t.constant(PICKED[mode], INT32)], axis=3)
    return _from_planes(t, x, mode)


def _grey(t: MgeTape, x: ir.Value, order: Sequence[int]) -> ir.Value:
    """How bright the colours are; a fourth channel does not matter."""
    shares = np.zeros((t.sizes(x)[3], 1), np.float32)
    shares[list(order), 0] = GREY_FLOATS if t.dtype(x) == FLOAT else GREY_BYTES
    summed = _matrix(t, x, shares)
    return summed if t.dtype(x) == FLOAT else t.cast(_divided(t, summed), UINT8)


def _yuv(t: MgeTape, x: ir.Value, mode: str) -> ir.Value:
    """Between colours, and brightness with two differences: MegEngine takes the first colour for blue."""
    is_float = t.dtype(x) == FLOAT
    middle = 0.5 if is_float else HALF
    first, second, third = t.op("Split", [t.cast(x, FLOAT)], outputs=3, axis=3, num_outputs=3)
    if mode == "RGB2YUV":
        grey = (0.114, 0.587, 0.299) if is_float else (1868, 9617, 4899)
        bright = _matrix(t, x, np.array(grey, np.float32).reshape(3, 1))
        bright = bright if is_float else _divided(t, bright)
        differences = []
        for colour, factor in zip((first, third), (0.492, 0.877) if is_float else (8061, 14369), strict=True):
            scaled = t.op("Mul", [t.op("Sub", [colour, bright]), t.constant(factor, FLOAT)])
            scaled = scaled if is_float else _divided(t, scaled)
            differences.append(t.op("Add", [scaled, t.constant(middle, FLOAT)]))
        made = t.op("Concat", [bright, *differences], axis=3)
    else:
        centred = t.op("Sub", [t.op("Concat", [second, third], axis=3), t.constant(middle, FLOAT)])
        rows = ((2.032, -0.395, 0), (0, -0.581, 1.14)) if is_float else ((33292, -6472, 0), (0, -9519, 18678))
        colours = _matrix(t, centred, np.array(rows, np.float32))
        made = t.op("Add", [first, colours if is_float else _divided(t, colours)])
    result: ir.Value = made if is_float else _bytes(t, made)
    return result


def _from_planes(t: MgeTape, x: ir.Value, mode: str) -> ir.Value:
    """Images whose rows of brightness are followed by half as many rows of U and V, one of each for four pixels."""
    images, rows, width, channels = t.sizes(x)
    planar, u_first = LAYOUTS.get(mode[-4:], LAYOUTS["NV21"])  # also what MegEngine takes YCrCb for
    height = rows // 3 * 2
    if channels != 1 or rows % (6 if planar else 3) or width % 2:
        t.refuse(f"an image of {rows} rows, {width} columns and {channels} channels")
    bright: ir.Value = t.op("Slice", [x, t.ints(0), t.ints(height), t.ints(1)])
    if "GRAY" in mode:
        return bright
    chroma = t.op("Slice", [x, t.ints(height), t.ints(rows), t.ints(1)])
    if planar:
        planes = t.op("Reshape", [chroma, t.ints((images, 2, height // 2, width // 2))])
        chroma = t.op("Transpose", [planes], perm=[0, 2, 3, 1])
    # Each pair of U and V stands beside the two rows of two pixels that it belongs to.
    bright = t.op("Reshape", [bright, t.ints((images, height // 2, 2, width // 2, 2, 1))])
    chroma = t.op("Reshape", [t.cast(chroma, FLOAT), t.ints((images, height // 2, 1, width // 2, 1, 2))])
    chroma = t.op("Sub", [chroma, t.constant(HALF, FLOAT)])
    colours = (_bt601 if mode.startswith("BT601") else _jpeg)(t, bright, chroma, u_first, "BGR" in mode)
    return _bytes(t, t.op("Reshape", [colours, t.ints((images, height, width, 3))]))


def _jpeg(t: MgeTape, bright: ir.Value, chroma: ir.Value, u_first: bool, bgr: bool) -> ir.Value:
    """Brightness plus red and blue, less green, each cut to a whole number before."""
    parts = t.op("Floor", [_matrix(t, chroma, _ordered(JPEG, u_first, bgr) / 256)])
    signed = t.op("Mul", [parts, t.constant([1, -1, 1], FLOAT)])
    made: ir.Value = t.op("Add", [t.cast(bright, FLOAT), signed])
    return made


def _bt601(t: MgeTape, bright: ir.Value, chroma: ir.Value, u_first: bool, bgr: bool) -> ir.Value:
    """The sum of brightness and colours, in steps of 1/64, cut to a whole number."""
    table = (np.arange(256) * 0x0101 * BT601_SLOPE >> 16) + BT601_START
    bright = t.op("Gather", [t.constant(table, FLOAT), t.cast(bright, INT32)])
    summed = t.op("Add", [bright, _matrix(t, chroma, _ordered(BT601, u_first, bgr))])
    made: ir.Value = t.op("Floor", [t.op("Mul", [summed, t.constant(1 / 64, FLOAT)])])
    return made


def _ordered(rows: Sequence[Sequence[int]], u_first: bool, bgr: bool) -> np.ndarray:
    """The shares for channels in the order of the file, and colours in that of the result."""
    shares = np.array(rows, np.float32)
    return shares[:: 1 if u_first else -1, :: -1 if bgr else 1]


def _matrix(t: MgeTape, x: ir.Value, shares: np.ndarray) -> ir.Value:
    made: ir.Value = t.op("MatMul", [t.cast(x, FLOAT), t.constant(np.ascontiguousarray(shares))])
    return made


def _divided(t: MgeTape, x: ir.Value) -> ir.Value:
    """The whole numbers that stand for fractions, rounded."""
    raised = t.op("Add", [x, t.constant(1 << BITS - 1, FLOAT)])
    made: ir.Value = t.op("Floor", [t.op("Mul", [raised, t.constant(0.5**BITS, FLOAT)])])
    return made


def _bytes(t: MgeTape, x: ir.Value) -> ir.Value:
    return t.cast(t.op("Clip", [x, t.constant(0, FLOAT), t.constant(255, FLOAT)]), UINT8)

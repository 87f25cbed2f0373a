"""Images and volumes in other sizes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge import interpolation
from litehouse.formats.mge.interpolation import FIXED_BITS, Taps
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.sampling import on_stored_numbers, to_bytes
from litehouse.formats.mge.tape import MgeTape

FLOAT, FLOAT16, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64
INT8, UINT8 = ir.DataType.INT8, ir.DataType.UINT8
MODES = {"LINEAR": "linear", "NEAREST": "nearest", "CUBIC": "cubic"}
BLOCKS = {"NCHW4": 4, "NCHW44": 4, "NCHW88": 8}


@op("Resize", quantised=True)
def resize(t: MgeTape, x: ir.Value, size: ir.Value, *, imode: str, format: str) -> Any:
    """Images in another size."""
    return on_stored_numbers(t, x, lambda stored, kind: _resize(t, stored, size, imode, format, kind))


def _resize(t: MgeTape, x: ir.Value, size: ir.Value, imode: str, form: str, kind: ir.DataType) -> ir.Value:
    """Images of one format; `kind` is the dtype that MegEngine computes with, `x` may hold its numbers as floats."""
    if form in BLOCKS and imode in ("LINEAR", "NEAREST"):
        return _blocked(t, x, size, imode, BLOCKS[form], kind)
    if kind not in (FLOAT, FLOAT16, INT8, UINT8) or t.rank(x) != 4:
        t.refuse(f"images of dtype {kind.name} and rank {t.rank(x)}")
    if form == "NCHW" and imode in MODES:
        return _own(t, x, size, imode, 2, kind)
    if form != "NHWC":
        t.refuse(f"mode {imode} of format {form}")
    if t.sizes(x)[3] not in (1, 3):
        return _own(t, x, size, imode if imode == "NEAREST" else "LINEAR", 1, kind)
    if kind not in (FLOAT, UINT8) or x.dtype != kind:
        t.refuse(f"images of 1 or 3 channels behind and dtype {kind.name}, which MegEngine does not resize")
    return _opencv(t, x, size, imode, kind)


def _pairs(t: MgeTape, x: ir.Value, size: ir.Value, axis: int) -> list[tuple[int, int]]:
    """The sizes of rows and columns before and after; the rows are axis `axis`."""
    before, after = t.sizes(x)[axis : axis + 2], t.literal(t.ints(size))
    if len(after) != 2 or min(*before, *after) < 1:
        t.refuse(f"images of {before} pixels to {after}")
    return [(a, t.bounded(b)) for a, b in zip(before, after, strict=True)]


def _blocked(t: MgeTape, x: ir.Value, size: ir.Value, imode: str, block: int, kind: ir.DataType) -> ir.Value:
    """Images whose channels lie in blocks behind: each block's members are images of their own."""
    if t.rank(x) != 5 or t.sizes(x)[4] != block:
        t.refuse(f"images of shape {t.sizes(x)} in blocks of {block} channels")
    images, blocks, height, width, _ = t.sizes(x)
    x = t.op("Transpose", [x], perm=[0, 1, 4, 2, 3])
    x = t.op("Reshape", [x, t.constant([images, blocks * block, height, width], INT64)])
    x = _own(t, x, size, imode, 2, kind)
    split = t.op("Concat", [t.constant([images, blocks, block], INT64), t.ints(size)], axis=0)
    made: ir.Value = t.op("Transpose", [t.op("Reshape", [x, split])], perm=[0, 1, 3, 4, 2])
    return made


# MegEngine's own rules ------------------------------------------------------------------------------------------------


def _own(t: MgeTape, x: ir.Value, size: ir.Value, imode: str, axis: int, kind: ir.DataType) -> ir.Value:
    """An image whose rows are axis `axis`, the columns the one behind."""
    dtype = t.dtype(x)
    is_float = kind in (FLOAT, FLOAT16)
    if not t.is_known(size):
        if not is_float or axis != 2:
            t.refuse("a size that depends on the data, here")
        return t.cast(_engine(t, t.cast(x, FLOAT), t.ints(size), imode, axis), dtype)
    pairs = _pairs(t, x, size, axis)
    if imode == "NEAREST":
        tables = [interpolation.nearest(a, b) for a, b in pairs]
        exact = [np.arange(b) * a // b for a, b in pairs]
        if dtype == FLOAT and axis == 2 and all(map(np.array_equal, tables, exact)):
            return _engine(t, x, t.ints(size), imode, axis)
        return _picked(t, x, tables, axis)
    if not is_float:
        rule = interpolation.linear if imode == "LINEAR" else interpolation.cubic
        taps = [rule(a, b) for a, b in pairs]
        return t.cast(to_bytes(t, _weighted(t, t.cast(x, FLOAT), taps, axis), kind), dtype)
    x = t.cast(x, FLOAT)
    if imode == "LINEAR":
        return t.cast(_engine(t, x, t.ints(size), imode, axis), dtype)
    rows, columns = (interpolation.cubic(a, b).matrix(a) for a, b in pairs)
    x = t.op("MatMul", [t.op("MatMul", [t.constant(rows), x]), t.constant(columns.T)])
    return t.cast(x, dtype)


def _engine(t: MgeTape, x: ir.Value, size: ir.Value, imode: str, axis: int) -> ir.Value:
    """By the engine's own op."""
    attributes: dict[str, Any] = {"mode": MODES[imode], "coordinate_transformation_mode": "half_pixel"}
    if imode == "NEAREST":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if imode == "CUBIC":
        attributes["cubic_coeff_a"] = -0.75
    before = t.op("Shape", [x], start=0, end=axis)
    sizes = t.op("Concat", [before, size, *([t.op("Shape", [x], start=3)] if axis == 1 else [])], axis=0)
    made: ir.Value = t.op("Resize", [x, None, None, sizes], dtype=x.dtype, **attributes)
    if made.shape is None:
        made.shape = ir.Shape([None] * 4)
    return made


def _picked(t: MgeTape, x: ir.Value, tables: list[np.ndarray], axis: int) -> ir.Value:
    """The given rows and columns."""
    for place, table in enumerate(tables):
        if not np.array_equal(table, np.arange(t.sizes(x)[axis + place])):
            x = t.op("Gather", [x, t.constant(table)], axis=axis + place)
    return x


def _weighted(t: MgeTape, x: ir.Value, taps: list[Taps], axis: int) -> ir.Value:
    """The sum over taps of rows and columns, in MegEngine's order: its rounding decides which integer comes out."""
    terms = []
    for row in range(taps[0].count):
        part = _tap(t, x, taps[0], row, axis)
        terms += [_tap(t, part, taps[1], column, axis + 1) for column in range(taps[1].count)]
    return _summed(t, terms)


def _summed(t: MgeTape, terms: list[ir.Value]) -> ir.Value:
    """The sum of the terms, exact for integers, rounded after each term for floats."""
    if terms[0].dtype == INT32:  # an engine may reduce integers as floats
        return functools.reduce(lambda total, term: t.op("Add", [total, term], like=total), terms)
    # An engine may fuse a product and an Add to a more precise op.
    front = t.constant([0], INT64)
    stacked = t.op("Concat", [t.op("Unsqueeze", [term, front]) for term in terms], axis=0)
    total: ir.Value = t.op("ReduceSum", [stacked, front], keepdims=0)
    return total


def _tap(t: MgeTape, x: ir.Value, taps: Taps, tap: int, axis: int) -> ir.Value:
    """The pixels of one tap along an axis, times their weights."""
    picked = t.op("Gather", [x, t.constant(np.ascontiguousarray(taps.index[:, tap]))], axis=axis)
    weight = taps.weight[:, tap].reshape([-1] + [1] * (3 - axis))
    made: ir.Value = t.op("Mul", [picked, t.constant(weight, x.dtype)], like=picked)
    return made


# OpenCV's rules -------------------------------------------------------------------------------------------------------


def _opencv(t: MgeTape, x: ir.Value, size: ir.Value, imode: str, kind: ir.DataType) -> ir.Value:
    """Images with one or three channels behind."""
    pairs = _pairs(t, x, size, 1)
    if imode == "NEAREST":
        return _picked(t, x, [interpolation.nearest_opencv(a, b) for a, b in pairs], 1)
    if min(min(pair) for pair in pairs) < 2 and imode == "LINEAR":
        t.refuse("an image of one row or column, which MegEngine does not resize")
    if imode == "LINEAR" and kind == FLOAT:
        return _engine(t, x, t.ints(size), imode, 1)
    shrinks = all(1 / (b / a) >= 1 for a, b in pairs)
    if imode == "AREA" and shrinks:
        taps = [interpolation.area_down(a, b) for a, b in pairs]
    elif imode == "AREA":
        taps = [interpolation.area_up(a, b) for a, b in pairs]
    elif imode == "LINEAR":
        taps = [interpolation.linear_fixed(a, b) for a, b in pairs]
    else:
        taps = [interpolation.smooth_opencv(a, b, imode) for a, b in pairs]
    if kind == FLOAT:
        return _by_matrices(t, x, *(tap.matrix(a) for tap, (a, _) in zip(taps, pairs, strict=True)))
    if imode == "AREA" and shrinks:
        return _area_of_bytes(t, x, taps, pairs)
    return _fixed(t, x, taps, imode)


def _by_matrices(t: MgeTape, x: ir.Value, rows: np.ndarray, columns: np.ndarray) -> ir.Value:
    images, height, width, channels = t.sizes(x)
    x = t.op("Reshape", [x, t.constant([images, height, width * channels], INT64)])
    x = t.op("MatMul", [t.constant(rows), x])
    x = t.op("Reshape", [x, t.constant([images, len(rows), width, channels], INT64)])
    made: ir.Value = t.op("MatMul", [t.constant(columns), x])
    return made


def _along(t: MgeTape, x: ir.Value, taps: Taps, axis: int) -> ir.Value:
    """The sum over the taps of one axis."""
    return _summed(t, [_tap(t, x, taps, tap, axis) for tap in range(t.bounded(taps.count))])


def _area_of_bytes(t: MgeTape, x: ir.Value, taps: list[Taps], pairs: list[tuple[int, int]]) -> ir.Value:
    """Means over areas; whole pixels are summed as integers, and all but 2 x 2 of them are cut off, not rounded."""
    if not all(interpolation.is_whole(a, b) for a, b in pairs):
        means = _along(t, _along(t, t.cast(x, FLOAT), taps[1], 2), taps[0], 1)
        return t.cast(t.cast(means, INT32), UINT8)
    ones = [Taps(tap.index, np.ones_like(tap.weight)) for tap in taps]
    total = _along(t, _along(t, t.cast(x, FLOAT), ones[1], 2), ones[0], 1)
    across, down = (a // b for a, b in pairs)
    if (across, down) == (2, 2):
        total = t.op("Add", [total, t.constant(2, FLOAT)])
    means = t.op("Mul", [total, t.constant(np.float32(1) / np.float32(across * down))])
    return t.cast(t.cast(means, INT32), UINT8)


def _fixed(t: MgeTape, x: ir.Value, taps: list[Taps], imode: str) -> ir.Value:
    """With integer weights: across, then down."""
    rows, columns = taps if imode == "LINEAR" else [interpolation.fixed(tap) for tap in taps]
    x = _along(t, t.cast(x, INT32), columns, 2)
    if imode == "AREA":
        return t.cast(_area_down(t, x, rows), UINT8)
    total = _along(t, x, rows, 1)
    if imode != "LINEAR":
        total = t.op("Add", [total, t.constant(1 << (2 * FIXED_BITS - 1), INT32)])
    total = t.op("Div", [total, t.constant(1 << (2 * FIXED_BITS), INT32)])
    low, high = t.constant(0, INT32), t.constant(255, INT32)
    return t.cast(t.op("Min", [t.op("Max", [total, low]), high]), UINT8)


def _area_down(t: MgeTape, x: ir.Value, rows: Taps) -> ir.Value:
    """The second step of `area_up` on bytes, which drops bits on the way."""
    x = t.op("Div", [x, t.constant(16, INT32)])
    parts = [t.op("Div", [_tap(t, x, rows, tap, 1), t.constant(1 << 16, INT32)]) for tap in range(2)]
    total = t.op("Add", [t.op("Add", parts), t.constant(2, INT32)])
    made: ir.Value = t.op("Div", [total, t.constant(4, INT32)])
    return made


# Volumes --------------------------------------------------------------------------------------------------------------


@op("Resize3D")
def resize3d(
    t: MgeTape,
    x: ir.Value,
    size: ir.Value,
    *,
    imode: str,
    format: str,
    align_corners: bool,
) -> Any:
    """Volumes in another size."""
    if imode != "LINEAR" or format != "NCDHW" or t.rank(x) != 5:
        t.refuse(f"mode {imode} of format {format}, which MegEngine does not compute")
    dtype = t.dtype(x)
    sizes = t.op("Concat", [t.op("Shape", [x], start=0, end=2), t.ints(size)], axis=0)
    mode = "align_corners" if align_corners else "half_pixel"
    operands = [t.cast(x, FLOAT), None, None, sizes]
    result = t.op("Resize", operands, mode="linear", coordinate_transformation_mode=mode, dtype=FLOAT)
    if result.shape is None:
        result.shape = ir.Shape([None] * 5)
    return t.cast(result, dtype)

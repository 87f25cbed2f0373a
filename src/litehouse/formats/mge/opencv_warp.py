"""Warps of images with one to three channels behind, which MegEngine computes as OpenCV does.

A point is held in 1/32 of a pixel, so the weights of its neighbours come from a table; images of bytes have weights of
integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.interpolation import cubic_weights, lanczos_weights
from litehouse.formats.mge.sampling import (
    FLOAT,
    INT32,
    INT64,
    UINT8,
    Image,
    add_up,
    combine,
    counted,
    linear_weights,
    read,
)
from litehouse.formats.mge.tape import MgeTape

DOUBLE = ir.DataType.DOUBLE
TAPS = {"NEAREST": 1, "LINEAR": 2, "CUBIC": 4, "LANCZOS4": 8}
PARTS = 32  # of a pixel
AFFINE_PARTS = 1024
WEIGHT_BITS = 15
MIDDLE = 128  # of bytes
SHORT = np.iinfo(np.int16)

Points = tuple[ir.Value, ir.Value]


# Where pixels are read from: columns and rows, in parts of a pixel but for the nearest one ---------------------------


def affine_points(t: MgeTape, entries: Sequence[ir.Value], size: ir.Value, imode: str) -> Points:
    """The points of matrices of two rows, whose numbers are `entries`."""
    y, x = (t.cast(counted(t, size, axis), FLOAT) for axis in (0, 1))
    step = AFFINE_PARTS if imode == "NEAREST" else AFFINE_PARTS // PARTS
    points = []
    for a, b, c in (entries[:3], entries[3:]):
        fine = t.op("Add", [_rounded(t, [_product(t, a, x)]), _rounded(t, [_product(t, b, y), [c]])])
        points.append(_floor_division(t, t.op("Add", [fine, t.constant(step // 2, INT32)]), step))
    return points[0], points[1]


def _product(t: MgeTape, factor: ir.Value, number: ir.Value) -> list[ir.Value]:
    """Two floats whose sum is the exact product of a float and an integer up to 4096."""
    large = t.op("Mul", [factor, t.constant(4097, FLOAT)])
    high = t.op("Sub", [large, t.op("Sub", [large, factor])])  # the first 12 bits
    low = t.op("Sub", [factor, high])
    return [t.op("Mul", [high, number]), t.op("Mul", [low, number])]


def _rounded(t: MgeTape, terms: Sequence[Sequence[ir.Value]]) -> ir.Value:
    """The sum of floats, in parts of a pixel, rounded to the nearest integer, halves to the even one."""
    whole, rest = None, None
    for term in (term for group in terms for term in group):
        fine = t.op("Mul", [term, t.constant(AFFINE_PARTS, FLOAT)])
        near = t.op("Round", [fine])
        over = t.op("Sub", [fine, near])
        near = t.cast(near, INT32)
        whole = near if whole is None else t.op("Add", [whole, near])
        rest = over if rest is None else t.op("Add", [rest, over])
    assert whole is not None
    odd = t.op("Mod", [whole, t.constant(2, INT32)])
    rest = t.cast(t.op("Round", [t.op("Add", [rest, t.cast(odd, FLOAT)])]), INT32)
    made: ir.Value = t.op("Add", [whole, t.op("Sub", [rest, odd])])
    return made


def perspective_points(t: MgeTape, entries: Sequence[ir.Value], size: ir.Value, imode: str) -> Points:
    """The points of matrices of three rows."""
    entries = [t.cast(entry, DOUBLE) for entry in entries]
    y, x = (t.cast(counted(t, size, axis), DOUBLE) for axis in (0, 1))
    sums = []
    for a, b, c in (entries[:3], entries[3:6], entries[6:]):
        sums.append(t.op("Add", [t.op("Add", [t.op("Mul", [a, x]), t.op("Mul", [b, y])]), c]))
    parts = t.constant(1 if imode == "NEAREST" else PARTS, DOUBLE)
    zero = t.constant(0, DOUBLE)
    factor = t.op("Where", [t.op("Equal", [sums[2], zero]), zero, t.op("Div", [parts, sums[2]])])
    limits = [t.constant(limit, DOUBLE) for limit in (-(2**31), 2**31 - 1)]
    points = []
    for numerator in sums[:2]:
        point = t.op("Clip", [t.op("Mul", [numerator, factor]), *limits])
        points.append(t.cast(t.op("Round", [point]), INT32))
    return points[0], points[1]


def _floor_division(t: MgeTape, value: ir.Value, divisor: int) -> ir.Value:
    rest = t.op("Mod", [value, t.constant(divisor, INT32)])
    made: ir.Value = t.op("Div", [t.op("Sub", [value, rest]), t.constant(divisor, INT32)])
    return made


# What is read ---------------------------------------------------------------------------------------------------------


def sample(t: MgeTape, image: Image, batches: ir.Value, points: Points, imode: str, kind: ir.DataType) -> ir.Value:
    """The pixels at the points: channels x points, floats."""
    if imode not in TAPS:
        t.refuse(f"mode {imode}")
    taps = TAPS[imode]
    if kind == UINT8 and taps > 1:
        # Sums of weighted numbers about zero are exact in floats.
        centred = t.op("Sub", [image.x, t.constant(MIDDLE, FLOAT)])
        image = replace(image, x=centred, constant=image.constant - MIDDLE)
    firsts = []
    for point in points:
        first = point if taps == 1 else _floor_division(t, point, PARTS)
        low, high = (t.constant(limit, INT32) for limit in (SHORT.min, SHORT.max))
        firsts.append(t.op("Min", [t.op("Max", [first, low]), high]))
    pixels = read(t, image, batches, firsts[1], firsts[0], taps)
    if taps == 1:
        nearest: ir.Value = t.op("Squeeze", [pixels, t.constant([0], INT64)])
        return nearest
    columns, rows = (t.op("Mod", [point, t.constant(PARTS, INT32)]) for point in points)
    if imode == "LINEAR":  # all weights, and sums of weighted bytes, are exact
        parts = (t.op("Mul", [t.cast(part, FLOAT), t.constant(1 / PARTS, FLOAT)]) for part in (rows, columns))
        total = combine(t, pixels, *(linear_weights(t, part) for part in parts))
        return _to_bytes(t, total, 0) if kind == UINT8 else total
    if kind == UINT8:
        both = t.op("Add", [t.op("Mul", [rows, t.constant(PARTS, INT32)]), columns])
        both = t.op("Reshape", [both, t.constant([1, -1], INT64)])
        weights = t.op("Gather", [t.constant(integer_table(imode), FLOAT), both], axis=1)
        return _to_bytes(t, add_up(t, pixels, weights), WEIGHT_BITS)
    table = t.constant(np.ascontiguousarray(weight_table(imode).T))
    return combine(t, pixels, *(t.op("Gather", [table, part], axis=1) for part in (rows, columns)))


def _to_bytes(t: MgeTape, total: ir.Value, bits: int) -> ir.Value:
    """Sums of bytes less `MIDDLE`, by weights that add up to two to the power of `bits`, as whole numbers."""
    total = t.op("Add", [total, t.constant((MIDDLE + 0.5) * (1 << bits), FLOAT)])
    total = t.op("Floor", [t.op("Mul", [total, t.constant(1 / (1 << bits), FLOAT)])])
    made: ir.Value = t.op("Clip", [total, t.constant(0, FLOAT), t.constant(255, FLOAT)])
    return made


@cache
def weight_table(imode: str) -> np.ndarray:
    """The weights of the neighbours, for each part of a pixel."""
    part = np.arange(PARTS, dtype=np.float32) / np.float32(PARTS)
    return cubic_weights(part) if imode == "CUBIC" else lanczos_weights(part, coarse=False)


@cache
def integer_table(imode: str) -> np.ndarray:
    """The integer weights of rows x columns of neighbours by pairs of parts; those of a pair add up to 2**15."""
    weights = weight_table(imode)
    taps = weights.shape[1]
    products = weights[:, None, :, None] * weights[None, :, None, :]
    table = np.rint(products * np.float32(1 << WEIGHT_BITS)).astype(np.int64).clip(SHORT.min, SHORT.max)
    table = table.reshape(PARTS * PARTS, taps, taps)
    middle = slice(taps // 2, taps // 2 + 2)
    for one in table:
        excess = one.sum() - (1 << WEIGHT_BITS)
        part = one[middle, middle]
        place = part.argmax() if excess < 0 else part.argmin()
        part[np.unravel_index(place, part.shape)] -= excess
    return np.ascontiguousarray(table.reshape(-1, taps * taps).T)

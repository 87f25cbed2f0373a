"""Images that are bent: by matrices, or by a map of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.opencv_warp import affine_points, perspective_points, sample
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.sampling import (
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    LARGEST,
    UINT8,
    Image,
    as_image,
    combine,
    counted,
    linear_weights,
    matrix_entries,
    on_stored_numbers,
    read,
    to_bytes,
    write_image,
)
from litehouse.formats.mge.tape import MgeTape

FORMATS = ("NCHW", "NHWC")
NO_SHIFT = 5e-5  # of a pixel
KINDS = (FLOAT, FLOAT16, INT8, UINT8)


@dataclass(frozen=True, slots=True)
class Manner:
    """How to warp, in the names of the parameters."""

    imode: str
    border: str
    constant: float
    form: str


@op("WarpPerspective", quantised=True)
def warp_perspective(
    t: MgeTape,
    x: ir.Value,
    matrix: ir.Value,
    *operands: ir.Value,
    imode: str,
    bmode: str,
    format: str,
    border_val: float,
) -> Any:
    """Each pixel is read where its matrix maps it to: from its own image, or the one that `operands` says."""
    if len(operands) not in (1, 2) or t.output_dtype is not None:
        t.refuse(f"{2 + len(operands)} operands and a result of dtype {t.output_dtype}")
    chosen = operands[0] if len(operands) == 2 else None
    manner = Manner(imode, bmode, border_val, format)
    return on_stored_numbers(t, x, lambda y, kind: _warp(t, y, matrix, chosen, operands[-1], manner, kind))


@op("WarpAffine", quantised=True)
def warp_affine(
    t: MgeTape,
    x: ir.Value,
    matrix: ir.Value,
    size: ir.Value,
    *,
    imode: str,
    border_mode: str,
    border_val: float,
    format: str,
) -> Any:
    """Each pixel is read where the matrix of its image maps it to."""
    manner = Manner(imode, border_mode, border_val, format)
    return on_stored_numbers(t, x, lambda y, kind: _warp(t, y, matrix, None, size, manner, kind))


def _warp(
    t: MgeTape,
    x: ir.Value,
    matrix: ir.Value,
    chosen: ir.Value | None,
    size: ir.Value,
    manner: Manner,
    kind: ir.DataType,
) -> ir.Value:
    """Warp by matrices of two or three rows; `kind` is the dtype that MegEngine computes with."""
    form, constant = manner.form, manner.constant
    if form not in FORMATS or kind not in KINDS or t.rank(x) != 4:
        t.refuse(f"format {form}, dtype {kind.name}")
    size = t.ints(size)
    count, rows = _check(t, matrix, size, kind)
    matrix = t.cast(matrix, FLOAT)
    batches = t.constant(np.arange(t.bounded(count)), INT32) if chosen is None else t.cast(chosen, INT32)
    entries = matrix_entries(t, matrix)
    if form == "NHWC" and t.sizes(x)[3] in (1, 2, 3) and kind in (FLOAT, UINT8) and x.dtype == kind:
        image = as_image(t, x, form, manner.border, float(np.trunc(constant)) if kind == UINT8 else constant)
        points = (affine_points if rows == 2 else perspective_points)(t, entries, size, manner.imode)
        result = sample(t, image, batches, points, manner.imode, kind)
        return t.cast(write_image(t, result, count, size, form), kind)
    if manner.imode != "LINEAR":
        t.refuse(f"mode {manner.imode} of format {form} and dtype {kind.name}, which MegEngine does not compute")
    if chosen is None and kind == FLOAT and manner.border == "REPLICATE" and _is_scaling(t, x, matrix, size, form):
        return _scaled(t, x, size, form)
    image = as_image(t, x, form, manner.border, constant)
    across, down = _mapped(t, entries, size)
    result = _linear(t, image, batches, across, down, ordered=kind in (INT8, UINT8))
    if manner.border == "CONSTANT":
        finite = t.op("LessOrEqual", [t.op("Abs", [result]), t.constant(LARGEST, FLOAT)])
        result = t.op("Where", [finite, result, t.constant(constant, FLOAT)])
    return _finished(t, x, result, size, form, kind, count)


def _check(t: MgeTape, matrix: ir.Value, size: ir.Value, kind: ir.DataType) -> tuple[int, int]:
    """How many matrices there are, and of how many rows."""
    shape = t.sizes(matrix)
    if len(shape) != 3 or shape[1:] not in ((2, 3), (3, 3)) or t.sizes(size) != (2,):
        t.refuse(f"matrices of shape {shape} and a size of shape {t.sizes(size)}")
    wanted = FLOAT16 if kind == FLOAT16 and shape[1] == 2 else FLOAT
    if t.dtype(matrix) != wanted:
        t.refuse(f"images of dtype {kind.name} with matrices of dtype {t.dtype(matrix).name}, which MegEngine misreads")
    return shape[0], shape[1]


def _finished(
    t: MgeTape, x: ir.Value, result: ir.Value, size: ir.Value, form: str, kind: ir.DataType, count: int
) -> ir.Value:
    """Channels x points as images, in the dtype of the operand."""
    if kind in (INT8, UINT8):
        result = to_bytes(t, result, kind)
    return t.cast(write_image(t, result, count, size, form), t.dtype(x))


def _linear(
    t: MgeTape, image: Image, batches: ir.Value, across: ir.Value, down: ir.Value, *, ordered: bool
) -> ir.Value:
    """The four pixels around each point, by how near they are."""
    firsts, weights = [], []
    for position in (down, across):
        first = t.op("Floor", [position])
        firsts.append(t.cast(first, INT32))
        weights.append(linear_weights(t, t.op("Sub", [position, first])))
    rows, columns = firsts
    return combine(t, read(t, image, batches, rows, columns, 2), *weights, ordered=ordered)


def _mapped(t: MgeTape, entries: Sequence[ir.Value], size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Where each pixel of the result is read from: columns and rows, images x height x width."""
    y, x = (t.cast(counted(t, size, axis), FLOAT) for axis in (0, 1))
    sums = []
    for row in range(0, len(entries), 3):
        a, b, c = entries[row : row + 3]
        sums.append(t.op("Add", [t.op("Add", [t.op("Mul", [a, x]), t.op("Mul", [b, y])]), c]))
    if len(sums) == 3 and not all(_is(t, *pair) for pair in zip(entries[6:], (0, 0, 1), strict=True)):
        sums = [t.op("Div", [numerator, sums[2]]) for numerator in sums[:2]]
    return sums[0], sums[1]


def _is(t: MgeTape, value: ir.Value, number: float) -> bool:
    """Whether all elements of a value are known to be that number."""
    return t.is_known(value) and bool(np.all(np.array(t.literal(value)) == number))


# Matrices that only scale, as the aligned corners of an interpolation do ---------------------------------------------


def _is_scaling(t: MgeTape, x: ir.Value, matrix: ir.Value, size: ir.Value, form: str) -> bool:
    """Whether the matrices, all alike, map the corners of the result to those of the images."""
    if not t.is_known(matrix) or not t.is_known(size):
        return False
    values = np.array(t.literal(matrix), np.float64)
    source = t.sizes(x)[2:] if form == "NCHW" else t.sizes(x)[1:3]
    wanted = np.eye(values.shape[1], 3)
    reach = np.ones_like(wanted)  # how many pixels the last one is from the first
    for before, after, place in zip(source, t.literal(size), (1, 0), strict=True):
        if before == 1 or after == 1:
            return False
        wanted[place, place] = (before - 1) / (after - 1)
        reach[place, place] = after - 1
    return bool(np.all(np.abs(values - wanted) * reach <= NO_SHIFT))


def _scaled(t: MgeTape, x: ir.Value, size: ir.Value, form: str) -> ir.Value:
    before = [t.op("Shape", [x], start=0, end=2 if form == "NCHW" else 1)]
    behind = [] if form == "NCHW" else [t.op("Shape", [x], start=3)]
    sizes = t.op("Concat", [*before, size, *behind], axis=0)
    operands = [x, None, None, sizes]
    made: ir.Value = t.op(
        "Resize", operands, mode="linear", coordinate_transformation_mode="align_corners", dtype=FLOAT
    )
    return made


# Maps -----------------------------------------------------------------------------------------------------------------


@op("Remap")
def remap(
    t: MgeTape,
    x: ir.Value,
    places_map: ir.Value,
    *,
    imode: str,
    border_type: str,
    format: str,
    scalar: float,
) -> Any:
    """Each pixel is read where the map says: column, row."""
    kind = t.dtype(x)
    if format not in FORMATS or kind not in KINDS or imode not in ("LINEAR", "NEAREST"):
        t.refuse(f"mode {imode}, format {format}, dtype {kind.name}")
    if t.rank(x) != 4 or t.rank(places_map) != 4 or t.known_sizes(places_map)[3] != 2:
        t.refuse(f"images of rank {t.rank(x)} and a map of shape {t.known_sizes(places_map)}")
    if kind in (INT8, UINT8):
        limits = np.iinfo(kind.numpy())
        scalar = float(np.clip(np.trunc(scalar + np.copysign(0.5, scalar)), limits.min, limits.max))
    image = as_image(t, x, format, border_type, scalar)
    across, down = (t.op("Gather", [places_map, t.constant(place, INT64)], axis=3) for place in (0, 1))
    batches = t.constant(np.arange(t.bounded(image.images)), INT32)
    if imode == "LINEAR":
        result = _linear(t, image, batches, across, down, ordered=kind in (INT8, UINT8))
    else:
        rows, columns = (t.cast(t.op("Round", [position]), INT32) for position in (down, across))
        result = t.op("Squeeze", [read(t, image, batches, rows, columns, 1), t.constant([0], INT64)])
    size = t.op("Shape", [places_map], start=1, end=3)
    return _finished(t, x, result, size, format, kind, image.images)

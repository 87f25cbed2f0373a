"""Resizing of images, lines and volumes."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import kernel_dtype, matrix_along, positions, size_along, size_guard
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import MAX_COUNT

# Where a result's place lies in the operand: ONNX's words for the three rules, and MindSpore's numbers.
ASYMMETRIC, ALIGN_CORNERS, HALF_PIXEL = "asymmetric", "align_corners", "half_pixel"
RULES = {0: ASYMMETRIC, 1: ALIGN_CORNERS, 2: HALF_PIXEL}
SAFE_SIZE = 4096
TABLE_STEPS = 1024  # MindSpore's cubic weights come from a table with so many steps between two places


def _rule(t: MindirTape, align_corners: Any, half_pixel_centers: Any) -> str:
    if t.literal(align_corners):
        return ALIGN_CORNERS
    return HALF_PIXEL if t.literal(half_pixel_centers) else ASYMMETRIC


def resized(t: MindirTape, x: ir.Value, sizes: Any, scales: Any, **attributes: Any) -> ir.Value:
    """A Resize node over all axes but batch and channel, to sizes or by scales.

    It speaks of all axes: where it names some, behind a Transpose, ONNX Runtime 1.31 mixes them up.
    """
    dtype = kernel_dtype(t, "Resize", t.dtype(x))
    factors = wanted = None
    if sizes is not None:
        wanted = t.op("Concat", [t.op("Shape", [x], end=2), t.ints(sizes)], axis=0)
    elif t.is_literal(scales):
        factors = t.constant((1, 1, *t.literal(scales)), ir.DataType.FLOAT)
    else:
        ones = t.constant((1, 1), ir.DataType.FLOAT)
        factors = t.op("Concat", [ones, t.tensor(scales, ir.DataType.FLOAT)], axis=0)
    made = t.op("Resize", [t.cast(x, dtype), None, factors, wanted], dtype=dtype, **attributes)
    return t.cast(made, t.dtype(x))


def _source(t: MindirTape, size: ir.Value, count: ir.Value, rule: str, scale: float | None = None) -> ir.Value:
    """For each of `count` places of the result, its place along an axis of this size; in float32, as MindSpore does."""
    floats = ir.DataType.FLOAT
    place, before, after = (t.cast(value, floats) for value in (positions(t, count), size, count))
    one, half = t.constant(1, floats), t.constant(0.5, floats)
    if rule == ALIGN_CORNERS:
        before, after = t.op("Sub", [before, one]), t.op("Max", [t.op("Sub", [after, one]), one])
    step = t.op("Div", [before, after]) if scale is None else t.constant(np.float32(1) / np.float32(scale), floats)
    if rule == HALF_PIXEL:
        place = t.op("Add", [place, half])
    source: ir.Value = t.op("Mul", [place, step], dtype=floats)
    return source


# Nearest --------------------------------------------------------------------------------------------------------------


@op("ResizeNearestNeighbor", "ResizeNearestNeighborV2")
def resize_nearest(
    t: MindirTape, image: ir.Value, size: Any, align_corners: Any = False, half_pixel_centers: Any = False
) -> Any:
    return nearest(t, image, size, None, _rule(t, align_corners, half_pixel_centers))


@op("UpsampleNearest1D", "UpsampleNearest2D", "UpsampleNearest3D")
def upsample_nearest(t: MindirTape, x: ir.Value, output_size: Any = None, scales: Any = None) -> Any:
    return nearest(t, x, output_size, scales, ASYMMETRIC)


def nearest(t: MindirTape, x: ir.Value, sizes: Any, scales: Any, rule: str) -> ir.Value:
    """Nearest places, which a Resize node of an engine finds for whole factors alone.

    For others it rounds another way than MindSpore where a place falls on the edge between two (14 to 4, 20 to 12).
    """
    if t.dtype(x).is_floating_point() and _is_repetition(t, x, sizes, scales, rule):
        asymmetric: dict[str, Any] = {"coordinate_transformation_mode": ASYMMETRIC, "nearest_mode": "floor"}
        if sizes is not None:
            sizes = t.op("Add", [t.ints(sizes), size_guard(t, x, range(2, t.rank(x)))], dtype=ir.DataType.INT64)
            sizes.shape = ir.Shape([t.rank(x) - 2])
        return resized(t, x, sizes, scales, mode="nearest", **asymmetric)
    factors = t.literal(scales)
    y = x
    for index, axis in enumerate(range(2, t.rank(x))):
        size = size_along(t, x, axis)
        if sizes is None:
            scale = factors[index]
            reach = t.op("Mul", [t.cast(size, ir.DataType.FLOAT), t.constant(scale, ir.DataType.FLOAT)])
            count = t.cast(t.op("Floor", [reach]), ir.DataType.INT64)
        else:
            scale, count = None, t.op("Gather", [t.ints(sizes), t.constant(index, ir.DataType.INT64)])
            count.dtype = ir.DataType.INT64
        y = t.op("Gather", [y, _nearest_places(t, size, count, rule, scale)], axis=axis)
    return y


def _nearest_places(t: MindirTape, size: ir.Value, count: ir.Value, rule: str, scale: float | None) -> ir.Value:
    source = _source(t, size, count, rule, scale)
    if rule == ALIGN_CORNERS:
        source = t.op("Add", [source, t.constant(0.5, ir.DataType.FLOAT)])
    whole = t.op("Cast", [t.op("Floor", [source])], to=int(ir.DataType.INT64))
    places: ir.Value = t.op("Min", [whole, t.op("Sub", [size, t.constant(1, ir.DataType.INT64)])])
    return places


def _is_repetition(t: MindirTape, x: ir.Value, sizes: Any, scales: Any, rule: str) -> bool:
    """Whether every place is repeated a whole number of times, in MindSpore's own arithmetic too."""
    axes = range(2, t.rank(x))
    if sizes is None:
        factors = [float(scale) for scale in t.literal(scales)]
        return all(
            _repeats(SAFE_SIZE, SAFE_SIZE * int(factor), rule) for factor in factors if factor.is_integer()
        ) and (all(factor.is_integer() for factor in factors))
    before = [x.shape[axis] if x.shape is not None else None for axis in axes]
    after = t.literal(sizes) if t.is_literal(sizes) else ()
    after = after if isinstance(after, tuple) else (after,)
    known = all(isinstance(size, int) for size in before) and len(after) == len(before)
    return known and all(_repeats(old, new, rule) for old, new in zip(before, after, strict=True))


def _repeats(size: Any, count: int, rule: str) -> bool:
    if count > MAX_COUNT or count % size:
        return False
    place, step = np.arange(count, dtype=np.float32), np.float32(size) / np.float32(count)
    if rule == ALIGN_CORNERS:
        found = place * (np.float32(size - 1) / np.float32(max(count - 1, 1))) + np.float32(0.5)
    else:
        found = (place + np.float32(0.5 if rule == HALF_PIXEL else 0)) * step
    return np.array_equal(np.minimum(np.floor(found), size - 1), np.arange(count) // (count // size))


# Linear ---------------------------------------------------------------------------------------------------------------


@op("ResizeBilinearV2", "ResizeBilinear")
def resize_bilinear(
    t: MindirTape, image: ir.Value, size: Any, align_corners: Any = False, half_pixel_centers: Any = False
) -> Any:
    (x,) = t.promote(image)
    return _linear(t, x, size, None, _rule(t, align_corners, half_pixel_centers))


@op("ResizeLinear1D")
def resize_linear(t: MindirTape, x: ir.Value, size: Any, coordinate_transformation_mode: Any = ALIGN_CORNERS) -> Any:
    rule = t.literal(coordinate_transformation_mode)
    rule = RULES.get(rule, rule)
    if rule not in RULES.values():
        t.refuse(f"coordinate transformation {rule!r} is not supported")
    return _linear(t, x, size, None, rule)


@op("UpsampleLinear1D", "UpsampleBilinear2D", "UpsampleTrilinear3D")
def upsample_linear(
    t: MindirTape, x: ir.Value, output_size: Any = None, scales: Any = None, align_corners: Any = False
) -> Any:
    return _linear(t, x, output_size, scales, _rule(t, align_corners, True))


def _linear(t: MindirTape, x: ir.Value, sizes: Any, scales: Any, rule: str) -> ir.Value:
    return resized(t, x, sizes, scales, mode="linear", coordinate_transformation_mode=rule)


# Cubic ----------------------------------------------------------------------------------------------------------------


@op("UpsampleBicubic2D")
def upsample_bicubic(
    t: MindirTape, x: ir.Value, output_size: Any = None, scales: Any = None, align_corners: Any = False
) -> Any:
    rule = _rule(t, align_corners, True)
    return resized(t, x, output_size, scales, mode="cubic", coordinate_transformation_mode=rule, cubic_coeff_a=-0.75)


@op("ResizeBicubic")
def resize_bicubic(
    t: MindirTape, image: ir.Value, size: Any, align_corners: Any = False, half_pixel_centers: Any = False
) -> Any:
    rule, wanted = _rule(t, align_corners, half_pixel_centers), t.ints(size)
    y = t.cast(image, ir.DataType.FLOAT)
    for index, axis in enumerate((2, 3)):
        count = t.op("Gather", [wanted, t.constant(index, ir.DataType.INT64)], dtype=ir.DataType.INT64)
        places, weights = _cubic_taps(t, size_along(t, image, axis), count, rule)
        four = t.op("Gather", [y, places], axis=axis)
        weights = t.op("Unsqueeze", [weights, t.ints(2)]) if axis == 2 else weights
        y = t.op("ReduceSum", [t.op("Mul", [four, weights]), t.ints(axis + 1)], keepdims=0, dtype=ir.DataType.FLOAT)
    return t.cast(y, t.result_dtype())


def _cubic_taps(t: MindirTape, size: ir.Value, count: ir.Value, rule: str) -> tuple[ir.Value, ir.Value]:
    """For each place of the result the four places that it draws from, and their weights."""
    floats = ir.DataType.FLOAT
    half, table, taps = (t.constant(each, floats) for each in (0.5, TABLE_STEPS, [[-1, 0, 1, 2]]))
    source = _source(t, size, count, rule)
    if rule == HALF_PIXEL:
        source = t.op("Sub", [source, half])
    source = t.op("Unsqueeze", [source, t.ints(1)])
    floor = t.op("Floor", [source])
    steps = t.op("Round", [t.op("Mul", [t.op("Sub", [source, floor]), table])])
    past = t.op("Div", [steps, table])
    weights = _cubic_weights(t, t.op("Abs", [t.op("Sub", [past, taps])]), -0.5 if rule == HALF_PIXEL else -0.75)
    places = t.op("Cast", [t.op("Add", [floor, taps])], to=int(ir.DataType.INT64), dtype=ir.DataType.INT64)
    last_place = t.op("Sub", [size, t.constant(1, ir.DataType.INT64)])
    inside = t.op("Max", [t.op("Min", [places, last_place]), t.constant(0, ir.DataType.INT64)])
    if rule == HALF_PIXEL:  # what lies outside has no weight
        weights = t.op("Mul", [weights, t.op("Cast", [t.op("Equal", [places, inside])], to=int(floats))])
        weights = t.op("Div", [weights, t.op("ReduceSum", [weights, t.ints(1)], keepdims=1)])
    return inside, weights


def _cubic_weights(t: MindirTape, distance: ir.Value, a: float) -> ir.Value:
    """The cubic kernel at distances of 0 to 2."""

    def polynomial(*factors: float) -> ir.Value:
        value: ir.Value = t.constant(factors[0], ir.DataType.FLOAT)
        for factor in factors[1:]:
            value = t.op("Add", [t.op("Mul", [value, distance]), t.constant(factor, ir.DataType.FLOAT)])
        return value

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    weights: ir.Value = t.op("Where", [t.op("Less", [distance, t.constant(1, ir.DataType.FLOAT)]), near, far])
    return weights


# Area -----------------------------------------------------------------------------------------------------------------


@op("ResizeArea")
def resize_area(t: MindirTape, images: ir.Value, size: Any, *, align_corners: bool = False) -> Any:
    """Means over areas of (batch, height, width, channel), parts of pixels counted in part."""
    if align_corners:
        t.refuse("align_corners is not supported")
    wanted, y = t.ints(size), t.cast(images, ir.DataType.FLOAT)
    y = t.op("Transpose", [y], perm=(0, 3, 1, 2), dtype=ir.DataType.FLOAT)
    y.shape = images.shape  # for its rank
    for index, axis in enumerate((-2, -1)):
        count = t.op("Gather", [wanted, t.constant(index, ir.DataType.INT64)], dtype=ir.DataType.INT64)
        y = matrix_along(t, y, axis, _area_shares(t, size_along(t, images, index + 1), count))
    return t.op("Transpose", [y], perm=(0, 2, 3, 1))


def _area_shares(t: MindirTape, size: ir.Value, count: ir.Value) -> ir.Value:
    """A row per place of the result, with the share that each place of the operand has in it."""
    floats = ir.DataType.FLOAT
    step = t.op("Div", [t.cast(size, floats), t.cast(count, floats)])
    starts = t.op("Unsqueeze", [t.op("Mul", [t.cast(positions(t, count), floats), step]), t.ints(1)])
    place = t.cast(positions(t, size), floats)
    end = t.op("Min", [t.op("Add", [place, t.constant(1, floats)]), t.op("Add", [starts, step])])
    overlap = t.op("Sub", [end, t.op("Max", [place, starts])])
    shares: ir.Value = t.op("Div", [t.op("Relu", [overlap]), step])
    return shares

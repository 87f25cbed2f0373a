"""Sampling of images at computed places."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import last, positions, require_channels_first, size_along
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INTERPOLATIONS = {0: "linear", 1: "nearest", "bilinear": "linear", "nearest": "nearest"}
PADDINGS = {0: "zeros", 1: "border", 2: "reflection", "zeros": "zeros", "border": "border", "reflection": "reflection"}
CROP_METHODS = {0: "bilinear", 1: "nearest"}  # as converted files say it
FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _columns(t: MindirTape, table: ir.Value, *columns: int) -> list[ir.Value]:
    """Columns of a table, each kept as a table of one column."""
    return [t.op("Gather", [table, t.ints(column)], axis=1, dtype=table.dtype) for column in columns]


# Grids ----------------------------------------------------------------------------------------------------------------


@op("GridSampler2D", "GridSampler3D")
def grid_sampler(
    t: MindirTape,
    input_x: ir.Value,
    grid: ir.Value,
    interpolation_mode: Any = "bilinear",
    padding_mode: Any = "zeros",
    align_corners: Any = False,
) -> Any:
    mode, padding = t.literal(interpolation_mode), t.literal(padding_mode)
    if mode not in INTERPOLATIONS or padding not in PADDINGS:
        t.refuse(f"interpolation {mode!r} with padding {padding!r} is not supported")
    dtype = ir.DataType.DOUBLE if t.dtype(input_x) == ir.DataType.DOUBLE else FLOAT
    x, places, align = t.cast(input_x, dtype), t.cast(grid, dtype), bool(t.literal(align_corners))
    if INTERPOLATIONS[mode] == "nearest":
        places = _rounded(t, places, t.op("Shape", [input_x], start=2), align, PADDINGS[padding] == "reflection")
    attributes: dict[str, Any] = {
        "mode": INTERPOLATIONS[mode],
        "padding_mode": PADDINGS[padding],
        "align_corners": int(align),
    }
    return t.cast(t.op("GridSample", [x, places], dtype=dtype, **attributes), t.dtype(input_x))


def _rounded(t: MindirTape, grid: ir.Value, sizes: ir.Value, align: bool, reflect: bool) -> ir.Value:
    """The grid with its places on pixels: halfway between two, MindSpore rounds away from 0, engines to even."""
    dtype, axes = t.dtype(grid), t.rank(grid) - 2
    half, one, two = (t.constant(number, dtype) for number in (0.5, 1, 2))
    size = t.op("Cast", [t.op("Gather", [sizes, t.ints(tuple(reversed(range(axes))))])], to=int(dtype))
    reach = t.op("Max", [t.op("Sub", [size, one]), one]) if align else size
    shift = t.constant(0 if align else 1, dtype)
    # From -1 ... 1 to pixels, there to the nearest one, and back.
    doubled = t.op("Sub", [t.op("Mul", [t.op("Add", [grid, one]), reach]), shift])
    pixels = t.op("Div", [doubled, two], dtype=dtype)
    if reflect:
        pixels = _reflected(t, pixels, t.constant(0 if align else -0.5, dtype), reach)
    whole = t.op("Mul", [t.op("Sign", [pixels]), t.op("Floor", [t.op("Add", [t.op("Abs", [pixels]), half])])])
    back = t.op("Div", [t.op("Add", [t.op("Mul", [whole, two]), shift]), reach])
    rounded: ir.Value = t.op("Sub", [back, one], dtype=dtype)
    return rounded


def _reflected(t: MindirTape, places: ir.Value, start: ir.Value, length: ir.Value) -> ir.Value:
    """Places thrown back at both ends until they lie inside."""
    away = t.op("Abs", [t.op("Sub", [places, start])])
    turns = t.op("Floor", [t.op("Div", [away, length])])
    rest = t.op("Sub", [away, t.op("Mul", [turns, length])])
    halves = t.op("Mul", [turns, t.constant(0.5, t.dtype(places))])
    is_odd = t.op("Greater", [halves, t.op("Floor", [halves])])
    inside: ir.Value = t.op("Add", [t.op("Where", [is_odd, t.op("Sub", [length, rest]), rest]), start])
    return inside


@op("AffineGrid")
def affine_grid(t: MindirTape, theta: ir.Value, output_size: Any, *, align_corners: bool = False) -> Any:
    """For each place of a grid from -1 to 1: matrix times (x, y, ..., 1)."""
    dtype, sizes = t.dtype(theta), t.ints(output_size)
    axes = t.result_rank() - 2
    parts = t.op("Split", [theta], axis=2, num_outputs=axes + 1, outputs=axes + 1)  # per coordinate, then the offset
    shaped = [t.op("Reshape", [part, t.ints((0,) + (1,) * axes + (-1,))], dtype=dtype) for part in parts]
    total = shaped[-1]
    for index in range(axes):
        axis = axes - 1 - index  # x runs along the last axis
        count = t.op("Gather", [sizes, t.constant(2 + axis, INT64)], dtype=INT64)
        places = _unit_places(t, count, align_corners, dtype)
        line = t.op("Reshape", [places, t.ints((-1,) + (1,) * (axes - axis))])
        total = t.op("Add", [total, t.op("Mul", [shaped[index], line])], dtype=dtype)
    return total


def _unit_places(t: MindirTape, count: ir.Value, align_corners: bool, dtype: ir.DataType) -> ir.Value:
    """Places from -1 to 1: of the pixels' centres, or with `align_corners` so that the outermost ones are the ends."""
    index = t.cast(positions(t, count), FLOAT)
    if not align_corners:
        return t.cast(_unit(t, index, count), dtype)
    one, two = t.constant(1, FLOAT), t.constant(2, FLOAT)
    last_place = t.op("Sub", [t.cast(count, FLOAT), one])
    steps = t.op("Max", [last_place, one])  # a single place lies in the middle
    return t.cast(t.op("Div", [t.op("Sub", [t.op("Mul", [index, two]), last_place]), steps], dtype=FLOAT), dtype)


# Regions --------------------------------------------------------------------------------------------------------------


@op("CropAndResize")
def crop_and_resize(
    t: MindirTape,
    x: ir.Value,
    boxes: ir.Value,
    box_index: ir.Value,
    crop_size: Any,
    *,
    method: Any = "bilinear",
    extrapolation_value: float = 0.0,
) -> Any:
    """Crops of (batch, height, width, channel), given by corners (y1, x1, y2, x2) in units of the image."""
    method = CROP_METHODS.get(method, method)
    if method not in ("bilinear", "nearest"):
        t.refuse(f"the method {method!r} is not supported")
    images = t.op("Transpose", [t.cast(x, FLOAT)], perm=(0, 3, 1, 2))
    crops = t.op("Gather", [images, box_index], axis=0, dtype=FLOAT)
    height, width = (t.literal(crop_size)[index] for index in (0, 1))
    y1, x1, y2, x2 = _columns(t, t.cast(boxes, FLOAT), 0, 1, 2, 3)
    rows, rows_inside = _crop_places(t, y1, y2, size_along(t, x, 1), height, method)
    columns, columns_inside = _crop_places(t, x1, x2, size_along(t, x, 2), width, method)
    inside = t.op("And", [t.op("Unsqueeze", [rows_inside, t.ints(2)]), t.op("Unsqueeze", [columns_inside, t.ints(1)])])
    shape = t.op("Shape", [inside])
    down = t.op("Expand", [t.op("Unsqueeze", [rows, t.ints(2)]), shape])
    right = t.op("Expand", [t.op("Unsqueeze", [columns, t.ints(1)]), shape])
    grid = t.op("Concat", [t.op("Unsqueeze", [each, t.ints(3)]) for each in (right, down)], axis=3)
    mode = "linear" if method == "bilinear" else "nearest"
    sampled = t.op("GridSample", [crops, grid], mode=mode, padding_mode="border", align_corners=1)
    outside = t.constant(extrapolation_value, FLOAT)
    return t.op(
        "Where", [t.op("Unsqueeze", [inside, t.ints(3)]), t.op("Transpose", [sampled], perm=(0, 2, 3, 1)), outside]
    )


def _crop_places(
    t: MindirTape, start: ir.Value, end: ir.Value, size: ir.Value, count: int, method: str
) -> tuple[ir.Value, ir.Value]:
    """Places along one axis, from -1 to 1 over the image, for each box; and whether they lie inside the image."""
    last_place = t.op("Sub", [t.cast(size, FLOAT), t.constant(1, FLOAT)])
    if count > 1:
        step = t.op("Div", [t.op("Mul", [t.op("Sub", [end, start]), last_place]), t.constant(count - 1, FLOAT)])
        way = t.op("Mul", [t.constant([list(range(count))], FLOAT), step])
        places = t.op("Add", [t.op("Mul", [start, last_place]), way])
    else:
        places = t.op("Mul", [t.op("Mul", [t.op("Add", [start, end]), t.constant(0.5, FLOAT)]), last_place])
    zero, one, two = (t.constant(number, FLOAT) for number in (0, 1, 2))
    inside = t.op("And", [t.op("GreaterOrEqual", [places, zero]), t.op("LessOrEqual", [places, last_place])])
    if method == "nearest":
        places = t.op("Floor", [t.op("Add", [places, t.constant(0.5, FLOAT)])])
    unit = t.op("Div", [t.op("Mul", [places, two]), t.op("Max", [last_place, one])])
    return t.op("Sub", [unit, one]), inside


@op("ROIAlign")
def roi_align(
    t: MindirTape,
    features: ir.Value,
    rois: ir.Value,
    *,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sample_num: int = 2,
    roi_end_mode: int = 1,
) -> Any:
    """Means of samples in the bins of regions (image, x1, y1, x2, y2)."""
    x, table = t.cast(features, FLOAT), t.cast(rois, FLOAT)
    image = t.op("Cast", [t.op("Squeeze", [*_columns(t, table, 0), t.ints(1)])], to=int(INT64))
    regions = t.op("Concat", _columns(t, table, 1, 2, 3, 4), axis=1)
    mode = "output_half_pixel"
    if roi_end_mode == 1:
        # The end counts as one more. ONNX's other mode keeps small regions small, but moves all by half a pixel.
        half = 0.5 / spatial_scale
        regions = t.op("Add", [regions, t.constant([[half, half, 1 + half, 1 + half]], FLOAT)])
        mode = "half_pixel"
    attributes: dict[str, Any] = {
        "output_height": pooled_height,
        "output_width": pooled_width,
        "sampling_ratio": sample_num,
    }
    made = t.op(
        "RoiAlign",
        [x, regions, image],
        spatial_scale=spatial_scale,
        coordinate_transformation_mode=mode,
        dtype=FLOAT,
        **attributes,
    )
    return t.cast(made, t.dtype(features))


# Deformable convolution -----------------------------------------------------------------------------------------------


@op("DeformableOffsets")
def deformable_offsets(
    t: MindirTape,
    x: ir.Value,
    offsets: ir.Value,
    *,
    strides: Any,
    pads: Any,
    ksize: Any,
    dilations: Any = (1, 1, 1, 1),
    deformable_groups: int = 1,
    format: Any = "NCHW",
) -> Any:
    """The windows of a convolution side by side, each of their places moved by an offset and weighted by a mask."""
    require_channels_first(t, format)
    kernel, steps, spread = last(t, ksize, 2), last(t, strides, 2), last(t, dilations, 2)
    batch, plane = t.op("Shape", [offsets], start=0, end=1), t.op("Shape", [offsets], start=2)
    groups, wide = t.op("Mul", [batch, t.ints(deformable_groups)]), t.op("Mul", [plane, t.ints(kernel)])
    parts = t.op("Concat", [batch, t.ints((3, deformable_groups, *kernel)), plane], axis=0)
    moves = t.op("Reshape", [t.cast(offsets, FLOAT), parts])
    moves = t.op("Transpose", [moves], perm=(0, 2, 1, 5, 3, 6, 4))  # a window's places next to each other
    moves = t.op("Reshape", [moves, t.op("Concat", [groups, t.ints(3), wide], axis=0)])
    right, down, mask = t.op("Split", [moves], axis=1, num_outputs=3, outputs=3)
    places = []
    for axis, move in ((1, right), (0, down)):
        count = t.op("Gather", [wide, t.constant(axis, INT64)], dtype=INT64)
        line = _window_places(t, count, kernel[axis], steps[axis], spread[axis], pads[2 * axis])
        line = line if axis else t.op("Unsqueeze", [line, t.ints(1)], dtype=FLOAT)
        places.append(_unit(t, t.op("Add", [move, line]), size_along(t, x, 2 + axis)))
    grid = t.op("Transpose", [t.op("Concat", places, axis=1)], perm=(0, 2, 3, 1))
    grouped = t.op("Concat", [groups, t.ints(-1), t.op("Shape", [x], start=2)], axis=0)
    images = t.op("Reshape", [t.cast(x, FLOAT), grouped])
    sampled = t.op("GridSample", [images, grid], mode="linear", padding_mode="zeros", align_corners=0)
    shape = t.op("Concat", [batch, t.ints(-1), wide], axis=0)
    return t.cast(t.op("Reshape", [t.op("Mul", [sampled, mask]), shape], dtype=FLOAT), t.dtype(x))


def _window_places(t: MindirTape, count: ir.Value, kernel: int, stride: int, dilation: int, pad: int) -> ir.Value:
    """The places that windows draw from, window after window, as floats."""
    index = positions(t, count)
    window, within = (t.op(each, [index, t.constant(kernel, INT64)]) for each in ("Div", "Mod"))
    start = t.op("Sub", [t.op("Mul", [window, t.constant(stride, INT64)]), t.constant(pad, INT64)])
    places = t.op("Add", [start, t.op("Mul", [within, t.constant(dilation, INT64)])], dtype=INT64)
    return t.cast(places, FLOAT)


def _unit(t: MindirTape, places: ir.Value, size: ir.Value) -> ir.Value:
    """Places counted in pixels as places from -1 to 1 over an axis of this size, pixels' corners at the ends."""
    centres = t.op("Add", [t.op("Mul", [places, t.constant(2, FLOAT)]), t.constant(1, FLOAT)])
    unit: ir.Value = t.op("Sub", [t.op("Div", [centres, t.cast(size, FLOAT)]), t.constant(1, FLOAT)], dtype=FLOAT)
    return unit

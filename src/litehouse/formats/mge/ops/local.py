"""Convolutions whose weights, or whose sums, differ from place to place."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.ops.convolution import flipped, geometry
from litehouse.formats.mge.ops.layouts import plain_weight
from litehouse.formats.mge.ops.patches import pair, windows
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

INT32 = ir.DataType.INT32


@op("Local")
def local(t: MgeTape, x: ir.Value, w: ir.Value, **params: Any) -> Any:
    """A convolution with weights of its own for each place: [rows, columns, in, height, width, out]."""
    return group_local(t, x, t.op("Unsqueeze", [w, t.ints(0)]), **params)


@op("GroupLocal")
def group_local(t: MgeTape, x: ir.Value, w: ir.Value, *, format: str, mode: str, **params: Any) -> Any:
    """The same, with groups of channels before all other axes."""
    require_planes(t, format)
    group, rows, columns, inner, height, width, outer = t.sizes(w)
    batch = t.sizes(x)[0]
    parts = _windows_of(t, x, [height, width], params)
    if t.sizes(parts)[2::2] != (rows, columns):
        t.refuse(f"weights for {rows} x {columns} places, where the result has {list(t.sizes(parts)[2::2])}")
    parts = t.op("Reshape", [parts, t.ints([batch, group, inner, rows, height, columns, width])])
    parts = t.op("Transpose", [parts], perm=[3, 5, 1, 0, 2, 4, 6])
    taps = inner * height * width
    parts = t.op("Reshape", [parts, t.ints([rows * columns, group, batch, taps])])
    weights = _flipped_at(t, w, mode, [4, 5])
    weights = t.op("Transpose", [weights], perm=[1, 2, 0, 3, 4, 5, 6])
    weights = t.op("Reshape", [weights, t.ints([rows * columns, group, taps, outer])])
    sums = t.op("Transpose", [t.op("MatMul", [parts, weights])], perm=[2, 1, 3, 0])
    return t.op("Reshape", [sums, t.ints([batch, group * outer, rows, columns])])


@op("LocalShare")
def local_share(
    t: MgeTape,
    x: ir.Value,
    w: ir.Value,
    *,
    format: str,
    mode: str,
    sparse: str,
    spatial_groups_h: int,
    spatial_groups_w: int,
    **params: Any,
) -> Any:
    """A convolution with weights of its own for each field of the result: [fields, in, height, width, out]."""
    require_planes(t, format)
    weights = w if sparse == "GROUP" else t.op("Unsqueeze", [w, t.ints(0)])
    group, down, across, inner, height, width, outer = t.sizes(weights)
    if (down, across) != (spatial_groups_h, spatial_groups_w):
        t.refuse(f"weights for {down} x {across} fields instead of {spatial_groups_h} x {spatial_groups_w}")
    weights = t.op("Transpose", [_flipped_at(t, weights, mode, [4, 5])], perm=[1, 2, 0, 6, 3, 4, 5])
    weights = t.op("Reshape", [weights, t.ints([down * across, group * outer, inner, height, width])])
    if [params["dilate_h"], params["dilate_w"]] != [1, 1]:
        t.refuse("a dilation is not supported")
    (pad_h, pad_w), strides = pair(params, "pad"), pair(params, "stride")
    padded = t.op("Pad", [x, t.ints([0, 0, pad_h, pad_w, 0, 0, pad_h, pad_w])])
    rows = _fields(t, t.sizes(padded)[2], height, strides[0], down)
    columns = _fields(t, t.sizes(padded)[3], width, strides[1], across)
    lines = []
    for i, (top, bottom) in enumerate(rows):
        line = []
        for j, (left, right) in enumerate(columns):
            part = t.op("Slice", [padded, t.ints([top, left]), t.ints([bottom, right]), t.ints([2, 3])])
            own = t.op("Slice", [weights, t.ints(i * across + j), t.ints(i * across + j + 1), t.ints(0)])
            own = t.op("Reshape", [own, t.ints([group * outer, inner, height, width])])
            line.append(t.op("Conv", [part, own], group=group, strides=strides))
        lines.append(t.op("Concat", line, axis=3))
    return t.op("Concat", lines, axis=2)


def _fields(t: MgeTape, size: int, window: int, stride: int, count: int) -> list[tuple[int, int]]:
    """Where the numbers begin and end that the fields of a result are computed from, along one axis."""
    places = (size - window) // stride + 1 if stride else 0
    if places < 1 or not count or places % t.bounded(count):
        t.refuse(f"a result of {places} places in {count} fields")
    each = places // count
    return [(k * each * stride, ((k + 1) * each - 1) * stride + window) for k in range(count)]


@op("RegionRestrictedConvolution")
def region_restricted_convolution(
    t: MgeTape, x: ir.Value, w: ir.Value, regions_in: ir.Value, regions_out: ir.Value, *, format: str, **params: Any
) -> Any:
    """A convolution that takes only numbers of the region that the place of the result belongs to."""
    require_planes(t, format)
    weight, group = plain_weight(t, w, format, params["sparse"])
    outer, inner, height, width = t.sizes(weight)
    taken = _windows_of(t, x, [height, width], params)
    batch, channels, rows, _, columns, _ = t.sizes(taken)
    regions = t.op("Unsqueeze", [t.cast(regions_in, INT32), t.ints(1)])
    regions = _windows_of(t, regions, [height, width], params)
    own = t.op("Reshape", [t.cast(regions_out, INT32), t.ints([batch, 1, rows, 1, columns, 1])])
    taken = t.op("Mul", [taken, t.cast(t.op("Equal", [regions, own]), t.dtype(taken))])
    taken = t.op("Transpose", [taken], perm=[0, 1, 3, 5, 2, 4])
    taken = t.op("Reshape", [taken, t.ints([batch, channels * height * width, rows, columns])])
    kernel = t.op("Reshape", [flipped(t, weight, params["mode"]), t.ints([outer, inner * height * width, 1, 1])])
    return t.op("Conv", [taken, kernel], group=group)


@op("MaskConvolution")
def mask_convolution(t: MgeTape, x: ir.Value, w: ir.Value, mask: ir.Value, *, format: str, **params: Any) -> Any:
    """A convolution whose result is zero where the mask is."""
    require_planes(t, format)
    weight, group = plain_weight(t, w, format, params["sparse"])
    made = t.op("Conv", [x, flipped(t, weight, params["mode"])], group=group, **geometry(params, "hw"))
    kept = t.cast(mask, ir.DataType.BOOL)
    return t.op("Where", [kept, made, t.constant(0, t.dtype(made))], like=made)


@op("MaskPropagate")
def mask_propagate(t: MgeTape, mask: ir.Value, **params: int) -> Any:
    """One where a window holds a number that is not zero."""
    found = t.cast(t.cast(mask, ir.DataType.BOOL), ir.DataType.FLOAT)
    plane = t.op("Unsqueeze", [found, t.ints([0, 1])])
    window = pair(params, "kernel")
    if any(pad >= size for pad, size in zip(pair(params, "pad"), window, strict=True)):
        t.refuse(f"a padding of {pair(params, 'pad')} around windows of {window}")
    largest = t.op("MaxPool", [plane], kernel_shape=window, **geometry(params, "hw"))
    return t.cast(t.op("Squeeze", [largest, t.ints([0, 1])]), t.dtype(mask))


def require_planes(t: MgeTape, format: str) -> None:
    if format != "NCHW":
        t.refuse(f"format {format} is not supported")


def _windows_of(t: MgeTape, x: ir.Value, size: list[int], params: dict[str, int]) -> ir.Value:
    numbers = {
        name: pair(params, key) for name, key in (("strides", "stride"), ("dilations", "dilate"), ("pads", "pad"))
    }
    return windows(t, x, size, **numbers)


def _flipped_at(t: MgeTape, weight: ir.Value, mode: str, axes: list[int]) -> ir.Value:
    if mode == "CROSS_CORRELATION":
        return weight
    backwards = [t.ints([number] * len(axes)) for number in (-1, -(1 << 31))]
    made: ir.Value = t.op("Slice", [weight, *backwards, t.ints(axes), t.ints([-1] * len(axes))])
    return made

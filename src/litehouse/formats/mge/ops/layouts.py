"""Weights of other layouts than [out, in, height, width], and operators that change layouts."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.blocked import PLAIN, Layout, arranged, layout_of, plain
from litehouse.formats.mge.quantised import FLOAT, quantise, real
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

# How the axes of weights lie, by format: groups (g), output channels (O) and input channels (I), each with the place
# in its block in small letters; G and k are groups of one channel in blocks. The rank tells them apart.
_OF_BLOCKS = ("OIHWi", "gOIHWi")
_OF_SQUARES = ("OIHWio", "OHWIo", "gOIHWio", "GOIHWk")
WEIGHT_ORDERS = {
    "NCHW": ("OIHW", "gOIHW"),
    "NHWC": ("OHWI", "gOHWI"),
    "NHWCD4": ("OHWIo", "OHWIoi", "gOHWIo", "gOHWIoi", "GOHWk"),
    "NCHW4": _OF_BLOCKS,
    "NCHW8": _OF_BLOCKS,
    "NCHW32": _OF_BLOCKS,
    "NCHW64": _OF_BLOCKS,
    "NCHW44": _OF_SQUARES,
    "NCHW44_DOT": ("OIHWoi", "OHWIo", "gOIHWoi", "GOIHWk"),
    "NCHW88": _OF_SQUARES,
    "CHWN4": ("IHWOi", "gIHWOi"),
}
PLAIN_ORDER = "bgGkOoIiHW"
# Formats of convolutions whose result has another layout than what they take.
CHANGING = {
    "NCHW4_NCHW32": ("NCHW4", "NCHW32"),
    "NCHW32_NCHW4": ("NCHW32", "NCHW4"),
    "NCHW4_NCHW": ("NCHW4", "NCHW"),
    "NCHW4_NHWC": ("NCHW4", "NHWC"),
}


def plain_weight(t: MgeTape, w: ir.Value, format: str, sparse: str, *, batched: bool = False) -> tuple[ir.Value, int]:
    """The weight of a convolution as [out, in / groups, height, width], and the number of groups.

    With `batched`, there is a weight for each sample, and the samples count as groups.
    """
    known = ["b" * batched + order for order in WEIGHT_ORDERS[format] if (order[0] in "gG") == (sparse == "GROUP")]
    order = next((order for order in known if len(order) == t.rank(w)), None)
    if order is None:
        t.refuse(f"a weight of rank {t.rank(w)} in format {format}")
    size = dict(zip(order, t.sizes(w), strict=True))
    axes = [axis for axis in PLAIN_ORDER if axis in order]
    moved = t.op("Transpose", [w], perm=[order.index(axis) for axis in axes])
    groups, outer, inner = (math.prod(size.get(axis, 1) for axis in part) for part in ("bgGk", "Oo", "Ii"))
    shape = [groups * outer, inner, size["H"], size["W"]]
    return t.op("Reshape", [moved, t.ints(shape)]), groups


def convolution_layouts(t: MgeTape, format: str, x: ir.Value) -> tuple[str, Layout, Layout]:
    """The format that a convolution's weights have, the layout of what it takes, and that of its result."""
    source, target = CHANGING.get(format, (format, format))
    taken = layout_of(t, source)
    # The first convolution of a network may take a few channels that are not blocked.
    if t.rank(x) == 4 and format in ("NCHW44", "NCHW44_DOT", "NCHW88"):
        taken = PLAIN
    return source, taken, layout_of(t, target)


# Activations, by mode: from which format to which. A trailing I means that the memory is an image.
ACTIVATION_MODES = {
    "NHWC_NHWCD4": ("NHWC", "NHWCD4"),
    "NHWC_NHWCD4I": ("NHWC", "NHWCD4"),
    "NHWCD4_NHWC": ("NHWCD4", "NHWC"),
    "NHWCD4I_NHWC": ("NHWCD4", "NHWC"),
    "NCHW_NHWCD4": ("NCHW", "NHWCD4"),
    "NCHW_NHWCD4I": ("NCHW", "NHWCD4"),
    "NHWCD4_NCHW": ("NHWCD4", "NCHW"),
    "NHWCD4I_NCHW": ("NHWCD4", "NCHW"),
    "NCHW4_CHWN4": ("NCHW4", "CHWN4"),
    "CHWN4_NCHW4": ("CHWN4", "NCHW4"),
    "NCHW_NCHW88": ("NCHW", "NCHW88"),
    "NCHW88_NCHW": ("NCHW88", "NCHW"),
    "NCHW_NCHW4_IC_SMALL": ("NCHW", "NCHW4"),
    "NCHW_NCHW4": ("NCHW", "NCHW4"),
    "NCHW4_NCHW": ("NCHW4", "NCHW"),
    "NCHW_NCHW64": ("NCHW", "NCHW64"),
    "NCHW64_NCHW": ("NCHW64", "NCHW"),
    "NCHW_NHWC": ("NCHW", "NHWC"),
    "NHWC_NCHW": ("NHWC", "NCHW"),
}
# Weights, by mode: the order of axes that they get, and the size of the blocks.
WEIGHT_MODES = {
    "INTER_WEIGHT_DENSE": ("OHWIo", 4),
    "INTER_WEIGHT_DENSEI": ("OHWIo", 4),
    "INTER_WEIGHT_GROUP": ("gOHWIo", 4),
    "INTER_WEIGHT_GROUPI": ("gOHWIo", 4),
    "INTER_WEIGHT_CHAN": ("GOHWk", 4),
    "INTER_WEIGHT_CHANI": ("GOHWk", 4),
    "INTER_WEIGHT_DENSEI_DOT": ("OHWIoi", 4),
    "INTER_WEIGHT_GROUPI_DOT": ("gOHWIoi", 4),
    "NCHW_NCHW88_CONV_DENSE_WEIGHT": ("OIHWio", 8),
    "NCHW_NCHW88_CONV_CHAN_WEIGHT": ("GOIHWk", 8),
    "NCHW_NCHW88_CONV_GROUP_WEIGHT": ("gOIHWio", 8),
    "NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT": ("OIHWi", 4),
}


@op("RelayoutFormat", quantised=True)
def relayout_format(t: MgeTape, x: ir.Value, *, mode: str, oc: int, group: int) -> Any:
    """Another layout. Channels that do not fill a block are followed by zeros, which `oc` cuts off again."""
    wanted = t.output_dtype
    if wanted is not None and wanted.is_quantised and wanted != t.quantised(x):
        x = _requantised(t, x, wanted)
    dtype = t.quantised(x)
    if mode in ACTIVATION_MODES:
        made = _relaid_activation(t, x, *ACTIVATION_MODES[mode], channels=oc, groups=group)
    elif mode == "NCHW_NCHW4_WEIGHT":
        grouped = t.rank(x) == 5
        made = _relaid_weight(t, _filled_up(t, x, int(grouped), 4), "gOIHWi" if grouped else "OIHWi", 4)
    elif mode in WEIGHT_MODES:
        made = _relaid_weight(t, x, *WEIGHT_MODES[mode])
    else:
        t.refuse(f"mode {mode} is not supported")
    return made if dtype is None else t.as_quantised(made, dtype)


def _requantised(t: MgeTape, x: ir.Value, dtype: DType) -> ir.Value:
    if t.quantised(x) is not None:
        return quantise(t, real(t, x), dtype)
    if x.dtype != ir.DataType.UINT8:
        t.refuse(f"a change from {t.dtype(x).name} to {dtype.name} is not supported")
    return quantise(t, t.op("Sub", [t.cast(x, FLOAT), t.constant(128, FLOAT)]), dtype)


def _relaid_activation(t: MgeTape, x: ir.Value, source: str, target: str, *, channels: int, groups: int) -> ir.Value:
    x = plain(t, x, layout_of(t, source))
    batch, found, *plane = t.sizes(x)
    block = layout_of(t, target).block
    groups = groups if "NCHW4" in (source, target) else 1  # only these modes know of groups
    if not groups or found % groups or channels % groups:
        t.refuse(f"{found} channels in {groups} groups")
    parts = t.op("Reshape", [x, t.ints([batch * groups, found // groups, *plane])])
    if block > 1:
        parts = _filled_up(t, parts, 1, block)
    elif channels and source in ("NCHW4", "NCHW64"):
        parts = t.op("Slice", [parts, t.ints(0), t.ints(channels // groups), t.ints(1)])
    kept = t.sizes(parts)[1] * groups
    return arranged(t, t.op("Reshape", [parts, t.ints([batch, kept, *plane])]), layout_of(t, target))


def _filled_up(t: MgeTape, x: ir.Value, axis: int, block: int) -> ir.Value:
    """The value with zeros behind it along an axis, until blocks are full."""
    missing = -t.sizes(x)[axis] % block
    if not missing:
        return x
    pads = [0] * (2 * t.rank(x))
    pads[t.rank(x) + axis] = missing
    padded: ir.Value = t.op("Pad", [x, t.ints(pads)])
    return padded


def _relaid_weight(t: MgeTape, w: ir.Value, order: str, block: int) -> ir.Value:
    """A weight of [out, in, height, width], perhaps with groups before, in another order of axes."""
    given = "OIHW" if t.rank(w) == 4 else "gOIHW"
    if t.rank(w) not in (4, 5) or (given[0] == "g") != (order[0] in "gG"):
        t.refuse(f"a weight of rank {t.rank(w)}")
    w = _filled_up(t, w, 0 if "k" in order else given.index("I"), block)
    axes, shape = [], []
    for axis, size in zip(given, t.sizes(w), strict=True):
        inner = {"O": "o", "I": "i", "g": "k"}.get(axis, "")
        if inner and inner in order:
            axes += [axis.upper(), inner]
            shape += [size // block, block]
        elif axis in order:
            axes.append(axis)
            shape.append(size)
    moved = t.op("Reshape", [w, t.ints(shape)])
    made: ir.Value = t.op("Transpose", [moved], perm=[axes.index(axis) for axis in order])
    return made

"""Layouts of activations other than [N, C, H, W], most of them blocked: [N, C/b, H, W, b].

Such files keep all values between convolutions in their layout. Converters work on plain values and put the results
back. The tape leaves out moves that undo each other, so that only plain values remain between operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.tape import MgeTape

PLAIN_ORDER, SPLIT_ORDER = "NCHW", "NCcHW"


@dataclass(frozen=True, slots=True)
class Layout:
    """How the axes of an activation lie; `c` is the place within a block of channels."""

    order: str
    block: int = 1

    @property
    def whole(self) -> str:
        """The order of the axes before blocks are joined to channels."""
        return SPLIT_ORDER if "c" in self.order else PLAIN_ORDER


PLAIN = Layout(PLAIN_ORDER)
LAYOUTS = {
    "NCHW": PLAIN,
    "NHWC": Layout("NHWC"),
    "NHWCD4": Layout("NHCWc", 4),
    "NCHW4": Layout("NCHWc", 4),
    "NCHW8": Layout("NCHWc", 8),
    "NCHW32": Layout("NCHWc", 32),
    "NCHW64": Layout("NCHWc", 64),
    "NCHW44": Layout("NCHWc", 4),
    "NCHW44_DOT": Layout("NCHWc", 4),
    "NCHW88": Layout("NCHWc", 8),
    "CHWN4": Layout("CHWNc", 4),
}
BLOCKED_ORDERS = sorted({layout.order for layout in LAYOUTS.values() if layout.whole == SPLIT_ORDER})


def layout_of(t: MgeTape, name: str) -> Layout:
    """The layout of a format that has one."""
    if name not in LAYOUTS:
        t.refuse(f"format {name} is not supported here")
    return LAYOUTS[name]


def plain(t: MgeTape, x: ir.Value, layout: Layout) -> ir.Value:
    """A value of that layout as [N, C, H, W]."""
    if layout == PLAIN:
        return x
    if t.rank(x) != len(layout.order):
        t.refuse(f"an operand of rank {t.rank(x)} in a format of rank {len(layout.order)}")
    size = dict(zip(layout.order, t.sizes(x), strict=True))
    inner = size.get("c", 1)
    if inner != layout.block and (size["C"], inner) != (1, 1):
        t.refuse(f"blocks of {inner} channels in a format with blocks of {layout.block}")
    moved = x
    # A bias needs no transposition; that of a computed value may undo one.
    if x.producer() is not None or not _in_order([axis for axis in layout.order if size[axis] != 1], layout.whole):
        moved = t.op("Transpose", [x], perm=[layout.order.index(axis) for axis in layout.whole])
    shape = [size["N"], size["C"] * inner, size["H"], size["W"]]
    return _as_quantised_as(t, t.op("Reshape", [moved, t.ints(shape)]), x)


def _in_order(axes: Sequence[str], order: str) -> bool:
    places = [order.index(axis) for axis in axes]
    return places == sorted(places)


def arranged(t: MgeTape, x: ir.Value, layout: Layout) -> ir.Value:
    """A value of [N, C, H, W] in that layout."""
    if layout == PLAIN:
        return x
    batch, channels, height, width = t.sizes(x)
    if channels % layout.block:
        t.refuse(f"{channels} channels in blocks of {layout.block}")
    moved = x
    if layout.whole == SPLIT_ORDER:
        moved = t.op("Reshape", [x, t.ints([batch, channels // layout.block, layout.block, height, width])])
    moved = t.op("Transpose", [moved], perm=[layout.whole.index(axis) for axis in layout.order])
    return _as_quantised_as(t, moved, x)


def _as_quantised_as(t: MgeTape, made: ir.Value, x: ir.Value) -> ir.Value:
    dtype = t.quantised(x)
    return made if dtype is None else t.as_quantised(made, dtype)


# Operators between ----------------------------------------------------------------------------------------------------

# Operators that treat each place by itself, and those that work along one axis: along which of the plain axes.
ANYWHERE = {"Elemwise", "ElemwiseMultiType", "TypeCvt", "PowC", "FakeQuant", "TQT", "LSQ"}
ALONG = {"Concat": "NCHW", "Reduce": "NHW"}


def on_plain(name: str, convert: Callable[..., Any]) -> Callable[..., Any]:
    """A converter, changed so that it sees plain operands where blocked ones come, if its operator allows that."""
    if name not in ANYWHERE and name not in ALONG:
        return convert

    def converted(t: MgeTape, *operands: ir.Value, **params: Any) -> Any:
        layout = _common_layout(t, operands)
        axis = None if layout is None else _plain_axis(name, layout, params.get("axis"))
        if layout is None or (axis is None and name in ALONG) or not _all_fit(t, operands, layout, axis):
            return convert(t, *operands, **params)
        moved = [plain(t, x, layout) if t.rank(x) == len(layout.order) else x for x in operands]
        made = convert(t, *moved, **params if axis is None else {**params, "axis": axis})
        return arranged(t, made, layout)

    return converted


def _common_layout(t: MgeTape, operands: Sequence[ir.Value]) -> Layout | None:
    """The blocked layout that `arranged`, or nodes of the file that do the same, gave the first such operand."""
    for x in operands:
        node, sizes = x.producer(), t.shape(x)
        if node is None or node.op_type != "Transpose" or sizes is None:
            continue
        perm = node.attributes.get_ints("perm")
        for order in BLOCKED_ORDERS:
            if perm == tuple(SPLIT_ORDER.index(axis) for axis in order):
                return Layout(order, sizes[order.index("c")])
    return None


def _plain_axis(name: str, layout: Layout, axis: int | None) -> int | None:
    rank = len(layout.order)
    letter = layout.order[axis] if axis is not None and -rank <= axis < rank else ""
    return PLAIN_ORDER.index(letter) if letter and letter in ALONG.get(name, "") else None


def _all_fit(t: MgeTape, operands: Sequence[ir.Value], layout: Layout, axis: int | None) -> bool:
    """Whether plain operands, broadcast to each other or joined along an axis, give the same numbers."""
    outer, inner = layout.order.index("C"), layout.order.index("c")
    channels = set()
    for x in operands:
        sizes = t.shape(x)
        if sizes is None:
            return False
        if len(sizes) == len(layout.order) and (sizes[inner] == layout.block or sizes[outer] == sizes[inner] == 1):
            channels.add(sizes[outer] * sizes[inner])
        elif len(sizes) >= len(layout.order) or math.prod(sizes) != 1:
            return False
    return axis is not None or len(channels - {1}) == 1

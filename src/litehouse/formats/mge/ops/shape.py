"""Operators that ask for shapes and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.ops.index import spread_lookup
from litehouse.formats.mge.ops.linear import spread_product
from litehouse.formats.mge.ops.reduction import REDUCTIONS
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64
NO_AXIS = 7  # for Reshape and GetVarShape
PADDING_MODES = {"REPLICATE": "edge", "REFLECT": "reflect", "CONSTANT": "constant"}


@op("GetVarShape", quantised=True)
def get_var_shape(t: MgeTape, *operands: ir.Value, axis: int) -> Any:
    """The shape, or one size of it; of several operands the shape that they broadcast to."""
    if not operands:
        t.refuse("it has no operands")
    rank = max(t.rank(value) for value in operands)
    if axis != NO_AXIS:
        if not -rank <= axis < rank:
            t.refuse(f"axis {axis} of operands of rank {rank}")
        return t.cast(_common_size(t, operands, axis % rank - rank), INT32)
    if len(operands) == 1:
        return t.cast(t.op("Shape", [operands[0]]), INT32)
    sizes = [_common_size(t, operands, place) for place in range(-rank, 0)]
    return t.cast(t.op("Concat", sizes, axis=0), INT32)


def _common_size(t: MgeTape, operands: Sequence[ir.Value], axis: int) -> ir.Value:
    """The size that the operands broadcast to along an axis, counted from the back."""
    having = [value for value in operands if t.rank(value) >= -axis]
    known = {t.known_sizes(value)[axis] for value in having}
    certain = known - {1, None}
    if len(certain) > 1:
        t.refuse(f"operands of the sizes {sorted(size for size in certain if size)} along one axis")
    if certain or None not in known:
        return t.ints(max((size for size in known if size is not None), key=lambda size: size != 1))
    sizes: list[ir.Value] = []
    for value in having:
        if t.known_sizes(value)[axis] is None:
            place = t.rank(value) + axis
            sizes.append(t.op("Shape", [value], start=place, end=place + 1))
    largest: ir.Value = sizes[0] if len(sizes) == 1 else t.op("Max", sizes)
    return largest


@op("Reshape", keeps=True)
def reshape(t: MgeTape, x: ir.Value, shape: ir.Value, *, axis: int) -> Any:
    """Another shape of as many elements; the size at `axis` is found, whatever the shape says there."""
    wanted = t.ints(shape)
    rank = t.sizes(wanted)[0]
    if axis != NO_AXIS:
        if not -rank <= axis < rank:
            t.refuse(f"axis {axis} of a shape of {rank} sizes")
        found = np.arange(rank) == axis % rank
        wanted = t.op("Where", [t.constant(found), t.ints(-1), wanted])
    made = t.op("Reshape", [x, wanted], allowzero=int(axis == NO_AXIS) or None, dtype=x.dtype)
    sizes = t.shape(made)
    if sizes is None:
        return made
    return x if sizes == t.shape(x) else spread_product(t, x, sizes) or spread_lookup(t, x, sizes) or made


@op("Broadcast", keeps=True)
def broadcast(t: MgeTape, x: ir.Value, shape: ir.Value) -> Any:
    """The same numbers, repeated along axes of size one."""
    wanted = t.ints(shape)
    return x if _has_shape(t, x, wanted) else t.op("Expand", [x, wanted], dtype=x.dtype)


def _has_shape(t: MgeTape, x: ir.Value, shape: ir.Value) -> bool:
    return t.is_known(shape) and t.literal(shape) == t.shape(x)


@op("Dimshuffle", keeps=True)
def dimshuffle(t: MgeTape, x: ir.Value, *, pattern: Sequence[int]) -> Any:
    """Axes in another order: each result axis names its source, -1 a new one; sources left out have size one."""
    rank = t.rank(x)
    kept = [axis for axis in pattern if axis >= 0]
    if len(set(kept)) != len(kept) or any(axis >= rank for axis in kept) or not pattern:
        t.refuse(f"the pattern {list(pattern)} for an operand of rank {rank}")
    x = _without(t, x, [axis for axis in range(rank) if axis not in kept])
    places = sorted(kept)
    order = [places.index(axis) for axis in kept]
    if order != sorted(order):
        x = t.op("Transpose", [x], perm=order)
    return _with(t, x, [place for place, axis in enumerate(pattern) if axis < 0])


@op("AxisAddRemove", keeps=True)
def axis_add_remove(t: MgeTape, x: ir.Value, *, desc: Sequence[tuple[str, int]]) -> Any:
    """Axes of size one, added and removed one after the other; the last one stays."""
    axes: list[int | None] = list(range(t.rank(x)))  # those of the operand, None for new ones
    for method, axis in desc:
        room = len(axes) + (method == "add")
        if not -room <= axis < room:
            t.refuse(f"axis {axis} of an operand of rank {len(axes)}")
        if method == "add":
            axes.insert(axis % room, None)
        elif len(axes) > 1:
            del axes[axis % room]
    x = _without(t, x, [axis for axis in range(t.rank(x)) if axis not in axes])
    return _with(t, x, [place for place, axis in enumerate(axes) if axis is None])


def _without(t: MgeTape, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """The value without these axes of size one; what made them does not make them, if it can."""
    if not axes:
        return x
    made: ir.Value
    node = x.producer()
    source = None if node is None else node.inputs[0]
    if node is None or source is None or _made_axes(t, node) != list(axes):
        made = t.op("Squeeze", [x, t.ints(list(axes))])
    elif node.op_type == "Unsqueeze":
        made = source
    else:
        made = t.op(node.op_type, [source, t.ints(list(axes))], dtype=x.dtype, keepdims=0)
    return made


def _made_axes(t: MgeTape, node: ir.Node) -> list[int]:
    """The axes of size one that a node adds, or leaves of larger ones."""
    if node.op_type != "Unsqueeze" and (
        node.op_type not in REDUCTIONS.values() or node.attributes.get_int("keepdims", 1) != 1
    ):
        return []
    return sorted(axis % t.rank(node.outputs[0]) for axis in t.literal(node.inputs[1]))


def _with(t: MgeTape, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    return t.op("Unsqueeze", [x, t.ints(list(axes))]) if axes else x


@op("Copy", "Identity", "MarkNoBroadcastElemwise", "MarkDynamicVar", keeps=True)
def identity(t: MgeTape, x: ir.Value) -> Any:
    """The operand itself."""
    return x


@op("VirtualDep", keeps=True)
def virtual_dep(t: MgeTape, x: ir.Value, *_: ir.Value) -> Any:
    """The first operand; the others are only computed before it."""
    return x


@op("AssertEqual", quantised=True)
def assert_equal(t: MgeTape, expected: ir.Value, got: ir.Value, error: ir.Value) -> Any:
    """The expected value, as MegEngine passes it on; the check itself belongs to a test."""
    return expected


@op("Concat", keeps=True)
def concat(t: MgeTape, *operands: ir.Value, axis: int) -> Any:
    """The operands behind each other along an axis."""
    if len({t.quantised(value) for value in operands}) > 1:
        t.refuse("operands of different quantised dtypes")
    return operands[0] if len(operands) == 1 else t.op("Concat", list(operands), axis=axis, dtype=operands[0].dtype)


@op("Split", keeps=True)
def split(t: MgeTape, x: ir.Value, *sizes: ir.Value, axis: int) -> Any:
    """Parts of an axis, of the sizes that the other operands have."""
    if len(sizes) == 1:
        return x
    return t.op("Split", [x, t.ints(sizes)], outputs=len(sizes), axis=axis)


@op("Padding", keeps=True)
def padding(t: MgeTape, x: ir.Value, *, padding_val: float, padding_mode: str, **offsets: int) -> Any:
    """Numbers around the operand: a constant one, those of the edge, or mirrored ones."""
    dtype, rank, quantised = t.dtype(x), t.rank(x), t.quantised(x)
    pads = [offsets[f"{side}_offset_dim{axis}"] for side in ("front", "back") for axis in range(rank)]
    operands = [t.cast(x, wider(dtype)), t.ints(pads)]
    if padding_mode == "CONSTANT":
        # Of a quantised tensor it is the stored integer.
        stored = np.float32(padding_val).astype(dtype.numpy() if quantised is None else quantised.numpy)
        number = int(stored) - quantised.zero_point if quantised is not None else stored
        operands.append(t.constant(number, wider(dtype)))
    return t.cast(t.op("Pad", operands, mode=PADDING_MODES[padding_mode]), dtype)

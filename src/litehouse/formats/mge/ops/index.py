"""Reading by slices and indices.

An index describes some axes of a tensor, each by a slice or by an index; the numbers are operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

INT64 = ir.DataType.INT64
FAR = 2147483647  # stands for "up to the end"; a size is less
Items = Sequence[tuple[int, bool, bool, bool, bool]]


@dataclass(frozen=True, slots=True)
class Item:
    """What is taken of one axis: a slice, or an index."""

    axis: int
    begin: ir.Value | None
    end: ir.Value | None
    step: ir.Value | None
    index: ir.Value | None


def read_items(t: MgeTape, x: ir.Value, operands: Sequence[ir.Value], items: Items) -> list[Item]:
    """The items of an index with their operands, in the order of the axes."""
    rank = t.rank(x)
    left = list(operands)
    found = []
    for axis, *flags in items:
        if not -rank <= axis < rank or sum(flags) > len(left):
            t.refuse(f"an index of axis {axis}, an operand of rank {rank}, and {len(operands)} numbers for the index")
        found.append(Item(axis % rank, *(left.pop(0) if flag else None for flag in flags)))
    if len({item.axis for item in found}) != len(found) or left:
        t.refuse(f"an index of the axes {[item.axis for item in found]} with {len(left)} more numbers than it has")
    return sorted(found, key=lambda item: item.axis)


def indices(items: Sequence[Item]) -> list[tuple[int, ir.Value]]:
    """The axes that have an index, with it."""
    return [(item.axis, item.index) for item in items if item.index is not None]


def bounds(t: MgeTape, item: Item) -> tuple[Any, Any, Any]:
    """Begin, end and step of a slice: numbers where they are known, else values."""
    step = 1 if item.step is None else number(t, item.step)
    if step == 0:
        t.refuse("a slice with a step of 0")
    if isinstance(step, int):
        first, last = (0, FAR) if step > 0 else (FAR, -FAR)
    else:
        forward = t.op("Greater", [step, t.ints(0)])
        first = t.op("Where", [forward, t.ints(0), t.ints(FAR)])
        last = t.op("Where", [forward, t.ints(FAR), t.ints(-FAR)])
    begin = first if item.begin is None else number(t, item.begin)
    end = last if item.end is None else number(t, item.end)
    return begin, end, step


def number(t: MgeTape, value: ir.Value) -> Any:
    """The number of a constant of one, else its value as int64."""
    flat = t.ints(value)
    if not t.is_known(flat):
        return flat
    if t.sizes(flat) != (1,):
        t.refuse(f"{t.sizes(flat)[0]} numbers where an index has one")
    return t.literal(flat)[0]


# Reading --------------------------------------------------------------------------------------------------------------


def sliced(t: MgeTape, x: ir.Value, items: Sequence[Item]) -> ir.Value:
    """The part of a value that the slices among the items take."""
    slices = [item for item in items if item.index is None]
    if not slices:
        return x
    begins, ends, steps = zip(*(bounds(t, item) for item in slices), strict=True)
    axes = [item.axis for item in slices]
    made: ir.Value = t.op("Slice", [x, t.ints(begins), t.ints(ends), t.ints(axes), t.ints(steps)])
    return made


def part(t: MgeTape, x: ir.Value, items: Sequence[Item]) -> ir.Value:
    """A slice; axes with an index vanish, but the last one stays."""
    x = sliced(t, x, items)
    for axis, index in reversed(indices(items)):
        place = t.ints(index)
        if t.rank(x) > 1:
            place = t.op("Squeeze", [place])
        x = t.op("Gather", [x, place], axis=axis)
    return x


def picked(t: MgeTape, x: ir.Value, items: Sequence[Item]) -> ir.Value:
    """What index tensors, broadcast together, pick from slices."""
    x = sliced(t, x, items)
    found = indices(items)
    if not found:
        return x
    axes = [axis for axis, _ in found]
    if len(found) == 1:
        made: ir.Value = t.op("Gather", [x, found[0][1]], axis=axes[0])
        return made
    rank = t.rank(x)
    order = [*axes, *(axis for axis in range(rank) if axis not in axes)]
    place = stacked(t, [index for _, index in found])
    made = t.op("GatherND", [transposed(t, x, order), place])
    if axes != list(range(axes[0], axes[-1] + 1)):
        return made
    # The axes of the index stand where the indexed ones were, which are next to each other.
    depth = t.rank(place) - 1
    before = [depth + axis for axis in range(axes[0])]
    return transposed(t, made, [*before, *range(depth), *range(depth + axes[0], t.rank(made))])


def meshed(t: MgeTape, x: ir.Value, items: Sequence[Item]) -> ir.Value:
    """The elements at all combinations of the index vectors."""
    x = sliced(t, x, items)
    for axis, index in indices(items):
        x = t.op("Gather", [x, index], axis=axis)
    return x


def batch_meshed(t: MgeTape, x: ir.Value, items: Sequence[Item]) -> ir.Value:
    """The same with vectors of its own for each element of the first axis."""
    x = sliced(t, x, items)
    for axis, index in indices(items):
        if axis == 0:
            t.refuse("an index of the first axis, which is that of the batch")
        rank = t.rank(x)
        order = [0, axis, *(other for other in range(1, rank) if other != axis)]
        place = t.op("Unsqueeze", [t.cast(index, INT64), t.ints(-1)])
        made = t.op("GatherND", [transposed(t, x, order), place], batch_dims=1)
        x = transposed(t, made, [order.index(other) for other in range(rank)])
    return x


def transposed(t: MgeTape, x: ir.Value, order: Sequence[int]) -> ir.Value:
    """The axes in that order; no node where they are."""
    if list(order) == sorted(order):
        return x
    made: ir.Value = t.op("Transpose", [x], perm=list(order))
    return made


def stacked(t: MgeTape, values: Sequence[ir.Value]) -> ir.Value:
    """Index tensors, broadcast to each other, side by side in a new last axis."""
    rank = max(t.rank(value) for value in values)
    shapes = []
    for value in values:
        shape = t.op("Shape", [value])
        missing = rank - t.rank(value)
        shapes.append(t.op("Concat", [t.ints([1] * missing), shape], axis=0) if missing else shape)
    common = shapes[0] if len(set(shapes)) == 1 else t.op("Max", shapes)
    columns = []
    for value, shape in zip(values, shapes, strict=True):
        wide = t.cast(value, INT64)
        wide = wide if shape is common else t.op("Expand", [wide, common])
        columns.append(t.op("Unsqueeze", [wide, t.ints(-1)]))
    made: ir.Value = t.op("Concat", columns, axis=-1)
    return made


def spread_lookup(t: MgeTape, x: ir.Value, shape: tuple[int, ...]) -> ir.Value | None:
    """Rows that were picked by an index that was flat for it, in a shape that has its axes again."""
    node = x.producer()
    if node is None or node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 0:
        return None
    table, index = node.inputs
    flat = None if index is None else index.producer()
    if table is None or flat is None or flat.op_type != "Reshape" or flat.inputs[0] is None:
        return None
    before, rows = t.shape(flat.inputs[0]), t.shape(table)
    if before is None or rows is None or shape != before + rows[1:]:
        return None
    made: ir.Value = t.op("Gather", [table, flat.inputs[0]], axis=0)
    return made


@op("Subtensor", keeps=True)
def subtensor(t: MgeTape, x: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Slices of some axes, single places of others, which vanish."""
    return part(t, x, read_items(t, x, numbers, items))


@op("IndexingMultiAxisVec", keeps=True)
def indexing_multi_axis_vec(t: MgeTape, x: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Index tensors for some axes, as NumPy has them, and slices of others."""
    return picked(t, x, read_items(t, x, numbers, items))


@op("MeshIndexing", keeps=True)
def mesh_indexing(t: MgeTape, x: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """An index vector for each of some axes: all combinations."""
    return meshed(t, x, read_items(t, x, numbers, items))


@op("BatchedMeshIndexing", keeps=True)
def batched_mesh_indexing(t: MgeTape, x: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Index vectors for some axes, others for each element of the first axis."""
    return batch_meshed(t, x, read_items(t, x, numbers, items))

"""Writing by slices and indices: a copy of the operand in which some elements are others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.ops.index import (
    FAR,
    INT64,
    Item,
    Items,
    batch_meshed,
    bounds,
    indices,
    meshed,
    number,
    part,
    picked,
    read_items,
)
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape
from litehouse.formats.tape import MAX_COUNT

Reader = Callable[[MgeTape, ir.Value, Sequence[Item]], ir.Value]
Range = tuple[int, range]  # an axis, and what is written of it


@op("SetSubtensor", keeps=True)
def set_subtensor(t: MgeTape, x: ir.Value, new: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Another value of a slice."""
    _check_dtypes(t, x, new)
    return _write_part(t, x, new, read_items(t, x, numbers, items))


@op("IncrSubtensor")
def incr_subtensor(t: MgeTape, x: ir.Value, more: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Something added to a slice."""
    taken = read_items(t, x, numbers, items)
    dtype = wider(t.dtype(x))
    total = t.op("Add", [t.cast(part(t, x, taken), dtype), t.cast(more, dtype)])
    return _write_part(t, x, t.cast(total, t.dtype(x)), taken)


@op("IndexingSetMultiAxisVec", keeps=True)
def indexing_set_multi_axis_vec(t: MgeTape, x: ir.Value, new: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Other elements where index tensors say."""
    _check_dtypes(t, x, new)
    return _scatter(t, x, new, read_items(t, x, numbers, items), picked)


@op("IndexingIncrMultiAxisVec")
def indexing_incr_multi_axis_vec(t: MgeTape, x: ir.Value, more: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Something added where index tensors say, as often as they say."""
    return _add(t, x, more, read_items(t, x, numbers, items), picked)


@op("SetMeshIndexing", keeps=True)
def set_mesh_indexing(t: MgeTape, x: ir.Value, new: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Other elements at all combinations of index vectors."""
    _check_dtypes(t, x, new)
    return _scatter(t, x, new, read_items(t, x, numbers, items), meshed)


@op("IncrMeshIndexing")
def incr_mesh_indexing(t: MgeTape, x: ir.Value, more: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Something added at all combinations of index vectors."""
    return _add(t, x, more, read_items(t, x, numbers, items), meshed)


@op("BatchedSetMeshIndexing", keeps=True)
def batched_set_mesh_indexing(t: MgeTape, x: ir.Value, new: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Other elements at all combinations of the index vectors of each element of the first axis."""
    _check_dtypes(t, x, new)
    return _scatter(t, x, new, read_items(t, x, numbers, items), batch_meshed)


@op("BatchedIncrMeshIndexing")
def batched_incr_mesh_indexing(t: MgeTape, x: ir.Value, more: ir.Value, *numbers: ir.Value, items: Items) -> Any:
    """Something added at all combinations of the index vectors of each element of the first axis."""
    return _add(t, x, more, read_items(t, x, numbers, items), batch_meshed)


def _check_dtypes(t: MgeTape, x: ir.Value, new: ir.Value) -> None:
    if t.quantised(x) != t.quantised(new):
        t.refuse("operands of different quantised dtypes")


# Slices that are known: pieces side by side ---------------------------------------------------------------------------


def _write_part(t: MgeTape, x: ir.Value, new: ir.Value, items: Sequence[Item]) -> ir.Value:
    ranges = _ranges(t, x, items)
    if ranges is None:
        return _scatter(t, x, new, items, part)
    removed = [axis for axis, _ in indices(items)]
    if len(removed) == t.rank(x):  # the last axis stayed
        removed = removed[1:]
    if removed:
        new = t.op("Unsqueeze", [new, t.ints(removed)])
    return _put(t, x, new, ranges)


def _ranges(t: MgeTape, x: ir.Value, items: Sequence[Item]) -> list[Range] | None:
    """What is written of each axis; None where that is only known when the model runs, or takes a long list."""
    sizes = t.known_sizes(x)
    found = []
    for item in items:
        size = sizes[item.axis]
        begin, end, step = bounds(t, item) if item.index is None else (number(t, item.index), None, 1)
        if size is None or not all(isinstance(bound, int | None) for bound in (begin, end, step)):
            return None
        if abs(step) > 1 and size > MAX_COUNT:
            return None
        if item.index is not None:
            if not -size <= begin < size:
                t.refuse(f"index {begin} of an axis of size {size}")
            end = begin % size + 1
            begin = end - 1
        found.append((item.axis, range(*slice(begin, end, step).indices(size))))
    return found


def _put(t: MgeTape, x: ir.Value, new: ir.Value, ranges: Sequence[Range]) -> ir.Value:
    if not ranges:
        return new
    (axis, places), *others = ranges
    if not places:
        return x
    size = t.known_sizes(x)[axis]
    assert size is not None
    if places.step < 0:
        new = _slice(t, new, axis, FAR, -FAR, -1)
        places = places[::-1]
    inner = _slice(t, x, axis, places.start, places.stop, places.step) if others else x
    new = _put(t, inner, new, others)
    if places.step > 1 and len(places) > 1:
        source = np.arange(size)
        source[places.start : places.stop : places.step] = size + np.arange(len(places))
        made: ir.Value = t.op("Gather", [t.op("Concat", [x, new], axis=axis), t.constant(source)], axis=axis)
        return made
    pieces = [new]
    if places[0] > 0:
        pieces.insert(0, _slice(t, x, axis, 0, places[0]))
    if places[-1] + 1 < size:
        pieces.append(_slice(t, x, axis, places[-1] + 1, FAR))
    return new if len(pieces) == 1 else t.op("Concat", pieces, axis=axis)


def _slice(t: MgeTape, x: ir.Value, axis: int, begin: int, end: int, step: int = 1) -> ir.Value:
    made: ir.Value = t.op("Slice", [x, t.ints(begin), t.ints(end), t.ints(axis), t.ints(step)])
    return made


# Anything else: the places in memory order, read by the same index ----------------------------------------------------


def _add(t: MgeTape, x: ir.Value, more: ir.Value, items: Sequence[Item], reader: Reader) -> ir.Value:
    # ONNX Runtime does not add float16 while it scatters.
    dtype = ir.DataType.FLOAT if t.dtype(x) == ir.DataType.FLOAT16 else wider(t.dtype(x))
    total = _scatter(t, t.cast(x, dtype), t.cast(more, dtype), items, reader, reduction="add")
    return t.cast(total, t.dtype(x))


def _scatter(
    t: MgeTape, x: ir.Value, new: ir.Value, items: Sequence[Item], reader: Reader, reduction: str | None = None
) -> ir.Value:
    """Write rows: what follows the last axis that has an item."""
    depth = 1 + max((item.axis for item in items), default=0)
    shape = t.op("Shape", [x])
    outer, inner = t.op("Shape", [x], end=depth), t.op("Shape", [x], start=depth)
    count = t.op("ReduceProd", [outer], keepdims=0)
    numbered = t.op("Reshape", [t.op("Range", [t.constant(0, INT64), count, t.constant(1, INT64)]), outer], allowzero=1)
    places = t.op("Unsqueeze", [reader(t, numbered, items), t.ints(-1)])
    if t.rank(new) < t.rank(places) - 1 + t.rank(x) - depth:
        new = t.op("Unsqueeze", [new, t.ints(0)])
    if depth == 1:
        made: ir.Value = t.op("ScatterND", [x, places, new], reduction=reduction)
        return made
    rows = t.op("Reshape", [x, t.op("Concat", [t.ints(-1), inner], axis=0)])
    made = t.op("Reshape", [t.op("ScatterND", [rows, places, new], reduction=reduction), shape], allowzero=1)
    return made

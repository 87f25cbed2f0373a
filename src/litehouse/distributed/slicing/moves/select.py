"""Ops that take parts of values, or join values: Split, Concat, Slice, Gather, Pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.cuts import Cut
from litehouse.distributed.slicing.moves.layout import states
from litehouse.distributed.slicing.moves.registry import Edit, Move, Site, moves, moves_many

if TYPE_CHECKING:
    from litehouse.distributed.slicing.writer import Writer


@moves_many("Split")
def splits(site: Site, cuts: Sequence[Cut | None]) -> Move | None:
    """Along another axis; or along this one, where each result is a block of its own, or several."""
    sizes, known = site.sizes(0), [cut for cut in cuts if cut is not None]
    if sizes is None or not known:
        return None
    axis = site.number("axis", 0) % len(sizes)
    if all(cut == known[0] for cut in known) and known[0].axis != axis:
        return Move({0: known[0]})
    if len(known) != len(cuts) or any(cut.axis != axis for cut in known):
        return None
    parts = [cut.local(site.ranks) for cut in known]
    whole = Cut(axis, tuple(block for cut in known for block in cut.blocks))
    if whole.size != sizes[axis]:
        return None
    if site.opset < 13:
        return Move({0: whole}, [lambda writer, node: writer.set_ints(node, "split", parts)])
    if not site.has(1):  # equal parts stay equal
        return Move({0: whole}) if len(set(parts)) == 1 else None
    return Move({0: whole}, [states(1, dict(enumerate(parts)))])


@moves("Concat")
def joins(site: Site, cut: Cut) -> Move | None:
    """Along another axis; or along this one, where each operand is a block of its own, or several."""
    shapes = [site.sizes(place) for place in range(len(site.node.inputs))]
    rank = next((len(sizes) for sizes in shapes if sizes is not None), 0)
    if not rank or any(sizes is None for sizes in shapes):
        return None
    if site.number("axis", 0) % rank != cut.axis:
        return Move(dict.fromkeys(range(len(shapes)), cut))
    blocks, found = list(cut.blocks), {}
    for place, sizes in enumerate(shapes):
        assert sizes is not None
        own: list[int] = []
        while blocks and isinstance(sizes[cut.axis], int) and sum(own) < sizes[cut.axis]:  # type: ignore[operator]
            own.append(blocks.pop(0))
        if sum(own) != sizes[cut.axis]:
            return None
        found[place] = Cut(cut.axis, tuple(own))
    return Move(found)


@moves("Slice")
def slices(site: Site, cut: Cut) -> Move | None:
    """Along other axes; or from a place to another of this one, if others want the rest of it in the same way."""
    before = site.sizes(0)
    starts, ends = site.listed("starts", 1, 10), site.listed("ends", 2, 10)
    axes, steps = site.listed("axes", 3, 10), site.listed("steps", 4, 10) if site.opset >= 10 else None
    if before is None or (axes is None and site.opset >= 10 and site.has(3)):
        return None
    count = len(starts or ends or axes or before)
    axes = [axis % len(before) for axis in (axes or range(count))]
    if cut.axis not in axes:
        return Move({0: cut})
    place, size = axes.index(cut.axis), before[cut.axis]
    if starts is None or ends is None or not isinstance(size, int) or (steps is None and site.has(4)):
        return None
    if steps is not None and steps[place] != 1:
        return None
    start, end, _ = slice(starts[place], ends[place]).indices(size)
    if end - start == size:
        return Move({0: cut})  # what lies beyond the end is left out
    if start % site.ranks or cut.start or cut.is_padded:
        return None
    return Move({0: Cut(cut.axis, cut.blocks, start)}, [_slicing(site, place, start, cut)])


def _slicing(site: Site, place: int, start: int, cut: Cut) -> Edit:
    """Let a Slice state where its part lies in what a rank has: behind the parts in front, or alone."""
    local, ranks = cut.local(site.ranks), site.ranks
    source = site.input(0)

    def edit(writer: Writer, node: ir.Node) -> None:
        first = start // ranks if writer.is_cut(source) else 0
        if site.opset < 10:
            for name, number in (("starts", first), ("ends", first + local)):
                numbers = site.numbers(name) or []
                writer.set_ints(node, name, [*numbers[:place], number, *numbers[place + 1 :]])
            return
        writer.state(node, 1, {place: first})
        writer.state(node, 2, {place: first + local})

    return edit


@moves("Pad")
def pads(site: Site, cut: Cut) -> Move | None:
    """Along other axes."""
    before, amounts = site.sizes(0), site.listed("pads", 1, 11)
    if before is None or amounts is None:
        return None
    axes = list(range(len(before)))
    if site.has(3):
        listed = site.array(3)
        if listed is None:
            return None
        axes = [int(axis) % len(before) for axis in listed]
    if cut.axis not in axes:
        return Move({0: cut})
    place = axes.index(cut.axis)
    return Move({0: cut}) if amounts[place] == amounts[place + len(axes)] == 0 else None


@moves("Gather")
def gathers(site: Site, cut: Cut) -> Move | None:
    """Places of a value: the axis is one of the value's others, or one of the places."""
    data, index = site.sizes(0), site.sizes(1)
    if data is None or index is None:
        return None
    axis = site.number("axis", 0) % len(data)
    if cut.axis < axis:
        return Move({0: cut})
    if cut.axis >= axis + len(index):
        return Move({0: cut.along(cut.axis - len(index) + 1)})
    return _repeats(site, cut, axis) or Move({1: cut.along(cut.axis - axis)})


def _repeats(site: Site, cut: Cut, axis: int) -> Move | None:
    """Constant places, of which each rank's lie in its part of the value: heads that are repeated, say."""
    places, data = site.array(1), site.sizes(0)
    size = data[axis] if data is not None else None
    if places is None or places.ndim != 1 or len(cut.blocks) != 1 or not isinstance(size, int) or size % site.ranks:
        return None
    part, per = len(places) // site.ranks, size // site.ranks
    owned = (places % size).reshape(site.ranks, part) - np.arange(site.ranks)[:, None] * per
    if (owned < 0).any() or (owned >= per).any():
        return None
    own = owned.astype(places.dtype)
    return Move({0: Cut(axis, (size,))}, [lambda writer, node: writer.set_constant(node, 1, lambda rank: own[rank])])


@moves("GatherElements")
def gathers_elements(site: Site, cut: Cut) -> Move | None:
    """Along another axis."""
    data, index = site.sizes(0), site.sizes(1)
    if data is None or index is None or site.number("axis", 0) % len(data) == cut.axis:
        return None
    return Move({0: cut, 1: cut}) if data[cut.axis] == index[cut.axis] == cut.size else None

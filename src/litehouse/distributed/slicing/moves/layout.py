"""Ops that arrange the same elements in another way: transposes, reshapes, and what adds or drops axes of size 1."""

from __future__ import annotations

from litehouse.distributed.slicing.cuts import Cut, through_reshape
from litehouse.distributed.slicing.moves.registry import Edit, Move, Site, aligned, moves


@moves("Transpose")
def transposes(site: Site, cut: Cut) -> Move | None:
    """Axes in another order."""
    sizes = site.sizes(0)
    if sizes is None:
        return None
    order = site.numbers("perm") or list(range(len(sizes)))[::-1]
    return Move({0: cut.along(order[cut.axis])})


@moves("Reshape")
def reshapes(site: Site, cut: Cut) -> Move | None:
    """The axis must be the outermost of those that it is made of, or that it is a part of."""
    before, after = site.sizes(0), site.out_sizes()
    if before is None or after is None or site.opset < 5:
        return None
    found = through_reshape(cut, before, after, site.ranks)
    if found is None:
        return None
    stated = site.array(1)
    wanted = {} if stated is not None and int(stated[cut.axis]) == -1 else {cut.axis: cut.local(site.ranks)}
    if found.axis != cut.axis and found.axis < len(after):
        # A 0 there would copy the size of what is cut now.
        size = after[found.axis]
        if isinstance(size, int):
            if stated is None or int(stated[found.axis]) == 0:
                wanted[found.axis] = size
        elif size is None:
            return None  # a size with a name is not that of what is cut, which is known
    return Move({0: found}, [states(1, wanted)])


@moves("Flatten")
def flattens(site: Site, cut: Cut) -> Move | None:
    """Becomes two axes."""
    before, after = site.sizes(0), site.out_sizes()
    if before is None or after is None:
        return None
    place = site.number("axis", 1)
    place = place if place >= 0 else place + len(before)
    # Sizes that are not known on the other side do not matter.
    if cut.axis == 1:
        found = through_reshape(cut.along(0), before[place:], after[1:], site.ranks)
        return None if found is None else Move({0: found.along(found.axis + place)})
    found = through_reshape(cut, before[:place], after[:1], site.ranks)
    return None if found is None else Move({0: found})


@moves("Squeeze")
def squeezes(site: Site, cut: Cut) -> Move | None:
    """Axes of size 1 go."""
    before = site.sizes(0)
    if before is None:
        return None
    axes = site.listed("axes", 1, 13)
    if axes is None:
        if site.has(1) or not all(isinstance(size, int) for size in before):
            return None
        axes = [place for place, size in enumerate(before) if size == 1]
    gone = {axis % len(before) for axis in axes}
    return Move({0: cut.along([place for place in range(len(before)) if place not in gone][cut.axis])})


@moves("Unsqueeze")
def unsqueezes(site: Site, cut: Cut) -> Move | None:
    """Axes of size 1 come."""
    before, axes = site.sizes(0), site.listed("axes", 1, 13)
    if before is None or axes is None:
        return None
    rank = len(before) + len(axes)
    new = {axis % rank for axis in axes}
    return Move({0: cut.along([place for place in range(rank) if place not in new].index(cut.axis))})


@moves("Expand")
def expands(site: Site, cut: Cut) -> Move | None:
    """Elements are repeated along axes, or the axis is one that stays."""
    before, after, shape = site.sizes(0), site.out_sizes(), site.sizes(1)
    own = False if after is None else aligned(before, after, cut)
    if own is False or after is None or shape is None or not isinstance(shape[0], int):
        return None
    place = cut.axis - (len(after) - shape[0])  # in the list of sizes, which may be shorter than the result
    edits = [] if place < 0 else [states(1, {place: cut.local(site.ranks)})]
    return Move({0: own} if isinstance(own, Cut) else {}, edits)


@moves("ConstantOfShape")
def fills(site: Site, cut: Cut) -> Move | None:
    """The same number everywhere."""
    return Move({}, [states(0, {cut.axis: cut.local(site.ranks)})])


@moves("Tile")
def tiles(site: Site, cut: Cut) -> Move | None:
    """Repeats: not along the axis, or so that each repeat is a block of its own."""
    before, counts = site.sizes(0), site.array(1)
    if before is None or counts is None:
        return None
    repeats = int(counts.reshape(-1)[cut.axis])
    count, rest = divmod(len(cut.blocks), repeats)
    blocks = cut.blocks[:count]
    if rest or blocks * repeats != cut.blocks or sum(blocks) != before[cut.axis]:
        return None
    return Move({0: Cut(cut.axis, blocks)})


@moves("Trilu")
def triangles(site: Site, cut: Cut) -> Move | None:
    """Matrices by themselves."""
    sizes = site.sizes(0)
    return Move({0: cut}) if sizes is not None and cut.axis < len(sizes) - 2 else None


@moves("DepthToSpace", "SpaceToDepth")
def blocks(_: Site, cut: Cut) -> Move | None:
    """Images by themselves."""
    return Move({0: cut}) if cut.axis == 0 else None


def states(place: int, sizes: dict[int, int]) -> Edit:
    """Let a node state these sizes in the list that is its operand at this place."""
    return lambda writer, node: writer.state(node, place, sizes)

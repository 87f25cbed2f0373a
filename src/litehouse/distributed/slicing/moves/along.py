"""Ops along an axis, which must be another one than that of the cut: softmax, normalisation, reduction, sorting."""

from __future__ import annotations

from collections.abc import Sequence

from litehouse.distributed.slicing.cuts import Cut
from litehouse.distributed.slicing.moves.registry import Move, Site, aligned, moves, moves_many


@moves("Softmax", "LogSoftmax", "Hardmax")
def softmax(site: Site, cut: Cut) -> Move | None:
    """Before version 13 over all axes from one on."""
    sizes = site.sizes(0)
    if sizes is None:
        return None
    axis = site.number("axis", -1 if site.opset >= 13 else 1) % len(sizes)
    return Move({0: cut}) if (cut.axis != axis if site.opset >= 13 else cut.axis < axis) else None


@moves("LpNormalization")
def one_axis(site: Site, cut: Cut) -> Move | None:
    """Along one axis."""
    sizes = site.sizes(0)
    return Move({0: cut}) if sizes is not None and site.number("axis", -1) % len(sizes) != cut.axis else None


@moves("CumSum")
def sums_up(site: Site, cut: Cut) -> Move | None:
    """Along one axis, which is an operand."""
    sizes, axis = site.sizes(0), site.array(1)
    if sizes is None or axis is None:
        return None
    return Move({0: cut}) if int(axis.reshape(-1)[0]) % len(sizes) != cut.axis else None


@moves("LayerNormalization", "RMSNormalization")
def normalizes(site: Site, cut: Cut) -> Move | None:
    """Over all axes from one on."""
    sizes, out = site.sizes(0), site.out_sizes()
    if sizes is None or out is None or cut.axis >= site.number("axis", -1) % len(sizes):
        return None
    found = {0: cut}
    for place in (1, 2):
        own = aligned(site.sizes(place), out, cut) if site.has(place) else True
        if own is False:
            return None
        if isinstance(own, Cut):
            found[place] = own
    return Move(found)


@moves("MeanVarianceNormalization")
def normalizes_axes(site: Site, cut: Cut) -> Move | None:
    """Over listed axes."""
    sizes = site.sizes(0)
    if sizes is None:
        return None
    axes = site.numbers("axes") or [0, 2, 3]
    return Move({0: cut}) if cut.axis not in {axis % len(sizes) for axis in axes} else None


@moves("BatchNormalization")
def by_channel(site: Site, cut: Cut) -> Move | None:
    """Each channel with its own numbers."""
    if site.number("training_mode", 0) or (site.opset < 9 and not site.number("spatial", 1)):
        return None
    return Move({0: cut} | ({place: cut.along(0) for place in (1, 2, 3, 4)} if cut.axis == 1 else {}))


@moves("InstanceNormalization")
def by_image(site: Site, cut: Cut) -> Move | None:
    """Each channel of each image."""
    if cut.axis > 1 or not site.has(2):
        return None
    return Move({0: cut} | ({1: cut.along(0), 2: cut.along(0)} if cut.axis == 1 else {}))


@moves("GroupNormalization")
def by_group(site: Site, cut: Cut) -> Move | None:
    """Groups of channels; whole ones go to a rank."""
    groups, scale = site.number("num_groups", 0), site.sizes(1)
    if cut.axis == 0:
        return Move({0: cut})
    if cut.axis != 1 or len(cut.blocks) != 1 or groups % site.ranks or scale is None:
        return None
    own = Cut(0, (groups,)) if scale[0] == groups and scale[0] != cut.size else cut.along(0)
    return Move(
        {0: cut, 1: own, 2: own}, [lambda writer, node: writer.set_int(node, "num_groups", groups // site.ranks)]
    )


LISTED_SINCE = {"ReduceSum": 13}  # the others have their axes as an operand since version 18


@moves(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)
def reduces(site: Site, cut: Cut) -> Move | None:
    """Along listed axes."""
    since = LISTED_SINCE.get(site.node.op_type, 18)
    axes = site.listed("axes", 1, since)
    if (
        not axes
        and site.number("noop_with_empty_axes", 0)
        and not (site.opset >= since and axes is None and site.has(1))
    ):
        return Move({0: cut})
    return _without(site, cut, axes)


@moves("ArgMax", "ArgMin")
def finds(site: Site, cut: Cut) -> Move | None:
    """Along one axis."""
    return _without(site, cut, [site.number("axis", 0)])


def _without(site: Site, cut: Cut, axes: Sequence[int] | None) -> Move | None:
    sizes = site.sizes(0)
    if sizes is None or not axes:
        return None
    gone = {axis % len(sizes) for axis in axes}
    if site.number("keepdims", 1):
        return None if cut.axis in gone else Move({0: cut})
    return Move({0: cut.along([axis for axis in range(len(sizes)) if axis not in gone][cut.axis])})


@moves_many("TopK")
def largest(site: Site, cuts: Sequence[Cut | None]) -> Move | None:
    """Along one axis; values and places alike."""
    sizes, found = site.sizes(0), {cut for cut in cuts if cut is not None}
    if sizes is None or len(found) != 1 or site.opset < 10:
        return None
    (cut,) = found
    return Move({0: cut}) if site.number("axis", -1) % len(sizes) != cut.axis else None

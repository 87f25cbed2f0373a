"""Ops on images: convolutions, pooling, resizing. Channels are the second axis."""

from __future__ import annotations

from litehouse.distributed.slicing.cuts import Cut
from litehouse.distributed.slicing.moves.layout import states
from litehouse.distributed.slicing.moves.registry import Edit, Move, Site, moves


@moves("Conv")
def convolves(site: Site, cut: Cut) -> Move | None:
    """Channels of the result come from the weight; those of groups also from the operand's channels."""
    weight, image, groups = site.sizes(1), site.sizes(0), site.number("group", 1)
    if cut.axis == 0:
        return Move({0: cut})
    if cut.axis != 1 or weight is None or image is None:
        return None
    found = {1: cut.along(0)} | ({2: cut.along(0)} if site.has(2) else {})
    if groups == 1:
        return Move(found)
    kinds = _groups(site, cut, groups)
    if kinds is None or not isinstance(weight[1], int) or not isinstance(image[1], int):
        return None
    found[0] = Cut(1, tuple(count * weight[1] for count in kinds))
    return Move(found, [_grouped(groups // site.ranks)])


@moves("ConvTranspose")
def convolves_back(site: Site, cut: Cut) -> Move | None:
    """As for Conv; the weight has the operand's channels first."""
    weight, image, groups = site.sizes(1), site.sizes(0), site.number("group", 1)
    if cut.axis == 0:
        return Move({0: cut})
    if cut.axis != 1 or weight is None or image is None:
        return None
    found = {2: cut.along(0)} if site.has(2) else {}
    if groups == 1:
        return Move(found | {1: cut})
    kinds = _groups(site, cut, groups)
    if kinds is None or not isinstance(image[1], int) or image[1] % groups:
        return None
    channels = tuple(count * image[1] // groups for count in kinds)
    return Move(found | {0: Cut(1, channels), 1: Cut(0, channels)}, [_grouped(groups // site.ranks)])


@moves("ConvInteger", "QLinearConv")
def convolves_integers(site: Site, cut: Cut) -> Move | None:
    """As for Conv, without groups; scales and zeros may be those of single channels."""
    if cut.axis != 1 or site.number("group", 1) != 1:
        return None
    weight, of_channels = (1, (3,)) if site.node.op_type == "ConvInteger" else (3, (4, 5, 8))
    found = {weight: cut.along(0)}
    for place in of_channels:
        sizes = site.sizes(place) if site.has(place) else ()
        if sizes is None:
            return None
        if sizes and sizes[0] != 1:
            found[place] = cut.along(0)
    return Move(found)


def _groups(site: Site, cut: Cut, groups: int) -> tuple[int, ...] | None:
    """How many groups of a convolution are in each block; None where a rank would get a part of one."""
    width, rest = divmod(cut.size, groups)
    if rest or any(block % (width * site.ranks) for block in cut.blocks):
        return None
    return tuple(block // width for block in cut.blocks)


def _grouped(groups: int) -> Edit:
    return lambda writer, node: writer.set_int(node, "group", groups)


@moves("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool")
def pools(_: Site, cut: Cut) -> Move | None:
    """Each channel by itself."""
    return Move({0: cut}) if cut.axis < 2 else None


@moves("LRN")
def normalizes_across(_: Site, cut: Cut) -> Move | None:
    """Each image by itself."""
    return Move({0: cut}) if cut.axis == 0 else None


@moves("GridSample")
def samples(_: Site, cut: Cut) -> Move | None:
    """Each channel at the same places."""
    return Move({0: cut, 1: cut} if cut.axis == 0 else {0: cut}) if cut.axis < 2 else None


@moves("Resize", "Upsample")
def resizes(site: Site, cut: Cut) -> Move | None:
    """Along other axes."""
    before = site.sizes(0)
    if (
        before is None
        or before[cut.axis] != cut.size
        or site.text("coordinate_transformation_mode") == "tf_crop_and_resize"
    ):
        return None
    axes = site.numbers("axes")
    place = cut.axis
    if axes is not None:
        listed = [axis % len(before) for axis in axes]
        if cut.axis not in listed:
            return Move({0: cut})
        place = listed.index(cut.axis)
    scales, sizes = (1, 4) if site.opset < 11 or site.node.op_type == "Upsample" else (2, 3)
    if site.has(sizes):
        return Move({0: cut}, [states(sizes, {place: cut.local(site.ranks)})])
    known = site.array(scales)
    return Move({0: cut}) if known is not None and known.size > place and float(known[place]) == 1.0 else None

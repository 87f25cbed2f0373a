"""What the ops between ranks mean, wherever they run: by mail on the CPU, or as steps of a torch program."""

from __future__ import annotations

from collections.abc import Sequence

MUST_MATCH = {"AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "Broadcast", "Reduce", "CollectiveGather"}
"""Ops to which all ranks of the group give arrays of one dtype and shape."""
FOR_ONE = {"Reduce", "CollectiveGather"}
"""Those whose results the other ranks get without a meaning."""
PARTED_BYTES = 1 << 16  # from here on, three and more ranks reduce a part each: less is sent in all
# The neighbours of NeighborExchangeV2 in their order: whether each is at the start (-1), all along (0) or at the end
# (1) of the rows and of the columns; the widths are given for top, bottom, left and right.
DIRECTIONS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


def edge(direction: tuple[int, int], lengths: Sequence[int], size: Sequence[int]) -> tuple[slice, slice]:
    """The part of an image that lies towards a neighbour."""
    found = []
    for way, (before, behind), whole in zip(direction, (lengths[:2], lengths[2:]), size, strict=True):
        found.append((slice(0, before), slice(0, whole), slice(whole - behind, whole))[way + 1])
    return found[0], found[1]

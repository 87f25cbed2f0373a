"""`Cut`: which part of a value each rank has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Size = int | str | None
"""A size that is known, the name of one that is not, or None."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A value is cut along an axis: every rank has an equal part of each block, and the parts follow each other.

    One block is the usual case. The queries, keys and values that one weight computes are three.

    Attributes:
        axis: The axis, counted from the first.
        blocks: The sizes of the blocks.
        start: Where the first block begins. Not 0 for what takes only a part of the axis.
        is_padded: Whether the last rank's part is filled up with zeros, since the size does not divide.
    """

    axis: int
    blocks: tuple[int, ...]
    start: int = 0
    is_padded: bool = False

    @property
    def size(self) -> int:
        """What the blocks span."""
        return sum(self.blocks)

    def along(self, axis: int) -> Cut:
        """The same along another axis."""
        return Cut(axis, self.blocks, self.start, self.is_padded)

    def scaled(self, factor: int, divisor: int = 1) -> Cut:
        """The same of an axis with `factor / divisor` times as many elements."""
        return Cut(self.axis, tuple(block * factor // divisor for block in self.blocks), self.start, self.is_padded)

    def local(self, ranks: int) -> int:
        """The size of one rank's part."""
        return sum(-(-block // ranks) for block in self.blocks)

    def divides(self, ranks: int) -> bool:
        """Whether all blocks have equal parts."""
        is_equal = self.is_padded or all(block % ranks == 0 for block in self.blocks)
        return is_equal and bool(self.blocks) and min(self.blocks) > 0

    def ranges(self, rank: int, ranks: int) -> list[tuple[int, int]]:
        """What a rank has: from, to."""
        found, start = [], self.start
        for block in self.blocks:
            part = -(-block // ranks)
            found.append((start + min(block, rank * part), start + min(block, (rank + 1) * part)))
            start += block
        return found


def join(cuts: Sequence[Cut], size: int) -> Cut | None:
    """The cut of a value, of which the users want these; None where they do not agree, or do not want all of it."""
    first, *others = sorted(set(cuts), key=lambda cut: cut.start)
    blocks = first.blocks
    for cut in others:
        if cut.axis != first.axis or cut.start != first.start + sum(blocks) or cut.is_padded or first.is_padded:
            return None
        blocks = (*blocks, *cut.blocks)
    whole = Cut(first.axis, blocks, first.start, first.is_padded)
    return whole if whole.start == 0 and whole.size == size else None


def through_reshape(cut: Cut, before: Sequence[Size], after: Sequence[Size], ranks: int) -> Cut | None:
    """The cut of a reshape's operand that gives this cut of its result; None where there is none.

    The axes fall into groups that hold the same elements before and behind. Within the group of the cut axis, the cut
    must be one of a single axis of the operand.
    """
    group = group_of(before, after, cut.axis)
    if group is None or cut.start or cut.is_padded:
        return None
    inner = math.prod(group.new[group.place + 1 :])
    blocks = [block * inner for block in cut.blocks] * math.prod(group.new[: group.place])
    for index, size in enumerate(group.old):
        repeats, inner = math.prod(group.old[:index]), math.prod(group.old[index + 1 :])
        found = _on_axis(blocks, repeats, size, inner)
        if found is not None and size > 1 and all(block % ranks == 0 for block in found):
            return Cut(group.first + index, found)
    return None


class Group(NamedTuple):
    """Axes that hold the same elements before a reshape and behind it.

    Attributes:
        first: The first of them before it.
        old: Their sizes before it.
        new: Their sizes behind it.
        place: Which of these the axis is that was asked for.
    """

    first: int
    old: list[int]
    new: list[int]
    place: int


def group_of(before: Sequence[Size], after: Sequence[Size], axis: int) -> Group | None:
    """The group of an axis of a reshape's result; None where sizes of it are not known."""
    edges = _edges(before, after)
    (p0, q0) = max((edge for edge in edges if edge[1] <= axis), key=lambda edge: (edge[1], edge[0]))
    (p1, q1) = min((edge for edge in edges if edge[1] > axis and edge[0] > p0), default=(0, 0))
    old = [size for size in before[p0:p1] if isinstance(size, int) and size > 0]
    new = [size for size in after[q0:q1] if isinstance(size, int) and size > 0]
    is_known = len(old) == p1 - p0 and len(new) == q1 - q0
    return Group(p0, old, new, axis - q0) if old and is_known else None


def _on_axis(blocks: list[int], repeats: int, size: int, inner: int) -> tuple[int, ...] | None:
    """The blocks of an axis that stand for these ones of the elements of its group."""
    count = len(blocks) // repeats if repeats and len(blocks) % repeats == 0 else 0
    if not count or blocks != blocks[:count] * repeats or any(block % inner for block in blocks):
        return None
    found = tuple(block // inner for block in blocks[:count])
    return found if sum(found) == size else None


def _edges(before: Sequence[Size], after: Sequence[Size]) -> list[tuple[int, int]]:
    """Pairs of places with as many elements in front of them before the reshape and behind it."""
    edges = {(0, 0), (len(before), len(after))}
    starts, ends = _products(after), _products(after[::-1])
    for length, product in enumerate(_products(before)):
        edges |= {(length, other) for other, same in enumerate(starts) if same == product}
    for length, product in enumerate(_products(before[::-1])):
        edges |= {(len(before) - length, len(after) - other) for other, same in enumerate(ends) if same == product}
    return sorted(edges)


def _products(sizes: Sequence[Size]) -> list[tuple[int, tuple[str, ...]]]:
    """The counts of elements of the first sizes, as a number times names of sizes; as far as these have names."""
    product: int = 1
    names: tuple[str, ...] = ()
    found: list[tuple[int, tuple[str, ...]]] = [(product, names)]
    for size in sizes:
        if size is None or size == 0:
            break
        if isinstance(size, int):
            product *= size
        else:
            names = tuple(sorted((*names, size)))
        found.append((product, names))
    return found

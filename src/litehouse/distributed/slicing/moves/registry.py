"""The table of rules by which a cut moves from the result of an op to its operands; found by the op's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.cuts import Cut, Size
from litehouse.formats.loader import MAX_RANK

if TYPE_CHECKING:
    from litehouse.distributed.slicing.writer import Writer

Edit = Callable[["Writer", ir.Node], None]
"""Changes a node so that it computes one rank's part; called when its operands are that rank's parts already."""


@dataclass(frozen=True, slots=True)
class Move:
    """How a node computes a part of its results.

    Attributes:
        inputs: The cuts of its operands by their places; those that are left out stay whole.
        edits: What changes in the node itself.
    """

    inputs: Mapping[int, Cut]
    edits: Sequence[Edit] = field(default=())


class Site:
    """A node, and what a rule wants to know about it."""

    def __init__(self, node: ir.Node, ranks: int, opset: int) -> None:
        """Look at a node of a graph of this version for so many ranks."""
        self.node, self.ranks, self.opset = node, ranks, opset

    def input(self, place: int) -> ir.Value | None:
        """An operand; None where it is left out."""
        return self.node.inputs[place] if place < len(self.node.inputs) else None

    def has(self, place: int) -> bool:
        """Whether an operand is given."""
        return self.input(place) is not None

    def sizes(self, place: int) -> tuple[Size, ...] | None:
        """The shape of an operand; None where even its rank is unknown."""
        return sizes_of(self.input(place))

    def out_sizes(self, place: int = 0) -> tuple[Size, ...] | None:
        """The shape of a result."""
        return sizes_of(self.node.outputs[place])

    def number(self, name: str, usual: int) -> int:
        """An attribute that is a whole number."""
        attribute = self.node.attributes.get(name)
        return usual if attribute is None else attribute.as_int()

    def numbers(self, name: str) -> list[int] | None:
        """An attribute that is a list of whole numbers."""
        attribute = self.node.attributes.get(name)
        return None if attribute is None else list(attribute.as_ints())

    def text(self, name: str, usual: str = "") -> str:
        """An attribute that is a text."""
        attribute = self.node.attributes.get(name)
        return usual if attribute is None else attribute.as_string()

    def array(self, place: int) -> np.ndarray | None:
        """The numbers of a small constant operand; None where it is none."""
        return array_of(self.input(place))

    def listed(self, name: str, place: int, since: int) -> list[int] | None:
        """Whole numbers that are an attribute in old versions of an op, and an operand since a newer one."""
        if self.opset < since:
            return self.numbers(name)
        array = self.array(place)
        return None if array is None else [int(number) for number in array.reshape(-1)]


def sizes_of(value: ir.Value | None) -> tuple[Size, ...] | None:
    """The shape of a value; a size that is not known is a name or None."""
    if value is None or value.shape is None or value.shape.rank() > MAX_RANK:
        return None
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


LARGEST = 4096  # elements; no list of sizes or places has more


def array_of(value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a small constant; None where it is none."""
    if value is None or value.is_graph_input() or value.const_value is None or value.const_value.size > LARGEST:
        return None
    return value.const_value.numpy()


Rule = Callable[[Site, Cut], Move | None]
ManyRule = Callable[[Site, Sequence[Cut | None]], Move | None]
RULES: dict[tuple[str, str], Rule] = {}
MANY: dict[tuple[str, str], ManyRule] = {}


def moves(*ops: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for ops of which only the first result is used."""

    def register(rule: Rule) -> Rule:
        RULES.update({(domain, op): rule for op in ops})
        return rule

    return register


def moves_many(*ops: str, domain: str = "") -> Callable[[ManyRule], ManyRule]:
    """Register a rule for ops with several results: it is given the cut of each one, None for those nobody uses."""

    def register(rule: ManyRule) -> ManyRule:
        MANY.update({(domain, op): rule for op in ops})
        return rule

    return register


def move_for(site: Site, cuts: Sequence[Cut | None]) -> Move | None:
    """How a node computes these parts of its results; None where it cannot."""
    key = ("" if site.node.domain == "ai.onnx" else site.node.domain, site.node.op_type)
    many = MANY.get(key)
    move = None
    if many is not None:
        move = many(site, cuts)
    elif key in RULES and cuts[0] is not None and not any(cuts[1:]):
        move = RULES[key](site, cuts[0])
    if move is None or not all(cut.divides(site.ranks) for cut in move.inputs.values()):
        return None
    return move


def aligned(sizes: tuple[Size, ...] | None, out: tuple[Size, ...], cut: Cut) -> Cut | bool:
    """The cut of an operand that is spread over a result as ONNX does it.

    Returns:
        The cut; True where every rank needs the whole operand; False where it cannot be told.
    """
    if sizes is None:
        return False
    axis = cut.axis - (len(out) - len(sizes))
    if axis < 0 or sizes[axis] == 1:
        return True
    return cut.along(axis) if sizes[axis] == out[cut.axis] and isinstance(sizes[axis], int) else False


def spread(site: Site, cut: Cut, places: Sequence[int]) -> dict[int, Cut] | None:
    """The cuts of operands that are spread over the result; None where one of them cannot be told."""
    out, found = site.out_sizes(), {}
    if out is None:
        return None
    for place in places:
        if not site.has(place):
            continue
        own = aligned(site.sizes(place), out, cut)
        if own is False:
            return None
        if isinstance(own, Cut):
            found[place] = own
    return found

"""`Demands`: who wants which part of which value, and which nodes therefore compute only a part."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from litehouse.distributed.slicing.cuts import Cut, join
from litehouse.distributed.slicing.moves import Move, Site, move_for, sizes_of

Use = tuple[ir.Node, int]
PADDABLE = frozenset(("Cast", "Gemm", "Identity", "MatMul", "Transpose"))  # of which a part filled up with zeros is one
SMALLEST_BITS = 8  # what is packed more densely cannot be cut everywhere


class Demands:
    """What is known so far: it only grows, and can be taken back to a mark.

    A value whose users all want the same part of it is computed in parts, if its node can. Then that node wants parts
    of its operands, and so on, until a weight is reached, of which each rank then needs only its part.

    Attributes:
        uses: The part that a use of a value wants.
        cut: The values that each rank has only a part of, weights among them.
        moves: How the nodes that compute parts do it.
        settled: Nodes whose results stay whole whatever others want, since an exchange follows.
    """

    def __init__(self, graph: ir.Graph, ranks: int, opset: int) -> None:
        """Begin with no demand."""
        self.graph, self.ranks, self.opset = graph, ranks, opset
        self.uses: dict[Use, Cut] = {}
        self.cut: dict[ir.Value, Cut] = {}
        self.moves: dict[ir.Node, Move] = {}
        self.settled: set[ir.Node] = set()
        self._journal: list[tuple[str, Any]] = []

    def site(self, node: ir.Node) -> Site:
        """A node, for the rules."""
        return Site(node, self.ranks, self.opset)

    def mark(self) -> int:
        """Where to come back to."""
        return len(self._journal)

    def take_back(self, mark: int) -> None:
        """Forget everything since a mark."""
        while len(self._journal) > mark:
            kind, key = self._journal.pop()
            if kind == "settled":
                self.settled.discard(key)
            else:
                getattr(self, kind).pop(key)

    def cut_since(self, mark: int) -> list[ir.Value]:
        """The weights that are cut since a mark."""
        found = [key for kind, key in self._journal[mark:] if kind == "cut"]
        return [value for value in found if isinstance(value, ir.Value) and value.is_initializer()]

    def is_filled_since(self, mark: int) -> bool:
        """Whether all parts that are filled up with zeros are those of weights: of others there are no such parts."""
        uses = [key for kind, key in self._journal[mark:] if kind == "uses"]
        return all(node.inputs[place] in self.cut for node, place in uses if self.uses[node, place].is_padded)

    def settle(self, node: ir.Node, move: Move) -> bool:
        """Let a node that an exchange follows want parts of its operands.

        Returns:
            False where it is computed otherwise already.
        """
        if node in self.settled or node in self.moves or any((node, place) in self.uses for place in move.inputs):
            return False
        self.settled.add(node)
        self._journal.append(("settled", node))
        self._note("moves", node, move)
        self._want(node, move)
        return True

    def _note(self, kind: str, key: object, item: object) -> None:
        getattr(self, kind)[key] = item
        self._journal.append((kind, key))

    def _want(self, node: ir.Node, move: Move) -> None:
        """Note what a node wants, and follow it upwards."""
        left = [(node, move)]
        while left:
            node, move = left.pop()
            for place, cut in move.inputs.items():
                self._note("uses", (node, place), cut)
            for value in dict.fromkeys(node.inputs[place] for place in move.inputs):
                assert value is not None
                found = self._follow(value)
                if found is not None:
                    left.append(found)

    def _follow(self, value: ir.Value) -> tuple[ir.Node, Move] | None:
        """Cut a value, if all its users want that; the node that computes it, and how."""
        cut, node = self.wanted(value), value.producer()
        if value in self.cut or cut is None:
            return None
        if node is None:
            if is_weight(value):
                self._note("cut", value, cut)
            return None
        if node in self.settled or node.graph is not self.graph or (cut.is_padded and node.op_type not in PADDABLE):
            return None
        used = [output for output in node.outputs if output.uses() or output.is_graph_output()]
        cuts = [self.wanted(output) if output in used else None for output in node.outputs]
        if any(cut is None for output, cut in zip(node.outputs, cuts, strict=True) if output in used):
            return None
        move = move_for(self.site(node), cuts)
        if move is None or any((node, place) in self.uses for place in move.inputs):
            return None
        for output, own in zip(node.outputs, cuts, strict=True):
            if own is not None:
                self._note("cut", output, own)
        self._note("moves", node, move)
        return node, move

    def wanted(self, value: ir.Value) -> Cut | None:
        """The part of a value that all its users want; None where they do not agree."""
        if value.is_graph_output() or value.is_graph_input():
            return None
        cuts: list[Cut] = []
        for node, place in value.uses():
            if (node, place) in self.uses:
                cuts.append(self.uses[node, place])
            elif not self.asks_shape(node):
                return None
        sizes = sizes_of(value)
        if not cuts or sizes is None or (value.dtype is not None and not is_plain(value.dtype)):
            return None
        size = sizes[cuts[0].axis]
        found = join(cuts, size) if isinstance(size, int) else None
        # The shape of a part that is filled up does not tell that of the whole.
        if found is not None and found.is_padded and any(self.asks_shape(use.node) for use in value.uses()):
            return None
        return found

    def asks_shape(self, node: ir.Node) -> bool:
        """Whether a node wants to know nothing but a shape, which can be told from that of a part."""
        return node.op_type == "Shape" and not node.domain and node.graph is self.graph


def is_plain(dtype: ir.DataType) -> bool:
    """Whether engines can cut and join values of a type: not texts, numbers of four bits, or floats of eight."""
    return dtype != ir.DataType.STRING and dtype.bitwidth >= SMALLEST_BITS and not dtype.name.startswith("FLOAT8")


def is_weight(value: ir.Value) -> bool:
    """Whether a value is a constant that can be cut."""
    tensor = value.const_value
    if not value.is_initializer() or value.is_graph_input() or tensor is None:
        return False
    return is_plain(tensor.dtype)

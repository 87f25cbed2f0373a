"""`Writer`: changes the graph that all ranks share, and notes the constants in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.constants import ForRank, bound
from litehouse.distributed.slicing.cuts import Cut, Size
from litehouse.distributed.slicing.moves.registry import sizes_of
from litehouse.model import EXCHANGE_DOMAIN

GROUP = "litehouse_world_group"


class Writer:
    """Writes nodes into a graph.

    Attributes:
        constants: What differs between the ranks, by name.
        ranks: How many there are.
        opset: The version of ONNX that the graph uses.
    """

    def __init__(self, graph: ir.Graph, ranks: int, opset: int) -> None:
        """Write into this graph."""
        self.constants: dict[str, ForRank] = {}
        self.ranks, self.opset = ranks, opset
        self.cut: Mapping[ir.Value, Cut] = {}
        self._graph = graph
        self._names = _names(graph)
        self._count = 0

    def is_cut(self, value: ir.Value | None) -> bool:
        """Whether a value is computed in parts."""
        return value in self.cut

    # Nodes and constants ----------------------------------------------------------------------------------------------

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        at: ir.Node,
        *,
        behind: bool = False,
        like: ir.Value | None = None,
        shape: Sequence[Size] | None = None,
        dtype: ir.DataType | None = None,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Write a node in front of another one, or behind it.

        Args:
            op_type: The op.
            inputs: Its operands.
            at: The other node.
            behind: Whether it goes behind that.
            like: A value whose dtype and shape the result has.
            shape: The shape of the result, where it is another one.
            dtype: The dtype of the result, where it is another one.
            domain: The domain of the op.
            name: What the result is called; a free name is made of it.
            **attributes: The attributes.
        """
        node = ir.node(op_type, inputs, attributes, domain=domain)
        made = node.outputs[0]
        made.name = self.free_name(name or f"{next((str(v.name) for v in inputs if v is not None), '')}/{op_type}")
        node.name = made.name
        if like is not None:
            made.type, made.shape = like.type, like.shape
        if dtype is not None:
            made.type = ir.TensorType(dtype)
        if shape is not None:
            made.shape = ir.Shape(shape)
        if behind:
            self._graph.insert_after(at, node)
        else:
            self._graph.insert_before(at, node)
        return made

    def exchange(
        self, op_type: str, value: ir.Value, at: ir.Node, shape: Sequence[Size], **attributes: Any
    ) -> ir.Value:
        """Write an op that exchanges data with the other ranks, behind a node."""
        label = f"{value.name}/{op_type}"
        known: dict[str, Any] = {"group": GROUP, "rank_size": self.ranks, **attributes}
        return self.op(
            op_type, [value], at, behind=True, like=value, shape=shape, domain=EXCHANGE_DOMAIN, name=label, **known
        )

    def ints(self, *numbers: int) -> ir.Value:
        """A constant list of whole numbers."""
        return self.constant(np.array(numbers, np.int64))

    def constant(self, array: np.ndarray, name: str = "constant") -> ir.Value:
        """A small constant, the same for all ranks."""
        return self._register(ir.Tensor(array), name)

    def rank_constant(self, array: Callable[[int], np.ndarray], name: str = "constant") -> ir.Value:
        """A small constant that each rank has its own of."""
        value = self._register(ir.Tensor(array(0)), name)
        assert value.name is not None
        self.constants[value.name] = bound(array, value.name)
        return value

    def own(self, value: ir.Value, make: Callable[[ir.TensorProtocol, str], ForRank]) -> ir.Value:
        """A weight of which each rank has its own, made of one that is there: that itself where nobody else uses it."""
        assert value.const_value is not None
        is_only = len(value.uses()) == 1 and not value.is_graph_output()
        made = value if is_only else self._register(value.const_value, str(value.name))
        assert made.name is not None
        self.constants[made.name] = make(value.const_value, made.name)
        return made

    def _register(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=self.free_name(name), type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def free_name(self, wanted: str) -> str:
        """A name that nothing has yet."""
        name = wanted
        while name in self._names:
            self._count += 1
            name = f"{wanted}_{self._count}"
        self._names.add(name)
        return name

    # Changes of nodes -------------------------------------------------------------------------------------------------

    def set_int(self, node: ir.Node, name: str, number: int) -> None:
        """Set an attribute."""
        node.attributes[name] = ir.AttrInt64(name, number)

    def set_ints(self, node: ir.Node, name: str, numbers: Sequence[int]) -> None:
        """Set an attribute."""
        node.attributes[name] = ir.AttrInt64s(name, list(numbers))

    def set_constant(self, node: ir.Node, place: int, array: Callable[[int], np.ndarray]) -> None:
        """Give a node a constant for an operand that each rank has its own of."""
        node.replace_input_with(place, self.rank_constant(array))

    def state(self, node: ir.Node, place: int, numbers: Mapping[int, int]) -> None:
        """Set some of the whole numbers of the list that is an operand of a node, computed or constant."""
        value = node.inputs[place]
        assert value is not None
        if not numbers:
            return
        if value.const_value is not None and not value.is_graph_input():
            array = value.const_value.numpy().copy()
            for index, number in numbers.items():
                array[index] = number
            node.replace_input_with(place, self.constant(array))
            return
        dtype = np.dtype((value.dtype or ir.DataType.INT64).numpy())
        pieces, done = [], 0
        for index, number in sorted(numbers.items()):
            if index > done:
                pieces.append(self.slice(value, done, index, 0, node))
            pieces.append(self.constant(np.array([number], dtype)))
            done = index + 1
        length = value.shape[0] if value.shape is not None else None
        if not isinstance(length, int) or done < length:
            pieces.append(self.slice(value, done, np.iinfo(np.int64).max, 0, node))
        node.replace_input_with(place, self.op("Concat", pieces, node, like=value, axis=0))

    def slice(self, value: ir.Value, start: int, end: int, axis: int, at: ir.Node) -> ir.Value:
        """A part of a value, the same for all ranks, written in front of a node."""
        if self.opset < 10:
            return self.op("Slice", [value], at, dtype=value.dtype, starts=[start], ends=[end], axes=[axis])
        operands = [self.ints(number) for number in (start, end, axis)]
        return self.op("Slice", [value, *operands], at, dtype=value.dtype)

    def slice_for_rank(self, value: ir.Value, cut: Cut, at: ir.Node) -> ir.Value:
        """This rank's part of a value, written in front of a node."""
        shape = list(sizes_of(value) or ())
        shape[cut.axis] = cut.local(self.ranks)
        name = f"{value.name}/part"
        if len(cut.blocks) == 1 and self.opset >= 10:
            ranges = [cut.ranges(rank, self.ranks)[0] for rank in range(self.ranks)]
            start, end = (self.rank_constant(lambda rank, i=i: np.array([ranges[rank][i]], np.int64)) for i in (0, 1))  # type: ignore[misc]
            return self.op("Slice", [value, start, end, self.ints(cut.axis)], at, like=value, shape=shape, name=name)
        places = self.rank_constant(
            lambda rank: np.concatenate([np.arange(*each, dtype=np.int64) for each in cut.ranges(rank, self.ranks)])
        )
        return self.op("Gather", [value, places], at, like=value, shape=shape, name=name, axis=cut.axis)

    def replace(self, old: ir.Value, new: ir.Value, keep: ir.Node) -> None:
        """Let a new value stand where an old one stood, but for one node."""
        for node, place in old.uses():
            if node is not keep:
                node.replace_input_with(place, new)
        if old.is_graph_output():
            self.replace_output(old, new)

    def replace_output(self, old: ir.Value, new: ir.Value) -> None:
        """Let a new value be the graph's output of the old one's name."""
        outputs, name = self._graph.outputs, old.name
        old.name = self.free_name(f"{name}/part")
        for place, value in enumerate(outputs):
            if value is old:
                outputs[place] = new
        new.name = name


def _names(graph: ir.Graph) -> set[str]:
    values = [value for node in graph.all_nodes() for value in node.outputs]
    for each in (graph, *graph.subgraphs()):
        values += [*each.inputs, *each.initializers.values()]
    return {str(value.name) for value in values}

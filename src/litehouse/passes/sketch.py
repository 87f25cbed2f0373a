"""`Sketch`: writes the nodes that a pass puts in the place of others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

SHOWN = 16  # numbers in the name of a constant
# What is noted about a graph: what new names begin with, how many there are, and which nodes need no second one.
PREFIX, COUNT, SHARED = "litehouse.prefix", "litehouse.count", "litehouse.shared"
MAX_STEPS = 8  # from a weight to what is computed of it alone


class Sketch:
    """Writes nodes in front of one node of a graph."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        """Write in front of `node`, which is in `graph`."""
        self._graph = graph
        self._node = node

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None], *, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Write a node. Returns its value, or a tuple of values when `outputs` is not 1."""
        node = ir.node(op_type, inputs, attributes, domain=domain, num_outputs=outputs)
        for value in node.outputs:
            value.name = self._new_name()
            value.type = None if inputs[0] is None else inputs[0].type
        self._graph.insert_before(self._node, node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def shared(self, op_type: str, inputs: Sequence[ir.Value | None], *, outputs: int = 1, **attributes: Any) -> Any:
        """Write a node as `op` does, but only one for the same operands: a weight of many nodes is changed once.

        The one that is there may stand further down, so that the graph has to be sorted in the end.
        """
        key = (op_type, tuple(inputs), outputs, repr(sorted(attributes.items())))
        made = self._graph.meta.setdefault(SHARED, {})
        known = made.get(key)
        first = known[0] if outputs > 1 and known is not None else known
        if first is None or first.producer().graph is not self._graph:  # none, or it was removed since nothing used it
            made[key] = self.op(op_type, inputs, outputs=outputs, **attributes)
        return made[key]

    def ints(self, *numbers: int) -> ir.Value:
        """A constant list of whole numbers."""
        return self.constant(np.array(numbers, np.int64))

    def constant(self, array: np.ndarray) -> ir.Value:
        """A small constant; equal ones are the same."""
        content = array.tolist() if array.size <= SHOWN else hashlib.sha256(array.tobytes()).hexdigest()
        name = f"{_prefix(self._graph)}{array.dtype}{array.shape}{content}"
        if name not in self._graph.initializers:
            tensor = ir.Tensor(array, name=name)
            value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
            self._graph.register_initializer(value)
        return self._graph.initializers[name]

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let a new value stand where an old one stood, also as an output of the graph."""
        new.type, new.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        new.name, old.name = old.name, None

    def _new_name(self) -> str:
        count = self._graph.meta.get(COUNT, 0)
        self._graph.meta[COUNT] = count + 1
        return f"{_prefix(self._graph)}{count}"


def _prefix(graph: ir.Graph) -> str:
    """What new names begin with, and no name of the file does: a graph must not repeat those of the graphs in it."""
    if PREFIX not in graph.meta:
        values = [value for node in graph.all_nodes() for value in node.outputs]
        for each in (graph, *graph.subgraphs()):
            values += [*each.inputs, *each.initializers.values()]
        prefix = "#"
        while any((value.name or "").startswith(prefix) for value in values):
            prefix += "#"
        graph.meta[PREFIX] = prefix
    return str(graph.meta[PREFIX])


def name_behind(node: ir.Node, word: str) -> str | None:
    """The name of a new node that belongs to one of the file; None, for any other, where that has none."""
    return f"{node.name}/{word}" if node.name else None


def is_fixed(value: ir.Value | None) -> bool:
    """Whether a value is the same in every run: a weight that no run changes, or computed of such alone."""
    if value is None:
        return False
    left = {value}
    for _ in range(MAX_STEPS + 1):
        makers = {each.producer() for each in left}
        if any(each.is_graph_input() or (each.producer() is None and each.const_value is None) for each in left):
            return False
        # What a graph inside a node takes from outside is not among its inputs.
        if any(node is not None and has_graphs(node) for node in makers):
            return False
        left = {each for node in makers if node is not None for each in node.inputs if each is not None}
    return not left


def has_graphs(node: ir.Node) -> bool:
    """Whether a node holds graphs: a branch, or the body of a loop."""
    return any(each.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for each in node.attributes.values())


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape of a value; None where a size is unknown, or 0, which means another thing to a Reshape."""
    if value is None or value.shape is None or not all(isinstance(size, int) and size > 0 for size in value.shape):
        return None
    return tuple(int(size) for size in value.shape)  # type: ignore[arg-type]


def number_of(value: ir.Value | None) -> float | None:
    """A constant of one number that makes no shape larger; None if it is no such."""
    tensor = None if value is None or value.is_graph_input() else value.const_value
    if tensor is None or tensor.size != 1 or tensor.shape.rank() > 1 or tensor.dtype != ir.DataType.FLOAT:
        return None
    return float(tensor.numpy().reshape(()))


def only_user(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The node of one of these kinds, in the same graph, that alone uses a value; None where another sees it too."""
    uses, maker = tuple(value.uses()), value.producer()
    if len(uses) != 1 or value.is_graph_output() or maker is None:
        return None
    user = uses[0].node
    return user if user.op_type in op_types and not user.domain and user.graph is maker.graph else None


def only_maker(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node of one of these kinds that gives a value which one node uses; None where another sees it too."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.domain or node.op_type not in op_types:
        return None
    return node if len(value.uses()) == 1 and not value.is_graph_output() else None


def order_of(transpose: ir.Node) -> tuple[int, ...] | None:
    """The order of axes that a Transpose states."""
    attribute = transpose.attributes.get("perm")
    return None if attribute is None else tuple(attribute.as_ints())


def is_along_last(node: ir.Node, rank: int) -> bool:
    """Whether a softmax or a normalisation of a value of so many axes goes along the last one alone."""
    attribute, graph = node.attributes.get("axis"), node.graph
    if attribute is not None:
        return attribute.as_int() in (-1, rank - 1)
    # A softmax went over all axes from the second on before version 13.
    return "Softmax" not in node.op_type or (graph is not None and graph.opset_imports.get("", 0) >= 13)


def folds_weights(model: ir.Model) -> bool:
    """Whether engines compute what depends on weights alone when they build: beside an If, ONNX Runtime must not."""
    return not any(node.op_type == "If" for node in model.graph.all_nodes())


def ints_of(node: ir.Node, place: int) -> list[int] | None:
    """The whole numbers that an operand holds; None if it is left out, or not constant."""
    value = node.inputs[place] if len(node.inputs) > place else None
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return [int(number) for number in value.const_value.numpy().reshape(-1)]

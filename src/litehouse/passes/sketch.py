"""`Sketch`: writes the nodes that a pass puts in the place of others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

SHOWN = 16  # numbers in the name of a constant
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
        self._graph.insert_before(self._node, node)
        for value in node.outputs:
            value.type = None if inputs[0] is None else inputs[0].type
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def ints(self, *numbers: int) -> ir.Value:
        """A constant list of whole numbers."""
        return self.constant(np.array(numbers, np.int64))

    def constant(self, array: np.ndarray) -> ir.Value:
        """A small constant; equal ones are the same."""
        content = array.tolist() if array.size <= SHOWN else hashlib.sha256(array.tobytes()).hexdigest()
        name = f"#{array.dtype}{array.shape}{content}"
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


def is_fixed(value: ir.Value | None, steps: int = MAX_STEPS) -> bool:
    """Whether a value is the same in every run: a weight that no run changes, or computed of such alone."""
    if value is None or value.is_graph_input():
        return False
    node = value.producer()
    if node is None:
        return value.const_value is not None
    return steps > 0 and all(each is None or is_fixed(each, steps - 1) for each in node.inputs)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape of a value; None where a size is unknown."""
    if value is None or value.shape is None or not all(isinstance(size, int) for size in value.shape):
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


def folds_weights(model: ir.Model) -> bool:
    """Whether engines compute what depends on weights alone when they build: beside an If, ONNX Runtime must not."""
    return not any(node.op_type == "If" for node in model.graph.all_nodes())


def ints_of(node: ir.Node, place: int) -> list[int] | None:
    """The whole numbers that an operand holds; None if it is left out, or not constant."""
    value = node.inputs[place] if len(node.inputs) > place else None
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return [int(number) for number in value.const_value.numpy().reshape(-1)]

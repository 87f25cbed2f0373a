"""Lets those who ask for the size of a value get it where it comes from, so that the value itself need not be whole."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.moves.registry import array_of, sizes_of
from litehouse.passes.sketch import Sketch

KEEPS = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"))  # a single number stays what it is

SAME = frozenset(
    ("Cast", "Clip", "Erf", "Gelu", "Identity", "LayerNormalization", "Relu", "Sigmoid", "Softmax", "Tanh")
)


def shorten_reads(model: ir.Model) -> None:
    """Replace `Gather(Shape(value), place)` by the number, if it is fixed, or by what a Reshape was given for it."""
    graph = model.graph
    for node in list(graph):
        if node.op_type == "Shape" and not node.domain:
            _look_before(node)
    for node in list(graph):
        place = _place(node)
        if place is None:
            continue
        asked = node.inputs[0].producer()  # type: ignore[union-attr]
        assert asked is not None
        value = asked.inputs[0]
        sizes = sizes_of(value)
        if value is None or sizes is None or value.producer() is None or not -len(sizes) <= place < len(sizes):
            continue
        size = sizes[place]
        if isinstance(size, int):
            index = array_of(node.inputs[1])
            known = np.full(() if index is None else index.shape, size, np.int64)
            if not node.outputs[0].is_graph_output():
                constant = Sketch(graph, node).constant(known)
                ir.convenience.replace_all_uses_with(node.outputs[0], constant)
        else:
            stated = _stated(value, place % len(sizes))
            if stated is not None:
                node.replace_input_with(0, stated)


def _look_before(node: ir.Node) -> None:
    """Let a Shape look at what a value is computed of, where that has the same shape."""
    value = node.inputs[0]
    while value is not None and (maker := value.producer()) is not None and maker.op_type in SAME and not maker.domain:
        if value is not maker.outputs[0]:
            break
        value = maker.inputs[0]
    if value is not None and value.graph is node.graph:
        node.replace_input_with(0, value)


def _place(node: ir.Node) -> int | None:
    """Which size of a value a node asks for; None where it does something else."""
    axis = node.attributes.get("axis")
    if node.op_type != "Gather" or node.domain or (axis is not None and axis.as_int() != 0):
        return None
    shape = None if node.inputs[0] is None else node.inputs[0].producer()
    index = array_of(node.inputs[1])
    if (
        shape is None
        or shape.op_type != "Shape"
        or shape.domain
        or shape.attributes
        or index is None
        or index.size != 1
    ):
        return None
    return int(index.reshape(-1)[0])


def _stated(value: ir.Value, place: int) -> ir.Value | None:
    """The list of sizes that a Reshape was given, if that tells this size: not as 0 or -1."""
    node = value.producer()
    if node is None or node.op_type != "Reshape" or node.domain or node.inputs[1] is None:
        return None
    stated = node.inputs[1]
    joined = stated.producer()
    if joined is None or joined.op_type != "Concat" or stated.dtype != ir.DataType.INT64:
        return None
    for piece in joined.inputs:
        length = sizes_of(piece)
        if length is None or len(length) != 1 or not isinstance(length[0], int):
            return None
        if place < length[0]:
            return stated if length[0] == 1 and _is_size(piece) else None
        place -= length[0]
    return None


def _is_size(value: ir.Value | None) -> bool:
    """Whether a number is a size of some value."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in KEEPS and not node.domain:
        value = node.inputs[0]
        node = None if value is None else value.producer()
    return node is not None and _place(node) is not None

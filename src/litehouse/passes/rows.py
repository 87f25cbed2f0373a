"""Keeps what is computed for each row in two axes, from one matrix product to the next."""

from __future__ import annotations

import math

import onnx_ir as ir

from litehouse.passes.kinds import ALONE, TOGETHER
from litehouse.passes.sketch import Sketch, is_along_last, is_fixed, only_user, static_shape

ALONG = frozenset(("LayerNormalization", "LogSoftmax", "RMSNormalization", "Softmax"))  # over the last axis


class RowsPass(ir.passes.InPlacePass):
    """Removes the reshapes between matrix products in two axes and what is between them in three.

    MindSpore flattens all leading axes before a dense layer, and puts them back behind it. ONNX Runtime (seen in
    1.31.1) spends some microseconds on every Reshape.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph."""
        flat: dict[ir.Value, ir.Value] = {}  # a value with more axes -> the same in two
        modified = False
        for node in list(model.graph):
            if node.domain or len(node.outputs) != 1:
                continue
            if node.op_type == "Reshape":
                modified |= _note(node, flat)
            elif node.op_type == "MatMul":
                modified |= _multiply(model.graph, node, flat)
            elif _is_by_row(node) and any(value in flat for value in node.inputs):
                modified |= _flatten(model.graph, node, flat)
        return ir.passes.PassResult(model, modified)


def _note(node: ir.Node, flat: dict[ir.Value, ir.Value]) -> bool:
    """Remember what is the same in two axes; skip a reshape to what is remembered."""
    source, result = node.inputs[0], node.outputs[0]
    before, after = static_shape(source), static_shape(result)
    if source is None or before is None or after is None or not before or not after or before[-1] != after[-1]:
        return False
    if len(before) == 2 and len(after) > 2:
        flat[result] = source
    elif len(before) > 2 and len(after) == 2:
        if source in flat and not result.is_graph_output():
            result.replace_all_uses_with(flat[source])
            return True
        flat.setdefault(source, result)
    return False


def _is_by_row(node: ir.Node) -> bool:
    """Whether rows, which lie along the last axis, are computed one by one."""
    if node.op_type in ALONG:
        shape = static_shape(node.outputs[0])
        return shape is not None and is_along_last(node, len(shape))
    return node.op_type in ALONE or node.op_type in TOGETHER


def _multiply(graph: ir.Graph, node: ir.Node, flat: dict[ir.Value, ir.Value]) -> bool:
    """Multiply rows with a weight, where they are in two axes already or a bias follows."""
    x, weight = node.inputs
    shape, whole = static_shape(x), static_shape(node.outputs[0])
    if x is None or shape is None or whole is None or len(shape) < 3 or not is_fixed(weight):
        return False
    if len(static_shape(weight) or ()) != 2 or not (x in flat or _is_biased(node.outputs[0])):
        return False
    sketch = Sketch(graph, node)
    _put(sketch, node, [_rows_of(sketch, x, flat), weight], whole, flat)
    graph.remove(node, safe=True)
    return True


def _is_biased(product: ir.Value) -> bool:
    add = only_user(product, "Add", "Sum")
    return add is not None and any(is_fixed(value) and len(static_shape(value) or ()) == 1 for value in add.inputs)


def _rows_of(sketch: Sketch, value: ir.Value | None, flat: dict[ir.Value, ir.Value]) -> ir.Value:
    """The same value in two axes."""
    shape = static_shape(value)
    assert value is not None
    assert shape is not None
    if value not in flat:
        rows = (math.prod(shape[:-1]), shape[-1])
        flat[value] = sketch.op("Reshape", [value, sketch.ints(*rows)])
        flat[value].shape = ir.Shape(rows)
    return flat[value]


def _put(
    sketch: Sketch,
    node: ir.Node,
    operands: list[ir.Value | None],
    whole: tuple[int, ...],
    flat: dict[ir.Value, ir.Value],
) -> None:
    """Write a node on operands in two axes, and its result with all axes."""
    attributes = {name: each.value for name, each in node.attributes.items()}
    made = sketch.op(node.op_type, operands, **attributes | ({"axis": 1} if node.op_type in ALONG else {}))
    made.type, made.shape = node.outputs[0].type, ir.Shape((math.prod(whole[:-1]), whole[-1]))
    back = sketch.op("Reshape", [made, sketch.ints(*whole)])
    sketch.replace(node.outputs[0], back)
    flat[back] = made


def _flatten(graph: ir.Graph, node: ir.Node, flat: dict[ir.Value, ir.Value]) -> bool:
    result = node.outputs[0]
    whole = static_shape(result)
    if whole is None or len(whole) < 3:
        return False
    rows = (math.prod(whole[:-1]), whole[-1])
    operands: list[ir.Value | None] = []
    missing = []
    for value in node.inputs:
        shape = static_shape(value)
        if value in flat and shape == whole:
            operands.append(flat[value])
        elif value is None or (shape is not None and (len(shape) < 2 or shape == rows)):
            operands.append(value)
        elif shape == whole:
            operands.append(value)
            missing.append(len(operands) - 1)
        else:
            return False
    if missing and not any(user.op_type == "Reshape" or _is_by_row(user) for user in result.consumers()):
        return False  # it would only move a reshape to the other operand
    sketch = Sketch(graph, node)
    for place in missing:
        operands[place] = _rows_of(sketch, operands[place], flat)
    _put(sketch, node, operands, whole, flat)
    graph.remove(node, safe=True)
    return True

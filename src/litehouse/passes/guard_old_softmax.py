"""Keeps an old Softmax going over several axes."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import name_behind

SINCE = 13  # when a Softmax goes along one axis


class GuardOldSoftmaxPass(ir.passes.InPlacePass):
    """Flattens the operand of a Softmax that goes over all axes from one on, and gives its result all axes again.

    Before version 13 it means that. OpenVINO (seen in 2026.4.1) lets it go along the first of them alone in versions 11
    and 12: other numbers.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Guard every such node, in all graphs of the model."""
        modified = False
        for node in list(model.graph.all_nodes()) if model.graph.opset_imports.get("", SINCE) < SINCE else ():
            if node.op_type == "Softmax" and not node.domain and not _is_along_last(node) and not _is_flat(node):
                _flatten(node)
                modified = True
        return ir.passes.PassResult(model, modified)


def _axis(node: ir.Node) -> int:
    attribute = node.attributes.get("axis")
    return 1 if attribute is None else attribute.as_int()


def _is_along_last(node: ir.Node) -> bool:
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return _axis(node) == -1 or (shape is not None and _axis(node) == len(shape) - 1)


def _is_flat(node: ir.Node) -> bool:
    """Whether an operand has two axes already, as in a file that was guarded before."""
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    return _axis(node) == 1 and maker is not None and maker.op_type == "Flatten" and not maker.domain


def _flatten(node: ir.Node) -> None:
    """Put a Flatten before a node and a Reshape behind it."""
    x, old = node.inputs[0], node.outputs[0]
    flat = ir.node("Flatten", [x], {"axis": _axis(node)}, name=name_behind(node, "guard"))
    shape = ir.node("Shape", [x], name=name_behind(node, "shape"))
    whole = ir.node("Reshape", [None, shape.outputs[0]], name=name_behind(node, "whole"))
    flat.outputs[0].name, shape.outputs[0].name = f"{old.name}/rows", f"{old.name}/shape"
    assert x is not None
    assert node.graph is not None
    node.graph.insert_before(node, [flat, shape])
    node.graph.insert_after(node, whole)
    new = whole.outputs[0]
    flat.outputs[0].type, shape.outputs[0].type = x.type, ir.TensorType(ir.DataType.INT64)
    new.type, new.shape, name = old.type, old.shape, old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    whole.replace_input_with(0, old)
    node.replace_input_with(0, flat.outputs[0])
    node.attributes["axis"] = ir.AttrInt64("axis", 1)
    old.name, new.name, old.shape = f"{name}/flat", name, None

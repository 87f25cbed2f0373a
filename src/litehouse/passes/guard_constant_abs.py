"""Keeps the absolute value of a computed constant what it is."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import name_behind

FOLDED = ("Constant", "Shape", "Size")  # constants, as far as an engine is concerned that knows the inputs' shapes


class GuardConstantAbsPass(ir.passes.InPlacePass):
    """Writes Max(x, -x) for Abs(x) where x is computed from constants and shapes alone.

    OpenVINO (seen in 2026.4.1) computes such parts of a graph when it builds the model, and leaves the Abs out: a wrong
    result wherever x is negative. It does right by an Abs of a stored constant, and of what depends on the inputs.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace every such node, in all graphs of the model."""
        constant: set[ir.Value] = set()
        modified = False
        for node in list(model.graph.all_nodes()):
            inputs = [value for value in node.inputs if value is not None]
            known = bool(inputs) and all(value.const_value is not None or value in constant for value in inputs)
            if not known and node.op_type not in FOLDED:
                continue
            constant.update(node.outputs)
            if node.op_type == "Abs" and node.domain == "" and _is_computed(inputs[0]):
                _replace(node, inputs[0])
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_computed(value: ir.Value) -> bool:
    """Whether a signed number is computed, not stored."""
    return value.const_value is None and not (value.dtype is not None and value.dtype.name.startswith("UINT"))


def _replace(node: ir.Node, x: ir.Value) -> None:
    """Put a Max of the value and its opposite in the node's place."""
    opposite = ir.node("Neg", [x], name=name_behind(node, "opposite"))
    largest = ir.node("Max", [x, opposite.outputs[0]], name=name_behind(node, "largest"))
    opposite.outputs[0].name = f"{node.outputs[0].name}/opposite"
    for made in (opposite, largest):
        made.outputs[0].type, made.outputs[0].shape = x.type, x.shape
    assert node.graph is not None
    node.graph.insert_before(node, [opposite, largest])
    old, new = node.outputs[0], largest.outputs[0]
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    new.name = old.name
    node.graph.remove(node, safe=True)

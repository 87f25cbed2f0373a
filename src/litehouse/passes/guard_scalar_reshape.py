"""Keeps OpenVINO alive where a matrix product becomes a single number."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, name_behind


class GuardScalarReshapePass(ir.passes.InPlacePass):
    """Writes a Reshape to one number and a Squeeze for a Reshape to rank 0.

    OpenVINO (seen in 2026.4.1) kills the process when it builds such a Reshape behind a MatMul or Gemm.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace every such node, in all graphs of the model."""
        found = [node for node in model.graph.all_nodes() if node.op_type == "Reshape" and node.domain == ""]
        found = [node for node in found if _is_empty(node.inputs[1])]
        if not found:
            return ir.passes.PassResult(model, False)
        sketch = Sketch(model.graph, found[0])
        one = sketch.ints(1)
        # The axes became an operand in version 13.
        by_attribute = model.graph.opset_imports.get("", 0) < 13
        axes, operands = ({"axes": [0]}, []) if by_attribute else ({}, [sketch.ints(0)])
        for node in found:
            node.replace_input_with(1, one)
            old = node.outputs[0]
            squeeze = ir.node("Squeeze", [old, *operands], axes, name=name_behind(node, "guard"))
            assert node.graph is not None
            node.graph.insert_after(node, squeeze)
            new = squeeze.outputs[0]
            new.type, new.shape, name = old.type, old.shape, old.name
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
            squeeze.replace_input_with(0, old)
            old.name, new.name, old.shape = f"{name}/one", name, ir.Shape([1])
        return ir.passes.PassResult(model, True)


def _is_empty(shape: ir.Value | None) -> bool:
    return shape is not None and shape.const_value is not None and shape.const_value.size == 0

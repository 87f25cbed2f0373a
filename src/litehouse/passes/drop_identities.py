"""Takes out the nodes that give what they take."""

from __future__ import annotations

import onnx_ir as ir


class DropIdentitiesPass(ir.passes.InPlacePass):
    """Lets whatever stands behind an Identity use what stands before it, so that other passes see them side by side.

    One that gives an output of a graph stays, as that has a name of its own. (ONNX IR's pass of this kind takes those
    out, too, and fails where a graph and one inside it give the same value.)
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Take them out of the main graph and of those inside it."""
        modified = False
        for node in list(model.graph.all_nodes()):
            if node.op_type == "Identity" and not node.domain and not node.outputs[0].is_graph_output():
                modified |= _drop(node)
        return ir.passes.PassResult(model, modified)


def _drop(node: ir.Node) -> bool:
    (x,), (y,) = node.inputs, node.outputs
    if x is None or node.graph is None:
        return False
    if x.shape is None:
        x.shape = y.shape
    if x.type is None:
        x.type = y.type
    y.replace_all_uses_with(x)
    node.graph.remove(node, safe=True)
    return True

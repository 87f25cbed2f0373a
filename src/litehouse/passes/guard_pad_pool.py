"""Keeps zero padding before a pool what it is."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import name_behind

POOLS = ("MaxPool", "AveragePool")
REMOVABLE = ("Identity", "Dropout", "Cast")  # what the optimiser takes out before it looks for the pair


def _is_padded(value: ir.Value) -> bool:
    node = value.producer()
    while node is not None and node.op_type in REMOVABLE and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type == "Pad"


class GuardPadPoolPass(ir.passes.InPlacePass):
    """Puts a copy between a Pad and the pool that it feeds.

    ONNX Runtime's optimiser "Pad_Fusion" (seen in 1.31.1) moves the padding of such a pair into the pool. In a MaxPool
    it counts as minus infinity there instead of zero: a wrong result wherever a window holds only negative numbers and
    padding. An AveragePool whose padding is then as large as its window cannot be built.
    A Max of one operand is a copy that no optimiser removes, so the pair is not recognised, here and in a converted
    file.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Guard every pair, in all graphs of the model."""
        modified = False
        for node in list(model.graph.all_nodes()):
            if node.op_type not in POOLS or node.domain != "":
                continue
            padded = node.inputs[0]
            if padded is None or not _is_padded(padded):
                continue
            guard = ir.node("Max", [padded], name=name_behind(node, "guard"))
            guard.outputs[0].name = f"{node.outputs[0].name}/guard"
            guard.outputs[0].type, guard.outputs[0].shape = padded.type, padded.shape
            assert node.graph is not None
            node.graph.insert_before(node, guard)
            node.replace_input_with(0, guard.outputs[0])
            modified = True
        return ir.passes.PassResult(model, modified)

"""Puts what is added to each channel behind a convolution into its bias."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, is_fixed, static_shape

CONVOLUTIONS = ("Conv", "ConvTranspose")


class MoveBiasPass(ir.passes.InPlacePass):
    """Moves the addition of a weight of [1, C, 1, 1] into the convolution before it, also past another addition.

    Files of MegEngine have `(convolution + other branch) + bias`. ONNX Runtime (seen in 1.31.1) joins a convolution
    with one addition and one activation that follow, so that here the last two would stay by themselves.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Move every such bias, in the main graph."""
        modified = False
        for node in list(model.graph):
            if node.op_type == "Add" and not node.domain:
                modified |= any(_move(model.graph, node, place) for place in range(2))
        if modified:
            model.graph.sort()
        return ir.passes.PassResult(model, modified)


def _move(graph: ir.Graph, node: ir.Node, place: int) -> bool:
    if node.graph is None:
        return False  # moved already
    bias, total, result = node.inputs[place], node.inputs[1 - place], node.outputs[0]
    if bias is None or total is None or result.is_graph_output() or not is_fixed(bias):
        return False
    convolution = _convolution_behind(total, bias)
    if convolution is None:
        return False
    _add_bias(graph, convolution, bias)
    result.replace_all_uses_with(total)
    graph.remove(node, safe=True)
    return True


def _convolution_behind(value: ir.Value, bias: ir.Value) -> ir.Node | None:
    """The convolution that gives the value, or one of its two summands, if nothing else sees what would change."""
    node = value.producer()
    if node is None or node.domain or value.is_graph_output() or len(value.uses()) != 1:
        return None
    if node.op_type in CONVOLUTIONS:
        return node if _is_for_channels(bias, value) else None
    if node.op_type != "Add":
        return None
    for summand in node.inputs:
        maker = None if summand is None else summand.producer()
        if summand is not None and maker is not None and maker.op_type in CONVOLUTIONS:
            found = _convolution_behind(summand, bias) if summand.shape == value.shape else None
            if found is not None:
                return found
    return None


def _is_for_channels(bias: ir.Value, value: ir.Value) -> bool:
    few, whole = static_shape(bias), value.shape
    if few is None or whole is None or bias.dtype != value.dtype or not 2 < whole.rank() >= len(few):
        return False
    return [*[1] * (whole.rank() - len(few)), *few] == [1, whole[1], *[1] * (whole.rank() - 2)]


def _add_bias(graph: ir.Graph, node: ir.Node, bias: ir.Value) -> None:
    """Give a convolution the bias, beside the one that it may have."""
    sketch = Sketch(graph, node)
    whole = sketch.op("Reshape", [bias, sketch.ints(-1)])
    result = node.outputs[0].shape
    assert result is not None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        whole = sketch.op("Add", [node.inputs[2], whole])
    whole.shape = ir.Shape([result[1]])
    node.resize_inputs(3)
    node.replace_input_with(2, whole)

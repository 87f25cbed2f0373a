"""Puts a batch normalisation into the weights of the convolution before it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, only_user

EPSILON = 1e-5  # ONNX's own, where a node states none


class FoldBatchNormPass(ir.passes.InPlacePass):
    """Scales the weights of a convolution by what the normalisation behind it multiplies with, and shifts its bias.

    ONNX Runtime and OpenVINO do this by themselves. It needs weights that are constant.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold every normalisation behind a convolution, in the main graph."""
        modified = False
        for node in list(model.graph):
            if node.op_type == "Conv" and not node.domain:
                norm = only_user(node.outputs[0], "BatchNormalization")
                modified |= norm is not None and _fold(model.graph, node, norm)
        return ir.passes.PassResult(model, modified)


def _fold(graph: ir.Graph, conv: ir.Node, norm: ir.Node) -> bool:
    training = norm.attributes.get("training_mode")
    if norm.inputs[0] is not conv.outputs[0] or len(norm.outputs) != 1 or (training and training.as_int()):
        return False
    weight = _constant(conv.inputs[1])
    bias = _constant(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] is not None else None
    has_bias = len(conv.inputs) > 2 and conv.inputs[2] is not None
    numbers = [_constant(value) for value in norm.inputs[1:5]]
    if weight is None or (has_bias and bias is None) or any(array is None for array in numbers):
        return False
    scale, shift, mean, variance = (array.astype(np.float64) for array in numbers if array is not None)
    if weight.dtype != np.float32 or any(each.shape != weight.shape[:1] for each in (scale, shift, mean, variance)):
        return False  # a file of opset 7 may have numbers for each place
    epsilon = norm.attributes.get("epsilon")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + (EPSILON if epsilon is None else epsilon.as_float()))
        turned = (shift + ((0.0 if bias is None else bias.astype(np.float64)) - mean) * factor).astype(np.float32)
        whole = (weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))).astype(np.float32)
    if not (np.isfinite(whole).all() and np.isfinite(turned).all()):
        return False
    sketch = Sketch(graph, conv)
    operands = [conv.inputs[0], sketch.constant(whole), sketch.constant(turned)]
    attributes = {name: each.value for name, each in conv.attributes.items()}
    made = sketch.op("Conv", operands, **attributes)
    made.producer().name = conv.name
    sketch.replace(norm.outputs[0], made)
    graph.remove(norm, safe=True)
    graph.remove(conv, safe=True)
    return True


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()

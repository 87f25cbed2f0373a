"""ONNX in words that the converter of MindSpore Lite 2.0.0 knows, which is from 2023."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnx_ir.passes.common import ShapeInferencePass


def write_for_lite(source: Path, target: Path) -> None:
    """Write a file that the converter takes and that computes the same.

    Constants are folded, and batch norms and biases joined with their layers, as exporters do it; then the few things
    are changed that the converter or its runtime refuses.
    """
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    settings.optimized_model_filepath = str(target)
    # Gelu is an operator of 2023: its parts are known, and joined by the converter itself.
    onnxruntime.InferenceSession(source, settings, disabled_optimizers=["GeluFusionL1"])
    model = ShapeInferencePass()(ir.load(target)).model
    for domain in [domain for domain in model.opset_imports if domain]:
        del model.opset_imports[domain]
    for node in list(model.graph):
        if node.op_type == "MaxPool":
            node.attributes.pop("dilations", None)  # all ones; refused nevertheless
        elif node.op_type == "LSTM":
            _name_states(node)
        elif node.op_type == "InstanceNormalization":
            _widen(model.graph, node)
    ir.save(model, target)


def _name_states(node: ir.Node) -> None:
    """The converter finds no shapes for an LSTM that does not name all three results."""
    node.resize_outputs(3)
    for k in (1, 2):
        node.outputs[k].name = f"{node.outputs[0].name}_{k}"


def _widen(graph: ir.Graph, node: ir.Node) -> None:
    """The runtime normalises over two axes, not over one."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    assert x.shape is not None
    if len(x.shape) != 3:
        return
    count, groups, length = x.shape.numpy()
    wide = _reshaped(graph, x, (count, groups, 1, length), f"{node.name}_wide")
    graph.insert_before(node, wide)
    node.replace_input_with(0, wide.outputs[0])
    y.shape = None
    narrow = _reshaped(graph, y, (count, groups, length), f"{node.name}_narrow")
    for user, place in [use for use in y.uses() if use.node is not narrow]:
        user.replace_input_with(place, narrow.outputs[0])
    graph.insert_after(node, narrow)


def _reshaped(graph: ir.Graph, x: ir.Value, shape: tuple[int, ...], name: str) -> ir.Node:
    sizes = ir.Value(name=f"{name}_shape", const_value=ir.tensor(np.array(shape, np.int64), name=f"{name}_shape"))
    graph.register_initializer(sizes)
    node = ir.node("Reshape", [x, sizes], name=name)
    node.outputs[0].name = f"{name}_result"
    return node

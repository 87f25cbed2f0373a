"""Takes the means of large windows in two steps."""

from __future__ import annotations

import math

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, static_shape

OLDEST_OPSET = 18  # of a ReduceMean that takes its axes as an input
BLOCK = 8  # images with a multiple of so many channels are pooled in the layout of the convolutions, which is fast
SMALLEST_WINDOW = 4  # below this, and for images smaller than the next, the steps cost as much as they save
FEWEST_NUMBERS = 1 << 13


class PoolInStepsPass(ir.passes.InPlacePass):
    """Writes an AveragePool as the means of columns, then of lines, where its windows stand side by side.

    ONNX Runtime (seen in 1.31.1) takes one number after the other of an image that it has in the plain layout: 15 times
    as long for windows of 28x28.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace every such node, in the main graph."""
        modified = False
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET:
            for node in list(model.graph):
                if node.op_type == "AveragePool" and not node.domain and _gains(node):
                    _replace(model.graph, node)
                    modified = True
        return ir.passes.PassResult(model, modified)


def _gains(node: ir.Node) -> bool:
    shape, window = static_shape(node.inputs[0]), _window(node)
    if shape is None or len(shape) != 4 or shape[1] % BLOCK == 0 or min(window) < SMALLEST_WINDOW:
        return False
    if math.prod(shape) < FEWEST_NUMBERS or shape[2] % window[0] or shape[3] % window[1]:
        return False
    plain = {"auto_pad": ("NOTSET", "VALID"), "dilations": ([1, 1],), "pads": ([0] * 4,), "strides": (window,)}
    for name, allowed in plain.items():
        attribute = node.attributes.get(name)
        if attribute is None and name != "strides":
            continue
        if attribute is None or (attribute.value if name == "auto_pad" else list(attribute.as_ints())) not in allowed:
            return False
    return True


def _window(node: ir.Node) -> list[int]:
    return list(node.attributes["kernel_shape"].as_ints())


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    sketch = Sketch(graph, node)
    shape, (height, width) = static_shape(node.inputs[0]), _window(node)
    assert shape is not None
    rows, columns = shape[2] // height, shape[3] // width
    bands = sketch.op("Reshape", [node.inputs[0], sketch.ints(shape[0] * shape[1] * rows, height, shape[3])])
    lines = sketch.op("ReduceMean", [bands, sketch.ints(1)], keepdims=0)
    parts = sketch.op("Reshape", [lines, sketch.ints(*shape[:2], rows, columns, width)])
    sketch.replace(node.outputs[0], sketch.op("ReduceMean", [parts, sketch.ints(4)], keepdims=0))
    graph.remove(node, safe=True)

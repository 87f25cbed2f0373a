"""Turns images into rows of channels in the order that costs engines nothing."""

from __future__ import annotations

import math

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, order_of, static_shape


class ChannelsLastPass(ir.passes.InPlacePass):
    """Transposes images with their four axes, before they are flattened to rows or after they come from rows.

    Both engines (seen in ONNX Runtime 1.31.1 and OpenVINO 2026.4.1) hold images between convolutions in layouts of
    their own, and give them with channels last for the price that channels first would have. To transpose an image that
    is flat already is a pass over memory, in OpenVINO a slow one.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph."""
        modified = False
        for node in list(model.graph):
            if not node.domain and node.op_type == "Transpose" and order_of(node) == (0, 2, 1):
                modified |= _to_rows(model.graph, node)
            elif not node.domain and node.op_type == "Reshape":
                modified |= _from_rows(model.graph, node)
        return ir.passes.PassResult(model, modified)


def _to_rows(graph: ir.Graph, node: ir.Node) -> bool:
    """Image, flattened, transposed: to image, transposed, flattened."""
    reshape = None if node.inputs[0] is None else node.inputs[0].producer()
    if reshape is None or reshape.op_type != "Reshape" or reshape.domain:
        return False
    image, flat = static_shape(reshape.inputs[0]), static_shape(reshape.outputs[0])
    if image is None or len(image) != 4 or flat != (*image[:2], math.prod(image[2:])):
        return False
    sketch = Sketch(graph, node)
    turned = sketch.op("Transpose", [reshape.inputs[0]], perm=(0, 2, 3, 1))
    sketch.replace(node.outputs[0], sketch.op("Reshape", [turned, sketch.ints(flat[0], flat[2], flat[1])]))
    graph.remove(node, safe=True)
    return True


def _from_rows(graph: ir.Graph, node: ir.Node) -> bool:
    """Rows, transposed, put into an image: to rows, put into an image, transposed."""
    transpose = None if node.inputs[0] is None else node.inputs[0].producer()
    if transpose is None or transpose.op_type != "Transpose" or transpose.domain or order_of(transpose) != (0, 2, 1):
        return False
    image, flat = static_shape(node.outputs[0]), static_shape(transpose.outputs[0])
    if image is None or len(image) != 4 or flat != (*image[:2], math.prod(image[2:])):
        return False
    batch, channels, height, width = image
    sketch = Sketch(graph, node)
    rows = sketch.op("Reshape", [transpose.inputs[0], sketch.ints(batch, height, width, channels)])
    sketch.replace(node.outputs[0], sketch.op("Transpose", [rows], perm=(0, 3, 1, 2)))
    graph.remove(node, safe=True)
    return True

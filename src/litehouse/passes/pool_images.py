"""Takes the means of images where they are."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from litehouse.passes.channels import channels_of, is_blocked
from litehouse.passes.sketch import Sketch


class PoolImagesPass(ir.passes.InPlacePass):
    """Writes GlobalAveragePool for a ReduceMean over the height and width of an image that a convolution made.

    ONNX Runtime (seen in 1.31.1) has a kernel for it in the layout of its convolutions, and takes what follows in that
    layout too; for a ReduceMean it brings the image into the plain layout first.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace every such node, in the main graph."""
        modified = False
        for node in list(model.graph):
            if node.op_type == "ReduceMean" and not node.domain and _is_over_images(node):
                _replace(model.graph, node)
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_over_images(node: ir.Node) -> bool:
    image = node.inputs[0]
    if image is None or channels_of(image) is None or not is_blocked(image):
        return False
    keepdims = node.attributes.get("keepdims")
    if keepdims is not None and not keepdims.as_int():
        return False
    axes: Sequence[int] = node.attributes["axes"].as_ints() if "axes" in node.attributes else ()
    value = node.inputs[1] if len(node.inputs) > 1 else None  # in place of the attribute, since version 18
    if value is not None and value.const_value is not None:
        axes = value.const_value.numpy().tolist()
    return sorted(axis % 4 for axis in axes) == [2, 3]


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    sketch = Sketch(graph, node)
    sketch.replace(node.outputs[0], sketch.op("GlobalAveragePool", node.inputs[:1]))
    graph.remove(node, safe=True)

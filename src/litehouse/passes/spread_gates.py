"""Gives a factor for each channel the size of the image that it is for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.passes.channels import is_blocked
from litehouse.passes.sketch import Sketch, static_shape

OLDEST_OPSET = 13  # of a Resize without a region


class SpreadGatesPass(ir.passes.InPlacePass):
    """Enlarges what a convolution made for each channel before an image is multiplied with it: "squeeze and excite".

    ONNX Runtime (seen in 1.31.1) can enlarge images and multiply them in the layout of its convolutions, but only with
    images of the same size; otherwise it brings both into the plain layout and the result back.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Enlarge the factors of every such product, in the main graph."""
        modified = False
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET:
            for node in list(model.graph):
                if node.op_type == "Mul" and not node.domain:
                    modified |= any(_spread(model.graph, node, place) for place in range(2))
        return ir.passes.PassResult(model, modified)


def _spread(graph: ir.Graph, node: ir.Node, place: int) -> bool:
    gate, image = node.inputs[place], node.inputs[1 - place]
    small, large = static_shape(gate), static_shape(image)
    if gate is None or image is None or large is None or len(large) != 4:
        return False
    if small != (*large[:2], 1, 1) or small == large or not is_blocked(gate) or not is_blocked(image):
        return False
    sketch = Sketch(graph, node)
    scales = sketch.constant(np.array([1, 1, *large[2:]], np.float32))
    spread = sketch.op(
        "Resize",
        [gate, None, scales],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    spread.shape = image.shape
    node.replace_input_with(place, spread)
    return True

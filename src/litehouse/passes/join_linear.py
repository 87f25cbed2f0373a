"""Joins a matrix product with a weight, and the bias behind it, into one op of the torch engine."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, only_user, static_shape

TORCH = "litehouse.torch"
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


class JoinLinearPass(ir.passes.InPlacePass):
    """Writes `Linear(x, weight, bias)` for x * weight + bias: one kernel adds the bias as it writes the product.

    The shapes and types of the values must be known; a GPU has no products of whole numbers. The weight has two axes,
    the bias one, which is as long as the weight's second; x may have more axes.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Join every such pair in the main graph."""
        modified = False
        for node in list(model.graph):
            if node.op_type == "MatMul" and not node.domain:
                add = only_user(node.outputs[0], "Add", "Sum")
                if add is not None and len(add.inputs) == 2:
                    modified |= _join(model.graph, node, add)
        if modified:
            model.graph.opset_imports[TORCH] = 1
        return ir.passes.PassResult(model, modified)


def _join(graph: ir.Graph, product: ir.Node, add: ir.Node) -> bool:
    x, weight = product.inputs
    bias = add.inputs[1] if add.inputs[0] is product.outputs[0] else add.inputs[0]
    shape, whole = static_shape(weight), static_shape(x)
    if shape is None or whole is None or len(shape) != 2 or len(whole) < 2 or static_shape(bias) != shape[1:]:
        return False
    if x is None or bias is None or x.dtype not in FLOATS or bias.dtype != x.dtype:
        return False
    sketch = Sketch(graph, add)
    made = sketch.op("Linear", [x, weight, bias], domain=TORCH)
    made.producer().name = product.name
    sketch.replace(add.outputs[0], made)
    graph.remove(add, safe=True)
    graph.remove(product, safe=True)
    return True

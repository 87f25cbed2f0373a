"""Writes Clip for the two ops that bound a value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, is_fixed

OLDEST_OPSET = 11  # of a Clip that takes its bounds as inputs
LOWER, UPPER = ("Relu", "Max"), ("Min",)


class WriteClipsPass(ir.passes.InPlacePass):
    """Writes Clip for a Relu or a Max with a number, and a Min with a number, in either order.

    ONNX Runtime (seen in 1.31.1) computes a Clip within the convolution before it. Files of MegEngine have
    `min(6, max(0, x))` instead.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace every such pair, in the main graph."""
        modified = False
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET:
            for node in list(model.graph):
                if not node.domain and node.op_type in (*LOWER, *UPPER):
                    modified |= _replace(model.graph, node)
        return ir.passes.PassResult(model, modified)


def _replace(graph: ir.Graph, node: ir.Node) -> bool:
    between, bound = _operands(node)
    before = None if between is None else between.producer()
    if before is None or between is None or between.is_graph_output() or len(between.uses()) != 1 or before.domain:
        return False
    is_upper = node.op_type in UPPER
    if before.op_type not in (LOWER if is_upper else UPPER):
        return False
    x, other = _operands(before)
    if x is None or x.dtype != ir.DataType.FLOAT:
        return False
    low, high = (other, bound) if is_upper else (bound, other)
    if not _number(low) <= _number(high):
        return False
    sketch = Sketch(graph, node)
    bounds = [_scalar(sketch, each) for each in (low, high)]
    sketch.replace(node.outputs[0], sketch.op("Clip", [x, *bounds]))
    graph.remove(node, safe=True)
    return True


def _operands(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """What a node bounds, and by which number: None for zero. No value where it does something else."""
    if node.op_type == "Relu":
        return node.inputs[0], None
    for place, bound in enumerate(node.inputs):
        tensor = None if bound is None or not is_fixed(bound) else bound.const_value
        if tensor is not None and tensor.size == 1 and len(node.inputs) == 2:
            value = node.inputs[1 - place]
            # A bound of a higher rank would make the result's rank higher too.
            whole = None if value is None else value.shape
            return (value if whole is not None and whole.rank() >= len(tensor.shape) else None), bound
    return None, None


def _number(bound: ir.Value | None) -> float:
    return 0.0 if bound is None or bound.const_value is None else bound.const_value.numpy().item()


def _scalar(sketch: Sketch, bound: ir.Value | None) -> ir.Value:
    if bound is None:
        return sketch.constant(np.array(0, np.float32))
    if bound.shape is not None and bound.shape.rank() == 0:
        return bound
    scalar: ir.Value = sketch.op("Reshape", [bound, sketch.ints()])
    return scalar

"""Works out the shapes of values, and the arithmetic on them, which the passes behind need."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.formats.fold import fold
from litehouse.passes.sketch import Sketch, static_shape

MAX_ROUNDS = 4  # each may tell shapes that the next one folds


class FoldShapesPass(ir.passes.InPlacePass):
    """Records the shapes that can be told from those of the inputs, and puts constants where they are computed with."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Work out shapes until no more are found, in the main graph."""
        modified = False
        for _ in range(MAX_ROUNDS):
            if not any(static_shape(value) is None for node in model.graph for value in node.outputs):
                break
            _infer(model)
            if not _fold(model.graph):
                break
            common.RemoveUnusedNodesPass()(model)  # other passes would take them for users of what has the shape
            modified = True
        return ir.passes.PassResult(model, modified)


def _infer(model: ir.Model) -> None:
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if static_shape(value) is None:
                value.shape = None  # a size that is not known yet would stay so
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)


def _fold(graph: ir.Graph) -> bool:
    known: dict[ir.Value, np.ndarray] = {}
    for node in graph:
        result = None if node.domain or len(node.outputs) != 1 else _result(node, known)
        # OpenVINO (seen in 2026.4.1) takes a constant without sizes for one with a size of 1.
        if result is not None and result.size:
            known[node.outputs[0]] = result
    used = [value for value in known if any(user.outputs[0] not in known for user in value.consumers())]
    for value in used:
        constant = Sketch(graph, graph[0]).constant(known[value])
        for user, index in tuple(value.uses()):
            user.replace_input_with(index, constant)
    return bool(used)


def _result(node: ir.Node, known: dict[ir.Value, np.ndarray]) -> np.ndarray | None:
    """What a node computes of shapes; None where it computes something else, or they are not known."""
    if node.op_type in ("Shape", "Size"):
        shape = static_shape(node.inputs[0])
        if shape is None:
            return None
        if node.op_type == "Size":
            return np.array(math.prod(shape), np.int64)
        start, end = (node.attributes[name].as_int() if name in node.attributes else None for name in ("start", "end"))
        return np.array(shape[start:end], np.int64)
    if not any(value in known for value in node.inputs):
        return None
    arrays = [None if value is None else known.get(value, _number(value)) for value in node.inputs]
    if any(array is None and value is not None for array, value in zip(arrays, node.inputs, strict=True)):
        return None
    return fold(node.op_type, arrays, {name: attribute.value for name, attribute in node.attributes.items()})


def _number(value: ir.Value) -> np.ndarray | None:
    """A constant that may be computed with: no weight, which stays one."""
    if value.const_value is None or value.is_graph_input() or value.const_value.dtype.is_floating_point():
        return None
    return value.const_value.numpy()

"""Works out the shapes of values, and the arithmetic on them, which the passes behind need."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.formats.fold import fold
from litehouse.passes.doubts import is_doubtful
from litehouse.passes.sketch import Sketch, static_shape

MAX_ROUNDS = 4  # each may tell shapes that the next one folds
UNKNOWN = "Unknown"  # an op that ONNX does not have


class FoldShapesPass(ir.passes.InPlacePass):
    """Records the shapes that can be told from those of the inputs, and puts constants where they are computed with."""

    def __init__(self, rounds: int = MAX_ROUNDS, *, data_prop: bool = False) -> None:
        """Work out shapes so many times at most; with `data_prop`, also by ONNX's own arithmetic on them."""
        super().__init__()
        self._rounds, self._data_prop = rounds, data_prop

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Work out shapes until no more are found, in the main graph."""
        modified = False
        doubtful = [node for node in model.graph.all_nodes() if is_doubtful(node)]
        recorded = _forget(model, is_trusted=not doubtful)
        for _ in range(self._rounds):
            _infer(model, doubtful, data_prop=self._data_prop)
            if not _fold(model.graph):
                break
            common.RemoveUnusedNodesPass()(model)  # other passes would take them for users of what has the shape
            modified = True
        for value, shape in recorded.items():
            if value.shape is None:
                value.shape = shape
        return ir.passes.PassResult(model, modified)


def _forget(model: ir.Model, *, is_trusted: bool) -> dict[ir.Value, ir.Shape]:
    """Forget the shapes that are recorded for results, as some are not right: of a file whose inputs were edited, say.

    Returns:
        Those that may stand where none can be told: of all sizes, if they are trusted and the inputs have all sizes.
    """
    results = [value for node in model.graph.all_nodes() for value in node.outputs]
    is_trusted = is_trusted and all(static_shape(value) is not None for value in model.graph.inputs)
    recorded = {value: value.shape for value in results if value.shape is not None and static_shape(value) is not None}
    for value in results:
        value.shape = None
    return recorded if is_trusted else {}


def _infer(model: ir.Model, doubtful: list[ir.Node], *, data_prop: bool) -> None:
    """Tell shapes, but not what follows from those of doubtful nodes."""
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if static_shape(value) is None:
                value.shape = None  # a size that is not known yet would stay so
    kinds = [node.op_type for node in doubtful]
    for node in doubtful:
        node.op_type = UNKNOWN
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=data_prop)(model)
    for node, kind in zip(doubtful, kinds, strict=True):
        node.op_type = kind


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

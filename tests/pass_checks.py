"""Runs a speed pass on a small model and compares what it computes, by ONNX Runtime without optimisation."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common
import onnxruntime

import litehouse
from conftest import assert_close

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    """Random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def read(data: bytes) -> ir.Model:
    """A model with the shapes of all its values."""
    graph = litehouse.read(data).graph
    common.ShapeInferencePass()(graph)
    return graph


def forget_shapes(graph: ir.Model) -> None:
    """Drop the shapes of all values but the weights, as a resize does."""
    for value in [*graph.graph.inputs, *(value for node in graph.graph for value in node.outputs)]:
        value.shape = None


def apply(speed_pass: ir.passes.PassBase, graph: ir.Model) -> bool:
    """Run a pass on a model, which must compute the same then. Returns whether the pass changed it."""
    feed = {str(value.name): drawn(*value.shape) for value in graph.graph.inputs}
    before = run(graph, feed)
    modified = speed_pass(graph).modified
    common.RemoveUnusedNodesPass()(graph)
    common.CheckerPass()(graph)
    for actual, expected in zip(run(graph, feed), before, strict=True):
        assert_close(actual, expected)
    return modified


def stays(speed_pass: ir.passes.PassBase, data: bytes) -> bool:
    """Whether a pass leaves a model as it is."""
    graph = read(data)
    before = [(node.op_type, [value and value.name for value in node.inputs]) for node in graph.graph]
    modified = speed_pass(graph).modified
    after = [(node.op_type, [value and value.name for value in node.inputs]) for node in graph.graph]
    return not modified and before == after


def ops(graph: ir.Model) -> list[str]:
    """The ops of a model, in order."""
    return [node.op_type for node in graph.graph]


def run(graph: ir.Model, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model, by ONNX Runtime without optimisation."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(_bytes(graph), settings).run(None, feed)


def built_ops(graph: ir.Model, folder: Path) -> Counter[str]:
    """How often each op is in what ONNX Runtime makes of a model; `#` begins those in its layout for convolutions."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4  # it warns that the file is for this CPU alone
    settings.optimized_model_filepath = str(folder / "built.onnx")
    onnxruntime.InferenceSession(_bytes(graph), settings)
    built = ir.load(settings.optimized_model_filepath).graph
    return Counter(("#" if node.domain == "com.microsoft.nchwc" else "") + node.op_type for node in built)


def _bytes(graph: ir.Model) -> bytes:
    proto = ir.to_proto(graph)
    del proto.graph.value_info[:]
    return proto.SerializeToString()

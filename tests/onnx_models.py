"""Small ONNX models for tests, made on the spot."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

Shape = Sequence[int | str]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Shape],
    outputs: dict[str, Shape | None],
    weights: dict[str, np.ndarray] | None = None,
    dtype: int = onnx.TensorProto.FLOAT,
    opset: int = 20,
) -> bytes:
    """The bytes of a model with these nodes; every input and output has one dtype."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def mlp_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """The weights of `mlp`."""
    random = np.random.default_rng(seed)
    return {"w1": random.normal(size=(4, 300)).astype("f"), "w2": random.normal(size=(300, 3)).astype("f")}


def mlp(batch: int | str = 2, *, seed: int = 0) -> bytes:
    """Two layers, 4 -> 300 -> 3: one weight is large enough to go to the engines by memory."""
    nodes = [node("MatMul", "x w1", "h"), node("Relu", "h", "r"), node("MatMul", "r w2", "y")]
    return model(nodes, {"x": [batch, 4]}, {"y": [batch, 3]}, mlp_weights(seed))


def mlp_result(x: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """What `mlp` computes, by hand."""
    w1, w2 = mlp_weights(seed).values()
    return np.maximum(x @ w1, 0) @ w2

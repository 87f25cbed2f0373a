"""Small ONNX models, made on the spot, whose results are easy to check."""

from collections.abc import Sequence

import numpy as np
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

WIDTH, HIDDEN, CHANNELS = 32, 256, 8


def coder(factor: int, offset: int, width: int) -> bytes:
    """`x * factor + offset`, exact for whole numbers: the result says which input and which model it is of."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["m"]), helper.make_node("Add", ["m", "offset"], ["y"])]
    weights = {"factor": np.array([factor], np.float32), "offset": np.array([offset], np.float32)}
    return _model(nodes, [1, width], [1, width], weights)


def perceptron(seed: int) -> bytes:
    """Two layers, on any number of rows."""
    random = np.random.default_rng(seed)
    weights = {"w": random.normal(size=(WIDTH, HIDDEN)), "v": random.normal(size=(HIDDEN, WIDTH)) / HIDDEN}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    return _model(nodes, ["rows", WIDTH], ["rows", WIDTH], weights)


def convolution(seed: int) -> bytes:
    """A convolution over an image of any size."""
    weights = {"w": np.random.default_rng(seed).normal(size=(CHANNELS, 3, 3, 3))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return _model(nodes, [1, 3, "height", "width"], [1, CHANNELS, "height", "width"], weights)


def results(model: bytes, requests: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What bare ONNX Runtime computes."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return [session.run(None, {"x": x})[0] for x in requests]


def _model(
    nodes: Sequence[NodeProto],
    shape: Sequence[int | str],
    result: Sequence[int | str],
    weights: dict[str, np.ndarray],
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    data: bytes = model.SerializeToString()
    return data

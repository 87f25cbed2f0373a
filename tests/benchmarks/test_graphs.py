"""Counting operations, and rewriting for MindSpore Lite, on graphs made by hand."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import flops
from benchmarks.networks.lite_onnx import write_for_lite


def model(nodes, inputs, weights, outputs):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def random(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) * np.float32(0.3)


@pytest.mark.parametrize(
    ("node", "shapes", "expected"),
    [
        # 5 x 5 places, 6 channels, each of 3 x 3 x 2 products
        (helper.make_node("Conv", ["x", "w"], ["y"], group=2, strides=[2, 2], pads=[1, 1, 1, 1]),
         [(1, 4, 9, 9), (6, 2, 3, 3)], 2 * 25 * 6 * 18),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), [(3, 2, 4, 5), (5, 7)], 2 * 3 * 2 * 4 * 5 * 7),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1, transB=1), [(5, 4), (7, 5)], 2 * 4 * 5 * 7),
        # 6 steps, batch 2, 4 gates of 3, from 5 inputs and 3 states
        (helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3), [(6, 2, 5), (1, 12, 5), (1, 12, 3)],
         2 * 6 * 2 * 12 * (5 + 3)),
        (helper.make_node("Add", ["x", "w"], ["y"]), [(5, 4), (5, 4)], 0),
    ],
)  # fmt: skip
def test_count(node, shapes, expected):
    weights = {name: random(*shape) for name, shape in zip("wr", shapes[1:], strict=False)}
    made = model([node], {"x": shapes[0]}, weights, ["y"])
    assert flops.count(ir.from_proto(made)) == expected


def test_shapes_that_are_not_known_are_refused():
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 5)}, {"w": random(5, 7)}, ["y"])
    with pytest.raises(ValueError, match="not known"):
        flops.count(ir.from_proto(made))


def run(path, feed):
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, settings).run(None, feed)


def test_rewritten_for_lite(tmp_path):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], dilations=[1, 1], strides=[2, 2]),
        helper.make_node("Reshape", ["a", "groups"], ["b"]),
        helper.make_node("InstanceNormalization", ["b", "scale", "bias"], ["c"], epsilon=1e-3, name="norm"),
        helper.make_node("Reshape", ["c", "steps"], ["d"]),
        helper.make_node("LSTM", ["d", "w", "r"], ["y"], hidden_size=3),
        helper.make_node("Add", ["c", "c"], ["z"]),
    ]
    weights = {"scale": random(2), "bias": random(2), "w": random(1, 12, 8), "r": random(1, 12, 3)}
    weights |= {"groups": np.array([1, 2, 32]), "steps": np.array([4, 2, 8])}
    made = model(nodes, {"x": (1, 4, 8, 8)}, weights, ["y", "z"])
    onnx.save(made, tmp_path / "plain.onnx")
    write_for_lite(tmp_path / "plain.onnx", tmp_path / "lite.onnx")
    written = onnx.load(tmp_path / "lite.onnx")
    onnx.checker.check_model(written, full_check=True)
    nodes = {node.op_type: node for node in written.graph.node}
    assert not any(attribute.name == "dilations" for attribute in nodes["MaxPool"].attribute)
    assert len(set(nodes["LSTM"].output)) == 3
    feed = {"x": random(1, 4, 8, 8)}
    for actual, expected in zip(run(tmp_path / "lite.onnx", feed), run(tmp_path / "plain.onnx", feed), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)

"""Half precision in ONNX Runtime's own ops: which compute in it, and that numbers stay near those of 32 bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from formats.onnx_runs import direct
from onnx import TensorProto as T
from onnx import helper

import litehouse
from litehouse import Options
from litehouse.passes import halve

pytest.importorskip("torch")

HALF = ir.DataType.FLOAT16
random = np.random.default_rng
X = random(0).normal(size=(2, 5, 32)).astype(np.float32)


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return (random(seed).normal(size=shape) / 4).astype(np.float32)


def built(op: str, weights: dict[str, np.ndarray], *, inputs: str = "h", outputs: int = 1, **more: Any) -> bytes:
    """x @ w as h, the op on it, and a product behind."""
    weights = {"w": drawn(32, more.pop("width", 32)), **weights}
    inputs = f"{inputs} {more.pop('order', ' '.join(name for name in weights if name != 'w'))}"
    names = ["" if name == "_" else name for name in inputs.split()]
    results = ["y", *(f"more_{place}" for place in range(1, outputs))]
    domain = more.pop("domain", "com.microsoft")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(op, names, results, domain=domain, **more),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    return whole(nodes, "z", weights)


def whole(nodes: list[onnx.NodeProto], result: str, weights: dict[str, np.ndarray], told: Sequence[str] = ()) -> bytes:
    """A model of nodes that take x; the file tells that some values are floats."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", T.FLOAT, X.shape)],
        [helper.make_tensor_value_info(result, T.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
        value_info=[helper.make_tensor_value_info(name, T.FLOAT, None) for name in told],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def in_half(data: bytes) -> list[str]:
    """The ops that compute in half precision, in order."""
    graph = litehouse.read(data).graph
    halve(graph)
    nodes = [node for node in graph.graph if node.op_type != "Cast"]
    return [node.op_type for node in nodes if any(each is not None and each.dtype == HALF for each in node.inputs)]


def on_torch(data: bytes, precision: str = "fp16", *, lacks: int = 0) -> list[np.ndarray]:
    from litehouse.engines.torch.engine import TorchEngine

    program = TorchEngine().compile(litehouse.read(data), Options(engine="torch", cache=False), precision=precision)
    found = program.bind().run([X])
    assert len(program.lacking) == lacks
    return found


LENGTHS = {"lasts": np.array([4, 2], np.int32), "total": np.array(5, np.int32)}
QUERIES = {"num_heads": 4, "kv_num_heads": 2, "width": 64, "inputs": "h _ _ _ _", "outputs": 3}
HIDDEN = np.where(random(2).integers(0, 2, (2, 1, 5, 5)) > 0, 0, np.float32(-3e38)).astype(np.float32)
HIDDEN[..., 0] = 0
FOLLOWING: dict[str, bytes] = {
    "Attention": built("Attention", {"a": drawn(32, 96), "b": drawn(96)}, num_heads=4),
    "GroupQueryAttention": built("GroupQueryAttention", LENGTHS, **QUERIES),
    "GroupQueryAttention that hides by large numbers": built(
        "GroupQueryAttention", LENGTHS | {"bias": HIDDEN}, order="lasts total _ _ _ bias", **QUERIES
    ),
    "FusedMatMul": built("FusedMatMul", {"a": drawn(32, 8)}, alpha=0.3),
    "BiasGelu": built("BiasGelu", {"b": drawn(32)}),
    "FastGelu": built("FastGelu", {"b": drawn(32)}),
    "QuickGelu": built("QuickGelu", {}),
    "SimplifiedLayerNormalization": built("SimplifiedLayerNormalization", {"s": drawn(32)}, domain=""),
    "SkipLayerNormalization": built("SkipLayerNormalization", {"s": drawn(32), "b": drawn(32)}, inputs="h h"),
    "SkipSimplifiedLayerNormalization": built("SkipSimplifiedLayerNormalization", {"s": drawn(32)}, inputs="h h"),
    "GatedRMSNorm": built("GatedRMSNorm", {"s": drawn(8)}, order="s h"),
    "ScaledSiLU": built("ScaledSiLU", {}, alpha=0.3),
    "ExpandDims": built("ExpandDims", {"axis": np.array(1, np.int32)}),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_takes_part(name: str) -> None:
    data = FOLLOWING[name]
    assert in_half(data) == ["MatMul", name.partition(" ")[0], "Relu"]
    ((found,), (expected,)) = on_torch(data), direct(data, {"x": X})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2 * np.abs(expected).max())
    assert not np.allclose(found, expected, rtol=0, atol=1e-7)


FOR_GPUS: dict[str, bytes] = {
    "BiasSoftmax": built("BiasSoftmax", {"b": drawn(32)}, axis=2, is_inner_broadcast=0),
    "BiasSplitGelu": built("BiasSplitGelu", {"b": drawn(32)}),
    "FusedMatMulActivation": built("FusedMatMulActivation", {"a": drawn(32, 8)}, activation="Tanh"),
    "GemmFastGelu": built("GemmFastGelu", {"a": drawn(32, 8)}),
    "GroupNorm": built("GroupNorm", {"s": drawn(32), "b": drawn(32)}, activation=1, groups=4),
    "NhwcConv": built("NhwcConv", {"a": drawn(4, 3, 32), "b": drawn(4)}),
    "NhwcFusedConv": built("NhwcFusedConv", {"a": drawn(4, 32, 3), "b": drawn(4)}, activation="Relu"),
}


@pytest.mark.parametrize("name", FOR_GPUS)
def test_takes_part_where_torch_alone_has_it(name: str) -> None:
    data = FOR_GPUS[name]
    assert in_half(data) == ["MatMul", name, "Relu"]
    ((found,), (expected,)) = on_torch(data), on_torch(data, "fp32")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2 * np.abs(expected).max())
    assert not np.allclose(found, expected, rtol=0, atol=1e-7)


def test_embedding_takes_part_at_once() -> None:
    """Its weights are constant, as those of a Gather."""
    tables = {"words": drawn(9, 32), "places": drawn(5, 32)}
    ids = random(3).integers(0, 9, (2, 5)).astype(np.int32)
    weights = {**tables, "s": drawn(32), "b": drawn(32), "w": drawn(32, 8)}
    nodes = [
        helper.make_node(
            "EmbedLayerNormalization", ["ids", "", *tables, "", "s", "b"], ["e", "c"], domain="com.microsoft"
        ),
        helper.make_node("MatMul", ["e", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("ids", T.INT32, ids.shape)],
        [helper.make_tensor_value_info("y", T.FLOAT, None), helper.make_tensor_value_info("c", T.INT32, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    assert in_half(data) == ["EmbedLayerNormalization", "MatMul"]


@pytest.mark.parametrize(
    ("op", "weights", "more"),
    [
        # Which expert a token has is decided by small differences, and memories add up what rounding takes.
        ("MoE", {"a": drawn(4, 8, 32), "b": drawn(4, 32, 8)}, {"order": "router a _ b", "k": 1}),
        ("LinearAttention", {}, {"inputs": "h h h", "q_num_heads": 4, "kv_num_heads": 4, "update_rule": "linear"}),
        ("SkipLayerNormalization", {"s": drawn(32), "b": drawn(32)}, {"inputs": "h h", "outputs": 3}),
    ],
)
def test_stays_in_32_bits(op: str, weights: dict[str, np.ndarray], more: dict[str, Any]) -> None:
    weights = {**weights, "router": drawn(10, 4)} if op == "MoE" else weights
    outputs = {"outputs": 2} if op == "LinearAttention" else {}
    assert op not in in_half(built(op, weights, **outputs, **more))


@pytest.mark.parametrize(
    ("op", "inputs", "results", "domain"),
    [
        ("SkipLayerNormalization", "h h s b", "n m d", "com.microsoft"),
        ("SkipSimplifiedLayerNormalization", "h h s", "n _ m", "com.microsoft"),
        ("SimplifiedLayerNormalization", "h s", "n m", ""),
    ],
)
@pytest.mark.parametrize("is_told", [False, True])
def test_norms_that_give_means_stay_in_32_bits(op: str, inputs: str, results: str, domain: str, is_told: bool) -> None:
    """Torch has none of these; what ONNX Runtime gives is of 32 bits, whatever the norm takes, and is halved behind."""
    weights = {"w": drawn(32, 32), "s": drawn(32), "b": drawn(32), "k": drawn(32)}
    names = [name.strip("_") for name in results.split()]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(op, inputs.split(), names, domain=domain),
        helper.make_node("Mul", ["m", "k"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    data = whole(nodes, "y", weights, [name for name in names if name and is_told])
    assert in_half(data) == ["MatMul", "MatMul"]
    ((found,), (expected,)) = on_torch(data, lacks=1), direct(data, {"x": X})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2 * np.abs(expected).max())

"""A product with a weight and the bias behind it become one op of torch: the same numbers, or the graph stays."""

from typing import Any

import numpy as np
import onnx
import pytest
from formats.onnx_runs import direct

import litehouse
from conftest import assert_close
from litehouse.passes.join_linear import TORCH, JoinLinearPass
from onnx_models import Shape, model, node
from pass_checks import drawn, ops, read, stays

W, B = drawn(6, 5), drawn(5)
LAYER = [node("MatMul", "x w", "p"), node("Add", "p b", "y")]


def layer(
    x: Shape = (3, 6),
    bias: np.ndarray = B,
    weight: np.ndarray = W,
    nodes: list[onnx.NodeProto] | None = None,
    outputs: str = "y",
    **options: Any,
) -> bytes:
    weights = {"w": weight, "b": bias}
    return model(nodes or LAYER, {"x": x}, dict.fromkeys(outputs.split()), weights, **options)


def check(data: bytes, x: np.ndarray) -> None:
    """What torch computes of it, with all of its passes; the truth is ONNX Runtime's, without optimisation."""
    pytest.importorskip("torch")
    found = litehouse.load(data, engine="torch", cache=False).run([x])
    for actual, expected in zip(found, direct(data, {"x": x}), strict=True):
        assert_close(actual, expected)


JOINED: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...]]] = {
    "rows": (LAYER, (3, 6)),
    "one row": (LAYER, (1, 6)),
    "batch": (LAYER, (2, 3, 6)),
    "batches": (LAYER, (2, 1, 3, 6)),
    "bias first": ([node("MatMul", "x w", "p"), node("Add", "b p", "y")], (3, 6)),
    "Sum": ([node("MatMul", "x w", "p"), node("Sum", "p b", "y")], (3, 6)),
    "behind others": (
        [node("Relu", "x", "r"), node("MatMul", "r w", "p"), node("Add", "p b", "q"), node("Neg", "q", "y")],
        (3, 6),
    ),
}


@pytest.mark.parametrize("case", JOINED)
def test_joined(case: str) -> None:
    nodes, shape = JOINED[case]
    data = layer(shape, nodes=nodes)
    graph = read(data)
    assert JoinLinearPass()(graph).modified
    (made,) = (each for each in graph.graph if each.op_type == "Linear")
    assert made.domain == TORCH
    assert "MatMul" not in ops(graph)
    assert graph.graph.outputs[0].name == "y"
    assert graph.graph.opset_imports[TORCH] == 1
    check(data, drawn(*shape))


def test_a_weight_of_two_layers() -> None:
    square = drawn(6, 6)
    nodes = [*LAYER[:1], node("Add", "p b", "q"), node("MatMul", "q w", "r"), node("Add", "r b", "s")]
    data = layer(bias=drawn(6), weight=square, nodes=[*nodes, node("MatMul", "s w", "y")])
    graph = read(data)
    assert JoinLinearPass()(graph).modified
    assert ops(graph) == ["Linear", "Linear", "MatMul"]
    check(data, drawn(3, 6))


def test_a_weight_that_is_an_input() -> None:
    """It need not be constant."""
    data = model(LAYER, {"x": (3, 6), "w": (6, 5), "b": (5,)}, {"y": None})
    assert JoinLinearPass()(read(data)).modified
    pytest.importorskip("torch")
    feed = {"x": drawn(3, 6), "w": drawn(6, 5), "b": drawn(5)}
    found = litehouse.load(data, engine="torch", cache=False).run(feed)
    assert_close(found[0], direct(data, feed)[0])


def test_a_bias_that_is_computed_later() -> None:
    nodes = [node("MatMul", "x w", "p"), node("Neg", "b", "c"), node("Add", "p c", "y")]
    data = layer(nodes=nodes)
    graph = read(data)
    assert JoinLinearPass()(graph).modified
    assert ops(graph) == ["Neg", "Linear"]
    check(data, drawn(3, 6))


NOT: dict[str, bytes] = {
    "a bias of one number": layer(bias=drawn(1)),
    "a bias without axes": layer(bias=np.float32(2)),
    "a bias of two axes": layer(bias=drawn(1, 5)),
    "a bias for each row": layer(bias=drawn(3, 1)),
    "a bias that makes it larger": layer(bias=drawn(4, 1, 5)),
    "a bias for more columns": layer(weight=drawn(6, 1)),
    "the product is an output": layer(outputs="y p"),
    "the product is used elsewhere": layer(nodes=[*LAYER, node("Neg", "p", "z")], outputs="y z"),
    "the product twice": layer(nodes=[node("MatMul", "x w", "p"), node("Add", "p p", "y")]),
    "three are added": layer(nodes=[node("MatMul", "x w", "p"), node("Sum", "p b b", "y")]),
    "one is added": layer(nodes=[node("MatMul", "x w", "p"), node("Sum", "p", "y")]),
    "a row without axes": layer((6,)),
    "a weight of one axis": layer(
        weight=drawn(6), nodes=[node("MatMul", "x w", "p"), node("Add", "p b", "y")], x=(5, 6)
    ),
    "a weight of three axes": layer(weight=drawn(2, 6, 5)),
    "the weight on the left": layer(
        (6, 5), weight=drawn(3, 6), nodes=[node("MatMul", "w x", "p"), node("Add", "p b", "y")], bias=drawn(1)
    ),
    "no rows are known": layer(("n", 6)),
    "something is taken away": layer(nodes=[node("MatMul", "x w", "p"), node("Sub", "p b", "y")]),
}


@pytest.mark.parametrize("case", NOT)
def test_what_stays(case: str) -> None:
    assert stays(JoinLinearPass(), NOT[case])


@pytest.mark.parametrize("case", NOT)
def test_what_stays_is_right_on_torch(case: str) -> None:
    data = NOT[case]
    shape = [size if isinstance(size, int) else 3 for size in litehouse.read(data).inputs[0].shape]
    check(data, drawn(*shape))


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.UINT32])
def test_whole_numbers_stay(kind: int) -> None:
    """A GPU has no such product, and ONNX Runtime would have to compute an op that it does not know."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    data = layer(weight=np.abs(W * 9).astype(dtype), bias=np.abs(B * 9).astype(dtype), dtype=kind)
    assert stays(JoinLinearPass(), data)
    check(data, np.abs(drawn(3, 6) * 9).astype(dtype))


@pytest.mark.parametrize("kind", [onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
def test_other_floats(kind: int) -> None:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    data = layer(weight=np.rint(W * 3).astype(dtype), bias=np.rint(B * 9).astype(dtype), dtype=kind)
    assert JoinLinearPass()(read(data)).modified
    check(data, np.rint(drawn(3, 6) * 3).astype(dtype))  # half precision has all of these numbers


def test_types_that_are_not_known_stay() -> None:
    graph = read(layer())
    for value in (*graph.graph.inputs, *graph.graph.initializers.values()):
        value.type = None
    assert not JoinLinearPass()(graph).modified


def test_inner_graphs_stay() -> None:
    inner = [node("MatMul", "x w", "ip"), node("Add", "ip b", "iy")]
    info = onnx.helper.make_tensor_value_info("iy", onnx.TensorProto.FLOAT, None)
    body = onnx.helper.make_graph(inner, "inner", [], [info])
    nodes = [node("If", "c", "y", then_branch=body, else_branch=body)]
    data = model(nodes, {"x": (3, 6)}, {"y": None}, {"w": W, "b": B, "c": np.array(True)})
    assert stays(JoinLinearPass(), data)


def test_the_add_is_in_another_graph() -> None:
    """The product alone is outside: it is not to be moved into the branch."""
    info = onnx.helper.make_tensor_value_info("iy", onnx.TensorProto.FLOAT, None)
    body = onnx.helper.make_graph([node("Add", "p b", "iy")], "inner", [], [info])
    other = onnx.helper.make_graph([node("Identity", "x", "iy")], "other", [], [info])
    nodes = [node("MatMul", "x w", "p"), node("If", "c", "y", then_branch=body, else_branch=other)]
    data = model(nodes, {"x": (3, 6)}, {"y": None}, {"w": W, "b": B, "c": np.array(True)})
    assert stays(JoinLinearPass(), data)

"""Between matrix products everything is computed in two axes; what depends on more stays."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from litehouse.passes.rows import RowsPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, ops, read, stays

B, T, C = 2, 5, 6
WEIGHTS = {
    "w": drawn(C, C),
    "wide": drawn(C, 8),
    "back": drawn(8, C),
    "b": drawn(C),
    "b8": drawn(8),
    "g": drawn(C),
    "table": drawn(T, C),
    "number": np.array(0.5, np.float32),
    "low": np.array(-1, np.float32),
    "rows": np.array([-1, C]),
    "rows8": np.array([-1, 8]),
    "three": np.array([B, T, C]),
    "three8": np.array([B, T, 8]),
    "four": np.array([B, T, 2, 3]),
}


def dense(x: str, w: str, b: str, y: str) -> list[onnx.NodeProto]:
    """A dense layer as MindSpore writes it."""
    rows, three = ("rows8", "three") if w == "back" else ("rows", "three8" if w == "wide" else "three")
    return [
        node("Reshape", f"{x} {rows}", f"{y}0"),
        node("Gemm", f"{y}0 {w}", f"{y}1"),
        node("Sum", f"{y}1 {b}", f"{y}2"),
        node("Reshape", f"{y}2 {three}", y),
    ]


def norm(x: str, y: str, axis: int = -1) -> onnx.NodeProto:
    return node("LayerNormalization", f"{x} g b", y, axis=axis)


BLOCK = [
    *dense("x", "w", "b", "a"),
    node("Add", "x a", "s"),
    norm("s", "n"),
    *dense("n", "wide", "b8", "u"),
    node("Gelu", "u", "v"),
    *dense("v", "back", "b", "d"),
    node("Add", "s d", "y"),
]


def written(nodes: list, x: tuple = (B, T, C)) -> bytes:
    taken = {name for each in nodes for name in each.input}
    return model(nodes, {"x": list(x)}, {"y": None}, {name: each for name, each in WEIGHTS.items() if name in taken})


def test_a_block_has_two_reshapes_left() -> None:
    graph = read(written(BLOCK))
    assert ops(graph).count("Reshape") == 6
    assert apply(RowsPass(), graph)
    assert ops(graph).count("Reshape") == 2  # of the input, and of the output


BETWEEN = {
    "alone": [node("Relu", "a", "m")],
    "with a number": [node("Mul", "a number", "m")],
    "bounds": [node("Clip", "a low number", "m")],
    "with a weight for columns": [node("Div", "a g", "m")],
    "a norm by the number of its axis": [norm("a", "m", 2)],
    "softmax": [node("Softmax", "a", "m", axis=2)],
    "two": [*dense("x", "w", "b", "c"), node("Max", "a c", "m")],
    "a product with a weight": [node("MatMul", "a w", "m")],
}


@pytest.mark.parametrize("case", BETWEEN)
def test_what_may_be_between(case: str) -> None:
    graph = read(written([*dense("x", "w", "b", "a"), *BETWEEN[case], *dense("m", "w", "b", "y")]))
    assert apply(RowsPass(), graph)
    assert ops(graph).count("Reshape") == 2


def test_a_product_in_three_axes_with_a_bias() -> None:
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "a"), node("MatMul", "a w", "q"), node("Add", "q b", "y")]
    graph = read(written(nodes))
    assert apply(RowsPass(), graph)
    assert ops(graph) == ["Reshape", "MatMul", "Add", "MatMul", "Add", "Reshape"]


def test_a_table_that_is_already_rows() -> None:
    nodes = [*dense("x", "w", "b", "a"), node("Add", "a table", "m"), *dense("m", "w", "b", "y")]
    shapes = {"three": np.array([1, T, C])}
    taken = {name for each in nodes for name in each.input}
    weights = {name: each for name, each in (WEIGHTS | shapes).items() if name in taken}
    graph = read(model(nodes, {"x": [1, T, C]}, {"y": None}, weights))
    assert apply(RowsPass(), graph)
    assert ops(graph).count("Reshape") == 2


KEPT = {
    "over another axis": [*dense("x", "w", "b", "a"), node("Softmax", "a", "y", axis=1)],
    "a table for each text": [*dense("x", "w", "b", "a"), node("Add", "a table", "y")],
    "only moved to the other operand": [
        *dense("x", "w", "b", "a"),
        node("Softmax", "x", "z", axis=1),
        node("Add", "a z", "y"),
    ],
    "other columns": [node("Reshape", "x four", "a"), node("Relu", "a", "y")],
    "a product by itself": [node("MatMul", "x w", "y")],
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(RowsPass(), written(KEPT[case]))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(BLOCK))
    forget_shapes(graph)
    assert not RowsPass()(graph).modified


def test_onnxruntime_keeps_the_fast_norm(tmp_path: Path) -> None:
    """In three axes it joins the addition and the norm to an op that takes five times as long."""
    nodes = [*dense("x", "w", "b", "a"), node("Add", "x a", "s"), norm("s", "n"), *dense("n", "w", "b", "y")]
    graph = read(written(nodes))
    assert built_ops(graph, tmp_path)["SkipLayerNormalization"] == 1
    assert apply(RowsPass(), graph)
    assert built_ops(graph, tmp_path) == {"Reshape": 2, "Gemm": 2, "Add": 1, "LayerNormalization": 1}


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_old_softmaxes_go_over_several_axes(kind: str) -> None:
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "a"), node(kind, "a", "y")]
    weights = {name: WEIGHTS[name] for name in ("w", "b")}
    proto = onnx.load_from_string(model(nodes, {"x": [B, T, C]}, {"y": None}, weights, opset=12))
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(proto))  # not by reading, which rewrites it
    assert apply(RowsPass(), graph)
    assert ops(graph)[-2:] == ["Reshape", kind]

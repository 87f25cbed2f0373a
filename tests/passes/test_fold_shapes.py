"""Shapes are worked out, and what is computed of them becomes constant; weights and unknown sizes stay."""

import numpy as np

import litehouse
from litehouse.passes.fold_shapes import FoldShapesPass
from onnx_models import Shape, model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, stays

WEIGHTS = {
    "second": np.array([1]),
    "two": np.array([2]),
    "rest": np.array([-1]),
    "zero": np.array([0]),
}
HALF = [
    node("Shape", "h", "s"),
    node("Gather", "s second", "n"),
    node("Div", "n two", "half"),
    node("Slice", "h zero half second", "left"),
]


def written(nodes: list, shape: Shape) -> bytes:
    taken = {name for each in nodes for name in each.input}
    return model(nodes, {"x": shape}, {"y": None}, {k: v for k, v in WEIGHTS.items() if k in taken})


def test_arithmetic_on_shapes_is_folded() -> None:
    nodes = [node("Relu", "x", "h"), *HALF, node("Neg", "left", "y")]
    graph = read(written(nodes, [4, 6]))
    assert apply(FoldShapesPass(), graph)
    assert ops(graph) == ["Relu", "Slice", "Neg"]
    assert list(graph.graph.outputs[0].shape or ()) == [4, 3]


def test_what_follows_from_folded_shapes_is_folded_too() -> None:
    last = [node("Shape", "left", "t", start=1), node("Concat", "t rest", "u", axis=0), node("Reshape", "left u", "y")]
    graph = read(written([node("Relu", "x", "h"), *HALF, *last], [4, 6]))
    assert apply(FoldShapesPass(), graph)
    assert ops(graph) == ["Relu", "Slice", "Reshape"]
    assert list(graph.graph.outputs[0].shape or ()) == [3, 4]


def test_the_number_of_elements() -> None:
    nodes = [node("Size", "x", "s"), node("Unsqueeze", "s zero", "u"), node("Reshape", "x u", "y")]
    graph = read(written(nodes, [4, 6]))
    assert apply(FoldShapesPass(), graph)
    assert ops(graph) == ["Reshape"]


def test_shapes_are_recorded_anew() -> None:
    graph = read(written([node("Relu", "x", "h"), node("Neg", "h", "y")], [4, 6]))
    forget_shapes(graph)
    graph.graph.inputs[0].shape = read(written([node("Neg", "x", "y")], [2, 6])).graph.inputs[0].shape
    FoldShapesPass()(graph)
    assert [list(value.shape or ()) for each in graph.graph for value in each.outputs] == [[2, 6], [2, 6]]


def test_a_single_number_stays_one(engine: str) -> None:
    """OpenVINO would make a list of it."""
    nodes = [node("ReduceSum", "x", "a", keepdims=0), node("Shape", "a", "s"), node("Expand", "b s", "y")]
    session = litehouse.load(model(nodes, {"x": [4]}, {"y": None}, {"b": np.array(3, np.float32)}), engine=engine)
    assert session.run([drawn(4)])[0].shape == ()


def test_unknown_sizes_stay() -> None:
    assert stays(FoldShapesPass(), written([node("Relu", "x", "h"), *HALF, node("Neg", "left", "y")], ["n", "m"]))


def test_weights_stay() -> None:
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "c", to=1), node("Mul", "c f", "p"), node("Mul", "x p", "y")]
    graph = read(model(nodes, {"x": [3, 2]}, {"y": None}, {"f": drawn(2)}))
    graph.graph.outputs[0].shape = None
    assert apply(FoldShapesPass(), graph)
    assert ops(graph) == ["Mul", "Mul"]
    assert graph.graph.initializers["f"].uses()

"""Biases behind convolutions, and past another addition, become theirs; everything else stays."""

from pathlib import Path

import numpy as np
import pytest

from litehouse.passes.move_bias import MoveBiasPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, ops, read, stays

X, Y = [1, 3, 6, 5], [1, 4, 4, 3]
WEIGHTS = {
    "w": drawn(4, 3, 3, 3),
    "b": drawn(1, 4, 1, 1),
    "v": drawn(4),
    "line": drawn(4, 1, 1),
    "row": drawn(1, 1, 1, 3),
    "whole": np.array([1, 4, 1, 1]),
}
CONV = node("Conv", "x w", "c")
CASES = {
    "behind": ([CONV, node("Add", "c b", "s"), node("Relu", "s", "y")], ["Reshape", "Conv", "Relu"]),
    "before": ([CONV, node("Add", "b c", "s"), node("Relu", "s", "y")], ["Reshape", "Conv", "Relu"]),
    "fewer axes": ([CONV, node("Add", "c line", "s"), node("Relu", "s", "y")], ["Reshape", "Conv", "Relu"]),
    "past another": (
        [CONV, node("Add", "c z", "p"), node("Add", "p b", "s"), node("Relu", "s", "y")],
        ["Reshape", "Conv", "Add", "Relu"],
    ),
    "a second one": (
        [node("Conv", "x w v", "c"), node("Add", "c b", "s"), node("Relu", "s", "y")],
        ["Reshape", "Add", "Conv", "Relu"],
    ),
    "a weight in another shape": (
        [CONV, node("Reshape", "v whole", "n"), node("Add", "c n", "s"), node("Relu", "s", "y")],
        ["Reshape", "Reshape", "Conv", "Relu"],
    ),
    "not for channels": ([CONV, node("Add", "c row", "s"), node("Relu", "s", "y")], None),
    "seen by another": ([CONV, node("Add", "c b", "s"), node("Mul", "s c", "y")], None),
    "no weight": ([CONV, node("Add", "c z", "s"), node("Relu", "s", "y")], None),
    "an output": ([CONV, node("Add", "c b", "y")], None),
}


def written(nodes: list) -> bytes:
    taken = {name for each in nodes for name in each.input}
    inputs = {"x": X} | ({"z": Y} if "z" in taken else {})
    return model(nodes, inputs, {"y": Y}, {name: array for name, array in WEIGHTS.items() if name in taken})


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][1]])
def test_what_is_moved(case: str) -> None:
    graph = read(written(CASES[case][0]))
    assert apply(MoveBiasPass(), graph)
    assert ops(graph) == CASES[case][1]


@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case][1]])
def test_what_is_kept(case: str) -> None:
    assert stays(MoveBiasPass(), written(CASES[case][0]))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(CASES["past another"][0]))
    forget_shapes(graph)
    assert not MoveBiasPass()(graph).modified


def test_onnxruntime_joins_all(tmp_path: Path) -> None:
    """A convolution, another branch, a bias and an activation: two nodes, one for each convolution."""
    nodes = [node("Conv", "x wide", "c"), node("Conv", "x wide", "z"), *CASES["past another"][0][1:]]
    nodes[3:4] = [node("Add", "p own", "s")]
    graph = read(
        model(nodes, {"x": [1, 16, 4, 4]}, {"y": None}, {"wide": drawn(16, 16, 1, 1), "own": drawn(1, 16, 1, 1)})
    )
    assert built_ops(graph, tmp_path)["Add"]
    assert apply(MoveBiasPass(), graph)
    assert built_ops(graph, tmp_path) == {"#ReorderInput": 1, "#Conv": 2, "#ReorderOutput": 1}

"""Two bounds by numbers become a Clip, which ONNX Runtime computes within a convolution."""

from pathlib import Path

import numpy as np
import pytest

from litehouse.passes.write_clips import WriteClipsPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, ops, read, stays

WEIGHTS = {
    "w": drawn(16, 16, 1, 1) * 4,
    "zero": np.array([0], np.float32),
    "six": np.array(6, np.float32),
    "sixes": np.full((1, 1, 1, 1), 6, np.float32),
    "deep": np.full((1, 1, 1, 1, 1), 6, np.float32),
    "below": np.array(-1, np.float32),
    "many": drawn(16, 1, 1),
}
CONV = node("Conv", "x w", "c")
WRITTEN = {
    "max, min": [CONV, node("Max", "c zero", "m"), node("Min", "six m", "y")],
    "min, max": [CONV, node("Min", "six c", "m"), node("Max", "m zero", "y")],
    "relu, min": [CONV, node("Relu", "c", "m"), node("Min", "m sixes", "y")],
    "min, relu": [CONV, node("Min", "c sixes", "m"), node("Relu", "m", "y")],
}
KEPT = {
    "one bound": [CONV, node("Max", "c zero", "y")],
    "twice the same": [CONV, node("Max", "c zero", "m"), node("Relu", "m", "y")],
    "for each channel": [CONV, node("Max", "c many", "m"), node("Min", "m six", "y")],
    "another operand": [CONV, node("Max", "c x", "m"), node("Min", "m six", "y")],
    "crossed": [CONV, node("Relu", "c", "m"), node("Min", "m below", "y")],
    "three operands": [CONV, node("Max", "c zero x", "m"), node("Min", "m six", "y")],
    "one operand": [CONV, node("Max", "c", "m"), node("Min", "m six", "y")],
    "a higher rank": [CONV, node("Relu", "c", "m"), node("Min", "m deep", "y")],
    "seen by another": [CONV, node("Relu", "c", "m"), node("Min", "m six", "n"), node("Add", "m n", "y")],
}


def written(nodes: list, opset: int = 20) -> bytes:
    taken = {name for each in nodes for name in each.input}
    weights = {name: array for name, array in WEIGHTS.items() if name in taken}
    return model(nodes, {"x": [1, 16, 5, 5]}, {"y": None}, weights, opset=opset)


@pytest.mark.parametrize("case", WRITTEN)
def test_what_is_written(case: str, tmp_path: Path) -> None:
    graph = read(written(WRITTEN[case]))
    assert apply(WriteClipsPass(), graph)
    assert ops(graph)[-1] == "Clip"
    assert set(built_ops(graph, tmp_path)) == {"#ReorderInput", "#Conv", "#ReorderOutput"}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(WriteClipsPass(), written(KEPT[case]))


def test_a_bound_that_is_given_is_kept() -> None:
    nodes = [node("Relu", "x", "m"), node("Min", "m b", "y")]
    assert stays(WriteClipsPass(), model(nodes, {"x": [2, 3], "b": [1]}, {"y": None}))


def test_a_value_that_is_an_output_is_kept() -> None:
    nodes = [node("Relu", "x", "m"), node("Min", "m six", "y")]
    weights = {"six": WEIGHTS["six"]}
    assert stays(WriteClipsPass(), model(nodes, {"x": [2, 3]}, {"y": None, "m": None}, weights))


def test_whole_numbers_and_old_files_are_kept() -> None:
    nodes, weights = [node("Relu", "x", "m"), node("Min", "m six", "y")], {"six": np.array(6, np.int32)}
    assert stays(WriteClipsPass(), model(nodes, {"x": [2, 3]}, {"y": None}, weights, dtype=6))
    assert stays(WriteClipsPass(), written(WRITTEN["max, min"], opset=10))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(WRITTEN["max, min"]))
    forget_shapes(graph)
    assert not WriteClipsPass()(graph).modified

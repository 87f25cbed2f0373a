"""Factors for channels get the size of their images where both come from convolutions."""

from pathlib import Path

import numpy as np
import pytest

from litehouse.passes.spread_gates import SpreadGatesPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, read, stays

WEIGHTS = {
    "w": drawn(16, 16, 3, 3),
    "v": drawn(16, 16, 1, 1),
    "one": drawn(1, 16, 1, 1),
    "flat": np.array([2, 16, 1, 1]),
}
WEIGHTS |= {"across": drawn(16, 16), "last": drawn(16, 16, 1, 1), "line": np.array([2, 16])}
IMAGE = [node("Conv", "x w", "c"), node("Relu", "c", "i")]
GATE = [node("GlobalAveragePool", "i", "m"), node("Conv", "m v", "d"), node("Sigmoid", "d", "g")]
LAST = node("Conv", "p last", "y")
DENSE = [
    node("GlobalAveragePool", "i", "m"),
    node("Reshape", "m line", "f"),
    node("MatMul", "f across", "d"),
    node("Reshape", "d flat", "g"),
]
SPREAD = {
    "gate second": [*IMAGE, *GATE, node("Mul", "i g", "p"), LAST],
    "gate first": [*IMAGE, *GATE, node("Mul", "g i", "p"), LAST],
    "hard": [*IMAGE, *GATE[:2], node("HardSigmoid", "d", "g"), node("Mul", "i g", "p"), LAST],
}
KEPT = {
    "not made by a convolution": [*IMAGE, *DENSE, node("Mul", "i g", "p"), LAST],
    "an image that is given": [*IMAGE, *GATE, node("Mul", "x g", "p"), LAST],
    "one number for all channels": [*IMAGE, GATE[0], node("Conv", "m one", "g"), node("Mul", "i g", "p"), LAST],
    "the same size": [*IMAGE, node("Sigmoid", "i", "g"), node("Mul", "i g", "p"), LAST],
    "a sum": [*IMAGE, *GATE, node("Add", "i g", "p"), LAST],
}


def written(nodes: list, batch: int | str = 2, **settings: int) -> bytes:
    taken = {name for each in nodes for name in each.input}
    weights = {name: array for name, array in WEIGHTS.items() if name in taken}
    return model(nodes, {"x": [batch, 16, 6, 5]}, {"y": None}, weights, **settings)


@pytest.mark.parametrize("case", SPREAD)
def test_what_is_spread(case: str, tmp_path: Path) -> None:
    graph = read(written(SPREAD[case]))
    before = built_ops(graph, tmp_path)
    assert apply(SpreadGatesPass(), graph)
    after = built_ops(graph, tmp_path)
    assert before["#ReorderInput"] == after["#ReorderInput"] + 1
    assert after["#ReorderOutput"] == 1  # at the end


def test_an_unknown_batch_is_kept() -> None:
    """ONNX Runtime could not tell that the images are of the same size."""
    assert stays(SpreadGatesPass(), written(SPREAD["hard"], "n"))


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(SpreadGatesPass(), written(KEPT[case]))


def test_nothing_is_done_without_shapes_and_in_old_files() -> None:
    graph = read(written(SPREAD["hard"]))
    forget_shapes(graph)
    assert not SpreadGatesPass()(graph).modified
    assert stays(SpreadGatesPass(), written(SPREAD["hard"], opset=12))

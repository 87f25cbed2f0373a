"""Images are transposed before they are flattened, and after they come from rows."""

import numpy as np
import pytest

from litehouse.passes.channels_last import ChannelsLastPass
from onnx_models import model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, stays

SHAPES = {
    "flat": np.array([2, 3, -1]),
    "image": np.array([2, 3, 4, 5]),
    "pairs": np.array([2, 6, 10]),
    "lines": np.array([2, 12, 5]),
}


def written(nodes: list, x: list[int]) -> bytes:
    taken = {name for each in nodes for name in each.input}
    weights = {"w": drawn(3, 3, 1, 1)} | SHAPES
    return model(nodes, {"x": x}, {"y": None}, {name: each for name, each in weights.items() if name in taken})


def test_an_image_becomes_rows() -> None:
    nodes = [node("Reshape", "x flat", "f"), node("Transpose", "f", "t", perm=(0, 2, 1)), node("Relu", "t", "y")]
    graph = read(written(nodes, [2, 3, 4, 5]))
    assert apply(ChannelsLastPass(), graph)
    assert ops(graph) == ["Transpose", "Reshape", "Relu"]


def test_rows_become_an_image() -> None:
    nodes = [node("Transpose", "x", "t", perm=(0, 2, 1)), node("Reshape", "t image", "i"), node("Conv", "i w", "y")]
    graph = read(written(nodes, [2, 20, 3]))
    assert apply(ChannelsLastPass(), graph)
    assert ops(graph) == ["Reshape", "Transpose", "Conv"]


def test_the_result_may_be_an_output() -> None:
    graph = read(written([node("Reshape", "x flat", "f"), node("Transpose", "f", "y", perm=(0, 2, 1))], [2, 3, 4, 5]))
    assert apply(ChannelsLastPass(), graph)
    assert graph.graph.outputs[0].name == "y"


KEPT = {
    "other channels": [node("Reshape", "x pairs", "f"), node("Transpose", "f", "y", perm=(0, 2, 1))],
    "lines": [node("Reshape", "x lines", "f"), node("Transpose", "f", "y", perm=(0, 2, 1))],
    "another order": [node("Reshape", "x flat", "f"), node("Transpose", "f", "y", perm=(1, 0, 2))],
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(ChannelsLastPass(), written(KEPT[case], [2, 3, 4, 5]))


def test_nothing_is_done_without_shapes() -> None:
    nodes = [node("Reshape", "x flat", "f"), node("Transpose", "f", "y", perm=(0, 2, 1))]
    graph = read(written(nodes, [2, 3, 4, 5]))
    forget_shapes(graph)
    assert not ChannelsLastPass()(graph).modified

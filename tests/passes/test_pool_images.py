"""Means over the height and width of images that convolutions made become pools; other means stay."""

from pathlib import Path

import numpy as np
import pytest

from litehouse.passes.pool_images import PoolImagesPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, ops, read, stays

WEIGHTS = {"w": drawn(16, 16, 3, 3), "v": drawn(16, 16, 1, 1), "axes": np.array([2, 3]), "all": np.array([1, 2, 3])}
WEIGHTS |= {"back": np.array([-1, -2]), "flat": np.array([2, 16, 16])}
CONV, LAST = node("Conv", "x w", "c"), node("Conv", "m v", "y")
POOLED = {
    "behind": [CONV, node("ReduceMean", "c axes", "m"), LAST],
    "from the back": [CONV, node("ReduceMean", "c back", "m", keepdims=1), LAST],
    "activation": [CONV, node("Relu", "c", "r"), node("ReduceMean", "r axes", "m"), LAST],
    "swish": [CONV, node("Sigmoid", "c", "s"), node("Mul", "c s", "r"), node("ReduceMean", "r axes", "m"), LAST],
}
KEPT = {
    "no convolution": [node("ReduceMean", "x axes", "y")],
    "channels too": [CONV, node("ReduceMean", "c all", "y")],
    "fewer axes": [CONV, node("ReduceMean", "c axes", "y", keepdims=0)],
    "another rank": [CONV, node("Reshape", "c flat", "f"), node("ReduceMean", "f", "y")],
    "all axes": [CONV, node("ReduceMean", "c", "y")],
}


def written(nodes: list, **settings: int) -> bytes:
    taken = {name for each in nodes for name in each.input}
    weights = {name: array for name, array in WEIGHTS.items() if name in taken}
    return model(nodes, {"x": [2, 16, 6, 6]}, {"y": None}, weights, **settings)


@pytest.mark.parametrize("case", POOLED)
def test_what_is_pooled(case: str, tmp_path: Path) -> None:
    graph = read(written(POOLED[case]))
    assert apply(PoolImagesPass(), graph)
    built = built_ops(graph, tmp_path)
    assert built["#GlobalAveragePool"] == 1
    assert built["#ReorderOutput"] == 1  # at the end


def test_axes_as_an_attribute() -> None:
    graph = read(written([CONV, node("ReduceMean", "c", "m", axes=[2, 3]), LAST], opset=13))
    assert apply(PoolImagesPass(), graph)
    assert ops(graph) == ["Conv", "GlobalAveragePool", "Conv"]


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(PoolImagesPass(), written(KEPT[case]))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(POOLED["behind"]))
    forget_shapes(graph)
    assert not PoolImagesPass()(graph).modified

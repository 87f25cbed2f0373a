"""Large windows that stand side by side are averaged in steps, in images of few channels."""

from typing import Any

import pytest

from litehouse.passes.pool_in_steps import PoolInStepsPass
from onnx_models import model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, stays

STEPS = ["Reshape", "ReduceMean", "Reshape", "ReduceMean"]


def written(shape: tuple[int, ...] = (2, 3, 56, 84), opset: int = 20, **attributes: Any) -> bytes:
    attributes = {"kernel_shape": [28, 28], "strides": [28, 28]} | attributes
    return model([node("AveragePool", "x", "y", **attributes)], {"x": shape}, {"y": None}, opset=opset)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"kernel_shape": [56, 84], "strides": [56, 84]},
        {"kernel_shape": [4, 7], "strides": [4, 7], "pads": [0] * 4, "dilations": [1, 1], "auto_pad": "VALID"},
        {"ceil_mode": 1, "count_include_pad": 1},
    ],
)
def test_what_is_taken_in_steps(attributes: dict) -> None:
    graph = read(written(**attributes))
    assert apply(PoolInStepsPass(), graph)
    assert ops(graph) == STEPS


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [14, 28]},
        {"strides": [1, 1]},
        {"pads": [0, 0, 28, 0]},
        {"auto_pad": "SAME_UPPER"},
        {"dilations": [2, 2], "strides": [28, 28], "kernel_shape": [14, 14]},
        {"kernel_shape": [27, 28], "strides": [27, 28]},
        {"kernel_shape": [2, 28], "strides": [2, 28]},
        {"shape": (2, 8, 56, 56)},
        {"shape": (1, 1, 28, 28)},
        {"opset": 17},
    ],
)
def test_what_is_kept(attributes: dict) -> None:
    assert stays(PoolInStepsPass(), written(**attributes))


def test_nothing_is_done_without_strides_or_shapes() -> None:
    single = node("AveragePool", "x", "y", kernel_shape=[28, 28])
    assert stays(PoolInStepsPass(), model([single], {"x": [1, 3, 56, 56]}, {"y": None}))
    graph = read(written())
    forget_shapes(graph)
    assert not PoolInStepsPass()(graph).modified


def test_lines_of_one_axis_are_kept() -> None:
    pool = node("AveragePool", "x", "y", kernel_shape=[64], strides=[64])
    assert stays(PoolInStepsPass(), model([pool], {"x": drawn(1, 3, 8192).shape}, {"y": None}))

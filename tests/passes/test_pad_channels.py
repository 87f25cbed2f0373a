"""Images between convolutions get a multiple of four channels; what others see keeps those that it has."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from conftest import assert_close
from litehouse.passes.pad_channels import PadChannelsPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, read, run, stays

WEIGHTS = {
    "first": drawn(10, 16, 1, 1),
    "bias": drawn(10),
    "deep": drawn(10, 1, 3, 3),
    "deep_bias": drawn(10),
    "last": drawn(16, 10, 1, 1),
    "scale": drawn(10),
    "shift": drawn(10),
    "mean": drawn(10),
    "variance": np.abs(drawn(10)),
    "line": drawn(10, 1, 1),
    "whole": drawn(1, 10, 1, 1),
    "number": drawn(1),
    "row": drawn(1, 1, 1, 6),
    "grouped": drawn(16, 5, 1, 1),
    "low": np.array(0, np.float32),
    "high": np.array(6, np.float32),
    "flat": np.array([1, 10, 36]),
    "seven": drawn(7, 16, 1, 1),
    "from_seven": drawn(16, 7, 1, 1),
    "twelve": drawn(12, 16, 1, 1),
    "from_twelve": drawn(16, 12, 1, 1),
}
FIRST, LAST = node("Conv", "x first bias", "a"), node("Conv", "b last", "y")
WIDENED = {
    "directly": [FIRST, node("Conv", "a last", "y")],
    "activation": [FIRST, node("Relu", "a", "b"), LAST],
    "bounds": [FIRST, node("Clip", "a low high", "b"), LAST],
    "depthwise": [FIRST, node("Conv", "a deep deep_bias", "b", group=10, pads=[1] * 4), LAST],
    "batch norm": [FIRST, node("BatchNormalization", "a scale shift mean variance", "b", epsilon=0.0), LAST],
    "swish": [FIRST, node("Sigmoid", "a", "s"), node("Mul", "a s", "b"), LAST],
    "added weights": [FIRST, node("Add", "line a", "s"), node("Mul", "s whole", "b"), LAST],
    "a number": [FIRST, node("Mul", "a number", "b"), LAST],
    "pools": [FIRST, node("MaxPool", "a", "s", kernel_shape=[2, 2]), node("GlobalAveragePool", "s", "b"), LAST],
    "two ends": [FIRST, node("Conv", "a last", "p"), node("Conv", "a last", "q"), node("Add", "p q", "y")],
}
KEPT = {
    "an output": [FIRST, node("Identity", "a", "y")],
    "no convolution behind": [FIRST, node("Relu", "a", "b"), node("Reshape", "b flat", "y")],
    "another operand": [FIRST, node("Add", "a z", "b"), LAST],
    "not for channels": [FIRST, node("Add", "a row", "b"), LAST],
    "groups": [FIRST, node("Conv", "a grouped", "y", group=2)],
    "a multiple already": [node("Conv", "x twelve", "a"), node("Conv", "a from_twelve", "y")],
    "few": [node("Conv", "x seven", "a"), node("Conv", "a from_seven", "y")],
    "zeros that would not stay finite": [FIRST, node("Reciprocal", "a", "b"), LAST],
}


def written(nodes: list, batch: int | str = 2, **settings: int) -> bytes:
    taken = {name for each in nodes for name in each.input}
    inputs = {"x": [batch, 16, 6, 6]} | ({"z": [2, 10, 6, 6]} if "z" in taken else {})
    return model(nodes, inputs, {"y": None}, {k: v for k, v in WEIGHTS.items() if k in taken}, **settings)


@pytest.mark.parametrize("case", WIDENED)
def test_what_is_widened(case: str) -> None:
    graph = read(written(WIDENED[case]))
    assert apply(PadChannelsPass(), graph)
    made = next(each for each in graph.graph if each.op_type == "Conv").outputs[0]
    assert list(made.shape or ()) == [2, 12, 6, 6]


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(PadChannelsPass(), written(KEPT[case]))


def test_a_weight_that_is_given_is_kept() -> None:
    nodes = WIDENED["directly"]
    weights = {"first": WEIGHTS["first"], "bias": WEIGHTS["bias"]}
    assert stays(PadChannelsPass(), model(nodes, {"x": [2, 16, 6, 6], "last": [16, 10, 1, 1]}, {"y": None}, weights))


def test_an_image_that_a_branch_takes_is_kept() -> None:
    inner = onnx.helper.make_graph(
        [node("Relu", "a", "r")], "inner", [], [onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)]
    )
    choice = node("If", "yes", "c", then_branch=inner, else_branch=inner)
    nodes = [FIRST, choice, node("Conv", "a last", "p"), node("Conv", "c last", "q"), node("Add", "p q", "y")]
    weights = {name: WEIGHTS[name] for name in ("first", "bias", "last")} | {"yes": np.array(True)}
    assert stays(PadChannelsPass(), model(nodes, {"x": [2, 16, 6, 6]}, {"y": None}, weights))


def test_any_batch_will_do() -> None:
    graph = read(written(WIDENED["depthwise"], "n"))
    assert PadChannelsPass()(graph).modified
    image = drawn(3, 16, 6, 6)
    plain = read(written(WIDENED["depthwise"], "n"))
    assert_close(run(graph, {"x": image})[0], run(plain, {"x": image})[0])


def test_nothing_is_done_without_shapes_and_in_old_files() -> None:
    graph = read(written(WIDENED["depthwise"]))
    forget_shapes(graph)
    assert not PadChannelsPass()(graph).modified
    assert stays(PadChannelsPass(), written(WIDENED["depthwise"], opset=11))


def test_onnxruntime_takes_them_in_its_layout(tmp_path: Path) -> None:
    graph = read(written(WIDENED["depthwise"]))
    assert built_ops(graph, tmp_path)["Conv"]
    PadChannelsPass()(graph)
    built = built_ops(graph, tmp_path)
    assert not built["Conv"]
    assert built["#Conv"] == 3


def test_a_weight_of_two_convolutions_is_widened_once() -> None:
    """Engines would keep a copy for each."""
    graph = read(written(WIDENED["two ends"]))
    assert apply(PadChannelsPass(), graph)
    (first, second) = (each for each in graph.graph if each.op_type == "Conv" and each.outputs[0].name in ("p", "q"))
    assert first.inputs[1] is second.inputs[1]

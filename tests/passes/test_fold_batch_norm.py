"""A batch normalisation goes into the convolution before it: the same numbers, or the graph stays as it is."""

from typing import Any

import numpy as np
import onnx
import pytest

from litehouse.passes.fold_batch_norm import FoldBatchNormPass
from onnx_models import Shape, model, node
from pass_checks import apply, drawn, ops, read, run, stays

IMAGE: Shape = [2, 6, 7, 7]
NORM = {"s": drawn(8), "b": drawn(8), "m": drawn(8), "v": np.abs(drawn(8)) + 0.1}
WEIGHTS: dict[str, np.ndarray] = {"w": drawn(8, 6, 3, 3), **NORM}


def network(*more: onnx.NodeProto, outputs: str = "y", weights: dict[str, np.ndarray] | None = None) -> bytes:
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "n"), node("Relu", "n", "y"), *more]
    return model(nodes, {"x": IMAGE}, dict.fromkeys(outputs.split()), WEIGHTS | (weights or {}))


CASES: dict[str, tuple[onnx.NodeProto, dict[str, np.ndarray], Shape]] = {
    "plain": (node("Conv", "x w", "c"), {}, IMAGE),
    "bias": (node("Conv", "x w k", "c"), {"k": drawn(8)}, IMAGE),
    "groups": (node("Conv", "x w", "c", group=2), {"w": drawn(8, 3, 3, 3)}, IMAGE),
    "each channel by itself": (node("Conv", "x w", "c", group=8), {"w": drawn(8, 1, 3, 3)}, [2, 8, 7, 7]),
    "strides and padding": (node("Conv", "x w", "c", strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)), {}, IMAGE),
    "padding by name": (node("Conv", "x w", "c", auto_pad="SAME_UPPER", kernel_shape=(3, 3)), {}, IMAGE),
    "one axis": (node("Conv", "x w", "c"), {"w": drawn(8, 6, 3)}, [2, 6, 9]),
    "three axes": (node("Conv", "x w", "c"), {"w": drawn(8, 6, 2, 2, 2)}, [1, 6, 4, 4, 4]),
}


@pytest.mark.parametrize("epsilon", [None, 1e-3])
@pytest.mark.parametrize("case", CASES)
def test_folded(case: str, epsilon: float | None) -> None:
    conv, weights, shape = CASES[case]
    more: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    nodes = [conv, node("BatchNormalization", "c s b m v", "n", **more), node("Relu", "n", "y")]
    graph = read(model(nodes, {"x": shape}, {"y": None}, WEIGHTS | weights))
    assert apply(FoldBatchNormPass(), graph)
    assert ops(graph) == ["Conv", "Relu"]


def test_the_numbers_by_hand() -> None:
    weights = {"w": np.float32([[[[2]]], [[[3]]]]), "k": np.float32([1, -1]), "s": np.float32([2, 4])}
    weights |= {"b": np.float32([10, 20]), "m": np.float32([3, 5]), "v": np.float32([4, 16])}
    nodes = [node("Conv", "x w k", "c"), node("BatchNormalization", "c s b m v", "y", epsilon=0.0)]
    graph = read(model(nodes, {"x": [1, 1, 1, 1]}, {"y": None}, weights))
    FoldBatchNormPass()(graph)
    (found,) = run(graph, {"x": np.full((1, 1, 1, 1), 7, np.float32)})
    # (2 * 7 + 1 - 3) * 2 / 2 + 10, and (3 * 7 - 1 - 5) * 4 / 4 + 20
    assert found.reshape(-1).tolist() == [22, 35]


def test_a_name_that_is_an_output_stays() -> None:
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y")]
    graph = read(model(nodes, {"x": IMAGE}, {"y": None}, WEIGHTS))
    assert apply(FoldBatchNormPass(), graph)
    assert graph.graph.outputs[0].name == "y"


def test_a_weight_of_several_convolutions_stays_for_the_others() -> None:
    """Each normalisation changes a copy of its own."""
    nodes = [
        *(node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "n")),
        *(node("Conv", "x w", "d"), node("BatchNormalization", "d b s m v", "o")),
        *(node("Conv", "x w", "e"), node("Add", "n o", "p"), node("Add", "p e", "y")),
    ]
    graph = read(model(nodes, {"x": IMAGE}, {"y": None}, WEIGHTS))
    assert apply(FoldBatchNormPass(), graph)
    assert "BatchNormalization" not in ops(graph)
    assert len([value for value in graph.graph.initializers.values() if value.shape == (8, 6, 3, 3)]) == 3


def test_a_chain() -> None:
    nodes = [
        *(node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "n"), node("Relu", "n", "r")),
        *(node("Conv", "r u", "d"), node("BatchNormalization", "d s b m v", "y")),
    ]
    graph = read(model(nodes, {"x": IMAGE}, {"y": None}, WEIGHTS | {"u": drawn(8, 8, 3, 3)}))
    assert apply(FoldBatchNormPass(), graph)
    assert ops(graph) == ["Conv", "Relu", "Conv"]


NOT: dict[str, bytes] = {
    "the result is used elsewhere": network(node("Neg", "c", "z"), outputs="y z"),
    "the result is an output": network(outputs="y c"),
    "the weight is computed": model(
        [node("Neg", "w0", "w"), node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y")],
        {"x": IMAGE},
        {"y": None},
        NORM | {"w0": drawn(8, 6, 3, 3)},
    ),
    "the weight is an input": model(
        [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y")],
        {"x": IMAGE, "w": [8, 6, 3, 3]},
        {"y": None},
        NORM,
    ),
    "the bias is an input": model(
        [node("Conv", "x w k", "c"), node("BatchNormalization", "c s b m v", "y")],
        {"x": IMAGE, "k": [8]},
        {"y": None},
        WEIGHTS,
    ),
    "the mean is an input": model(
        [node("Conv", "x w", "c"), node("BatchNormalization", "c s b k v", "y")],
        {"x": IMAGE, "k": [8]},
        {"y": None},
        {name: array for name, array in WEIGHTS.items() if name != "m"},
    ),
    "a variance below zero": network(weights={"v": np.full(8, -1, np.float32)}),
    "a variance of zero": model(
        [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y", epsilon=0.0)],
        {"x": IMAGE},
        {"y": None},
        WEIGHTS | {"v": np.zeros(8, np.float32)},
    ),
    "weights that would be infinite": network(
        weights={"w": drawn(8, 6, 3, 3) * np.float32(1e37), "s": NORM["s"] * 1000}
    ),
    "another kind of convolution": model(
        [node("ConvTranspose", "x w", "c"), node("BatchNormalization", "c s b m v", "y")],
        {"x": IMAGE},
        {"y": None},
        NORM | {"w": drawn(6, 8, 3, 3)},
    ),
    "training": model(
        [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y om ov", training_mode=1)],
        {"x": IMAGE},
        {"y": None},
        WEIGHTS,
        opset=15,
    ),
}


@pytest.mark.parametrize("case", NOT)
def test_what_stays(case: str) -> None:
    assert stays(FoldBatchNormPass(), NOT[case])


def test_half_precision_stays() -> None:
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y")]
    weights = {name: array.astype(np.float16) for name, array in WEIGHTS.items()}
    data = model(nodes, {"x": IMAGE}, {"y": None}, weights, dtype=onnx.TensorProto.FLOAT16)
    assert stays(FoldBatchNormPass(), data)


def test_the_result_as_something_else_than_the_operand() -> None:
    """Here the convolution gives what the normalisation scales with."""
    nodes = [node("Conv", "x w", "c"), node("Reshape", "c k", "t"), node("BatchNormalization", "x t b m v", "y")]
    six = {name: array[:6] for name, array in NORM.items() if name != "s"}
    data = model(nodes, {"x": [1, 6, 1, 1]}, {"y": None}, {"w": drawn(6, 6, 1, 1), "k": np.array([6]), **six})
    assert stays(FoldBatchNormPass(), data)


def test_statistics_of_each_place() -> None:
    """As files of opset 7 may have them (`spatial`): not one number for each channel."""
    rest = {name: np.abs(drawn(8, 5, 5)) + 1 for name in NORM}
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "y", spatial=0)]
    data = model(nodes, {"x": IMAGE}, {"y": None}, {"w": WEIGHTS["w"], **rest}, opset=7)
    assert stays(FoldBatchNormPass(), data)

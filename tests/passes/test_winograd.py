"""Wide 3x3 convolutions become matrix products; all others stay."""

from typing import Any

import numpy as np
import onnx
import pytest

from litehouse.passes.winograd import WinogradPass
from onnx_models import model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, run, stays

IN, OUT, SIDE = 120, 112, 14
W = drawn(OUT, IN, 3, 3) / 30
NORM = {"g": drawn(OUT), "s": drawn(OUT), "m": drawn(OUT), "v": np.abs(drawn(OUT)) + 0.5}


def written(*nodes: onnx.NodeProto, x: Any = (1, IN, SIDE, SIDE), opset: int = 20, **weights: np.ndarray) -> bytes:
    return model(nodes, {"x": list(x)}, {"y": None}, {"w": W, **weights}, opset=opset)


@pytest.mark.parametrize(
    ("pads", "x"),
    [
        ((1, 1, 1, 1), (1, IN, SIDE, SIDE)),
        ((0, 0, 0, 0), (1, IN, 15, 14)),
        ((0, 2, 1, 0), (2, IN, 9, 10)),
        ((1, 1, 1, 1), (3, IN, 7, 7)),
    ],
)
def test_paddings_and_sizes(pads: tuple[int, ...], x: tuple[int, ...]) -> None:
    graph = read(written(node("Conv", "x w b", "c", pads=pads), node("Sigmoid", "c", "y"), x=x, b=drawn(OUT)))
    assert apply(WinogradPass(), graph)
    assert "Conv" not in ops(graph)
    assert ops(graph).count("MatMul") == 16  # one of them on the weights; the product with the bias is a Gemm


@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_normalisation_goes_into_the_weights(bias: bool) -> None:
    nodes = [
        node("Conv", "x w b" if bias else "x w", "c", kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)),
        node("BatchNormalization", "c g s m v", "n", epsilon=1e-3),
        node("Relu", "n", "y"),
    ]
    graph = read(written(*nodes, **NORM, **({"b": drawn(OUT)} if bias else {})))
    assert apply(WinogradPass(), graph)
    assert "BatchNormalization" not in ops(graph)
    assert ops(graph)[-2:] == ["Relu", "Transpose"]


def test_the_result_may_be_an_output() -> None:
    graph = read(written(node("Conv", "x w", "y", pads=(1, 1, 1, 1))))
    assert apply(WinogradPass(), graph)
    assert graph.graph.outputs[0].name == "y"


def test_a_result_that_others_see_is_not_normalised_inside() -> None:
    nodes = [
        node("Conv", "x w", "c", pads=(1, 1, 1, 1)),
        node("BatchNormalization", "c g s m v", "n"),
        node("Add", "c n", "y"),
    ]
    graph = read(written(*nodes, **NORM))
    assert apply(WinogradPass(), graph)
    assert "BatchNormalization" in ops(graph)


def test_the_rounding_error_is_small() -> None:
    """Against a sum of products in double precision: within a few units of float32's precision."""
    graph = read(written(node("Conv", "x w", "y")))
    x = np.maximum(drawn(1, IN, SIDE, SIDE) + 1, 0)
    assert WinogradPass()(graph).modified
    (actual,) = run(graph, {"x": x})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    expected = np.einsum("nihwab,oiab->nohw", windows, W.astype(np.float64), optimize=True)
    assert np.abs(actual - expected).max() < 1e-6 * np.ptp(expected)


KEPT = {
    "stride": (node("Conv", "x w", "y", strides=(2, 2)), {}),
    "dilation": (node("Conv", "x w", "y", dilations=(2, 2)), {}),
    "padding by name": (node("Conv", "x w", "y", auto_pad="SAME_UPPER"), {}),
    "groups": (node("Conv", "x half", "y", group=2), {"half": drawn(OUT, IN // 2, 3, 3)}),
    "other kernel": (node("Conv", "x five", "y"), {"five": drawn(OUT, IN, 5, 5)}),
    "few channels": (node("Conv", "x few", "y"), {"few": drawn(8, IN, 3, 3)}),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    convolution, weights = KEPT[case]
    assert stays(WinogradPass(), written(convolution, **weights))


def test_a_small_image_is_kept() -> None:
    assert stays(WinogradPass(), written(node("Conv", "x w", "y", pads=(1, 1, 1, 1)), x=(1, IN, 6, 6)))


def test_a_dynamic_image_is_kept() -> None:
    assert stays(WinogradPass(), written(node("Conv", "x w", "y"), x=("batch", IN, SIDE, SIDE)))


def test_an_old_opset_is_kept() -> None:
    assert stays(WinogradPass(), written(node("Conv", "x w", "y"), opset=12))


def test_a_computed_weight_is_kept() -> None:
    convolution = model([node("Conv", "x w", "y")], {"x": [1, IN, SIDE, SIDE], "w": [OUT, IN, 3, 3]}, {"y": None})
    assert stays(WinogradPass(), convolution)


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(node("Conv", "x w", "y")))
    forget_shapes(graph)
    assert not WinogradPass()(graph).modified


def test_nothing_is_done_beside_an_if() -> None:
    """There ONNX Runtime may not compute the matrices when it builds, and would do it in every run."""
    branch = onnx.helper.make_graph(
        [node("Identity", "c", "inner")], "branch", [], [onnx.helper.make_tensor_value_info("inner", 1, None)]
    )
    nodes = [node("Conv", "x w", "c"), node("If", "truth", "y", then_branch=branch, else_branch=branch)]
    assert stays(WinogradPass(), written(*nodes, truth=np.array(True)))


def test_only_the_largest_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO would take minutes to build some hundreds."""
    monkeypatch.setattr("litehouse.passes.winograd.MAX_REPLACED", 1)
    nodes = [node("Conv", "x w", "a"), node("Conv", "x w", "b", pads=(1, 1, 1, 1)), node("Conv", "x w", "c")]
    ends = [node("GlobalMaxPool", name, f"{name}1") for name in "abc"]
    graph = read(written(*nodes, *ends, node("Sum", "a1 b1 c1", "y")))
    assert apply(WinogradPass(), graph)
    assert [each.outputs[0].name for each in graph.graph if each.op_type == "Conv"] == ["a", "c"]

"""A Gelu behind a matrix product is written so that OpenVINO computes it by itself; all others stay."""

import math

import numpy as np
import onnx
import onnx_ir as ir
import openvino
import pytest

from litehouse.passes.gelu import GeluPass
from onnx_models import model, node
from pass_checks import apply, drawn, ops, read, run, stays

WEIGHTS = {
    "w": drawn(6, 8),
    "b": drawn(8),
    "k": drawn(6, 5, 1, 1),
    "one": np.array(1, np.float32),
    "two": np.array(2, np.float32),
    "half": np.array(0.5, np.float32),
    "root": np.array(math.sqrt(2), np.float32),
    "inverse": np.array(math.sqrt(0.5), np.float32),
    "shape": np.array([2, 3, 8]),
}
PRODUCT = [node("MatMul", "x w", "p"), node("Add", "p b", "a")]
CURVE = [node("Div", "a root", "d"), node("Erf", "d", "e"), node("Add", "e one", "f")]
FORMS = {
    "whole": [node("Gelu", "a", "y")],
    "tanh": [node("Gelu", "a", "y", approximate="tanh")],
    "reshaped": [node("Reshape", "a shape", "r"), node("Gelu", "r", "y")],
    "a half last": [*CURVE, node("Mul", "a f", "m"), node("Mul", "m half", "y")],
    "a half first": [*CURVE, node("Mul", "half a", "m"), node("Mul", "m f", "y")],
    "a half with the curve": [*CURVE, node("Mul", "f half", "m"), node("Mul", "a m", "y")],
    "multiplied": [
        node("Mul", "a inverse", "d"),
        node("Erf", "d", "e"),
        node("Add", "one e", "f"),
        node("Mul", "f a", "m"),
        node("Mul", "half m", "y"),
    ],
}
KEPT = {
    "no product": [node("Gelu", "x", "y")],
    "a convolution": [node("Conv", "z k", "c"), node("Gelu", "c", "y")],
    "another root": [
        *PRODUCT,
        node("Div", "a two", "d"),
        *CURVE[1:],
        node("Mul", "a f", "m"),
        node("Mul", "m half", "y"),
    ],
    "another sum": [
        *PRODUCT,
        *CURVE[:2],
        node("Add", "e two", "f"),
        node("Mul", "a f", "m"),
        node("Mul", "m half", "y"),
    ],
    "another factor": [*PRODUCT, *CURVE, node("Mul", "a f", "m"), node("Mul", "m two", "y")],
    "another operand": [*PRODUCT, *CURVE, node("Mul", "b f", "m"), node("Mul", "m half", "y")],
    "a curve that others see": [
        *PRODUCT,
        *CURVE,
        node("Mul", "a f", "m"),
        node("Mul", "m half", "h"),
        node("Mul", "h f", "y"),
    ],
}


def written(nodes: list, dtype: int = onnx.TensorProto.FLOAT) -> bytes:
    taken = {name for each in nodes for name in each.input}
    inputs = {"x": [6, 6]} if "x" in taken else {"z": [1, 5, 3, 3]}
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    weights = {name: each.astype(kind) if each.dtype == np.float32 else each for name, each in WEIGHTS.items()}
    return model(
        nodes, inputs, {"y": None}, {name: each for name, each in weights.items() if name in taken}, dtype=dtype
    )


@pytest.mark.parametrize("case", FORMS)
def test_what_is_rewritten(case: str) -> None:
    graph = read(written([*PRODUCT, *FORMS[case]]))
    assert apply(GeluPass(), graph)
    assert ops(graph)[-2:] == ["Mul", "Add"]
    assert ("Tanh" if case == "tanh" else "Erf") in ops(graph)


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(GeluPass(), written(KEPT[case]))


def test_double_precision_is_kept() -> None:
    assert stays(GeluPass(), written([*PRODUCT, *FORMS["whole"]], onnx.TensorProto.DOUBLE))


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_the_numbers_by_hand(form: str) -> None:
    graph = read(written([node("MatMul", "x w", "a"), node("Gelu", "a", "y", approximate=form)]))
    x = 3 * drawn(6, 6)
    assert GeluPass()(graph).modified
    (actual,) = run(graph, {"x": x})
    a = x.astype(np.float64) @ WEIGHTS["w"]
    if form == "tanh":
        curve = np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))
    else:
        curve = np.vectorize(math.erf)(a / math.sqrt(2))
    np.testing.assert_allclose(actual, a * (1 + curve) / 2, atol=2e-6)


def test_openvino_keeps_the_product_by_itself() -> None:
    graph = read(written([*PRODUCT, *FORMS["whole"]]))
    assert apply(GeluPass(), graph)
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(ir.to_proto(graph).SerializeToString()), "CPU")
    kinds = [each.get_rt_info()["layerType"] for each in compiled.get_runtime_model().get_ordered_ops()]
    assert "FullyConnected" in kinds
    assert "Subgraph" in kinds


def test_the_root_of_the_file_is_kept() -> None:
    """One that was written with four digits gives other numbers."""
    nodes = [*PRODUCT, node("Div", "a rough", "d"), *CURVE[1:], node("Mul", "a f", "m"), node("Mul", "m half", "y")]
    rough = np.array(1.415, np.float32)
    weights = {name: WEIGHTS[name] for name in ("w", "b", "one", "half")} | {"rough": rough}
    graph = read(model(nodes, {"x": [6, 6]}, {"y": None}, weights))
    x = drawn(6, 6)
    assert GeluPass()(graph).modified
    (actual,) = run(graph, {"x": x})
    a = x.astype(np.float64) @ WEIGHTS["w"] + WEIGHTS["b"]
    np.testing.assert_allclose(actual, a * (1 + np.vectorize(math.erf)(a / rough)) / 2, atol=2e-6)

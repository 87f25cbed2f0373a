"""Single ops in half precision, against the same steps in numpy."""

import logging

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import litehouse
from conftest import REPOSITORY, assert_close
from litehouse.passes.set_precision import SetPrecisionPass
from onnx_models import mlp

DIGITS = REPOSITORY / "examples" / "digits" / "model" / "digits.mindir"


def _half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


@pytest.fixture
def named() -> litehouse.Model:
    """The two-layer network, with names as a file has them."""
    model = litehouse.read(mlp())
    for node, name in zip(model.graph.graph, ("net/first/MatMul_1", "net/relu", "net/second/MatMul_2"), strict=True):
        node.name = name
        for value in node.outputs:
            value.dtype = model.graph.graph.inputs[0].dtype
    return model


def _expected(model: litehouse.Model, x: np.ndarray) -> np.ndarray:
    w1, w2 = model.weights["w1"], model.weights["w2"]
    hidden = _half(_half(x) @ _half(w1))
    return np.maximum(hidden, 0) @ w2


def test_an_op_takes_computes_and_gives_half_precision(named: litehouse.Model) -> None:
    x = np.random.default_rng(5).normal(size=(2, 4)).astype("f")
    copy = named.graph.clone()
    SetPrecisionPass({"net/first"})(copy)
    (result,) = ReferenceEvaluator(ir.to_proto(copy)).run(None, {"x": x})
    exact = np.maximum(x @ named.weights["w1"], 0) @ named.weights["w2"]
    expected = _expected(named, x)
    spread = np.abs(expected - exact).max()
    assert spread > 1e-3  # the rounding shows
    np.testing.assert_allclose(result, expected, atol=spread / 10)


def test_engines_take_it(named: litehouse.Model, engine: str) -> None:
    x = np.random.default_rng(5).normal(size=(2, 4)).astype("f")
    options = litehouse.Options(engine=engine, threads=1, op_precision={"net/first": "float16"})
    (result,) = litehouse.Session(named, options).run([x])
    exact = np.maximum(x @ named.weights["w1"], 0) @ named.weights["w2"]
    assert result.dtype == np.float32
    assert 0 < np.abs(result - exact).max() < 2e-3 * np.abs(exact).max()


def test_outputs_keep_their_names_and_types(named: litehouse.Model) -> None:
    copy = named.graph.clone()
    setting = SetPrecisionPass({"net/second/MatMul_2", "net/relu"})
    assert setting(copy).modified
    (output,) = copy.graph.outputs
    assert (output.name, output.dtype.name) == ("y", "FLOAT")
    assert [node.op_type for node in copy.graph].count("Cast") == 5
    assert setting.missed == set()


def test_names_fit_whole_parts_only(named: litehouse.Model) -> None:
    setting = SetPrecisionPass({"net/fir", "nothing"})
    assert not setting(named.graph.clone()).modified
    assert setting.missed == {"net/fir", "nothing"}


def test_a_name_that_fits_nothing_is_told(named: litehouse.Model, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        litehouse.Session(named, litehouse.Options(engine="onnxruntime", op_precision={"no such": "float16"}))
    assert "no op 'no such' whose precision can be set" in caplog.text


def test_a_network_of_mindspore(engine: str) -> None:
    plain = litehouse.load(DIGITS, engine=engine, threads=1, cache=False)
    image = np.fromfile(DIGITS.with_name("input.bin"), np.float32).reshape(plain.inputs[0].shape)
    names = sorted({str(node.name).rpartition("/")[0] for node in plain.model.graph.graph if node.op_type == "Conv"})
    assert names
    halved = litehouse.load(DIGITS, engine=engine, threads=1, cache=False, op_precision=dict.fromkeys(names, "float16"))
    exact, rounded = plain.run([image])[0], halved.run([image])[0]
    assert not np.array_equal(exact, rounded)
    assert np.abs(exact - rounded).max() < 1e-2 * np.ptp(exact)
    kept = litehouse.load(DIGITS, engine=engine, threads=1, cache=False, op_precision=dict.fromkeys(names, "float32"))
    assert_close(kept.run([image])[0], exact)


def test_wrong_precisions_are_refused() -> None:
    with pytest.raises(ValueError, match="op_precision of 'x' must be one of"):
        litehouse.Options(op_precision={"x": "int8"})

"""Activation functions without a fixture, and their corners, against numpy. Sizes are dynamic in all of them."""

from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-4, 4, (2, 6, 5)).astype(np.float32)
LOW = RANDOM.uniform(-2, 0, (6, 1)).astype(np.float32)
HIGH = RANDOM.uniform(0, 2, (5,)).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


CASES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "relu_v3": ("ReLUV3", (), np.maximum(X, 0)),
    "old_gelu": ("Gelu", (), gelu(X)),
    "old_fast_gelu": ("FastGelu", (), X * sigmoid(1.702 * X)),
    "npu_gelu": ("NpuGelu", (1,), gelu(X)),
    "elu_in_place": ("InplaceElu", (0.7,), elu(X, 0.7)),
    "silu_in_place": ("InplaceSiLU", (), X * sigmoid(X)),
    "threshold_in_place": ("InplaceThreshold", (0.5, -3), np.where(X > 0.5, X, -3)),
    "hardtanh_in_place": ("InplaceHardtanh", (-1, 2), X.clip(-1, 2)),
    "clamp_by_tensors": ("InplaceClampTensor", (LOW, HIGH), np.minimum(np.maximum(X, LOW), HIGH)),
    "clamp_below": ("ClampTensor", (LOW, None), np.maximum(X, LOW)),
    "clamp_crossed": ("ClampScalar", (1.0, -1.0), np.full_like(X, -1)),
    "softplus_is_straight_above": ("SoftplusExt", (2, 1), np.where(2 * X > 1, X, np.log1p(np.exp(2 * X)) / 2)),
    "swiglu": ("Swiglu", (1,), X[:, :3] * sigmoid(X[:, :3]) * X[:, 3:]),
    "dropout_2d": ("Dropout2dExt", (0.5, True, False, 1, 2), X),
    "dropout_function": ("FuncDropoutExt", (0.5, True, False, 1, 2), X),
}


@pytest.mark.parametrize("case", CASES)
def test_activation(case: str, engine: str) -> None:
    name, operands, expected = CASES[case]
    assert_close(run_op(name, [X, *operands], ["float32"], engine)[0], expected.astype(np.float32))


@pytest.mark.parametrize("name", ["ReLUV2", "Dropout"])
def test_results_for_training_are_left_out(name: str, engine: str) -> None:
    expected = np.maximum(X, 0) if name == "ReLUV2" else X
    assert_close(run_op(name, [X], ["float32", None], engine)[0], expected)


@pytest.mark.parametrize("axes", [(1, 2), (0, -1), (0, 1, 2)])
def test_softmax_over_several_axes(axes: tuple[int, ...], engine: str) -> None:
    powers = np.exp(X - X.max())
    assert_close(run_op("Softmax", [X, axes], ["float32"], engine)[0], powers / powers.sum(axes, keepdims=True))


def test_log_sigmoid_of_large_values(engine: str) -> None:
    x = np.array([-200, -1, 0, 1, 200], np.float32)
    y, _ = run_op("LogSigmoid", [x], ["float32", "float32"], engine)
    assert_close(y, (-np.logaddexp(0, -x)).astype(np.float32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_are_bounded(dtype: str, engine: str) -> None:
    x = np.array([100, 3, 0, 7], dtype) - np.array(0 if dtype == "uint8" else 50, dtype)
    assert_close(run_op("ReLU", [x], [dtype], engine)[0], np.maximum(x, 0).astype(dtype))
    assert_close(run_op("ClampScalar", [x, 1, 6], [dtype], engine)[0], x.clip(1, 6))


@pytest.mark.parametrize("name", ["Softsign", "Softplus", "Mish", "SeLU", "HSwish", "HSigmoid", "GeLU", "CeLU", "Tanh"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_floats_of_other_widths(name: str, dtype: str, engine: str) -> None:
    single = run_op(name, [X], ["float32"], engine)[0]
    assert_close(run_op(name, [X.astype(dtype)], [dtype], engine)[0].astype(np.float16), single.astype(np.float16))


def test_an_unknown_gelu_is_refused() -> None:
    with pytest.raises(RefusedError, match="approximation"):
        run_op("GeluExt", [X, 5], ["float32"], "onnxruntime")

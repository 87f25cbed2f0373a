"""Activations: older opsets, attributes and dtypes."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against import agrees, numbers, on_torch, one_op
from formats.onnx_runs import direct

pytest.importorskip("torch")

from litehouse.engines.torch.registry import find_op
from litehouse.engines.torch.values import as_tensor

X = numbers(3, 4, 5) * 3
LARGE = np.array([-200, -50, -25, -1e-4, -0.0, 0, 1e-4, 25, 50, 200], np.float32)
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("Relu", {}, 7),
    ("LeakyRelu", {"alpha": 0.2}, 7),
    ("LeakyRelu", {}, 16),
    ("Elu", {"alpha": 0.3}, 7),
    ("Selu", {}, 7),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}, 7),
    ("Celu", {"alpha": 0.5}, 12),
    ("Gelu", {}, 20),
    ("Gelu", {"approximate": "tanh"}, 20),
    ("HardSigmoid", {}, 7),
    ("HardSigmoid", {"alpha": 1 / 6}, 7),
    ("HardSigmoid", {"alpha": 0.7, "beta": 0.1}, 7),
    ("HardSwish", {}, 14),
    ("Mish", {}, 18),
    ("Sigmoid", {}, 7),
    ("Tanh", {}, 7),
    ("Softplus", {}, 7),
    ("Softsign", {}, 7),
    ("Shrink", {"bias": 0.3, "lambd": 1.1}, 9),
    ("Shrink", {}, 9),
    ("ThresholdedRelu", {"alpha": 0.4}, 10),
]


@pytest.mark.parametrize(("op", "attributes", "opset"), CASES)
def test_attributes(op: str, attributes: dict[str, Any], opset: int) -> None:
    agrees(op, [X], opset=opset, **attributes)
    agrees(op, [LARGE], opset=opset, **attributes)
    agrees(op, [np.array([np.nan, 1, -1], np.float32)], opset=opset, **attributes)


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh"])
def test_float64(op: str) -> None:
    opset = 14 if op == "Relu" else 7
    agrees(op, [LARGE.astype(np.float64)], opset=opset, tolerance=1e-9)


def test_softplus_in_float64() -> None:
    x = LARGE.astype(np.float64)
    (found,) = on_torch(one_op("Softplus", [x]), [x])
    np.testing.assert_allclose(found, np.logaddexp(0, x), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_relu_of_integers(dtype: str) -> None:
    (found,) = agrees("Relu", [numbers(20, dtype=dtype)], opset=14)
    assert found.min() == 0


@pytest.mark.parametrize("opset", [7, 9, 16])
@pytest.mark.parametrize("shape", [(1,), (4, 1), (5,), (3, 4, 5), (1, 4, 1), ()])
def test_prelu(shape: tuple[int, ...], opset: int) -> None:
    agrees("PRelu", [X, numbers(*shape, seed=1)], opset=opset)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_prelu_of_integers(dtype: str) -> None:
    x, slope = numbers(3, 4, dtype=dtype), numbers(4, dtype=dtype, seed=1)
    (found,) = on_torch(one_op("PRelu", [x, slope]), [x, slope])
    np.testing.assert_array_equal(found, np.where(x < 0, x * slope, x))


def test_shrink_of_integers() -> None:
    agrees("Shrink", [numbers(30, dtype="int32")], bias=2.0, lambd=3.0)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
def test_along_an_axis(op: str, axis: int | None) -> None:
    for opset in (13, 21):
        agrees(op, [X], opset=opset, **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
def test_once_it_was_over_all_axes_from_one_on(op: str, axis: int | None) -> None:
    """Asked directly, as models are brought to newer versions when they are read."""
    attributes = {} if axis is None else {"axis": axis}
    found = find_op("", op, 11)
    assert found is not None
    (expected,) = direct(one_op(op, [X], opset=11, **attributes), {"x0": X})
    np.testing.assert_allclose(found.function(as_tensor(X), **attributes).numpy(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_large_numbers(op: str) -> None:
    agrees(op, [np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0, 1]], np.float32)])
    agrees(op, [X.astype(np.float64)], tolerance=1e-12)


def test_hardmax_takes_the_first_of_equals() -> None:
    (found,) = agrees("Hardmax", [np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32)])
    assert found.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_hardmax_of_nothing(shape: tuple[int, ...]) -> None:
    agrees("Hardmax", [np.zeros(shape, np.float32)], opset=13)

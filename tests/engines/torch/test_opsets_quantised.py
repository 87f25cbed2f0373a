"""Quantised numbers: dtypes, axes, zero points, and sums that only exact ones hold."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against import agrees, numbers

X = numbers(3, 4, 5) * 50


def small(*shape: int, dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def one(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_quantize(dtype: str) -> None:
    opset = 21 if "16" in dtype else 10
    agrees("QuantizeLinear", [X, one(0.5), one(3, dtype)], opset=opset)
    agrees("QuantizeLinear", [X * 1e4, one(0.5), one(0, dtype)], opset=opset)
    agrees("DequantizeLinear", [small(3, 4, dtype=dtype), one(0.25), one(7, dtype)], opset=opset)
    agrees("DequantizeLinear", [small(3, 4, dtype=dtype), one(0.25)], opset=opset)


def test_halves_go_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    (found,) = agrees("QuantizeLinear", [x, one(1), one(10, "uint8")])
    assert found.tolist() == [10, 12, 12, 10, 8]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_by_axis(axis: int) -> None:
    size = X.shape[axis]
    scale, zero = np.abs(numbers(size, seed=1)) + np.float32(0.1), small(size, seed=2)
    agrees("QuantizeLinear", [X, scale, zero], axis=axis, opset=13)
    agrees("DequantizeLinear", [small(3, 4, 5), scale, zero], axis=axis, opset=13)


@pytest.mark.parametrize("size", [2, 4])
def test_by_blocks(size: int) -> None:
    blocks = -(-4 // size)
    scale, zero = np.abs(numbers(3, blocks, 5, seed=1)) + np.float32(0.1), small(3, blocks, 5, seed=2)
    agrees("QuantizeLinear", [X, scale, zero], axis=1, block_size=size, opset=21)
    agrees("DequantizeLinear", [small(3, 4, 5), scale, zero], axis=1, block_size=size, opset=21)


def test_by_default_to_uint8() -> None:
    agrees("QuantizeLinear", [X, one(0.5)], opset=13)
    agrees("QuantizeLinear", [X, one(0.5)], opset=21, output_dtype=5)  # int16


@pytest.mark.parametrize("x", [X, np.abs(X) + 3, -np.abs(X) - 3, np.zeros((2, 3), np.float32), X[:0]])
def test_dynamic(x: np.ndarray) -> None:
    agrees("DynamicQuantizeLinear", [x.astype(np.float32)], outputs=3, opset=11)


@pytest.mark.parametrize("zeros", [(), (3,), (3, 5)])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_matmul_integer(kind: str, zeros: tuple[int, ...]) -> None:
    given = [one(zero, dtype) for zero, dtype in zip(zeros, ("uint8", kind), strict=False)]
    agrees("MatMulInteger", [small(2, 7, 600), small(600, 9, dtype=kind), *given], opset=10)


def test_matmul_integer_with_a_zero_point_for_each_column() -> None:
    a, b = small(7, 30), small(30, 9, dtype="int8")
    agrees("MatMulInteger", [a, b, one(4, "uint8"), small(9, dtype="int8", seed=3)], opset=10)


def test_qlinear_matmul() -> None:
    a, b = small(2, 6, 30), small(30, 8, dtype="int8", seed=1)
    scaled = [a, one(0.02), one(120, "uint8"), b, one(0.03), one(3, "int8"), one(0.7), one(128, "uint8")]
    agrees("QLinearMatMul", scaled, opset=10)


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 0, 2, 1]}, {"strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}])
def test_convolutions(attributes: dict[str, Any]) -> None:
    x, w = small(2, 4, 7, 8), small(6, 2, 3, 3, seed=1)
    agrees("ConvInteger", [x, w, one(130, "uint8"), one(120, "uint8")], group=2, opset=10, **attributes)
    scale, bias = np.abs(numbers(6, seed=2)) * np.float32(0.01), numbers(6, dtype="int32", seed=3) * 100
    scaled = [x, one(0.02), one(130, "uint8"), w.astype("int8"), scale, np.zeros(6, "int8")]
    agrees("QLinearConv", [*scaled, one(0.05), one(100, "uint8"), bias], group=2, opset=10, **attributes)


def test_runtimes_own_products() -> None:
    a, b, scale = small(5, 30), small(30, 8, dtype="int8", seed=1), np.abs(numbers(8, seed=2))
    options: dict[str, Any] = {"domain": "com.microsoft", "dtypes": ["float32"], "tolerance": 1e-3}
    agrees("MatMulIntegerToFloat", [a, b, one(0.1), scale, one(9, "uint8"), None, numbers(8)], **options)
    agrees("DynamicQuantizeMatMul", [numbers(5, 30), b, one(0.1), one(0, "int8"), numbers(8)], **options)

"""Products that MegEngine 1.13 does not have yet, what products become in ONNX, and what is refused."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import FIXTURES, assert_close

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (RNG.standard_normal(shape) * 4).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int16", "int8"])
def test_cross(dtype: str, engine: str) -> None:
    a, b = drawn(2, 3, 4, dtype=dtype), drawn(2, 3, 4, dtype=dtype)
    made = run_operator(engine, "Cross", [a, b], {"axis_a": 1, "axis_b": 1, "axis_c": 1})[0]
    assert_close(made, np.cross(a, b, axis=1))


def test_cross_of_other_axes(engine: str) -> None:
    a, b = drawn(3, 2, 4), drawn(2, 4, 3)
    made = run_operator(engine, "Cross", [a, b], {"axis_a": 0, "axis_b": -1, "axis_c": 1})[0]
    assert_close(made, np.cross(a, b, axisa=0, axisb=2, axisc=1))


def kinds(case: str) -> list[str]:
    graph = litehouse.read(FIXTURES / "mge" / "linear" / f"{case}.mge").graph.graph
    return [node.op_type for node in graph if node.op_type != "Identity"]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("matmul", ["MatMul"]),
        ("linear", ["Transpose", "MatMul", "Add"]),
        ("linear_3d", ["Transpose", "MatMul", "Add"]),
        ("matmul_3d_2d", ["MatMul"]),
        ("matmul_4d", ["MatMul"]),
        ("matmul_batched_transposed", ["Transpose", "Transpose", "MatMul"]),
    ],
)
def test_products_are_written_as_one(case: str, expected: list[str]) -> None:
    assert kinds(case) == expected


PLAIN = {"transpose_a": False, "transpose_b": False, "compute_mode": "DEFAULT", "format": "DEFAULT"}


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("MatrixMul", [drawn(2, 3), drawn(3, 4)], PLAIN | {"format": "MK4"}, "MK4"),
        ("MatrixMul", [drawn(2, 3, dtype="int16"), drawn(3, 4, dtype="int16")], PLAIN, "int16"),
        ("MatrixInverse", [drawn(33, 33)], {}, "33 rows"),
        ("Diag", [drawn(2, 3, 4)], {"k": 0}, "rank 3"),
        ("Cross", [drawn(3), drawn(3)], {"axis_a": 1, "axis_b": 0, "axis_c": 0}, "axis 1"),
        ("Alloc", [np.array([2, 3], np.int32)], {"dtype": "QuantizedS8"}, "QuantizedS8"),
        ("Eye", [np.array([2, 3], np.int32)], {"k": 0, "dtype": "QuantizedS4"}, "QuantizedS4"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params)

"""Arithmetic and logic: dtypes, older opsets, and what is at the edges of numbers."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against import agrees, numbers, on_torch, one_op

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 2.5, 0.5, -0.5, 1e30, -1e-30], np.float32)
SMALL = np.array([-0.9, -0.5, 0.0, 0.3, 0.99], np.float32)
EVERYWHERE = ("Abs", "Neg", "Sqrt", "Exp", "Reciprocal", "Floor", "Ceil", "Round", "Erf", "Sin", "Cos", "Tan", "Atan")
UNARY = (*EVERYWHERE, "Sinh", "Cosh", "Asinh", "Sign", "Log", "IsNaN", "IsInf")
MIXED = [
    *[("float32", "int64"), ("float32", "int32"), ("float32", "float64"), ("float64", "float32")],
    *[("int32", "float32"), ("int64", "float32"), ("int32", "int64"), ("int64", "int32"), ("int64", "float64")],
]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edges(op: str, dtype: str) -> None:
    if dtype == "float32" or op not in ("Asinh", "Sinh", "Cosh", "Tan", "Atan", "Erf"):
        agrees(op, [EDGES.astype(dtype)])


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atanh", "Acosh"])
def test_inverses(op: str) -> None:
    agrees(op, [SMALL + (2 if op == "Acosh" else 0)])
    assert np.isnan(on_torch(one_op(op, [SMALL]), [SMALL - 3])[0]).all()


@pytest.mark.parametrize("opset", [7, 13, 14])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_binary(op: str, dtype: str, opset: int) -> None:
    b = numbers(4, 1, dtype=dtype, seed=1)
    agrees(op, [numbers(2, 4, 5, dtype=dtype), np.where(b == 0, 3, b).astype(dtype)], opset=opset)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_integers_wrap_and_truncate(op: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    a = np.array([limits.max, limits.max - 6, limits.min, 7, limits.max // 2], dtype)
    agrees(op, [a, np.array([3, 2, 5, 3, 7], dtype)])
    if limits.min < 0:
        agrees(op, [np.array([-7, 7, -8], dtype), np.array([2, -2, -3], dtype)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_lowest_integer_over_minus_one(dtype: str) -> None:
    """A CPU has no such number, and would end the process."""
    a, b = np.array([np.iinfo(dtype).min, 7, -7, 7], dtype), np.array([-1, -1, -1, 2], dtype)
    (found,) = on_torch(one_op("Div", [a, b]), [a, b])
    assert found.tolist() == [np.iinfo(dtype).min, -7, 7, 3]


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_mod(dtype: str, fmod: int) -> None:
    b = numbers(40, dtype=dtype, seed=1)
    agrees("Mod", [numbers(40, dtype=dtype), np.where(b == 0, 4, b).astype(dtype)], fmod=fmod)


def test_mod_of_floats() -> None:
    a, b = np.array([5.5, -5.5, 5.5, -5.5, np.inf, 1], np.float32), np.array([3, 3, -3, -3, 2, np.inf], np.float32)
    agrees("Mod", [a, b], fmod=1)


@pytest.mark.parametrize(("base", "exponent"), MIXED)
def test_pow(base: str, exponent: str) -> None:
    a = np.abs(numbers(20, dtype=base)) + np.dtype(base).type(1)
    agrees("Pow", [a, np.abs(numbers(20, dtype=exponent, seed=1))], opset=15)


def test_pow_of_integers_by_fractions() -> None:
    (found,) = agrees("Pow", [np.array([16, 27, 5, 2], np.int32), np.array([0.5, 1 / 3, 2.0, -1.0], np.float32)])
    assert found.tolist() == [4, 3, 25, 0]


@pytest.mark.parametrize("op", ["Min", "Max", "Sum", "Mean"])
@pytest.mark.parametrize("opset", [8, 13])
def test_of_many(op: str, opset: int) -> None:
    agrees(op, [numbers(3, 4)], opset=opset)
    agrees(op, [numbers(3, 1), numbers(4, seed=1), numbers(2, 3, 4, seed=2)], opset=opset)


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_nan_wins(op: str) -> None:
    agrees(op, [EDGES, EDGES[::-1].copy()])
    (found,) = agrees(op, [np.array([np.nan, 1], np.float32), np.array([1, np.nan], np.float32)])
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    "bounds", [{}, {"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.25}, {"min": 1.0, "max": 0.0}]
)
@pytest.mark.parametrize("opset", [7, 10, 11, 13])
def test_clip(opset: int, bounds: dict[str, float]) -> None:
    x = numbers(3, 4)
    if opset < 11:
        if "max" not in bounds or bounds["max"] > 0:  # ONNX Runtime refuses bounds that are the wrong way round
            agrees("Clip", [x], opset=opset, **bounds)
    else:
        low, high = (np.float32(bounds[name]) if name in bounds else None for name in ("min", "max"))
        agrees(
            "Clip", [x, None if low is None else np.array(low), None if high is None else np.array(high)], opset=opset
        )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float64"])
def test_clip_of_dtypes(dtype: str) -> None:
    agrees("Clip", [numbers(20, dtype=dtype), np.array(1, dtype), np.array(4, dtype)])


def test_clip_by_attributes_holds_inf() -> None:
    agrees("Clip", [EDGES[1:]], opset=7)


@pytest.mark.parametrize("bounds", [[], [np.float32(-1)], [None, np.float32(1)]])
def test_clip_without_a_bound_holds_inf(bounds: list[Any]) -> None:
    agrees("Clip", [EDGES[1:], *(None if bound is None else np.array(bound) for bound in bounds)], opset=11)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_bit_shift(dtype: str, direction: str) -> None:
    largest = np.iinfo(dtype).max
    x, y = np.array([1, 2, 200, largest, largest, largest - 5], dtype), np.array([1, 5, 3, 7, 0, 1], dtype)
    if dtype != "uint16":  # which ONNX Runtime lacks
        agrees("BitShift", [x, y], direction=direction)
    (found,) = on_torch(one_op("BitShift", [x, y], direction=direction), [x, y])
    np.testing.assert_array_equal(found, x << y if direction == "LEFT" else x >> y)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_all_bits_are_shifted_out(dtype: str, direction: str) -> None:
    limits = np.iinfo(dtype)
    x, y = np.full(4, limits.max, dtype), np.array([limits.bits, limits.bits + 1, 200, limits.max], dtype)
    (found,) = on_torch(one_op("BitShift", [x, y], direction=direction), [x, y])
    assert found.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [*INTEGERS, "uint64"])
def test_bits(op: str, dtype: str) -> None:
    agrees(op, [numbers(20, dtype=dtype), numbers(20, dtype=dtype, seed=1)])
    agrees("BitwiseNot", [numbers(20, dtype=dtype)])


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_cum_sum(dtype: str, exclusive: int, reverse: int) -> None:
    for axis in (0, 1, -1):
        agrees("CumSum", [numbers(3, 4, dtype=dtype), np.array(axis)], exclusive=exclusive, reverse=reverse)


def test_an_exclusive_sum_has_no_trace_of_the_last() -> None:
    x = np.array([1, 2, np.inf], np.float32)
    (found,) = agrees("CumSum", [x, np.array(0, np.int32)], exclusive=1)
    assert found.tolist() == [0, 1, 3]


@pytest.mark.parametrize("signs", [(0, 1), (1, 0), (1, 1), (0, 0)])
def test_is_inf(signs: tuple[int, int]) -> None:
    agrees("IsInf", [EDGES], detect_negative=signs[0], detect_positive=signs[1])


COMPARISONS: list[Any] = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8", "uint16", "uint32"])
def test_comparisons(op: str, dtype: str) -> None:
    opset = 12 if "Or" in op else 7
    kinds = ["int32", "int64"] if op == "Equal" else ["float32", "float64"]
    for version in [21] + ([opset] if dtype in kinds else []):
        agrees(op, [numbers(4, 5, dtype=dtype), numbers(5, dtype=dtype, seed=1)], opset=version)


def test_comparisons_with_nan() -> None:
    for op in COMPARISONS:
        agrees(op, [EDGES[:, None], EDGES])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_truth(op: str) -> None:
    agrees(op, [numbers(4, 5, dtype=bool), numbers(5, dtype=bool, seed=1)], opset=7)
    agrees("Not", [numbers(4, dtype=bool)], opset=7)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float64", "int32"])
def test_where(dtype: str) -> None:
    agrees(
        "Where", [numbers(3, 1, dtype=bool), numbers(4, dtype=dtype), numbers(2, 3, 1, dtype=dtype, seed=1)], opset=9
    )

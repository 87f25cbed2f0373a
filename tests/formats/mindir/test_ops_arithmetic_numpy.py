"""Arithmetic and logic ops without a fixture, and their corners, against numpy. Sizes are dynamic in all of them."""

import math
from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(7)
A = RANDOM.uniform(-3, 3, (3, 4)).astype(np.float32)
B = RANDOM.uniform(0.5, 2, (3, 4)).astype(np.float32)
MASK = A > 0
INTS = np.array([-7, 7, -1, 0, 5], np.int32)
BYTES = np.array([0, 3, 127, 200, 255], np.uint8)
SMALL = np.array([-128, -3, 0, 100, 127], np.int8)


def erfc(x: np.ndarray) -> np.ndarray:
    return np.array([math.erfc(value) for value in x], np.float32)


UNARY = {
    "InplaceExp": np.exp,
    "InplaceFloor": np.floor,
    "InplaceSign": np.sign,
    "Exp2": np.exp2,
    "Frac": lambda x: x - np.trunc(x),
    "Trunc": np.trunc,
    "Sinc": np.sinc,
}
BINARY = {
    "TensorAdd": np.add,
    "AddV2": np.add,
    "Adds": np.add,
    "Subs": np.subtract,
    "LogAddExp": np.logaddexp,
    "LogAddExp2": np.logaddexp2,
    "Atan2Ext": np.arctan2,
    "XLogYScalarOther": lambda x, y: x * np.log(y),
    "XLogYScalarSelf": lambda x, y: x * np.log(y),
    "DivMods": np.divide,
    "EqualExt": np.equal,
    "GreaterScalar": np.greater,
    "GreaterEqualScalar": np.greater_equal,
    "LessEqualScalar": np.less_equal,
    "NeScalar": np.not_equal,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, engine: str) -> None:
    assert_close(run_op(name, [A], ["float32"], engine)[0], UNARY[name](A).astype(np.float32))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, engine: str) -> None:
    expected = BINARY[name](A, B)
    assert_close(run_op(name, [A, B], [expected.dtype], engine)[0], expected)


@pytest.mark.parametrize("digits", [-1, 0, 2])
def test_round_to_decimals(digits: int, engine: str) -> None:
    x = np.array([12.346, -15.0, 2.5, -0.125], np.float32)
    assert_close(run_op("Round", [x, digits], ["float32"], engine)[0], np.round(x, digits))


def test_erfc_keeps_digits_in_the_tail(engine: str) -> None:
    x = np.array([-3, -0.5, 0, 0.1, 2, 5, 8], np.float32)
    (result,) = run_op("Erfc", [x], ["float32"], engine)
    np.testing.assert_allclose(result, erfc(x), rtol=2e-5)


def test_erfinv_at_its_ends(engine: str) -> None:
    x = np.array([-1, -0.9999, -0.3, 0, 1e-6, 0.999999, 1], np.float32)
    (result,) = run_op("Erfinv", [x], ["float32"], engine)
    assert result[0] == -np.inf
    assert result[-1] == np.inf
    again = np.array([math.erf(value) for value in result[1:-1]])
    np.testing.assert_allclose(again, x[1:-1], rtol=1e-5, atol=1e-9)


def test_atan2_in_all_quadrants_and_on_the_axes(engine: str) -> None:
    y = np.array([1, 1, -1, -1, 0, 0, 1, -1, 0, -0.0, -0.0], np.float32)
    x = np.array([1, -1, 1, -1, 1, -1, 0, 0, 0, -1, 1], np.float32)
    assert_close(run_op("Atan2", [y, x], ["float32"], engine)[0], np.arctan2(y, x))


def test_hypot_beyond_the_range_of_squares(engine: str) -> None:
    a, b = np.array([3e30, 0, 3e-30], np.float32), np.array([4e30, 0, 4e-30], np.float32)
    np.testing.assert_allclose(run_op("Hypot", [a, b], ["float32"], engine)[0], np.hypot(a, b), rtol=1e-5)


def test_log_add_exp_of_infinities(engine: str) -> None:
    a, b = np.array([-np.inf, -np.inf, 1000], np.float32), np.array([-np.inf, 2, 1000], np.float32)
    assert_close(run_op("LogAddExp", [a, b], ["float32"], engine)[0], np.logaddexp(a, b))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float32"])
def test_remainders_have_the_signs_of_numpy(dtype: str, engine: str) -> None:
    a, b = np.array([-7, -7, 7, 7, 6], dtype), np.array([2, -2, 2, -2, -3], dtype)
    assert_close(run_op("FloorMod", [a, b], [dtype], engine)[0], np.mod(a, b))
    assert_close(run_op("FmodTensor", [a, b], [dtype], engine)[0], np.fmod(a, b))
    assert_close(run_op("FloorDiv", [a, b], [dtype], engine)[0], np.floor_divide(a, b))
    assert_close(run_op("DivMod", [a, b, 1], [dtype], engine)[0], np.trunc(a / b).astype(dtype))


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("x", [BYTES, SMALL], ids=["uint8", "int8"])
def test_small_integers_wrap_around(name: str, x: np.ndarray, engine: str) -> None:
    expected = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[name](x, x[::-1])
    assert_close(run_op(name, [x, x[::-1].copy()], [x.dtype], engine)[0], expected)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_divided_by_zero_is_zero_where_the_op_says_so(dtype: str, engine: str) -> None:
    a, b = np.array([6, 5, 0], dtype), np.array([3, 0, 0], dtype)
    assert_close(run_op("DivNoNan", [a, b], [dtype], engine)[0], np.array([2, 0, 0], dtype))


def test_scaled_sums(engine: str) -> None:
    assert_close(run_op("SubScalar", [A, 2, 3], ["float32"], engine)[0], A - 6)
    assert_close(run_op("InplaceAddsExt", [INTS, 2, 3], ["int32"], engine)[0], INTS + 6)
    assert_close(run_op("LerpScalar", [A, B, 0.25], ["float32"], engine)[0], A + np.float32(0.25) * (B - A))
    assert_close(run_op("AddcdivExt", [A, A, B, 0.5], ["float32"], engine)[0], A + np.float32(0.5) * A / B)


def test_casts(engine: str) -> None:
    assert_close(run_op("ToDtype", [A, 34, False, False], ["int32"], engine)[0], A.astype(np.int32))
    assert_close(run_op("ToOther", [A, INTS, False, False], ["int32"], engine)[0], A.astype(np.int32))
    x = np.array([300.7, -1.5, -200.2])
    assert_close(run_op("Cast", [x, 37], ["uint8"], engine)[0], x.astype(np.int64).astype(np.uint8))


def test_choice(engine: str) -> None:
    assert_close(run_op("SelectV2", [MASK, A, B], ["float32"], engine)[0], np.where(MASK, A, B))
    filled = run_op("InplaceMaskedFillScalar", [A, MASK, -1e9], ["float32"], engine)[0]
    assert_close(filled, np.where(MASK, np.float32(-1e9), A))
    half = run_op("MaskedFillScalar", [A.astype(np.float16), MASK, -1e9], ["float16"], engine)[0]
    assert_close(half, np.where(MASK, np.float16("-inf"), A.astype(np.float16)))
    flags = run_op("Select", [MASK, ~MASK, MASK], ["bool"], engine)[0]
    assert not flags.any()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint32"])
def test_shifts(dtype: str, engine: str) -> None:
    x = np.array([100, 1, 77, 12], dtype) if dtype[0] == "u" else np.array([-100, -1, 77, 12], dtype)
    count = np.array([1, 3, 2, 0], dtype)
    assert_close(run_op("LeftShift", [x, count], [dtype], engine)[0], np.left_shift(x, count))
    assert_close(run_op("RightShift", [x, count], [dtype], engine)[0], np.right_shift(x, count))


def test_bits_with_a_number(engine: str) -> None:
    assert_close(run_op("BitwiseXorScalar", [INTS, 6], ["int32"], engine)[0], INTS ^ 6)
    assert_close(run_op("BitwiseOrScalar", [MASK, True], ["bool"], engine)[0], MASK | True)


def test_comparison_of_integers_of_both_signs(engine: str) -> None:
    assert_close(run_op("Less", [SMALL, BYTES], ["bool"], engine)[0], SMALL.astype(int) < BYTES)
    assert_close(run_op("LessScalar", [BYTES, -1], ["bool"], engine)[0], BYTES.astype(int) < -1)
    assert_close(run_op("EqScalar", [INTS, 0.5], ["bool"], engine)[0], INTS == 0.5)


def test_kinds_of_numbers(engine: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert_close(run_op("IsNegInf", [x], ["bool"], engine)[0], np.isneginf(x))
    assert_close(run_op("IsFinite", [INTS], ["bool"], engine)[0], np.isfinite(INTS))
    assert_close(run_op("IsInf", [INTS], ["bool"], engine)[0], np.isinf(INTS))
    assert_close(run_op("IsClose", [x, x, 1e-5, 1e-8, True], ["bool"], engine)[0], np.isclose(x, x, equal_nan=True))


SCALARS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("ScalarAdd", (7, 2), 9),
    ("ScalarSub", (7, 2), 5),
    ("ScalarMul", (7, -2), -14),
    ("ScalarFloorDiv", (-7, 2), -4),
    ("ScalarMod", (-7, 2), 1),
    ("ScalarMax", (7, 2), 7),
    ("ScalarMin", (7, 2), 2),
    ("ScalarUsub", (7,), -7),
    ("ScalarUadd", (7,), 7),
    ("ScalarPow", (7, 2), 49),
    ("bit_and", (7, 2), 2),
    ("bit_or", (5, 2), 7),
    ("ScalarDiv", (7.0, 2.0), 3.5),
    ("ScalarFloorDiv", (-7.0, 2.0), -4.0),
    ("ScalarLog", (7.0,), math.log(7)),
    ("ScalarFloor", (2.5,), 2.0),
    ("ScalarEq", (7, 7), True),
    ("ScalarLt", (7, 2), False),
    ("ScalarLe", (7, 7), True),
    ("ScalarGt", (7, 2), True),
    ("ScalarGe", (2, 7), False),
    ("scalar_ne", (2, 7), True),
    ("ScalarBool", (2,), True),
    ("BoolNot", (True,), False),
    ("bool_and", (True, False), False),
    ("bool_or", (True, False), True),
    ("ScalarCast", (2.75, 35), 2),
    ("ScalarCast", (2, 43), 2.0),
]
NUMPY = {int: np.int64, float: np.float32, bool: np.bool_}


@pytest.mark.parametrize(("name", "numbers", "expected"), SCALARS)
def test_numbers_are_folded(name: str, numbers: tuple[Any, ...], expected: Any) -> None:
    result = CONVERTERS[name](MindirTape(), numbers, {})
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("name", "numbers", "expected"), SCALARS)
def test_numbers_known_when_the_model_runs(name: str, numbers: tuple[Any, ...], expected: Any, engine: str) -> None:
    operands = [np.array(number, NUMPY[type(number)]) for number in numbers]
    if name == "ScalarCast":
        operands[1:] = numbers[1:]
    elif len(operands) == 2:
        operands[1:] = numbers[1:]  # the second one in the file
    dtype = NUMPY[type(expected)]
    assert_close(run_op(name, operands, [dtype], engine)[0], np.array(expected, dtype))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("ScalarDiv", (1, 0)),
        ("ScalarFloorDiv", (1, 0)),
        ("ScalarMod", (1, 0)),
        ("ScalarMul", (2**40, 2**40)),
        ("ScalarPow", (-8, 0.5)),
        ("ScalarPow", (0, -1)),
    ],
)
def test_numbers_that_no_file_can_mean_are_refused(name: str, numbers: tuple[Any, ...]) -> None:
    with pytest.raises(RefusedError):
        CONVERTERS[name](MindirTape(), numbers, {})


def test_endless_powers_are_not_computed() -> None:
    with pytest.raises(OverflowError):
        CONVERTERS["ScalarPow"](MindirTape(), (9, 2**62), {})

"""How arrays are compared."""

import ml_dtypes
import numpy as np
import pytest

from litehouse.cli.compare import Tolerance, difference

BASE = np.linspace(-3, 5, 101, dtype=np.float32)


def compare(actual, expected, **fields):
    return difference(np.asarray(actual), np.asarray(expected), Tolerance(**fields))


def test_error_is_relative_to_the_range():
    actual = BASE.copy()
    actual[40] += 8e-3
    found = compare(actual, BASE)
    assert not found.ok
    assert found.range == 8
    assert found.relative == pytest.approx(1e-3, rel=1e-3)
    assert found.worst == (40,)
    assert compare(actual, BASE, range_part=2e-3).ok


def test_range_counts_from_zero():
    assert compare([1000.01, 1000.0], [1000.0, 1000.0]).range == 1000
    assert compare([1000.01, 1000.0], [1000.0, 1000.0]).ok
    assert compare([5.0], [5.0]).relative == 0


def test_rtol_and_atol_take_over():
    actual = BASE + np.float32(1e-3)
    assert compare(actual, BASE, atol=2e-3).ok
    assert not compare(actual, BASE, rtol=1e-3).ok
    assert compare(BASE * np.float32(1.0005), BASE, rtol=1e-3).ok
    assert compare([3], [4], atol=1.0).ok


def test_integers_and_bools_are_exact():
    assert not compare([10_000_000, 1], [10_000_001, 1]).ok
    assert not compare([2**60 + 1], [2**60]).ok
    assert not compare([True, False], [True, True]).ok
    assert compare([True, False], [True, False]).ok


def test_half_precision_is_granted_its_rounding():
    expected = BASE.astype(np.float16)
    assert compare(np.nextafter(expected, np.float16(9)), expected).ok
    assert not compare(expected * np.float16(1.01), expected).ok
    short = BASE.astype(ml_dtypes.bfloat16)
    assert compare(short, short).ok
    assert not compare((BASE * 1.1).astype(ml_dtypes.bfloat16), short).ok


def test_values_that_are_not_finite():
    assert compare([np.nan, np.inf, 1], [np.nan, np.inf, 1]).ok
    for actual in ([np.nan, np.inf, np.nan], [1, np.inf, 1], [np.nan, -np.inf, 1]):
        found = compare(actual, [np.nan, np.inf, 1])
        assert not found.ok
        assert "1 of 3 values are NaN or infinite on one side only" in found.note
    assert not compare([np.nan], [1.0], rtol=1.0).ok


def test_shapes_dtypes_and_empty_arrays():
    assert compare(BASE[:3], BASE).note == "the shape is [3], not [101]"
    assert not compare(BASE[:3], BASE).ok
    assert compare(BASE, BASE.astype(np.float64)).note == "float32, not float64"
    assert compare(BASE, BASE.astype(np.float64)).ok
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).ok
    assert compare(["a"], ["a"]).ok
    assert compare(["a"], ["b"]).note == "the values differ"
    assert compare([1 + 2j], [1 + 2j]).ok
    assert not compare([1 + 2j], [1 + 3j]).ok

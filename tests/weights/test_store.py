"""The arena of weights."""

import mmap
import resource
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from litehouse.errors import WeightError
from litehouse.weights import WeightsBuilder
from litehouse.weights.store import ALIGNMENT

FLOAT = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_weights_are_aligned_and_apart() -> None:
    builder = WeightsBuilder()
    for index in range(20):
        builder.reserve(f"w{index}", FLOAT, (index, 3))
    weights = builder.build()
    for index, name in enumerate(weights):
        assert address(weights[name]) % ALIGNMENT == 0
        weights[name][...] = index
    assert all((weights[f"w{index}"] == index).all() for index in range(20))
    assert weights.nbytes == sum(12 * index for index in range(20))


def test_order_and_length() -> None:
    builder = WeightsBuilder()
    for name in ("z", "a", "m"):
        builder.reserve(name, FLOAT, ())
    weights = builder.build()
    assert list(weights) == ["z", "a", "m"]
    assert len(weights) == 3
    assert "a" in weights
    assert "b" not in weights


def test_access_does_not_copy() -> None:
    builder = WeightsBuilder()
    builder.reserve("w", FLOAT, (4,))
    weights = builder.build()
    weights["w"][2] = 5
    assert weights["w"][2] == 5


def test_arrays_outlive_the_arena_object() -> None:
    builder = WeightsBuilder()
    builder.reserve("w", FLOAT, (1000,))
    array = builder.build()["w"]
    array[...] = 7
    assert array.sum() == 7000
    assert isinstance(array.base, mmap.mmap)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.float16, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_dtypes(dtype: type) -> None:
    builder = WeightsBuilder()
    builder.reserve("w", np.dtype(dtype), (3, 2))
    assert builder.build()["w"].dtype == np.dtype(dtype)


def test_empty_arena_and_empty_weights() -> None:
    assert len(WeightsBuilder().build()) == 0
    builder = WeightsBuilder()
    builder.reserve("none", FLOAT, (0, 5))
    assert builder.build()["none"].shape == (0, 5)
    builder = WeightsBuilder()
    builder.reserve("some", FLOAT, (16,))
    builder.reserve("none", FLOAT, (5, 0))
    assert builder.build()["none"].shape == (5, 0)


def test_names_differ() -> None:
    builder = WeightsBuilder()
    builder.reserve("w", FLOAT, (1,))
    with pytest.raises(WeightError, match="'w' occurs twice"):
        builder.reserve("w", FLOAT, (2,))
    with pytest.raises(WeightError, match="'w' occurs twice"):
        builder.share("w", FLOAT, (1,), "w")


def test_objects_are_refused() -> None:
    """numpy would take the bytes of a file for pointers."""
    for dtype in (np.dtype(object), np.dtype([("field", object)])):
        with pytest.raises(WeightError, match="no arena can hold"):
            WeightsBuilder().reserve("w", dtype, (1,))


def test_shared_memory() -> None:
    builder = WeightsBuilder()
    builder.reserve("a", FLOAT, (2, 3))
    builder.share("b", np.dtype(np.int32), (6,), "a")
    weights = builder.build()
    weights["a"][...] = 1
    assert (weights["b"] == 0x3F800000).all()
    with pytest.raises(WeightError, match="differ in size"):
        builder.share("c", FLOAT, (7,), "a")


def test_pages_cost_nothing_until_they_are_filled() -> None:
    builder = WeightsBuilder()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    builder.reserve("w", FLOAT, (1 << 28,))
    weights = builder.build()
    assert weights.nbytes == 1 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_no_memory() -> None:
    builder = WeightsBuilder()
    builder.reserve("w", np.dtype(np.int8), (1 << 62,))
    with pytest.raises(WeightError, match="no memory for 4611686018427387904 bytes"):
        builder.build()


def test_no_memory_in_a_limited_process() -> None:
    code = """
import resource, numpy
from litehouse.errors import WeightError
from litehouse.weights import WeightsBuilder
builder = WeightsBuilder()
builder.reserve("w", numpy.dtype("f4"), (1 << 28,))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)
try:
    builder.build()
except WeightError as error:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"

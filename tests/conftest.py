"""Fixtures that several test folders share."""

import os
from pathlib import Path

import numpy as np
import pytest

# Every test builds small models: more threads than one only make them wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ENGINES = ("onnxruntime", "openvino")
REPOSITORY = Path(__file__).parent.parent
FIXTURES = Path(__file__).parent / "fixtures"
ZOO = REPOSITORY.parent / "shared" / "zoo"

# The largest error that counts as equal, relative to the range of the output.
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-4, np.dtype(np.float16): 1e-3}


def assert_close(actual: np.ndarray, expected: np.ndarray, what: str = "output") -> None:
    """Equal shapes and dtypes, numbers within the tolerance of the dtype; integers and bools exactly."""
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype not in TOLERANCE or expected.size == 0:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.where(finite, 0, actual), np.where(finite, 0, expected), err_msg=what)
    difference = np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64))
    spread = np.ptp(expected[finite].astype(np.float64)) if finite.any() else 0.0
    allowed = TOLERANCE[expected.dtype] * max(spread, np.abs(expected[finite]).max(initial=0.0), 1e-6)
    assert difference.max(initial=0.0) <= allowed, f"{what}: error {difference.max():.3g}, allowed {allowed:.3g}"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each CPU engine in turn."""
    return request.param

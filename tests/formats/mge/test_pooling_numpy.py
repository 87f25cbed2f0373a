"""What pooling, windows and sums over channels refuse, and what MegEngine does not write."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated
from formats.mge.test_convolution_numpy import both, drawn

import litehouse
from conftest import assert_close

POOL: dict[str, Any] = {"mode": "MAX", "format": "NCHW"} | both("pad", 0) | both("stride", 1) | both("window", 2)
ADAPTIVE = {"mode": "MAX", "format": "NCHW"}
WINDOWS = both("pad", 0) | both("stride", 1) | both("dilate", 1) | both("window", 2)
X = drawn(1, 4, 6, 5)


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("Pooling", [X], POOL | both("pad", 2), "padding of"),
        ("Pooling", [X], POOL | {"format": "NHWC_NCHW"}, "NHWC_NCHW"),
        ("AdaptivePooling", [X.astype(np.int8), np.array([2, 2], np.int32)], ADAPTIVE, "integers"),
        ("Images2Neibs", [drawn(1, 6, 2, 5, 4)], WINDOWS, "rank 5"),
        ("Images2Neibs", [X], WINDOWS | both("window", 7), "a window of"),
        ("Images2Neibs", [X], WINDOWS | both("window", 0), r"windows of \[0, 0\]"),
        ("LRN", [X], {"n": 4, "k": 1.0, "alpha": 1.0, "beta": 0.5}, "4 channels"),
        ("LRN", [X], {"n": 3, "k": -1.5, "alpha": 1.0, "beta": 0.5}, "-1.5"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params)


def test_one_size_for_both_axes(engine: str) -> None:
    x = drawn(1, 8, 6, 4)
    shape = np.array([3], np.int32)
    (y,) = run_operator(engine, "AdaptivePooling", [x, shape], {"mode": "AVERAGE", "format": "NCHW"})
    assert_close(y, np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3))[:, :, ::2].mean((4, 5)))

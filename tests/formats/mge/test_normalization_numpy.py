"""Batch normalisation in training mode, which MegEngine does not dump, and what is refused."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import assert_close

RNG = np.random.default_rng(0)
DIMS = {"DIM_11HW": (1, 1, 5, 6), "DIM_1CHW": (1, 4, 5, 6), "DIM_1C11": (1, 4, 1, 1), "DIM_111C": (1, 1, 1, 6)}
TRAINING = {"fwd_mode": "TRAINING", "epsilon": 0.01}


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("stored", [0, 2])
@pytest.mark.parametrize("dim", DIMS)
def test_batch_norm_by_the_batch(dim: str, stored: int, engine: str) -> None:
    x, scale, bias = drawn(2, 4, 5, 6), drawn(*DIMS[dim]), drawn(*DIMS[dim])
    operands = [x, scale, bias, *([np.ones_like(scale)] * stored)]
    results = (stored, stored + 1, stored + 3)
    mean, inverse, y = run_operator(engine, "BatchNorm", operands, {**TRAINING, "param_dim": dim}, results)
    axes = tuple(axis for axis, size in enumerate(DIMS[dim]) if size == 1)
    expected_mean = x.mean(axes, keepdims=True)
    expected_inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + np.float32(0.01))
    assert_close(mean, expected_mean)
    assert_close(inverse, expected_inverse)
    assert_close(y, (x - expected_mean) * expected_inverse * scale + bias)


LAYER = {"affine": False, "eps": 1e-5, "normalized_dim": 1, "normalized_size": 6}
GENERAL = {"affine": False, "eps": 1e-5, "axis_start": 1, "axis_end": 1}
GROUP = {"affine": False, "eps": 1e-5, "group": 3, "format": "NCHW"}
BATCH = {"fwd_mode": "INFERENCE", "epsilon": 1e-5, "param_dim": "DIM_1C11"}
X, C = drawn(2, 4, 5, 6), drawn(1, 4, 1, 1)


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("BatchNorm", [X, C, C], BATCH, "no mean and variance"),
        ("BatchNorm", [drawn(2, 4), drawn(1, 4), drawn(1, 4)], BATCH, "rank 2"),
        ("LayerNorm", [X], LAYER | {"normalized_size": 5}, "5 numbers"),
        ("LayerNorm", [X], LAYER | {"normalized_dim": 4}, "4 axes"),
        ("LayerNorm", [X], LAYER | {"affine": True}, "no weight"),
        ("GeneralNorm", [X], GENERAL, "from 1 to 1"),
        ("GeneralNorm", [X], GENERAL | {"axis_end": 5}, "rank 4"),
        ("GroupNorm", [X], GROUP, "3 groups of 4"),
        ("GroupNorm", [X], GROUP | {"group": 2, "format": "NHWC"}, "NHWC"),
        ("InstanceNorm", [drawn(2, 4, 5)], GROUP, "rank 3"),
        ("Dropout", [X], {"drop_prob": 0.25}, "at random"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params)

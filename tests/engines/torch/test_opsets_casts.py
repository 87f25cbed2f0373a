"""Casts: all pairs of dtypes, and numbers that do not fit."""

import ml_dtypes
import numpy as np
import pytest
from engines.torch.against import agrees, on_torch, one_op
from onnx import TensorProto, helper

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)
FLOATS = np.array([0.0, -0.0, 0.4, 1.9, 2.5, 77.0, 100.7], np.float64)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_pairs(source: str, target: str) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    agrees("Cast", [FLOATS.astype(source)], to=to, opset=13)
    if source[0] != "u" and source != "bool" and target[0] != "u":
        agrees("Cast", [(-FLOATS).astype(source)], to=to, opset=13)


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "int32"])
def test_integers_wrap(target: str) -> None:
    x = np.array([300, -300, 2**20 + 7, -(2**31), 2**31 - 1], np.int64)
    agrees("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), opset=13)


@pytest.mark.parametrize("target", ["float32", "float64", "int64", "uint32", "int32", "uint8", "uint16"])
def test_large_numbers_without_a_sign(target: str) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    for source in ("uint16", "uint32", "uint64"):
        largest = np.iinfo(source).max
        agrees("Cast", [np.array([largest, largest - 3, largest // 2 + 1, 7], source)], to=to, opset=13)


def test_what_is_not_zero_is_true() -> None:
    x = np.array([0, -0.0, np.nan, np.inf, 1e-30, -3], np.float32)
    (found,) = agrees("Cast", [x], to=TensorProto.BOOL)
    assert found.tolist() == [False, False, True, True, True, True]


def test_large_floats_are_inf_in_float16() -> None:
    agrees("Cast", [np.array([1e6, -1e6, 65519, 65520, 1e-9, np.nan], np.float32)], to=TensorProto.FLOAT16)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8(name: str, saturate: int) -> None:
    kind = np.dtype(getattr(ml_dtypes, name))
    largest = float(ml_dtypes.finfo(kind).max)
    x = np.array([0.1, -3.3, largest, -largest, largest * 1.01, largest * 4, -largest * 4, np.nan, np.inf], np.float32)
    model = one_op("Cast", [x], to=helper.np_dtype_to_tensor_dtype(kind), saturate=saturate, dtypes=[kind])
    (found,) = on_torch(model, [x])
    with np.errstate(invalid="ignore", over="ignore"):
        plain = (np.clip(x, -largest, largest) if saturate else x).astype(kind)
        np.testing.assert_array_equal(found.astype(np.float32), plain.astype(np.float32))


def test_like_another() -> None:
    agrees("CastLike", [FLOATS, np.array([1], np.int32)], opset=15)
    agrees("CastLike", [FLOATS, np.array([1], np.float16)], opset=19)

"""Reductions: axes as attributes and as inputs, dtypes, ties, and nothing to reduce."""

import numpy as np
import pytest
from engines.torch.against import agrees, numbers, on_torch, one_op

OPS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceSumSquare"),
)
X = np.abs(numbers(2, 3, 4, 5)) + np.float32(0.1)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, [1], [0, 2], [-1, 0], [3, 1, 0, 2]])
@pytest.mark.parametrize("op", OPS)
def test_axes(op: str, axes: list[int] | None, keepdims: int) -> None:
    attributes = {"keepdims": keepdims} | ({} if axes is None else {"axes": axes})
    agrees(op, [X], opset=11, tolerance=1e-4, **attributes)
    given = [] if axes is None else [np.array(axes, np.int64)]
    agrees(op, [X, *given], opset=18, keepdims=keepdims, tolerance=1e-4)


def test_sum_has_axes_as_input_since_13() -> None:
    agrees("ReduceSum", [X, np.array([1], np.int64)], opset=13)
    agrees("ReduceMean", [X], opset=13, axes=[1])


@pytest.mark.parametrize("op", OPS)
def test_without_axes_there_may_be_nothing_to_do(op: str) -> None:
    empty = np.array([], np.int64)
    agrees(op, [X, empty], opset=18, tolerance=1e-4)
    (found,) = on_torch(one_op(op, [X, empty], opset=18, noop_with_empty_axes=1), [X, empty])
    assert found.shape == X.shape
    expected = {"ReduceLogSum": np.log(X), "ReduceSumSquare": X * X}.get(op, X)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"])
@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_dtypes(op: str, dtype: str) -> None:
    agrees(op, [numbers(3, 7, dtype=dtype), np.array([1], np.int64)], opset=18)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare"])
def test_int64(op: str) -> None:
    if op in ("ReduceMax", "ReduceMin", "ReduceSum"):
        agrees(op, [numbers(3, 7, dtype="int64") + 2**40, np.array([1], np.int64)], opset=18)
    x = numbers(3, 4, dtype="int32")
    agrees(op, [x, np.array([1], np.int64)], opset=18)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_small_dtypes(op: str, dtype: str) -> None:
    agrees(op, [numbers(3, 7, dtype=dtype), np.array([1], np.int64)], opset=20)


def test_a_mean_of_integers_is_truncated() -> None:
    (found,) = agrees("ReduceMean", [np.array([[-7, -2], [7, 2]], np.int32), np.array([1], np.int64)], opset=18)
    assert found.tolist() == [[-4], [4]]


@pytest.mark.parametrize("op", OPS)
def test_scalars(op: str) -> None:
    agrees(op, [np.array(2.5, np.float32)], opset=18)


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_indices(op: str, opset: int) -> None:
    for axis in (0, 1, 2) if opset < 11 else (0, 1, -1):
        for keepdims in (0, 1):
            agrees(op, [numbers(3, 4, 5)], opset=opset, axis=axis, keepdims=keepdims)
    agrees(op, [numbers(3, 4, 5)], opset=opset)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint8"])
def test_ties(op: str, last: int, dtype: str) -> None:
    x = np.array([[1, 3, 3, 0, 0, 3], [2, 2, 2, 2, 2, 2]], dtype)
    agrees(op, [x], axis=1, select_last_index=last)


def test_a_product_of_float16_may_be_large_on_the_way() -> None:
    x = np.array([[300.0, 300.0], [0.01, 0.0]], np.float16)
    agrees("ReduceProd", [x], opset=13)
    agrees("ReduceProd", [np.array([[300.0, 300.0], [0.25, 0.25]], np.float16)], opset=13)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_numbers_without_a_sign_beside_axes_with_one(dtype: str) -> None:
    """ONNX Runtime has none of these."""
    x, axis = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (3, 4), dtype=dtype), np.array([1])
    wanted = {"ReduceSum": x.sum(1, dtype=dtype), "ReduceMax": x.max(1), "ReduceMin": x.min(1)}
    for op, expected in wanted.items():
        (found,) = on_torch(one_op(op, [x, axis], keepdims=0), [x, axis])
        assert (found.dtype, found.tolist()) == (dtype, expected.tolist())
    (found,) = on_torch(one_op("CumSum", [x, axis]), [x, axis])
    assert (found.dtype, found.tolist()) == (dtype, x.cumsum(1, dtype=dtype).tolist())
    found, _ = on_torch(one_op("TopK", [x, axis], outputs=2), [x, axis])
    assert (found.dtype, found.tolist()) == (dtype, x.max(1, keepdims=True).tolist())

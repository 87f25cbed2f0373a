"""Reductions, orders and linear algebra without a fixture, and their corners, against numpy. Sizes are dynamic."""

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close

RANDOM = np.random.default_rng(11)
X = RANDOM.uniform(-3, 3, (3, 4, 5)).astype(np.float32)
A = RANDOM.uniform(-1, 1, (3, 5)).astype(np.float32)
B = RANDOM.uniform(-1, 1, (5, 4)).astype(np.float32)
C = RANDOM.uniform(-1, 1, (3, 4)).astype(np.float32)
ROW = RANDOM.uniform(-1, 1, 5).astype(np.float32)


@pytest.mark.parametrize("dim", [1, -1, (0, 2), None])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("correction", [0, 1])
def test_spread(dim: int | tuple[int, ...] | None, keep: bool, correction: int, engine: str) -> None:
    mean, variance = X.mean(dim, keepdims=keep), X.var(dim, ddof=correction, keepdims=keep)
    operands, ranks = [X, dim, correction, keep], [mean.ndim] * 2
    assert_close(run_op("Var", operands, ["float32"], engine, ranks[:1])[0], variance)
    assert_close(run_op("Std", operands, ["float32"], engine, ranks[:1])[0], np.sqrt(variance))
    for name, spread in {"VarMean": variance, "StdMean": np.sqrt(variance)}.items():
        first, second = run_op(name, operands, ["float32"] * 2, engine, ranks)
        assert_close(first, spread)
        assert_close(second, mean)


def test_sums_of_flags_and_of_what_are_numbers(engine: str) -> None:
    flags = X > 1
    assert_close(run_op("SumExt", [flags, 1, False, None], ["int64"], engine, [2])[0], flags.sum(1))
    assert_close(run_op("AnyExt", [flags, 1, True], ["bool"], engine)[0], flags.any(1, keepdims=True))
    assert_close(run_op("Any", [flags], ["bool"], engine, [0])[0], flags.any())
    assert_close(run_op("CountNonZero", [flags, (1, 2)], ["int64"], engine, [1])[0], flags.sum((1, 2)))
    holes = np.where(X > 2, np.float32("nan"), X)
    assert_close(run_op("Nansum", [holes, 1, False, None], ["float32"], engine, [2])[0], np.nansum(holes, 1))
    assert_close(run_op("EuclideanNorm", [X, (1,)], ["float32"], engine, [2])[0], np.linalg.norm(X, axis=1))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_integer_sums_and_extremes(dtype: str, engine: str) -> None:
    x = np.array([[100, 27, 3], [120, 100, 90]], dtype)
    assert_close(run_op("ReduceSum", [x, (1,)], [dtype], engine, [1])[0], x.sum(1, dtype=dtype))
    assert_close(run_op("ReduceMax", [x, (1,)], [dtype], engine, [1])[0], x.max(1))
    assert_close(run_op("ReduceMin", [x, ()], [dtype], engine, [0])[0], x.min())
    assert_close(run_op("CumSum", [x, 1], [dtype], engine)[0], x.cumsum(1, dtype=dtype))


def test_log_sum_exp_of_large_values(engine: str) -> None:
    x = np.array([[1000, 1001], [-1000, -1000]], np.float32)
    assert_close(run_op("LogSumExp", [x, 1, False], ["float32"], engine, [1])[0], np.logaddexp(x[:, 0], x[:, 1]))


@pytest.mark.parametrize("descending", [False, True])
def test_sort_along_each_axis(descending: bool, engine: str) -> None:
    for axis in (0, 1, -1):
        order = np.argsort(-X if descending else X, axis, stable=True)
        values, places = run_op("SortExt", [X, axis, descending, True], ["float32", "int64"], engine)
        assert_close(values, np.take_along_axis(X, order, axis))
        assert_close(places, order)
        assert_close(run_op("ArgSort", [X, axis, descending, True], ["int32"], engine)[0], order.astype(np.int32))


def test_largest_and_smallest(engine: str) -> None:
    values, places = run_op("TopkExt", [X, 2, 1, False, True], ["float32", "int64"], engine)
    order = np.argsort(X, 1)[:, :2]
    assert_close(places, order)
    assert_close(values, np.take_along_axis(X, order, 1))


def test_median_is_the_lower_middle(engine: str) -> None:
    values, places = run_op("MedianDim", [X, 1, False], ["float32", "int64"], engine, [2, 2])
    assert_close(values, np.sort(X, 1)[:, 1])
    assert_close(places, np.argsort(X, 1)[:, 1])
    assert_close(run_op("MedianExt", [X], ["float32"], engine, [0])[0], np.sort(X, None)[29])
    values, places = run_op("Kthvalue", [X, 3, -1, True], ["float32", "int64"], engine)
    assert_close(values, np.sort(X, -1)[..., 2:3])


def test_distinct_values(engine: str) -> None:
    x = np.array([[3, 1, 3], [2, 1, 3]], np.int64)
    for found in zip(
        run_op("Unique2", [x, True, True, True], ["int64"] * 3, engine, [1, 2, 1]),
        np.unique(x, return_inverse=True, return_counts=True),
        strict=True,
    ):
        assert_close(found[0], found[1])
    runs = np.array([3, 3, 1, 2, 2, 2], np.int32)
    values, places, counts = run_op("UniqueConsecutive", [runs, True, True, None], ["int32", "int64", "int64"], engine)
    assert_close(values, np.array([3, 1, 2], np.int32))
    assert_close(places, np.array([0, 0, 1, 2, 2, 2]))
    assert_close(counts, np.array([2, 1, 3]))


@pytest.mark.parametrize("right", [False, True])
def test_search_in_rows(right: bool, engine: str) -> None:
    rows = np.sort(RANDOM.integers(0, 9, (2, 6)), 1).astype(np.float32)
    wanted = RANDOM.integers(0, 9, (2, 4)).astype(np.float32)
    side = "right" if right else "left"
    expected = np.stack([np.searchsorted(row, value, side) for row, value in zip(rows, wanted, strict=True)])
    (found,) = run_op("SearchSorted", [rows, wanted, None, 34, right], ["int32"], engine)
    assert_close(found, expected.astype(np.int32))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_extremes(axis: int, engine: str) -> None:
    x = RANDOM.integers(0, 4, (4, 3, 5)).astype(np.float32)
    values, places = run_op("CumminExt", [x, axis], ["float32", "int64"], engine)
    assert_close(values, np.minimum.accumulate(x, axis))
    assert_close(np.take_along_axis(x, places, axis), values)
    positions = np.moveaxis(np.arange(x.shape[axis]).reshape(-1, 1, 1), 0, axis)
    last = np.maximum.accumulate(np.where(x == values, positions, -1), axis)
    assert_close(places, last)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_product(exclusive: bool, reverse: bool, engine: str) -> None:
    x = X[:, ::-1] if reverse else X
    products = np.cumprod(x, 1)
    if exclusive:
        products = np.concatenate([np.ones_like(x[:, :1]), products[:, :-1]], 1)
    expected = products[:, ::-1] if reverse else products
    assert_close(run_op("CumProd", [X, 1, exclusive, reverse], ["float32"], engine)[0], np.ascontiguousarray(expected))


def test_products_that_are_added(engine: str) -> None:
    kind = ["float32"]
    assert_close(run_op("InplaceAddmm", [C, A, B, 0.5, 2], kind, engine)[0], 0.5 * C + 2 * A @ B)
    assert_close(run_op("Addmv", [C[:, 0].copy(), A, ROW, 0.5, 2], kind, engine)[0], 0.5 * C[:, 0] + 2 * A @ ROW)
    left, right = np.stack([A, A + 1]), np.stack([B, B - 1])
    expected = 0.5 * C + 2 * (left @ right).sum(0)
    assert_close(run_op("Addbmm", [C, left, right, 0.5, 2], kind, engine)[0], expected)
    outer = 0.5 * C + 2 * np.outer(A[:, 0], B[0])
    assert_close(run_op("InplaceAddr", [C, A[:, 0].copy(), B[0].copy(), 0.5, 2], kind, engine)[0], outer)
    ints = np.arange(6, dtype=np.int32).reshape(2, 3)
    one = np.eye(2, dtype=np.int32)
    assert_close(run_op("Addmm", [one, ints, ints.T.copy(), 1, 3], ["int32"], engine)[0], one + ints @ ints.T * 3)


def test_products_of_vectors(engine: str) -> None:
    assert_close(run_op("Mv", [A, ROW], ["float32"], engine, [1])[0], A @ ROW)
    assert_close(run_op("Vdot", [ROW, ROW], ["float32"], engine, [0])[0], np.vdot(ROW, ROW))
    einsum = run_op("EinsumExt", ["ij,jk->ki", (A, B)], ["float32"], engine)[0]
    assert_close(einsum, (A @ B).T)


def test_trace_sees_the_diagonal_alone(engine: str) -> None:
    x = np.array([[1, np.inf, 3], [np.nan, 4, 5]], np.float32)
    assert_close(run_op("Trace", [x], ["float32"], engine, [0])[0], np.array(5, np.float32))
    assert_close(run_op("TraceExt", [np.ones((3, 3), np.int32)], ["int64"], engine, [0])[0], np.array(3))


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, np.inf])
def test_distances_of_rows(p: float, engine: str) -> None:
    rows, others = A, B.T.copy()
    expected = np.array([[np.linalg.norm(a - b, p) for b in others] for a in rows], np.float32)
    assert_close(run_op("Cdist", [rows, others, p], ["float32"], engine)[0], expected)


def test_dense_of_each_rank(engine: str) -> None:
    weight = B.T.copy()
    for x in (A, np.stack([A, A]), ROW):
        (result,) = run_op("Dense", [x, weight, C[0].copy()], ["float32"], engine)
        assert_close(result, x @ B + C[0])
    assert_close(run_op("Dense", [A, weight, None], ["float32"], engine)[0], A @ B)


def test_inverse(engine: str) -> None:
    x = RANDOM.uniform(-1, 1, (2, 3, 6, 6)).astype(np.float32)
    x[..., 0, 0] = 0  # the first number is no pivot
    (result,) = run_op("MatrixInverse", [x], ["float32"], engine, static=True)
    np.testing.assert_allclose(result, np.linalg.inv(x), rtol=1e-3, atol=1e-3)
    (result,) = run_op("MatrixInverse", [x], ["float32"], engine, attributes={"adjoint": True}, static=True)
    np.testing.assert_allclose(result, np.linalg.inv(x.swapaxes(-1, -2)), rtol=1e-3, atol=1e-3)


def test_inverse_of_unknown_size(engine: str) -> None:
    x = np.array([[0, 2, 1], [1, 0, 3], [2, 1, 0]], np.float32)  # the first number is no pivot
    np.testing.assert_allclose(run_op("MatrixInverse", [x], ["float32"], engine)[0], np.linalg.inv(x), rtol=1e-5)

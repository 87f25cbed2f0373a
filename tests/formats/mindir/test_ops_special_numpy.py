"""Special functions, counts and transforms that no stored case holds, against Python's and numpy's own."""

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from formats.mindir.single_op import run_op

import litehouse
from conftest import ENGINES, FIXTURES, assert_close
from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(21)
M = RANDOM.uniform(-2, 2, (4, 4)).astype(np.float32)


def test_log_gamma_everywhere(engine: str) -> None:
    x = np.concatenate([RANDOM.uniform(-12, 12, 300), np.exp(RANDOM.uniform(-20, 20, 300))]).astype(np.float32)
    expected = np.array([math.lgamma(value) for value in x.tolist()])
    actual = run_op("Lgamma", [x], ["float32"], engine)[0]
    # Near its zeros the function is a difference of larger numbers, so there the error is absolute.
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-5)


def test_log_gamma_in_float64() -> None:
    x = np.concatenate([RANDOM.uniform(-12, 12, 300), np.exp(RANDOM.uniform(-20, 20, 300))])
    expected = [math.lgamma(value) for value in x.tolist()]
    np.testing.assert_allclose(run_op("Lgamma", [x], ["float64"], "onnxruntime")[0], expected, rtol=1e-12, atol=1e-12)


def test_digamma_is_the_slope_of_log_gamma() -> None:
    x = np.concatenate([RANDOM.uniform(-6, 12, 200), np.exp(RANDOM.uniform(-3, 6, 100))])
    x = x[np.abs(x - np.round(x)) > 0.05]
    slope = [(math.lgamma(value + 1e-6) - math.lgamma(value - 1e-6)) / 2e-6 for value in x.tolist()]
    np.testing.assert_allclose(run_op("Digamma", [x], ["float64"], "onnxruntime")[0], slope, rtol=1e-5, atol=1e-5)


def test_bessel_functions_fulfil_their_equation() -> None:
    """J1 Y0 - J0 Y1 = 2 / (pi x), and I0 K1 + I1 K0 = 1 / x."""
    x = np.exp(RANDOM.uniform(-5, 4, 200))
    names = ("J0", "J1", "Y0", "Y1", "I0e", "I1e", "K0e", "K1e")
    j0, j1, y0, y1, i0, i1, k0, k1 = (run_op(f"Bessel{name}", [x], ["float64"], "onnxruntime")[0] for name in names)
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (np.pi * x), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(i0 * k1 + i1 * k0, 1 / x, rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_next_after(dtype: str) -> None:
    info = np.finfo(dtype)
    ends = [0.0, -0.0, 1.0, -1.0, info.max, info.min, info.tiny, info.smallest_subnormal, np.inf, -np.inf, np.nan, 0.5]
    x, other = (grid.ravel().astype(dtype) for grid in np.meshgrid(ends, ends))
    more = (RANDOM.standard_normal(500) * 10.0 ** RANDOM.integers(-30, 30, 500)).astype(dtype)
    x, other = np.concatenate([x, more]), np.concatenate([other, more[::-1]])
    with np.errstate(all="ignore"):
        expected = np.nextafter(x, other)
    np.testing.assert_array_equal(run_op("NextAfter", [x, other], [dtype], "onnxruntime")[0], expected)


def test_common_divisors_of_all_sizes() -> None:
    # Neighbours in Fibonacci's series take the most steps.
    series = [1, 1]
    while series[-1] < 2**61:
        series.append(series[-1] + series[-2])
    large = RANDOM.integers(-(2**62), 2**62, 100)
    a = np.array([*series[1:], *large, 0, 0, -(2**40)])
    b = np.array([*series[:-1], *large[::-1], 0, -6, 2**35 * 3])
    expected = [math.gcd(*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(run_op("Gcd", [a, b], ["int64"], "onnxruntime")[0], expected)
    small = RANDOM.integers(-99, 99, (2, 50))
    np.testing.assert_array_equal(run_op("Lcm", list(small), ["int64"], "onnxruntime")[0], np.lcm(*small))


@pytest.mark.parametrize(("weights", "least"), [(None, 0), (None, 9), ("w", 3)])
def test_bincount_ext(engine: str, weights: str | None, least: int) -> None:
    x = np.array([1, 3, 3, 0, 5], np.int64)
    w = np.arange(5, dtype=np.float32)
    expected = np.bincount(x, w if weights else None, least)
    dtype = "float32" if weights else "int64"
    made = run_op("BincountExt", [x, w if weights else None, least], [dtype], engine, [1])[0]
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-1, 1.5)])
def test_histc_ext(engine: str, low: float, high: float) -> None:
    x = RANDOM.standard_normal((4, 5)).astype(np.float32)
    limits = (x.min(), x.max()) if low == high else (low, high)
    expected = np.histogram(x, 7, limits)[0].astype(np.float32)
    np.testing.assert_array_equal(run_op("HistcExt", [x, 7, low, high], ["float32"], engine, [1])[0], expected)


def test_histogram_of_fixed_width(engine: str) -> None:
    x = np.array([-9.0, -1.0, 0.1, 0.3, 0.9, 1.0, 7.0], np.float32)
    made = run_op("HistogramFixedWidth", [x, np.array([0, 1], np.float32)], ["int32"], engine, [1], {"nbins": 4})
    np.testing.assert_array_equal(made[0], [3, 1, 0, 3])


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_triangular_solve(engine: str, upper: bool, transpose: bool) -> None:
    matrix = (np.triu(M) if upper else np.tril(M)) + 3 * np.eye(4, dtype=np.float32)
    right = RANDOM.standard_normal((4, 2)).astype(np.float32)
    made = run_op("TriangularSolve", [right, matrix, upper, transpose, False], ["float32", "float32"], engine, [2, 2])
    assert_close(made[0], np.linalg.solve(matrix.T if transpose else matrix, right))
    np.testing.assert_array_equal(made[1], matrix)


def test_cosine_embedding_loss(engine: str) -> None:
    a, b = RANDOM.standard_normal((2, 6, 4)).astype(np.float32)
    target = np.array([1, -1, 1, -1, -1, 1], np.float32)
    cosine = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    expected = np.where(target > 0, 1 - cosine, np.maximum(cosine - 0.1, 0))
    made = run_op("CosineEmbeddingLoss", [a, b, target, 0.1, "none"], ["float32"], engine, [1])[0]
    assert_close(made, expected.astype(np.float32))


def test_smooth_l1_loss_without_a_smooth_part(engine: str) -> None:
    made = run_op("SmoothL1Loss", [M, M[::-1].copy(), 0.0, "sum"], ["float32"], engine, [0])[0]
    assert_close(made, np.abs(M - M[::-1]).sum())


def test_real_signal_there_and_back_in_the_old_form(engine: str) -> None:
    def both(t: MindirTape, x: ir.Value) -> Any:
        t.expected = TensorType(ir.DataType.COMPLEX64, (None, None))
        there = CONVERTERS["FFTWithSize"](t, [x, 1, False, True, "ortho"], {})
        t.expected = TensorType(ir.DataType.FLOAT, (None, None))
        back = CONVERTERS["FFTWithSize"](t, [there, 1, True, True, "ortho", True, (4,)], {})
        t.nodes[:] = [node for node in t.nodes if not node.domain]  # the pair is used by nothing
        return back

    CONVERTERS["there and back"] = CONVERTERS["Abs"].__class__(both, ("x",), 1, False, False, False, False, False)
    try:
        assert_close(run_op("there and back", [M], ["float32"], engine)[0], M)
    finally:
        del CONVERTERS["there and back"]


@pytest.mark.parametrize("name", ["Log", "Sqrt", "Softmax", "Maximum"])
def test_ops_that_have_no_complex_form_refuse(name: str) -> None:
    t = MindirTape()
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape((2, 3)))
    t.expected = TensorType(ir.DataType.COMPLEX64, (2, 3))
    made = CONVERTERS["Complex"](t, [x, x], {})
    with pytest.raises(RefusedError, match=r"(?i)complex.* not supported"):
        CONVERTERS[name](t, [made, made][: 2 if name == "Maximum" else 1], {})


@pytest.mark.parametrize("name", ENGINES)
def test_whole_factors_leave_the_batch_free(name: str) -> None:
    """A nearest resize by 2 is translated for its exported height and width alone."""
    case = FIXTURES / "mindir" / "ops" / "resize_nearest_up.mindir"
    with litehouse.load(case, engine=name) as session:
        ((batch, channels, height, width),) = [info.shape for info in session.inputs]
        x = RANDOM.standard_normal((2 * batch, channels, height, width)).astype(np.float32)
        session.resize([x.shape])
        np.testing.assert_array_equal(session.run([x])[0], x.repeat(2, 2).repeat(2, 3))
        with pytest.raises(litehouse.ShapeError):
            session.resize([(batch, channels, width, height)])


@pytest.mark.parametrize("axis", [0, 1])
def test_distinct_slices(engine: str, axis: int) -> None:
    x = np.array([[2, 1, 2], [1, 3, 1], [2, 1, 2]], np.int32)
    values, places, counts = np.unique(x, axis=axis, return_inverse=True, return_counts=True)
    made = run_op("UniqueDim", [x, True, True, axis], ["int32", "int64", "int64"], engine, [2, 1, 1])
    for actual, expected in zip(made, (values, places.ravel(), counts), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", ["ToDevice", "CopyToDevice", "CopyToHost", "AShardIdentity", "FormatCast"])
def test_moving_changes_nothing(engine: str, name: str) -> None:
    np.testing.assert_array_equal(run_op(name, [M], ["float32"], engine)[0], M)

"""Warps and resized images: which rule is taken, tables by hand, and what is refused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import assert_close
from litehouse.formats.mge import interpolation
from litehouse.formats.mge.opencv_warp import integer_table, weight_table

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4, 6)).astype(np.float32)
NHWC = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
WARP: dict[str, Any] = {"imode": "LINEAR", "bmode": "REPLICATE", "format": "NCHW", "border_val": 0.0}
AFFINE: dict[str, Any] = {"imode": "LINEAR", "border_mode": "REPLICATE", "format": "NHWC", "border_val": 0.0}
REMAP: dict[str, Any] = {"imode": "LINEAR", "border_type": "REPLICATE", "format": "NCHW", "scalar": 0.0}
MATRIX = np.tile(np.eye(3, dtype=np.float32), (2, 1, 1))
SIZE = np.array([7, 11], np.int32)


def scaling(rows: float, columns: float) -> np.ndarray:
    return np.tile(np.diag(np.array([columns, rows, 1], np.float32)), (2, 1, 1))


def kinds(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def run(engine: str, model: ir.Model, *operands: np.ndarray) -> np.ndarray:
    session = litehouse.load(ir.to_proto(model).SerializeToString(), engine=engine, threads=1)
    (result,) = session.run({f"x{place}": array for place, array in enumerate(operands)})
    return np.asarray(result)


def aligned(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Linear interpolation along an axis, its first and last pixel kept."""
    position = np.linspace(0, x.shape[axis] - 1, size)
    first = np.minimum(position.astype(int), x.shape[axis] - 2)
    part = (position - first).reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    return np.take(x, first, axis) * (1 - part) + np.take(x, first + 1, axis) * part


def test_matrix_that_aligns_corners_is_a_resize(engine: str) -> None:
    model = translated("WarpPerspective", [X], WARP, constants=[scaling(3 / 6, 5 / 10), SIZE])
    assert kinds(model)["Resize"] == 1
    assert kinds(model)["Gather"] == 0
    expected = aligned(aligned(X, 2, 7), 3, 11).astype(np.float32)
    assert_close(run(engine, model, X), expected)
    known = translated("WarpPerspective", [X, scaling(3 / 6, 5 / 10)], WARP, constants=[SIZE])
    assert_close(run(engine, known, X, scaling(3 / 6, 5 / 10)), expected)


@pytest.mark.parametrize(
    ("matrix", "changes"),
    [
        (scaling(3 / 6, 5 / 10.01), {}),
        (scaling(3 / 6, 5 / 10) + np.float32(1e-3) * (np.arange(9).reshape(3, 3) == 2), {}),
        (scaling(3 / 6, np.nan), {}),
        (scaling(3 / 6, 5 / 10), {"bmode": "WRAP"}),
    ],
)
def test_other_matrices_are_no_resize(matrix: np.ndarray, changes: dict[str, Any]) -> None:
    model = translated("WarpPerspective", [X], WARP | changes, constants=[matrix.astype(np.float32), SIZE])
    assert kinds(model)["Resize"] == 0
    assert kinds(model)["Gather"] > 0


def test_size_at_run_time(engine: str) -> None:
    params = {"format": "NCHW"}
    for imode in ("NEAREST", "LINEAR", "CUBIC"):
        fixed = run(engine, translated("Resize", [X], params | {"imode": imode}, constants=[SIZE]), X)
        (given,) = run_operator(engine, "Resize", [X, SIZE], params | {"imode": imode})
        assert_close(given, fixed)
    few = translated("WarpPerspective", [X, MATRIX * 0.7, SIZE], WARP)
    many = translated("WarpPerspective", [X, MATRIX * 0.7], WARP, constants=[SIZE])
    assert_close(run(engine, few, X, MATRIX * 0.7, SIZE), run(engine, many, X, MATRIX * 0.7))


@pytest.mark.parametrize(("form", "block"), [("NCHW4", 4), ("NCHW44", 4), ("NCHW88", 8)])
def test_blocks_of_channels(engine: str, form: str, block: int) -> None:
    blocked = RNG.standard_normal((2, 3, 4, 6, block)).astype(np.float32)
    params = {"imode": "NEAREST", "format": form}
    y = run(engine, translated("Resize", [blocked], params, constants=[SIZE]), blocked)
    rows, columns = np.arange(7) * 4 // 7, np.arange(11) * 6 // 11
    np.testing.assert_array_equal(y, blocked[:, :, rows][:, :, :, columns])


def test_tables_by_hand() -> None:
    thirds = interpolation.area_down(3, 2)
    np.testing.assert_allclose(thirds.matrix(3), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]], rtol=1e-6)
    np.testing.assert_array_equal(interpolation.linear(2, 4).matrix(2), [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    np.testing.assert_array_equal(
        interpolation.cubic_weights(np.array([0, 0.5])), [[0, 1, 0, 0], [-3 / 32, 19 / 32] * 1 + [19 / 32, -3 / 32]]
    )
    assert interpolation.nearest(14, 2).tolist() == [0, 6]  # 1 / float(2 / 14) is less than 7
    for imode in ("CUBIC", "LANCZOS4"):
        np.testing.assert_allclose(weight_table(imode).sum(1), 1, rtol=1e-6)
        assert set(integer_table(imode).sum(0).tolist()) == {1 << 15}


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("Resize", [X], {"imode": "AREA", "format": "NCHW"}, "mode AREA of format NCHW"),
        ("Resize", [X], {"imode": "LINEAR", "format": "NCHW32"}, "NCHW32"),
        ("Resize", [X], {"imode": "CUBIC", "format": "NCHW44"}, "NCHW44"),
        ("Resize", [X.astype(np.int16)], {"imode": "LINEAR", "format": "NCHW"}, "INT16"),
        ("Resize", [NHWC.astype(np.int8)], {"imode": "LINEAR", "format": "NHWC"}, "MegEngine does not resize"),
        ("Resize", [NHWC[:, :1]], {"imode": "LINEAR", "format": "NHWC"}, "one row or column"),
        ("Resize", [X[..., None]], {"imode": "LINEAR", "format": "NCHW88"}, "blocks of 8"),
        ("Resize3D", [X[:, None]], {"imode": "CUBIC", "format": "NCDHW", "align_corners": False}, "mode CUBIC"),
        ("WarpPerspective", [X, MATRIX], WARP | {"imode": "NEAREST"}, "mode NEAREST"),
        ("WarpPerspective", [X, MATRIX], WARP | {"bmode": "TRANSPARENT"}, "border mode TRANSPARENT"),
        ("WarpPerspective", [X, MATRIX], WARP | {"format": "NCHW4"}, "NCHW4"),
        ("WarpPerspective", [X, MATRIX[0]], WARP, r"matrices of shape \(3, 3\)"),
        ("WarpPerspective", [X.astype(np.float16), MATRIX.astype(np.float16)], WARP, "misreads"),
        ("WarpPerspective", [X], WARP, "2 operands"),
        ("WarpAffine", [NHWC, MATRIX[:, :2]], AFFINE | {"imode": "AREA"}, "mode AREA"),
        ("WarpAffine", [NHWC, MATRIX[:, :2]], AFFINE | {"border_mode": "ISOLATED"}, "ISOLATED"),
        ("WarpAffine", [X.astype(np.int32), MATRIX[:, :2]], AFFINE, "INT32"),
    ],
)
def test_refused(kind: str, operands: Sequence[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params, constants=[SIZE])


@pytest.mark.parametrize("size", [[7], [7, 0], [7, 1 << 20]])
def test_absurd_sizes(size: list[int]) -> None:
    params = {"imode": "CUBIC", "format": "NCHW"}
    with pytest.raises(litehouse.UnsupportedOpError, match=r"to \(7|a count of"):
        translated("Resize", [X], params, constants=[np.array(size, np.int32)])


@pytest.mark.parametrize(
    ("operands", "changes", "reason"),
    [
        ([X, np.zeros((2, 5, 5, 2), np.float32)], {"imode": "CUBIC"}, "mode CUBIC"),
        ([X, np.zeros((2, 5, 5, 3), np.float32)], {}, r"a map of shape \(2, 5, 5, 3\)"),
        ([X.astype(np.int32), np.zeros((2, 5, 5, 2), np.float32)], {}, "INT32"),
    ],
)
def test_refused_maps(operands: Sequence[np.ndarray], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated("Remap", operands, REMAP | changes)

"""Shape, index, scatter and creation ops without a fixture, and their corners, against numpy. Sizes are dynamic."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(5)
X = RANDOM.uniform(-3, 3, (3, 4, 5)).astype(np.float32)
M = RANDOM.uniform(-3, 3, (3, 5)).astype(np.float32)
LINE = RANDOM.uniform(-3, 3, 4).astype(np.float32)
F32 = ["float32"]


def ints(*items: Any) -> np.ndarray:
    return np.array(items, np.int64)


# Shape and order ------------------------------------------------------------------------------------------------------


def test_matrix_and_vector_transposed(engine: str) -> None:
    assert_close(run_op("TExt", [M], F32, engine)[0], M.T)
    assert_close(run_op("TExt", [LINE], F32, engine)[0], LINE)
    with pytest.raises(RefusedError, match="more than two axes"):
        run_op("TExt", [X], F32, engine)


@pytest.mark.parametrize(
    ("repeats", "wanted"), [((2, 1, 1, 3), (2, 1, 1, 3)), ((2,), (1, 1, 2)), ((1, 2, 3), (1, 2, 3))]
)
def test_repeat(repeats: tuple[int, ...], wanted: tuple[int, ...], engine: str) -> None:
    assert_close(run_op("Repeat", [X, repeats], F32, engine, [len(wanted)])[0], np.tile(X, wanted))


def test_expand_as(engine: str) -> None:
    assert_close(run_op("ExpandAs", [M[:, :1], X[:, :3]], F32, engine, [3])[0], np.broadcast_to(M[:, :1], (3, 3, 5)))


@pytest.mark.parametrize(("shifts", "dims"), [(2, 1), ((1, -7), (0, 2)), (4, ()), ((1, 2), (1, 1)), (-100, -1)])
def test_roll(shifts: Any, dims: Any, engine: str) -> None:
    wanted = np.roll(X, shifts, None if dims == () else dims)
    assert_close(run_op("Roll", [X, shifts, dims], F32, engine)[0], wanted)


@pytest.mark.parametrize("dim", [0, -1, None])
def test_repeat_interleave(dim: int | None, engine: str) -> None:
    rank = 1 if dim is None else 3
    assert_close(run_op("RepeatInterleaveInt", [X, 3, dim, None], F32, engine, [rank])[0], np.repeat(X, 3, dim))
    times = ints(2, 0, 1) if dim == 0 else ints(1, 0, 3, 0, 2)
    if dim is not None:
        made = run_op("RepeatInterleaveTensor", [X, times, dim, None], F32, engine)[0]
        assert_close(made, np.repeat(X, times, dim))
    assert_close(
        run_op("RepeatInterleaveTensor", [X, ints(2), dim, None], F32, engine, [rank])[0], np.repeat(X, 2, dim)
    )


def test_joined_integers_and_floats_are_refused(engine: str) -> None:
    with pytest.raises(RefusedError, match="one dtype"):
        run_op("Concat", [(ints([1, 2, 3, 4, 5]), M), 0], F32, engine)


# Padding --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mode"), [("ReflectionPad", "reflect"), ("ReplicationPad", "edge")])
def test_pads_of_the_last_axes(name: str, mode: Any, engine: str) -> None:
    for axes in (1, 2):
        pairs = [(0, 0)] * (3 - axes) + [(2, 1), (1, 3)][-axes:]
        padding = tuple(size for pair in reversed(pairs[3 - axes :]) for size in pair)
        assert_close(run_op(f"{name}{axes}D", [X, padding], F32, engine)[0], np.pad(X, pairs, mode))


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "int64", "bool", "float16"])
def test_padding_of_other_dtypes(dtype: str, engine: str) -> None:
    x = (M > 0).astype(dtype)
    wanted = np.pad(x, ((0, 0), (1, 2)), constant_values=1)
    assert_close(run_op("ConstantPadND", [x, (1, 2), 1], [dtype], engine)[0], wanted)


@pytest.mark.parametrize(("mode", "wanted"), [("circular", "wrap"), ("reflect", "reflect"), ("constant", "constant")])
def test_computed_padding(mode: str, wanted: Any, engine: str) -> None:
    made = run_op("PadV3", [X, ints(1, 2, 3, 1), None], F32, engine, None, {"mode": mode}, static=True)[0]
    assert_close(made, np.pad(X, ((0, 0), (3, 1), (1, 2)), wanted))


def test_wide_mirrors(engine: str) -> None:
    made = run_op("MirrorPad", [M, ((7, 0), (0, 12))], F32, engine, None, {"mode": "SYMMETRIC"})[0]
    assert_close(made, np.pad(M, ((7, 0), (0, 12)), "symmetric"))
    with pytest.raises(RefusedError, match="negative padding"):
        run_op("MirrorPad", [M, ((-1, 0), (0, 0))], F32, engine, None, {"mode": "REFLECT"})


# Diagonals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_diagonals(offset: int, engine: str) -> None:
    assert_close(run_op("DiagExt", [LINE, offset], F32, engine, [2])[0], np.diag(LINE, offset))
    assert_close(run_op("DiagExt", [M, offset], F32, engine, [1])[0], np.diag(M, offset))
    wanted = np.diagonal(X, offset, 2, 0)
    assert_close(run_op("Diagonal", [X, offset, 2, 0], F32, engine, [2])[0], wanted)
    if wanted.size:
        lines = np.diagonal(X, offset, 1, 2)
        assert_close(run_op("MatrixDiagPartV3", [X, offset, 0.0], F32, engine, [2])[0], lines)
        made = run_op("MatrixSetDiagV3", [np.zeros_like(X), lines, offset], F32, engine, [3])[0]
        rows, columns = np.indices((4, 5))
        assert_close(made, np.where(columns == rows + offset, X, 0))


def test_bands_of_diagonals_are_refused(engine: str) -> None:
    with pytest.raises(RefusedError, match="several diagonals"):
        run_op("MatrixDiagPartV3", [X, (0, 1), 0.0], F32, engine, [2])


@pytest.mark.parametrize("dtype", ["bool", "int16", "float32"])
def test_filled_diagonal(dtype: str, engine: str) -> None:
    wanted = np.zeros((3, 5), dtype)
    np.fill_diagonal(wanted, 1)
    assert_close(run_op("InplaceFillDiagonal", [np.zeros((3, 5), dtype), 1, False], [dtype], engine)[0], wanted)


# Reading parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "read"),
    [
        ((3, 4), (-100, 0), (-1, -3), {}, lambda x: x[::-1, 4:0:-3]),
        ((0, 1), (0, 3), (1, 1), {"new_axis_mask": 1}, lambda x: x[None, 1:3]),
        ((0, -1), (0, 0), (1, 1), {"ellipsis_mask": 1, "shrink_axis_mask": 2}, lambda x: x[..., -1]),
        ((1, 0, 0), (2, 9, 9), (1, 1, 2), {"shrink_axis_mask": 253, "new_axis_mask": 0}, lambda x: x[1, :, 0]),
        ((2, 2), (1, 4), (1, 1), {}, lambda x: x[2:1, 2:4]),
        ((2,), (0,), (-1,), {"end_mask": 255}, lambda x: x[2::-1]),
    ],
)
def test_strided_slices(
    begin: Any, end: Any, strides: Any, masks: dict[str, int], read: Callable[[np.ndarray], np.ndarray], engine: str
) -> None:
    wanted = read(X)
    assert_close(run_op("StridedSlice", [X, begin, end, strides], F32, engine, [wanted.ndim], masks)[0], wanted)


def test_strided_slice_by_computed_bounds(engine: str) -> None:
    made = run_op("StridedSlice", [X, (0, np.int64(1).reshape(())), (2, ints(3)[0].reshape(())), (1, 1)], F32, engine)
    assert_close(made[0], X[0:2, 1:3])
    made = run_op(
        "StridedSlice", [X, ints(2, -1), ints(0, 0), (-1, 1)], F32, engine, [2], {"shrink_axis_mask": 2}, static=True
    )
    assert_close(made[0], X[2:0:-1, -1])


def test_parts_along_one_axis(engine: str) -> None:
    assert_close(run_op("Narrow", [X, 1, -3, 2], F32, engine)[0], X[:, 1:3])
    assert_close(run_op("Narrow", [X, 2, 1, np.array(3)], F32, engine)[0], X[:, :, 1:4])
    assert_close(run_op("SliceExt", [X, -1, -4, None, 2], F32, engine)[0], X[..., -4::2])
    assert_close(run_op("SelectExt", [X, 1, np.array(-2)], F32, engine, [2])[0], X[:, -2])


def test_rows_and_elements(engine: str) -> None:
    places = ints([0, 3], [-1, 1])
    assert_close(run_op("IndexSelect", [X, 1, places[0]], F32, engine)[0], X[:, [0, 3]])
    assert_close(run_op("Take", [X, places], F32, engine, [2])[0], X.reshape(-1)[places])
    made = run_op("Index", [X, (places - 1, ints(1, 2))], F32, engine, [3], static=True)[0]
    assert_close(made, X[places - 1, ints(1, 2)])
    with pytest.raises(RefusedError, match="masks"):
        run_op("Index", [X, (X[:, 0, 0] > 0,)], F32, engine, [3], static=True)


@pytest.mark.parametrize(("axis", "batch"), [(1, 1), (2, 1), (2, 2)])
def test_gather_of_batches(axis: int, batch: int, engine: str) -> None:
    index = RANDOM.integers(-3, 3, (*X.shape[:batch], 2, 3))
    wanted = np.zeros((*X.shape[:axis], 2, 3, *X.shape[axis + 1 :]), np.float32)
    for place in np.ndindex(*X.shape[:batch]):
        wanted[place] = np.take(X[place], index[place], axis - batch)
    assert_close(run_op("Gather", [X, index, axis, batch], F32, engine, [wanted.ndim])[0], wanted)


def test_one_hot_leaves_out_what_is_out_of_range(engine: str) -> None:
    made = run_op("OneHot", [ints(0, -1, 2, 5), 3, 1.5, -1.0, 0], F32, engine, [2])[0]
    assert_close(made, np.where(np.arange(3)[:, None] == ints(0, -1, 2, 5), np.float32(1.5), np.float32(-1)))
    assert_close(
        run_op("OneHotExt", [ints(0, 2), -1, 1, 0, -1], ["int64"], engine, [2])[0], np.eye(3, dtype=np.int64)[[0, 2]]
    )


def test_masks(engine: str) -> None:
    mask = RANDOM.random((3, 5)) < 0.5
    assert_close(run_op("MaskedSelect", [M, mask], F32, engine, [1])[0], M[mask])
    assert_close(
        run_op("MaskedSelect", [X[0, :, 0], mask[:, :4]], F32, engine, [1])[0], np.tile(X[0, :, 0], (3, 1))[mask[:, :4]]
    )
    wanted = M.copy()
    wanted[mask] = X.reshape(-1)[: mask.sum()]
    assert_close(run_op("MaskedScatter", [M, mask, X], F32, engine)[0], wanted)
    for places, want in zip(run_op("NonZeroExt", [mask], ["int64"] * 2, engine, [1, 1]), mask.nonzero(), strict=True):
        assert_close(places, want)


# Writing parts --------------------------------------------------------------------------------------------------------


def test_scatter_along_an_axis(engine: str) -> None:
    index, source = ints([0, 2], [1, 1]), M[:2, :4]
    wanted = M.copy()
    np.put_along_axis(wanted[:1], index[:1], source[:1, :2], 1)
    assert_close(run_op("InplaceScatterSrc", [M, 1, index[:1], source], F32, engine)[0], wanted)
    wanted = M.copy()
    np.add.at(wanted, (ints([0], [1]), index), source[:, :2])
    assert_close(run_op("ScatterAddExt", [M, 1, index, source], F32, engine)[0], wanted)
    assert_close(run_op("InplaceScatterSrcReduce", [M, 1, index, source, 1], F32, engine)[0], wanted)
    wanted = M.copy()
    wanted[[0, 0, 1], [0, 2, 1]] = 2.5
    assert_close(run_op("InplaceScatterValue", [M, 1, index, 2.5], F32, engine)[0], wanted)
    with pytest.raises(RefusedError, match="reduction"):
        run_op("Scatter", [M, 1, index, source, 7], F32, engine)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_slices_along_an_axis(dtype: str, engine: str) -> None:
    x, rows = M.astype(dtype), X[0, :, :2].astype(dtype)[:3]
    wanted = x.copy()
    np.add.at(wanted.T, ints(3, 3), (rows * np.array(2, dtype)).T)
    made = run_op("IndexAddExt", [x, 1, np.array([3, 3], np.int32), rows, 2], [dtype], engine)[0]
    assert_close(made, wanted)
    wanted = x.copy()
    wanted[:, [4, 0]] = rows
    assert_close(run_op("InplaceIndexCopy", [x, 1, ints(4, 0), rows], [dtype], engine)[0], wanted)
    wanted[:, [1, -1]] = 2
    assert_close(run_op("IndexFillScalar", [wanted, 1, ints(1, -1), 2], [dtype], engine)[0], wanted)


def test_index_put(engine: str) -> None:
    rows, columns = ints(0, 2), ints(1, 1)
    wanted = X.copy()
    wanted[rows, columns] = 7
    assert_close(run_op("InplaceIndexPut", [X, (rows, columns), 7.0, False], F32, engine, static=True)[0], wanted)
    wanted = X.copy()
    np.add.at(wanted, (ints(1, 1),), M[0])
    assert_close(run_op("InplaceIndexPut", [X, (ints(1, 1),), M[0], True], F32, engine, static=True)[0], wanted)
    wanted = M.copy()
    np.put(wanted, [1, 7, -1], [1, 2, 3])
    made = run_op("InplacePut", [M, ints(1, 7, -1), np.array([1, 2, 3], np.float32), False], F32, engine)[0]
    assert_close(made, wanted)


def test_segments_without_rows_and_rows_without_segment(engine: str) -> None:
    ids = ints(2, -1, 0, 2)
    wanted = np.zeros((4, 5), np.float32)
    np.add.at(wanted, ids[ids >= 0], X[0][ids >= 0])
    assert_close(run_op("UnsortedSegmentSum", [X[0], ids, 4], F32, engine)[0], wanted)


# Making ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_counted(dtype: str, engine: str) -> None:
    made = run_op("Arange", [np.array(1), np.array(11), np.array(3), None], [dtype], engine, [1])[0]
    assert_close(made, np.arange(1, 11, 3).astype(dtype))


def test_made_like_another(engine: str) -> None:
    assert_close(run_op("FullLike", [M, 2, None], ["int32"], engine)[0], np.full_like(M, 2, np.int32))
    assert_close(run_op("NewFull", [M, (2, 3), 1.5, None], F32, engine)[0], np.full((2, 3), 1.5, np.float32))
    assert_close(run_op("FillTensor", [(2, 3), LINE[0], None], F32, engine, [2])[0], np.full((2, 3), LINE[0]))
    assert_close(
        run_op("InplaceCopy", [M, LINE[0].astype(np.float16).reshape(1), False], F32, engine)[0],
        np.full_like(M, np.float16(LINE[0])),
    )


def test_line_spaces(engine: str) -> None:
    bounds = [np.array(1.5, np.float32), np.array(-2, np.float32)]
    for count in (1, 2, 7):
        made = run_op("LinSpaceExt", [*bounds, count, None], F32, engine, [1])[0]
        assert_close(made, np.linspace(1.5, -2, count, dtype=np.float32))

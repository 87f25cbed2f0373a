"""Selections that no function of MegEngine emits, what reading and writing become in ONNX, and what is refused."""

import operator
from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import assert_close

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
BOX = RNG.standard_normal((3, 4, 5)).astype(np.float32)
DTYPES = ("float32", "float16", "int32", "int16", "int8", "uint8", "bool")


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return RNG.integers(0, 2 if dtype == "bool" else 4, shape).astype(dtype)


def number(value: int) -> np.ndarray:
    return np.array([value], np.int32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(dtype: str, engine: str) -> None:
    mask, x, y = drawn("bool", 3, 4), drawn(dtype, 3, 4), drawn(dtype, 3, 4)
    assert_close(run_operator(engine, "Where", [mask, x, y], {})[0], np.where(mask, x, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_non_zero(dtype: str, engine: str) -> None:
    x = drawn(dtype, 3, 4)
    assert_close(run_operator(engine, "NonZero", [x], {})[0], np.array(np.nonzero(x), np.int32))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_indexing_remap(dtype: str, engine: str) -> None:
    x, places = drawn(dtype, 3, 4), RNG.integers(0, 3, (2, 5, 2)).astype(np.int32)
    made = run_operator(engine, "IndexingRemap", [x, places], {"is_non_overlapping": False})[0]
    assert_close(made, x[places[..., 0], places[..., 1]])


@pytest.mark.parametrize("kind", ["MarkDynamicVar", "MarkNoBroadcastElemwise"])
def test_marks_change_nothing(kind: str, engine: str) -> None:
    assert_close(run_operator(engine, kind, [X], {})[0], X)


def test_virtual_dep_gives_its_first_operand(engine: str) -> None:
    assert_close(run_operator(engine, "VirtualDep", [X, BOX], {})[0], X)


# As MegEngine has them: integers are compared with the number cut off, floats are equal when they are near.
COMPARED: dict[str, Any] = {"LT": operator.lt, "LEQ": operator.le, "GT": operator.gt, "GEQ": operator.ge}


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "uint8", "bool"])
@pytest.mark.parametrize("mode", ["EQ", "NEQ", *COMPARED])
@pytest.mark.parametrize("val", [0.0, 1.0, 1.5])
def test_cond_take(mode: str, val: float, dtype: str, engine: str) -> None:
    mask = drawn(dtype, 3, 4)
    wanted = np.float32(val).astype(dtype)
    if mode in COMPARED:
        condition = COMPARED[mode](mask, wanted)
    else:
        near = np.abs(mask - wanted) < 0.6 if dtype == "float32" else mask == wanted
        condition = near == (mode == "EQ")
    params = {"mode": mode, "val": val, "eps": 0.6}
    values, places = run_operator(engine, "CondTake", [X, mask], params, (0, 1))
    assert_close(places, np.flatnonzero(condition).astype(np.int32))
    assert_close(values, X.ravel()[condition.ravel()])


# What becomes of it in ONNX


def kinds(kind: str, operands: list[np.ndarray], items: list[Any], numbers: list[int]) -> list[str]:
    constants = [number(value) for value in numbers]
    graph = translated(kind, operands, {"items": items}, constants=constants).graph
    return [node.op_type for node in graph if node.op_type != "Identity"]


BEGIN, PLACE = (1, True, False, False, False), (0, False, False, False, True)
BOUNDED = (2, True, True, True, False)


@pytest.mark.parametrize(
    ("kind", "operands", "items", "numbers", "expected"),
    [
        ("Subtensor", [BOX], [BEGIN], [1], ["Slice"]),
        ("Subtensor", [BOX], [BOUNDED, BEGIN], [0, 9, 2, 1], ["Slice"]),
        ("Subtensor", [BOX], [PLACE], [-1], ["Gather"]),
        ("IndexingMultiAxisVec", [BOX], [PLACE], [-1], ["Gather"]),
        ("SetSubtensor", [BOX, BOX[:, 1:]], [BEGIN], [1], ["Slice", "Concat"]),
        ("SetSubtensor", [BOX, BOX], [BEGIN], [0], []),
        ("SetSubtensor", [BOX, BOX[:, :, ::2]], [BOUNDED], [0, 9, 2], ["Concat", "Gather"]),
    ],
)
def test_simple_indices_become_simple_nodes(
    kind: str, operands: list[np.ndarray], items: list[Any], numbers: list[int], expected: list[str]
) -> None:
    assert kinds(kind, operands, items, numbers) == expected


@pytest.mark.parametrize(
    ("kind", "operands", "items", "numbers", "reason"),
    [
        ("Subtensor", [BOX], [(3, True, False, False, False)], [0], "axis 3"),
        ("Subtensor", [BOX], [BEGIN], [], "0 numbers"),
        ("Subtensor", [BOX], [BEGIN], [0, 1], "1 more"),
        ("Subtensor", [BOX], [BEGIN, (-2, True, False, False, False)], [0, 1], r"axes \[1, 1\]"),
        ("Subtensor", [BOX], [(0, False, False, True, False)], [0], "step of 0"),
        ("SetSubtensor", [BOX, X], [PLACE], [3], "index 3 of an axis of size 3"),
        ("BatchedMeshIndexing", [BOX], [PLACE], [0], "the first axis"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], items: list[Any], numbers: list[int], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        kinds(kind, operands, items, numbers)

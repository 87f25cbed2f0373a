"""Shapes and reductions that are refused, and shapes that are left out of the graph."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import translated

import litehouse
from conftest import FIXTURES

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


REDUCE = {"mode": "SUM", "axis": 2147483647, "data_type": "DEFAULT"}


@pytest.mark.parametrize(
    ("kind", "operands", "constants", "params", "reason"),
    [
        ("GetVarShape", [X, X[:, :2]], [], {"axis": 7}, r"sizes \[2, 3\]"),
        ("GetVarShape", [X], [], {"axis": 3}, "axis 3"),
        ("Reshape", [X], [ints(6, 4)], {"axis": 2}, "axis 2"),
        ("Dimshuffle", [X], [], {"pattern": (0, 3), "ndim": 3}, "pattern"),
        ("Dimshuffle", [X], [], {"pattern": (0, 0), "ndim": 3}, "pattern"),
        ("AxisAddRemove", [X], [], {"desc": (("add", 4),)}, "axis 4"),
        ("AxisAddRemove", [X], [], {"desc": (("remove", -4),)}, "axis -4"),
        ("Reduce", [X], [], REDUCE, "without a shape"),
        ("Reduce", [X, ints(1)], [], REDUCE, "depends on the data"),
        ("Reduce", [X], [ints(2, 2, 4)], REDUCE, r"\[2, 3, 4\] to \[2, 2, 4\]"),
        ("Reduce", [X], [ints(1, 2, 3, 4)], REDUCE, r"to \[1, 2, 3, 4\]"),
        ("Reduce", [X], [], REDUCE | {"axis": 1, "data_type": "QINT_I8xO32"}, "QINT_I8xO32"),
        ("Reduce", [X], [], REDUCE | {"axis": 3}, "axis 3"),
        ("Argmax", [X], [], {"axis": -4}, "axis -4"),
        ("Cumsum", [X], [], {"axis": 2147483647, "exclusive": False, "reverse": False}, "axis 2147483647"),
        ("Softmax", [X], [], {"axis": 3}, "axis 3"),
        ("TopK", [X], [ints(1, 2)], {"mode": "KTH_ONLY"}, "2 numbers"),
    ],
)
def test_refused(
    kind: str, operands: list[np.ndarray], constants: list[np.ndarray], params: dict[str, Any], reason: str
) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params, constants=constants)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("shape/flatten", ["Reshape"]),
        ("shape/reshape_from_shape_arithmetic", ["Reshape"]),
        ("shape/split_resized", ["Split"]),
        ("shape/expand_dims_several", ["Unsqueeze"]),
        ("shape/squeeze_two", ["Squeeze"]),
        ("shape/arange_by_shape", ["Add"]),
        ("shape/shape_output", []),
        ("index/slice_by_shape", ["Slice"]),
        ("index/slice_and_index", ["Slice", "Gather", "Gather"]),
        ("index/embedding", ["Gather"]),
        ("reduction/sum_axis", ["ReduceSum"]),
        ("reduction/mean_two_axes", ["ReduceMean"]),
        ("reduction/prod_two_axes", ["ReduceProd"]),
        ("reduction/sum_all", ["Reshape", "ReduceSum"]),
    ],
)
def test_no_arithmetic_on_shapes_is_left(case: str, expected: list[str]) -> None:
    graph = litehouse.read(FIXTURES / "mge" / f"{case}.mge").graph.graph
    assert [node.op_type for node in graph if node.op_type != "Identity"] == expected

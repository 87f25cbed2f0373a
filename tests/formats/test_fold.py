"""Constants that are computed while translating, against onnx's own reference implementation."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from litehouse.formats.fold import FOLDERS, LARGEST, fold

I64, I32, F32 = np.int64, np.int32, np.float32


def array(*values: Any, dtype: Any = I64) -> np.ndarray:
    return np.array(values, dtype)


A, B = array(-7, 7, 5, -5, 0), array(2, -2, 3, -3, 4)
X, Y = array(-2.5, 1.5, 0.0, 3.25, dtype=F32), array(2.0, -0.5, 1.0, 3.25, dtype=F32)
GRID = np.arange(24, dtype=I64).reshape(2, 3, 4)
MASK = array(True, False, True, False, dtype=bool)

CASES: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    *((name, [A, B], {}) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less")),
    *((name, [A, B], {}) for name in ("LessOrEqual", "Greater", "GreaterOrEqual")),
    *((name, [A], {}) for name in ("Abs", "Neg", "Sign")),
    *((name, [X, Y], {}) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Equal")),
    *((name, [X], {}) for name in ("Abs", "Neg", "Floor", "Ceil", "Sign")),
    ("Mod", [A, B], {"fmod": 1}),
    ("Mod", [X, Y], {"fmod": 1}),
    ("Max", [A, B, A + 1], {}),
    ("And", [MASK, ~MASK], {}),
    ("Xor", [MASK, MASK[::-1].copy()], {}),
    ("Pow", [X, array(2.0, dtype=F32)], {}),
    ("Sqrt", [np.abs(X)], {}),
    ("Reciprocal", [Y], {}),
    ("Clip", [A, array(-4).reshape(()), array(4).reshape(())], {}),
    ("Or", [MASK, ~MASK], {}),
    ("Not", [MASK], {}),
    ("Where", [MASK, X, Y], {}),
    ("Cast", [X], {"to": int(ir.DataType.INT32)}),
    ("Cast", [A], {"to": int(ir.DataType.FLOAT)}),
    ("Cast", [A], {"to": int(ir.DataType.BOOL)}),
    ("Concat", [A, B], {"axis": 0}),
    ("Concat", [GRID, GRID], {"axis": -1}),
    ("ConstantOfShape", [array(2, 3)], {}),
    ("Expand", [array(1, 2, 3), array(2, 1)], {}),
    ("Gather", [GRID, array(1, 0)], {"axis": 1}),
    ("Gather", [A, array(-1)], {}),
    ("Range", [array(1).reshape(()), array(10).reshape(()), array(3).reshape(())], {}),
    ("Range", [array(5).reshape(()), array(-3).reshape(()), array(-2).reshape(())], {}),
    *((f"Reduce{name}", [GRID, array(0, 2)], {"keepdims": 0}) for name in ("Max", "Min", "Prod", "Sum")),
    ("ReduceProd", [A, array(0)], {}),
    ("Reshape", [GRID, array(4, -1)], {}),
    ("Reshape", [GRID, array(0, -1)], {}),
    ("Slice", [GRID, array(1), array(2**31 - 1), array(1), array(2)], {}),
    ("Slice", [A, array(-1), array(-(2**31)), array(0), array(-1)], {}),
    ("Slice", [A, array(1), array(-1)], {}),
    ("Slice", [A, array(10), array(20)], {}),
    ("Squeeze", [GRID[:1], array(0)], {}),
    ("Squeeze", [GRID[:1, :, :1]], {}),
    ("Transpose", [GRID], {"perm": [2, 0, 1]}),
    ("Transpose", [GRID], {}),
    ("Unsqueeze", [A, array(0, 2)], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_same_as_the_reference(op_type: str, inputs: list[np.ndarray], attributes: dict[str, Any]) -> None:
    names = [f"x{place}" for place in range(len(inputs))]
    node = onnx.helper.make_node(op_type, names, ["y"], **attributes)
    evaluator = ReferenceEvaluator(node, opsets={"": 20})
    (expected,) = evaluator.run(None, dict(zip(names, inputs, strict=True)))
    result = fold(op_type, inputs, attributes)
    assert result is not None
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


def test_every_op_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(FOLDERS)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("Expand", [array(1), array(LARGEST + 1)]),
        ("Expand", [array(1), array(2**31, 2**31)]),
        ("ConstantOfShape", [array(2**40)]),
        ("Range", [array(0).reshape(()), array(2**60).reshape(()), array(1).reshape(())]),
        ("Abs", [np.zeros(LARGEST + 1, I64)]),
        ("Div", [A, array(0, 1, 1, 1, 1)]),
        ("Mod", [A, array(0, 1, 1, 1, 1)]),
        ("Reshape", [A, array(2, 3)]),
        ("Gather", [A, array(5)]),
        ("Range", [array(0).reshape(()), array(1).reshape(()), array(0).reshape(())]),
        ("Tanh", [X]),
    ],
)
def test_what_is_too_large_or_wrong_is_left_to_the_engine(op_type: str, inputs: list[np.ndarray]) -> None:
    assert fold(op_type, inputs, {}) is None

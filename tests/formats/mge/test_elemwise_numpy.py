"""Element-wise operators against numpy: what MegEngine cannot dump, large integers, roundings, refusals, the graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from formats.mge.one_operator import run_operator, translated
from formats.mge.test_fixtures import INDEX, path, read

import litehouse
from conftest import assert_close
from litehouse.formats.mge.ops.elemwise import MODES
from litehouse.formats.mge.ops.multi_type import BOOLS, MIXED
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import CONVERTERS
from litehouse.formats.mge.schema import ENUMS
from litehouse.formats.mge.tape import MgeTape
from litehouse.formats.tape import RefusedError

RNG = np.random.default_rng(0)
INT32 = np.iinfo(np.int32)
F32, S8 = np.float32, DType("QuantizedS8", 0.5)


def drawn(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def test_every_mode_is_known() -> None:
    known = {mode for modes in MODES for mode in modes}
    assert known == set(ENUMS["ElemwiseMode"])
    quantised = {mode[1:] for mode in ENUMS["ElemwiseMultiTypeMode"] if mode.startswith("Q")}
    assert quantised <= known
    assert {*BOOLS, *MIXED, *(f"Q{mode}" for mode in quantised)} == set(ENUMS["ElemwiseMultiTypeMode"])


# What MegEngine 1.13 has no kernel for: older and newer files may.
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("mode", "function"), [("ISNAN", np.isnan), ("ISINF", np.isinf), ("NEQ", lambda x: x != x[::-1])]
)
def test_truths_in_the_dtype_of_the_operands(mode: str, function: Callable[..., Any], dtype: str, engine: str) -> None:
    x = np.array([1, np.inf, -np.inf, 0, np.nan if mode == "ISNAN" else 1], dtype)
    operands = [x, x[::-1].copy()] if mode == "NEQ" else [x]
    (y,) = run_operator(engine, "Elemwise", operands, {"mode": mode})
    assert_close(y, function(x).astype(dtype))


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_neq_of_integers(dtype: str, engine: str) -> None:
    x, y = (RNG.integers(0, 3, 20).astype(dtype) for _ in range(2))
    (z,) = run_operator(engine, "Elemwise", [x, y], {"mode": "NEQ"})
    assert_close(z, (x != y).astype(dtype))


# Both engines compute these as if in exact integers, although one of them divides as floats do.
DIVISORS = np.array([3, -3, 7, 10, -1000, 2**24 + 1, INT32.max, INT32.min, -(2**30)], np.int32)


@pytest.mark.parametrize(("mode", "function"), [("FLOOR_DIV", np.floor_divide), ("MOD", np.mod)])
def test_large_integers_divide_exactly(mode: str, function: Callable[..., Any], engine: str) -> None:
    near = (DIVISORS[:, None].astype(np.int64) * np.arange(-3, 4) + np.array([[[-1]], [[0]], [[1]]])).ravel()
    near = near[(near > INT32.min) & (near <= INT32.max)]
    x = np.concatenate([near.astype(np.int32), drawn("int32", 300)])[:, None]
    (z,) = run_operator(engine, "Elemwise", [x, DIVISORS[None]], {"mode": mode})
    assert_close(z, function(x.astype(np.int64), DIVISORS.astype(np.int64)).astype(np.int32))


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8"])
def test_rounded_upper_half_of_products(dtype: str, engine: str) -> None:
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)
    x, y = (array.ravel() for array in np.broadcast_arrays(*np.ix_(*[np.concatenate([ends, drawn(dtype, 12)])] * 2)))
    digits = limits.bits - (limits.min < 0)
    products = [int(a) * int(b) + 2 ** (digits - 1) >> digits for a, b in zip(x, y, strict=True)]
    expected = np.where((x == limits.min) & (y == limits.min), limits.max, products).astype(dtype)
    (z,) = run_operator(engine, "Elemwise", [x.copy(), y.copy()], {"mode": "RMULH"})
    assert_close(z, expected)


@pytest.mark.parametrize(("mode", "function"), [("SHL", np.left_shift), ("SHR", np.right_shift)])
def test_shifts_by_counts_that_are_data(mode: str, function: Callable[..., Any], engine: str) -> None:
    x, bits = drawn("int32", 40, 1), np.arange(32, dtype=np.int32)[None]
    (z,) = run_operator(engine, "Elemwise", [x, bits], {"mode": mode})
    assert_close(z, function(x, bits))


@pytest.mark.parametrize("case", [case for case in INDEX if case.startswith("q_halves_")])
def test_quantised_halves_on_onnxruntime_to_every_bit(case: str) -> None:
    inputs, expected = read(case)
    outputs = litehouse.load(path(case), engine="onnxruntime", threads=1).run(inputs)
    for actual, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


# Refusals -------------------------------------------------------------------------------------------------------------

X, B = np.ones(3, np.float32), np.ones(3, np.bool_)
I32, U8, I8 = np.ones(3, np.int32), np.ones(3, np.uint8), np.ones(3, np.int8)
SHIFT = "ROUND_SHR_SATURATE_IXxI8xI8"


@pytest.mark.parametrize(
    ("kind", "operands", "mode", "reason"),
    [
        ("Elemwise", [X], "ADD", "with 1 operands"),
        ("Elemwise", [X] * 5, "ADD", "with 5 operands"),
        ("Elemwise", [], "ADD", "no operands"),
        ("Elemwise", [X, I32], "ADD", "FLOAT, INT32"),
        ("Elemwise", [I32], "FLOOR", "INT32"),
        ("Elemwise", [I32, I32], "TRUE_DIV", "INT32"),
        ("Elemwise", [X, X], "SHL", "FLOAT"),
        ("Elemwise", [X, X], "AND", "FLOAT"),
        ("Elemwise", [B, B], "ADD", "BOOL"),
        ("ElemwiseMultiType", [X], "EQ", "1 operands instead of 2"),
        ("ElemwiseMultiType", [X, I32], "EQ", "different dtypes"),
        ("ElemwiseMultiType", [I32], "ISNAN", "INT32"),
        ("ElemwiseMultiType", [X, X], "MUL_INT16xF32xF32", "FLOAT"),
        ("ElemwiseMultiType", [U8, I8], SHIFT, "UINT8"),
        ("ElemwiseMultiType", [I32], SHIFT, "1 operands instead of 2"),
        ("ElemwiseMultiType", [X, X], "QADD", "not quantised"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], mode: str, reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason) as caught:
        translated(kind, operands, {"mode": mode})
    assert f"{kind}:{mode}" in str(caught.value)


def converted(t: MgeTape, kind: str, *operands: ir.Value, **params: Any) -> ir.Value:
    (value,) = CONVERTERS[kind](t, operands, params)
    assert value is not None
    return value


def quantised(t: MgeTape, dtype: DType) -> ir.Value:
    return t.as_quantised(ir.Value(name=t.name(), type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([3])), dtype)


@pytest.mark.parametrize(
    ("kind", "mode", "dtypes", "result", "reason"),
    [
        ("Elemwise", "MUL", [S8, S8], None, "QuantizedS8"),
        ("Elemwise", "ADD", [DType("Quantized8Asymm", 0.5, 3)] * 2, None, "Quantized8Asymm"),
        ("Elemwise", "ADD", [S8, DType("QuantizedS8", 0.25)], None, "different quantised dtypes"),
        ("ElemwiseMultiType", "EQ", [S8, S8], None, "quantised operands"),
        ("ElemwiseMultiType", "QADD", [S8, S8], None, "not quantised"),
        ("ElemwiseMultiType", "QADD", [S8, S8], DType("Float32"), "not quantised"),
        ("ElemwiseMultiType", "QADD", [S8, DType("QuantizedS32", 0.5)], S8, "different quantised dtypes"),
    ],
)
def test_quantised_operands_refused(
    kind: str, mode: str, dtypes: list[DType], result: DType | None, reason: str
) -> None:
    t = MgeTape()
    t.output_dtype = result
    with pytest.raises(RefusedError, match=reason):
        converted(t, kind, *(quantised(t, dtype) for dtype in dtypes), mode=mode)


def test_long_shifts_refused() -> None:
    t = MgeTape()
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape([3]))
    for bits in (-1, 31):
        with pytest.raises(RefusedError, match="0 or more than 30"):
            converted(t, "ElemwiseMultiType", x, t.constant([bits], ir.DataType.INT8), mode=SHIFT)


def test_products_of_scales_are_of_one_dtype() -> None:
    t = MgeTape()
    product = 0.1 * float(F32(0.3))
    sides = [quantised(t, DType("QuantizedS32", scale)) for scale in (product, float(F32(product)))]
    made = converted(t, "Elemwise", *sides, mode="ADD")
    assert t.quantised(made) == DType("QuantizedS32", product)


# The graph ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "count", "ops"),
    [
        ("FUSE_ADD_RELU", 2, ["Add", "Relu"]),
        ("FUSE_ADD_H_SWISH", 2, ["Add", "HardSwish"]),
        ("FUSE_MUL_ADD3", 3, ["Mul", "Add"]),
        ("GELU", 1, ["Gelu"]),
        ("H_SWISH", 1, ["HardSwish"]),
        ("SOFTPLUS", 1, ["Softplus"]),
        ("PRELU", 2, ["PRelu"]),
        ("LT", 2, ["Less", "Cast"]),
    ],
)
def test_the_shortest_graph(mode: str, count: int, ops: list[str]) -> None:
    model = translated("Elemwise", [X] * count, {"mode": mode})
    assert [node.op_type for node in model.graph] == [*ops, "Identity"]


@pytest.mark.parametrize(
    ("mode", "expected"), [("FLOOR_DIV", [-4, 3]), ("MOD", [1, 1]), ("SHR", [-2, 1]), ("ADD", [-5, 9])]
)
def test_integer_constants_are_computed_at_once(mode: str, expected: list[int]) -> None:
    t = MgeTape()
    made = converted(
        t, "Elemwise", t.constant(np.array([-7, 7], np.int32)), t.constant(np.array([2], np.int32)), mode=mode
    )
    assert (t.literal(made), t.dtype(made), t.nodes) == (tuple(expected), ir.DataType.INT32, [])


def test_comparisons_stay_bools() -> None:
    t = MgeTape()
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([3]))
    less = converted(t, "Elemwise", x, x, mode="LT")
    bools = converted(t, "TypeCvt", less, dtype=DType("Bool"))
    converted(t, "Elemwise", less, x, mode="SWITCH_GT0")
    assert (bools.dtype, bools.producer().op_type) == (ir.DataType.BOOL, "Less")  # type: ignore[union-attr]
    assert [node.op_type for node in t.nodes] == ["Less", "Cast", "Where"]
    assert t.nodes[-1].inputs[0] is bools


@pytest.mark.parametrize(("exponent", "ops"), [(0.5, ["Sqrt"]), (2, ["Mul"]), (1, []), (3, ["Pow"])])
def test_powers(exponent: float, ops: list[str]) -> None:
    model = translated("PowC", [X], {"exp": exponent})
    assert [node.op_type for node in model.graph] == [*ops, "Identity"]

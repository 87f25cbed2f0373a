"""Ops that move elements, in the forms and dtypes that ONNX's own cases leave out, against ONNX Runtime."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from engines.torch.against_runtime import Arrays, agrees, one_op, run
from engines.torch.onnx_cases import DEVICE

from litehouse import EngineError

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
LARGE, LEAST = 2**63 - 1, -(2**63)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def check_op(op: str, inputs: Arrays, may_lack: tuple[str, ...] = (), **rest: Any) -> None:
    agrees(one_op(op, inputs, **rest), inputs, may_lack=may_lack)


# Attributes of old versions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "opset", "outputs", "attributes"),
    [
        ("Squeeze", 11, 1, {}),
        ("Squeeze", 11, 1, {"axes": [1]}),
        ("Squeeze", 11, 1, {"axes": [-2]}),
        ("Unsqueeze", 11, 1, {"axes": [0]}),
        ("Unsqueeze", 11, 1, {"axes": [-1, 1, 0]}),
        ("Split", 11, 2, {}),
        ("Split", 11, 2, {"axis": -2, "split": [1, 0]}),
        ("Split", 12, 3, {"axis": 2, "split": [1, 0, 3]}),
        ("Split", 2, 4, {"axis": 2}),
        ("Slice", 9, 1, {"starts": [1], "ends": [LARGE]}),
        ("Slice", 9, 1, {"starts": [-1, -3], "ends": [2, -1], "axes": [0, 2]}),
        ("Pad", 10, 1, {"pads": [0, 0, 1, 0, 0, 2], "value": 1.5}),
        ("Pad", 2, 1, {"pads": [0, 0, -1, 0, 1, 2], "mode": "edge"}),
        ("Pad", 10, 1, {"pads": [0, 0, 1, 0, 0, 2], "mode": "reflect"}),
        ("TopK", 9, 2, {"k": 2}),
        ("TopK", 1, 2, {"k": 1, "axis": 0}),
        ("Scatter", 9, 1, {"axis": 2}),
        ("Flatten", 9, 1, {"axis": 0}),
        ("Flatten", 11, 1, {"axis": -1}),
        ("Concat", 4, 1, {"axis": 2}),
        ("Shape", 13, 1, {}),
        ("Compress", 9, 1, {"axis": 2}),
    ],
)
def test_old_version(op: str, opset: int, outputs: int, attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 1, 4)).astype(np.float32)
    more: Arrays = {}
    if op == "Scatter":
        more = {"i": np.array([[[3, 0]]]), "u": np.array([[[7, 8]]], np.float32)}
    elif op == "Compress":
        more = {"c": np.array([True, False, True])}
    elif op == "Concat":
        more = {"z": x[:, :, :1] * 2}
    if attributes.get("split") == [1, 0]:
        x = x.reshape(2, 4, 1)[:, :1]
    check_op(op, {"x": x, **more}, opset=opset, outputs=outputs, **attributes)


# Numbers that ONNX's cases leave out ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        *((-100, -200, -1), (100, -100, -1), (3, 0, -2), (3, LEAST, -1), (-1, -(2**31), -1), (1, 2**31 - 1, 2)),
        *((0, -1, 1), (5, 9, 1), (3, 1, 1), (2, LARGE, -1), (-1, 2**31 - 1, -1), (0, LARGE, 3), (LEAST, 2, 1)),
    ],
)
@pytest.mark.parametrize("size", [4, 1, 0])
def test_slice(start: int, end: int, step: int, size: int) -> None:
    constants = {"s": ints(start), "e": ints(end), "a": ints(-1), "p": ints(step)}
    check_op("Slice", {"x": X[:, :, :size]}, constants=constants)


def test_slice_of_several_axes_with_numbers_that_are_given() -> None:
    inputs = {"x": X, "s": ints(3, 1), "e": ints(-5, 3), "a": ints(2, 1).astype(np.int32), "p": ints(-1, 2)}
    inputs = {name: value.astype(np.int32) if name != "x" else value for name, value in inputs.items()}
    check_op("Slice", inputs)


def test_slice_without_a_step() -> None:
    with pytest.raises(EngineError, match="step of a slice is 0"):
        run(one_op("Slice", {"x": X}, constants={"s": ints(0), "e": ints(1), "a": ints(0), "p": ints(0)}), {"x": X})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "pads",
    [
        *((0, 1, 2, 0, 1, 1), (0, 0, -1, 0, 0, 2), (0, 0, 3, 0, 0, 3), (1, 0, 0, 1, 0, 0), (0, 2, 0, 0, 2, 0)),
        *((0, -1, -1, 0, 1, -1), (0,) * 6),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_pad(mode: str, pads: tuple[int, ...], dtype: type) -> None:
    check_op("Pad", {"x": (X * 9).astype(dtype)}, constants={"p": ints(*pads)}, mode=mode)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (1, 2, 3, 4), (1, 2, 2, 3, 4), (1, 1, 2, 2, 3, 2)])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_of_the_last_axis(shape: tuple[int, ...], mode: str) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    check_op("Pad", {"x": x}, constants={"p": ints(1, 1), "a": ints(-1)}, order="x p _ a", mode=mode)


def test_pad_with_a_value_that_no_float_holds() -> None:
    check_op("Pad", {"x": ints(1, 2), "pads": ints(1, 1)}, constants={"value": np.array((1 << 53) + 1)})


def test_pad_with_a_value_of_a_bool() -> None:
    constants = {"p": ints(1, 2), "v": np.array(True)}
    check_op("Pad", {"x": np.array([False, True])}, constants=constants)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_pad_beyond_the_size(mode: str) -> None:
    """ONNX Runtime refuses some of these; numpy, after which ONNX names the modes, does not."""
    x = np.arange(3, dtype=np.float32)
    (found,) = run(one_op("Pad", {"x": x}, constants={"p": ints(7, 5)}, mode=mode), {"x": x})
    np.testing.assert_array_equal(found, np.pad(x, (7, 5), mode=mode))


@pytest.mark.parametrize(("start", "limit", "delta"), [(0, 10, 3), (10, 0, -4), (5, 5, 1), (5, 0, 1), (-3, 3, 2)])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("is_constant", [False, True])
def test_range(start: int, limit: int, delta: int, dtype: type, *, is_constant: bool) -> None:
    numbers = {"s": np.array(start, dtype), "l": np.array(limit, dtype), "d": np.array(delta, dtype)}
    if is_constant:
        check_op("Range", {}, constants=numbers)
    else:
        check_op("Range", numbers)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float16, np.bool_])
def test_constant_of_shape(dtype: type) -> None:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([3], dtype))
    check_op("ConstantOfShape", {"s": ints(2, 0, 3)}, value=value)
    check_op("ConstantOfShape", {"s": ints(2, 3)}, value=value)
    check_op("ConstantOfShape", {"s": ints()}, value=value)


def test_constant_of_shape_without_a_value() -> None:
    check_op("ConstantOfShape", {"s": ints(2, 3)})


@pytest.mark.parametrize("sizes", [(0, -1), (4, -1), (-1,), (2, 0, 0)])
def test_reshape_of_nothing(sizes: tuple[int, ...]) -> None:
    check_op("Reshape", {"x": X[:, :0], "s": ints(*sizes)})


@pytest.mark.parametrize("axes", [None, (), (0,), (-1, 0)])
def test_squeeze(axes: tuple[int, ...] | None) -> None:
    check_op("Squeeze", {"x": X[:1, :, :1]}, constants={} if axes is None else {"a": ints(*axes)})


def test_squeeze_of_an_axis_that_is_longer() -> None:
    with pytest.raises(EngineError, match="is not of size 1"):
        run(one_op("Squeeze", {"x": X}, constants={"a": ints(1)}), {"x": X})


@pytest.mark.parametrize("axes", [(0, 0), (0, -5)])
def test_unsqueeze_of_an_axis_twice(axes: tuple[int, ...]) -> None:
    with pytest.raises(EngineError, match="one twice"):
        run(one_op("Unsqueeze", {"x": X, "a": ints(*axes)}), {"x": X, "a": ints(*axes)})


@pytest.mark.parametrize("sizes", [(), (1,), (5, 2, 3, 4), (1, 1, 1), (3, 1), (0, 1, 1, 1)])
def test_expand(sizes: tuple[int, ...]) -> None:
    check_op("Expand", {"x": X, "s": ints(*sizes)})


@pytest.mark.parametrize("times", [(0, 1, 2), (1, 1, 1), (2, 3, 1)])
def test_tile(times: tuple[int, ...]) -> None:
    check_op("Tile", {"x": X, "s": ints(*times)})


@pytest.mark.parametrize(("size", "count"), [(7, 3), (6, 3), (2, 2), (5, 2)])
def test_split_into_so_many(size: int, count: int) -> None:
    check_op("Split", {"x": np.arange(size * 2.0).reshape(2, size)}, outputs=count, num_outputs=count, axis=-1)


def test_split_without_equal_parts() -> None:
    with pytest.raises(EngineError, match="no 3 equal parts"):
        run(one_op("Split", {"x": X[:2]}, outputs=3, opset=13), {"x": X[:2]})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [np.array(1), np.array(-1), np.array([[0, 1], [-2, -1]]), np.zeros((0, 2), int)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_gather(axis: int, indices: np.ndarray, *, is_constant: bool) -> None:
    more = {"i": indices.astype(np.int32)}
    inputs, constants = ({"x": X}, more) if is_constant else ({"x": X, **more}, {})
    check_op("Gather", inputs, constants=constants, axis=axis)


def test_gather_of_one_number() -> None:
    check_op("Gather", {"x": np.arange(3.0), "i": np.array(-2)})


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "ScatterElements"])
@pytest.mark.parametrize("index", [3, -4])
def test_index_out_of_range(op: str, index: int) -> None:
    inputs = {"x": np.arange(3.0), "i": ints(index)} | ({"u": np.array([1.0])} if op == "ScatterElements" else {})
    found = f"index {index}" if DEVICE == "cpu" else "an index"  # that of a GPU is not asked for
    with pytest.raises(EngineError, match=f"{found} is out of the range of an axis of size 3"):
        run(one_op(op, inputs), inputs)


def test_index_into_nothing() -> None:
    inputs = {"x": np.zeros((0, 2), np.float32), "i": ints(0)}
    with pytest.raises(EngineError, match="axis of size 0"):
        run(one_op("Gather", inputs), inputs)


@pytest.mark.parametrize(
    ("batch", "shape"), [(0, (5, 1)), (0, (2, 2, 2)), (0, (3,)), (1, (2, 1)), (1, (2, 5, 2)), (2, (2, 3, 1))]
)
def test_gather_nd(batch: int, shape: tuple[int, ...]) -> None:
    indices = np.random.default_rng(2).integers(-2, 2, shape)
    check_op("GatherND", {"x": X, "i": indices}, batch_dims=batch)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float32, np.float64])
def test_scatter(op: str, reduction: str, dtype: type) -> None:
    random = np.random.default_rng(3)
    x = random.integers(1, 9, (4, 3)).astype(dtype)
    if op == "ScatterND":
        indices = np.array([[[0], [-1]], [[1], [2]]])
        updates = random.integers(0, 9, (2, 2, 3)).astype(dtype)
    else:
        indices, updates = np.array([[0, -1], [2, 1]]), random.integers(0, 9, (2, 2)).astype(dtype)
    check_op(op, {"x": x, "i": indices, "u": updates}, reduction=reduction)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_several_to_one_place(op: str, reduction: str) -> None:
    indices = np.array([1, 1, -3, 0, 1])
    inputs = {"x": np.arange(1.0, 5.0), "i": indices, "u": np.array([5.0, 0.5, 2.0, 1.0, 9.0])}
    inputs["i"] = indices[:, None] if op == "ScatterND" else indices
    check_op(op, inputs, reduction=reduction)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_scatter_of_64_bits_without_a_sign(op: str, reduction: str) -> None:
    x, updates = np.array([3, 1 << 63, 5], np.uint64), np.array([1 << 63, 4, 1 << 62], np.uint64)
    indices = np.arange(3) if op == "ScatterElements" else np.arange(3)[:, None]
    check_op(op, {"x": x, "i": indices, "u": updates}, may_lack=(op,), reduction=reduction)


def test_scatter_nd_into_single_elements() -> None:
    check_op("ScatterND", {"x": X, "i": np.array([[0, -1, 3], [1, 0, -4]]), "u": np.array([5, 6], np.float32)})


def test_scatter_of_bools_is_left_to_onnx_runtime() -> None:
    inputs = {"x": np.array([False, True]), "i": ints(0), "u": np.array([True])}
    check_op("ScatterElements", inputs, may_lack=("ScatterElements",), reduction="add")


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_one_hot(axis: int, dtype: type) -> None:
    indices = np.array([[0, 3, 2.9], [-1, 7, -4], [-5, 1, -0.5]]).astype(dtype)
    inputs = {"i": indices, "d": np.array([4], dtype), "v": np.array([-1, 5], np.float32)}
    check_op("OneHot", inputs, axis=axis)


@pytest.mark.parametrize("k", [0, 1, -2, 7, -7])
def test_eye_like(k: int) -> None:
    check_op("EyeLike", {"x": X[0]}, k=k)
    check_op("EyeLike", {"x": X[0]}, k=k, dtype=7)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("k", [None, 0, -1, 2, 99, -99])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(dtype: type, k: int | None, upper: int) -> None:
    check_op("Trilu", {"x": (X * 9).astype(dtype)}, constants={} if k is None else {"k": np.array(k)}, upper=upper)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_reverse_sequence(axes: tuple[int, int]) -> None:
    lengths = ints(3, 0) if axes == (0, 1) else ints(2, 0, 1)
    check_op("ReverseSequence", {"x": X, "l": lengths}, batch_axis=axes[0], time_axis=axes[1])


@pytest.mark.parametrize("condition", [(True,), (True, False, True), (False, False), (True, False, True, True, True)])
def test_compress(condition: tuple[bool, ...]) -> None:
    check_op("Compress", {"x": X, "c": np.array(condition)}, axis=1)
    check_op("Compress", {"x": X, "c": np.array(condition)})


@pytest.mark.parametrize("x", [np.float32(3), np.float32(0), X > 0, np.zeros((2, 0), np.int32)])
def test_non_zero(x: np.ndarray) -> None:
    check_op("NonZero", {"x": np.asarray(x)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [-1, 0])
def test_top_k_takes_the_first_of_equals(dtype: type, largest: int, axis: int) -> None:
    x = np.random.default_rng(4).integers(0, 5, (40, 50)).astype(dtype)
    check_op("TopK", {"x": x}, constants={"k": ints(30)}, outputs=2, largest=largest, axis=axis)


@pytest.mark.parametrize("count", [0, 4])
def test_top_k_of_none_and_all(count: int) -> None:
    check_op("TopK", {"x": X, "k": ints(count)}, outputs=2)


def test_top_k_of_too_many() -> None:
    with pytest.raises(EngineError, match="5 elements of an axis of size 4"):
        run(one_op("TopK", {"x": X, "k": ints(5)}, outputs=2), {"x": X, "k": ints(5)})


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
def test_unique(axis: int | None, order: int, dtype: type) -> None:
    x = np.random.default_rng(5).integers(0, 2, (6, 2)).astype(dtype)
    attributes = {} if axis is None else {"axis": axis}
    check_op("Unique", {"x": x}, outputs=4, sorted=order, **attributes)


# Dtypes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float64"],
)
@pytest.mark.parametrize(
    ("op", "more", "attributes"),
    [
        ("Transpose", {}, {"perm": [1, 2, 0]}),
        ("Reshape", {"s": ints(-1, 0)}, {}),
        ("Gather", {"i": ints(1, -1)}, {"axis": 2}),
        ("GatherElements", {"i": np.zeros((2, 3, 1), np.int64)}, {"axis": 2}),
        ("GatherND", {"i": ints(1, 0)}, {}),
        ("Concat", {"x2": None}, {"axis": -1}),
        ("Slice", {"s": ints(-1), "e": ints(LEAST), "a": ints(1), "p": ints(-2)}, {}),
        ("Expand", {"s": ints(2, 1, 1, 1)}, {}),
        ("ScatterElements", {"i": np.ones((2, 3, 1), np.int64), "u": None}, {"axis": 2}),
        ("ScatterND", {"i": ints(1).reshape(1, 1), "u": None}, {}),
        ("Compress", {"c": np.array([True, False, True])}, {"axis": 1}),
    ],
)
def test_dtype(dtype: str, op: str, more: dict[str, Any], attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(6).integers(0, 200, (2, 3, 4)).astype(dtype)
    if dtype == "uint64":
        x += np.uint64(2**63)
    updates = {"ScatterElements": x[:, :, 2:3], "ScatterND": x[:1], "Concat": x}
    inputs = {"x": x} | {name: updates[op] if value is None else value for name, value in more.items()}
    check_op(op, inputs, **attributes)


@pytest.mark.parametrize("op", ["Transpose", "Identity", "Concat", "Flatten"])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_dtype_from_elsewhere(op: str, dtype: Any) -> None:
    x = X.astype(dtype)
    if op == "Concat" and dtype != ml_dtypes.bfloat16:
        pytest.skip("ONNX Runtime joins none of these, and torch neither")
    expected = {"Transpose": x.T, "Identity": x, "Concat": x, "Flatten": x.reshape(2, 12)}[op]
    attributes = {"axis": 0} if op == "Concat" else {}
    (found,) = run(one_op(op, {"x": x}, opset=21, **attributes), {"x": x})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.view(np.uint8), np.ascontiguousarray(expected).view(np.uint8))


def test_gather_of_one_element():
    inputs = {"x": np.arange(5, dtype=np.float32), "indices": np.array(-2)}
    agrees(one_op("Gather", inputs), inputs)

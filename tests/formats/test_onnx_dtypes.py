"""Weights of every dtype that ONNX has, stored in every way."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from formats.builders import FLOAT, info, op
from formats.onnx_runs import agrees, model
from onnx import helper

import litehouse

NUMERIC = [dtype for dtype in ir.DataType if dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING)]
# What ONNX Runtime cannot cast on a CPU; such a weight is read all the same.
NOT_RUNNABLE = {"COMPLEX64", "COMPLEX128", "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT6E3M2", "FLOAT8E8M0", "INT2", "UINT2"}
BOOL = onnx.TensorProto.BOOL
array = onnx.numpy_helper.from_array


def weight_model(weight: onnx.TensorProto) -> bytes:
    """Casts the weight to float32 and adds the input; in the newest version, for the newest dtypes."""
    nodes = [op("Cast", "w", "f", to=FLOAT), op("Add", "f x", "y")]
    made = model(nodes, [info("x", [1])], [info("y", list(weight.dims))], [weight], opset=23)
    made.ir_version = 11
    return made.SerializeToString()


def small_numbers(dtype: ir.DataType, count: int) -> np.ndarray:
    largest = 2 if dtype.bitwidth < 4 else 7
    return (np.arange(count) % largest).astype(dtype.numpy())


@pytest.mark.parametrize("count", [6, 7, 2000])
@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda dtype: dtype.name)
def test_raw(dtype: ir.DataType, count: int) -> None:
    values = small_numbers(dtype, count)
    data = ir.Tensor(values, dtype=dtype).tobytes()
    content = weight_model(helper.make_tensor("w", dtype.value, [count], data, raw=True))
    read = litehouse.read(content)
    stored = read.graph.graph.initializers["w"].const_value
    assert stored is not None
    assert stored.dtype == dtype
    np.testing.assert_array_equal(stored.numpy().astype(np.complex128), values.astype(np.complex128))
    assert ("w" in read.weights) == (dtype.bitwidth >= 8)
    if dtype.name not in NOT_RUNNABLE:
        agrees(content, x=np.zeros(1, np.float32))


@pytest.mark.parametrize("count", [1, 6, 7])
@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda dtype: dtype.name)
def test_typed(dtype: ir.DataType, count: int) -> None:
    values = small_numbers(dtype, count)
    if dtype.bitwidth == 6:
        tensor = onnx.TensorProto(name="w", data_type=dtype.value, dims=[count], int32_data=values.view(np.uint8))
    else:
        tensor = helper.make_tensor("w", dtype.value, [count], values.tolist())
    assert not tensor.HasField("raw_data")
    content = weight_model(tensor)
    stored = litehouse.read(content).graph.graph.initializers["w"].const_value
    assert stored is not None
    np.testing.assert_array_equal(stored.numpy().astype(np.complex128), values.astype(np.complex128))
    if dtype.name not in NOT_RUNNABLE:
        agrees(content, x=np.zeros(1, np.float32))


def test_scalar_and_empty_weights() -> None:
    weights = [array(np.float32(3).reshape(()), "s"), array(np.zeros((0, 3), np.float32), "e")]
    nodes = [op("Mul", "x s", "m"), op("Concat", "m e", "y", axis=0)]
    agrees(model(nodes, [info("x")], [info("y")], weights).SerializeToString(), x=np.ones((2, 3), np.float32))


def test_text() -> None:
    words = helper.make_tensor("w", onnx.TensorProto.STRING, [2], [b"one", b"two"])
    made = model([op("Equal", "x w", "y")], [info("x", [2], onnx.TensorProto.STRING)], [info("y", [2], BOOL)], [words])
    assert litehouse.read(made.SerializeToString()).inputs[0].dtype == np.dtype(object)
    agrees(made.SerializeToString(), x=np.array(["one", "three"], object))

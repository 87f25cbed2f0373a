"""Builders of tiny models, valid ones and attacks, so that each attack in the tests is one line."""

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import litehouse

# What the first file would import is imported now, so that no attack is blamed for it.
import litehouse.formats.mindir.reader
import litehouse.formats.ms.reader
import litehouse.formats.onnx
import litehouse.passes
from litehouse.formats.mindir import schema_pb2 as schema

FLOAT, STRING_DTYPE, INT64 = 1, 8, 7
TENSORS, TUPLE, INT, STRING_KIND = 19, 20, 7, 8
HUGE = 2**63 - 1
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
W = np.array([0.5, 1, -1], np.float32)
EXPECTED = np.maximum(X + W, 0)


# What must hold for every attack -----------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def refused(error: type[Exception] = litehouse.ModelFormatError, text: str = "") -> Iterator[None]:
    """The body must raise that error with that text, within a second, and leave no file open."""
    gc.disable()  # else a collection may fall into the second, and close files that earlier tests left in cycles
    try:
        before, start = descriptors(), time.process_time()
        with pytest.raises(error) as caught:
            yield
        seconds, left = time.process_time() - start, descriptors()
    finally:
        gc.enable()
    assert seconds < 1
    assert left == before
    assert text in str(caught.value)
    assert "no check foresaw" not in str(caught.value), "the last net caught this: a check is missing"


def outcome(source: Any, **arguments: Any) -> str:
    """Read anything; it must become a model or a documented error. Returns "Model", or the error's name."""
    try:
        return type(litehouse.read(source, **arguments)).__name__
    except litehouse.LitehouseError as error:
        return type(error).__name__


# Bytes by hand -------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    """A protobuf field that holds bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(numbers: Sequence[int]) -> bytes:
    """Messages inside each other, by the numbers of their fields from the outside."""
    content = b""
    for number in reversed(numbers):
        content = field(number, content)
    return content


# MindIR --------------------------------------------------------------------------------------------------------------


def tensor(name: str = "", shape: Sequence[int] = (), dtype: int = FLOAT, data: bytes | None = None) -> schema.Tensor:
    made = schema.Tensor(name=name, dims=shape, data_type=dtype)
    if data is not None:
        made.raw_data = data
    return made


def weight(name: str, array: np.ndarray) -> schema.Tensor:
    return tensor(name, array.shape, FLOAT, array.tobytes())


def value(name: str, shape: Sequence[int], dtype: int = FLOAT) -> schema.ValueInfo:
    return schema.ValueInfo(name=name, tensor=[tensor(name, shape, dtype)])


def attribute(name: str, content: Any) -> schema.Attribute:
    """An attribute from an int, a str, a tuple, or a tensor."""
    if isinstance(content, schema.Tensor):
        return schema.Attribute(name=name, type=TENSORS, tensors=[content])
    if isinstance(content, tuple):
        return schema.Attribute(name=name, type=TUPLE, values=[attribute("", item) for item in content])
    if isinstance(content, str):
        return schema.Attribute(name=name, type=STRING_KIND, s=content.encode())
    return schema.Attribute(name=name, type=INT, i=content, ints=[content])


def node(op: str, inputs: str, output: str, shape: Sequence[int] | None = (2, 3), **attributes: Any) -> schema.Node:
    """A node; names are separated by spaces, `shape` is its recorded result."""
    made = [attribute(name, content) for name, content in attributes.items()]
    if shape is not None:
        made.append(attribute("shape", tensor("", shape)))
    return schema.Node(input=inputs.split(), output=[output], name=output, op_type=op, attribute=made)


def constant(name: str, content: Any) -> schema.Node:
    return schema.Node(output=[name], op_type="Constant", attribute=[attribute("value", content)])


def function(name: str, nodes: Sequence[schema.Node], result: str, inputs: str = "") -> schema.Graph:
    infos = [value(item, (2, 3)) for item in inputs.split()]
    return schema.Graph(name=name, node=nodes, input=infos, output=[value(result, (2, 3))])


def mindir(change: Callable[[schema.Model], Any] | None = None) -> bytes:
    """`relu(x + w)` as a MindIR file, after a change to its message."""
    graph = schema.Graph(
        name="G",
        node=[node("REF::Add:1", "G:x G:w", "G:a:1"), node("REF::ReLU:2", "G:a:1", "G:r:2")],
        parameter=[weight("G:w", W)],
        input=[value("G:x", (2, 3))],
        output=[value("G:r:2", (2, 3))],
    )
    primitives = [
        schema.Primitive(name="Add:1", op_type="Add", prim_type=2),
        schema.Primitive(name="ReLU:2", op_type="ReLU", prim_type=2),
    ]
    model = schema.Model(ir_version="1.1", model_version="2.10.0", graph=graph, primitives=primitives)
    model.little_endian = True
    if change is not None:
        change(model)
    return model.SerializeToString()


def split(location: str = "m_variables/data_0", offset: int = 64, length: int = W.nbytes, count: int = 1) -> bytes:
    """The same network with its weight in a data file; `count` weights lie at the same place."""

    def change(model: schema.Model) -> None:
        first = model.graph.parameter[0]
        first.ClearField("raw_data")
        first.external_data.location, first.external_data.offset, first.external_data.length = location, offset, length
        for index in range(1, count):
            model.graph.parameter.add().CopyFrom(first)
            model.graph.parameter[-1].name = f"G:w{index}"

    return mindir(change)


def data_file(path: Path, content: bytes = W.tobytes()) -> None:
    """A MindIR data file: 64 bytes of head, then the weight, padded."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\1".ljust(64, b"\0") + content.ljust(64, b"\0"))


# ONNX ----------------------------------------------------------------------------------------------------------------


def info(name: str, shape: Sequence[Any] | None = (2, 3), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def op(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, `_` is an empty one."""
    names = [["" if name == "_" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, *names, **attributes)


def onnx_graph(change: Callable[[onnx.ModelProto], Any] | None = None) -> bytes:
    """`relu(x + w)` as an ONNX file, after a change to its message."""
    graph = helper.make_graph(
        [op("Add", "x w", "a"), op("Relu", "a", "r")],
        "test",
        [info("x")],
        [info("r")],
        [onnx.numpy_helper.from_array(W, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    if change is not None:
        change(model)
    return model.SerializeToString()


def external(target: onnx.TensorProto, location: str | None = "w.bin", **entries: Any) -> None:
    """Make a tensor refer to a data file."""
    for field in ("raw_data", "float_data", "external_data"):
        target.ClearField(field)
    target.data_location = onnx.TensorProto.EXTERNAL
    if location is not None:
        target.external_data.add(key="location", value=location)
    for key, content in entries.items():
        target.external_data.add(key=key, value=str(content))


def branch(nodes: Sequence[onnx.NodeProto], result: str, weights: Sequence[onnx.TensorProto] = ()) -> onnx.GraphProto:
    """An inner graph without inputs."""
    return helper.make_graph(list(nodes), "branch", [], [info(result)], list(weights))


def local_function(name: str, nodes: Sequence[onnx.NodeProto], domain: str = "own") -> onnx.FunctionProto:
    """A function of one input `p` and one output `q`."""
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_function(domain, name, ["p"], ["q"], list(nodes), imports)

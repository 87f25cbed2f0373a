"""A model as ONNX bytes without its large weights, which go to the engine by memory instead."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import EngineError
from litehouse.model import Model

INLINE_BYTES = 1024  # smaller ones stay in the graph, where shape inference and folding want them
BY_MEMORY = {
    ir.DataType.FLOAT,
    ir.DataType.FLOAT16,
    ir.DataType.DOUBLE,
    ir.DataType.INT8,
    ir.DataType.UINT8,
    ir.DataType.INT16,
    ir.DataType.UINT16,
    ir.DataType.INT32,
    ir.DataType.UINT32,
    ir.DataType.INT64,
    ir.DataType.UINT64,
    ir.DataType.BOOL,
    ir.DataType.BFLOAT16,
}
_serializing = threading.Lock()  # serialising takes the weights out of the shared graph for a moment


@dataclass(frozen=True, slots=True)
class Shell:
    """The graph as an ONNX protobuf message without its large weights, and those weights."""

    proto: Any
    weights: dict[str, np.ndarray]


def make_shell(model: Model, shapes: Sequence[Sequence[int]] | None = None) -> Shell:
    """Serialise a model without its large weights; `shapes` replaces the shapes of its inputs."""
    graph = model.graph.graph
    with _serializing:
        everything = dict(graph.initializers)
        large = {
            name: value.const_value
            for name, value in everything.items()
            if value.const_value is not None and _is_large(value.const_value)
        }
        states = {state.name for state in model.states}
        try:
            for name in {*large, *states}:
                del graph.initializers[name]
            proto = ir.serde.serialize_model(model.graph)
        except Exception as error:
            raise EngineError(f"{model.path}: the graph cannot be written as ONNX: {error}") from error
        finally:
            graph.initializers.clear()
            graph.initializers.update(everything)
    # Recorded shapes of intermediate values help nobody, and would contradict a resize.
    del proto.graph.value_info[:]
    if shapes is not None:
        _set_shapes(proto, shapes)
    return Shell(proto, {name: tensor.numpy() for name, tensor in large.items() if name not in states})


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.nbytes >= INLINE_BYTES and tensor.dtype in BY_MEMORY


def _set_shapes(proto: Any, shapes: Sequence[Sequence[int]]) -> None:
    for value, shape in zip(proto.graph.input, shapes, strict=False):  # states behind the inputs keep theirs
        dims = value.type.tensor_type.shape
        del dims.dim[:]
        for size in shape:
            dims.dim.add().dim_value = size
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")

"""A model as ONNX bytes without its large weights, which go to the engine by memory instead."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import EngineError
from litehouse.model import Model
from litehouse.passes import speed_up
from litehouse.passes.set_precision import SetPrecisionPass
from litehouse.passes.split_batch import SplitBatchPass

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
MAX_COPIED_NODES = 20_000  # copying takes about 50 µs a node, and graphs beyond this are no light networks
_serializing = threading.Lock()  # serialising takes the weights out of the shared graph for a moment


def _renew_lock() -> None:
    """A process that was forked while another thread held the lock would wait for it forever."""
    global _serializing
    _serializing = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True, slots=True)
class Shell:
    """The graph as an ONNX protobuf message without its large weights, and those weights.

    Attributes:
        proto: The message.
        weights: The weights.
        is_rewritten: Whether passes changed the graph to make it faster.
    """

    proto: Any
    weights: dict[str, np.ndarray]
    is_rewritten: bool


def make_shell(
    model: Model,
    engine: str = "",
    shapes: Sequence[Sequence[int]] | None = None,
    op_precision: Mapping[str, str] | None = None,
    parts: int = 1,
) -> Shell:
    """Serialise a model without its large weights.

    Args:
        model: The model; it stays as it is.
        engine: The engine to make the graph faster for; none for the graph as it is.
        shapes: What replaces the shapes of its inputs.
        op_precision: What single ops compute in, as in `Options`.
        parts: Make it for one of so many equal parts of its batch.
    """
    halved = halved_ops(op_precision or {})
    try:
        whole, is_rewritten = _prepared(model, engine, shapes, halved, parts)
        proto, weights = _take_apart(whole, {*(state.name for state in model.states), *model.live})
    except Exception as error:
        raise EngineError(f"{model.path}: the graph cannot be written as ONNX: {error}") from error
    # Recorded shapes of intermediate values help nobody, and would contradict a resize.
    del proto.graph.value_info[:]
    if shapes is not None:
        _set_shapes(proto, shapes)
    return Shell(proto, weights, is_rewritten)


def _prepared(
    model: Model, engine: str, shapes: Sequence[Sequence[int]] | None, halved: set[str], parts: int
) -> tuple[ir.Model, bool]:
    """The graph as the engine is to get it, a copy where anything changes; and whether it was made faster."""
    whole = model.graph
    is_small = len(whole.graph) <= MAX_COPIED_NODES
    if not halved and not model.live and parts == 1 and not (engine and is_small):
        return whole, False
    copy = prepared(model, shapes, parts, halved)
    return copy, bool(engine and is_small and speed_up(copy, engine))


def prepared(
    model: Model, shapes: Sequence[Sequence[int]] | None, parts: int, halved: Collection[str] = ()
) -> ir.Model:
    """A copy of the graph, with its live weights among its inputs.

    Args:
        model: The model; it stays as it is.
        shapes: What replaces the shapes of its inputs.
        parts: Make it for one of so many equal parts of its batch.
        halved: The ops that compute in half precision.
    """
    copy = clone(model.graph)
    for name in model.live:
        value = copy.graph.initializers.pop(name, None) or _unused(model, name)
        value.const_value = None
        copy.graph.inputs.append(value)
    if halved:
        _halve(copy, halved, model.path)
    if shapes is not None:
        _replace_shapes(copy.graph, shapes)
    if parts > 1:
        SplitBatchPass(parts)(copy)
    return copy


def halved_ops(op_precision: Mapping[str, str]) -> set[str]:
    """The ops that are to compute in half precision, of what `Options` say of single ops."""
    return {name for name, precision in op_precision.items() if precision == "float16"}


def clone(whole: ir.Model) -> ir.Model:
    """A copy of a graph that other threads may be serialising."""
    with _serializing:
        return whole.clone()


def _unused(model: Model, name: str) -> ir.Value:
    """A weight that nothing in the graph uses."""
    tensor = ir.Tensor(model.weights[name], name=name)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape)


def _halve(whole: ir.Model, names: Collection[str], path: str) -> None:
    setting = SetPrecisionPass(names)
    setting(whole)
    for name in sorted(setting.missed):
        _warn_of_unknown(path, name)


@functools.cache
def _warn_of_unknown(path: str, name: str) -> None:
    """Say once that a setting has no effect: a model is compiled several times."""
    logging.getLogger(__name__).warning("%s: there is no op %r whose precision can be set", path, name)


def _take_apart(whole: ir.Model, fed: set[str]) -> tuple[Any, dict[str, np.ndarray]]:
    """The graph as a protobuf message without large weights and those that are fed to it, and the large ones."""
    graph = whole.graph
    with _serializing:
        everything = dict(graph.initializers)
        large = {
            name: value.const_value
            for name, value in everything.items()
            if value.const_value is not None and _is_large(value.const_value)
        }
        try:
            for name in {*large, *fed} & everything.keys():
                del graph.initializers[name]
            proto = ir.serde.serialize_model(whole)
        finally:
            graph.initializers.clear()
            graph.initializers.update(everything)
    return proto, {name: tensor.numpy() for name, tensor in large.items() if name not in fed}


def _replace_shapes(graph: ir.Graph, shapes: Sequence[Sequence[int]]) -> None:
    """Set the shapes of the inputs, and drop what was inferred from others."""
    for node in graph.all_nodes():
        for value in node.outputs:
            value.shape = None
    for value, shape in zip(graph.inputs, shapes, strict=False):  # what is fed behind the inputs keeps its own
        value.shape = ir.Shape(shape)


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.nbytes >= INLINE_BYTES and tensor.dtype in BY_MEMORY


def _set_shapes(proto: Any, shapes: Sequence[Sequence[int]]) -> None:
    for value, shape in zip(proto.graph.input, shapes, strict=False):  # what is fed behind the inputs keeps its own
        dims = value.type.tensor_type.shape
        del dims.dim[:]
        for size in shape:
            dims.dim.add().dim_value = size
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")

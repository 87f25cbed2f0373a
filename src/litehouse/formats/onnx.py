"""Reads an ONNX file, with weights inside it or in files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common
from google.protobuf.message import DecodeError

from litehouse.errors import LimitError, ModelFormatError, UnsupportedOpError
from litehouse.formats.source import Source, open_beside
from litehouse.formats.wire import Blob, cut
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits
from litehouse.weights import Weights, WeightsBuilder

GRAPH_FIELD, INITIALIZER_FIELD, RAW_DATA_FIELD = 7, 5, 9
ENGINE_DOMAINS = ("com.microsoft", "ai.onnx.ml", "org.openvinotoolkit")
UNKNOWN_RANK = ("...",)


def read_onnx(source: Source, limits: Limits) -> Model:
    """Read an ONNX file.

    Raises:
        ModelFormatError: The file is broken.
        UnsupportedOpError: It uses ops of a domain that no engine has.
    """
    path = source.path
    rest, blobs = cut(source, GRAPH_FIELD, INITIALIZER_FIELD, RAW_DATA_FIELD)
    try:
        proto = onnx.ModelProto.FromString(rest)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ModelFormatError(f"not a readable ONNX file ({error}); it is cut off or damaged", path=path) from error
    if len(blobs) != len(proto.graph.initializer) or not proto.HasField("graph"):
        raise ModelFormatError("the file has no graph, or two; it is damaged", path=path)
    _check_graph(proto, limits, path)
    for tensor in _inner_tensors(proto.graph):
        _bring_inside(tensor, path, limits)
    weights = _read_weights(proto, blobs, source, limits)
    try:
        graph = ir.serde.deserialize_model(proto)
    except Exception as error:  # noqa: BLE001  (the deserializer raises many types on malformed messages)
        raise ModelFormatError(f"not a valid ONNX graph ({error}); it is damaged", path=path) from error
    for name, array in weights.items():
        value = graph.graph.initializers[name]
        value.const_value = ir.Tensor(array, dtype=value.dtype, name=name)
    if graph.functions:
        common.InlinePass()(graph)
    common.RemoveInitializersFromInputsPass()(graph)
    return Model(
        graph=graph,
        weights=weights,
        inputs=tuple(_input_info(value, path) for value in graph.graph.inputs),
        outputs=_output_infos(graph, proto, path),
        format="onnx",
        path=path,
        metadata=_metadata(proto),
        source_ops=_count_ops(graph),
    )


def _metadata(proto: Any) -> dict[str, str]:
    facts = {
        "producer": proto.producer_name,
        "producer_version": proto.producer_version,
        "ir_version": str(proto.ir_version),
    }
    facts |= {f"opset.{item.domain or 'ai.onnx'}": str(item.version) for item in proto.opset_import}
    facts |= {f"user_info.{item.key}": item.value for item in proto.metadata_props}
    return {name: text for name, text in facts.items() if text}


def _count_ops(model: ir.Model) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in model.graph.all_nodes():
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_graph(proto: Any, limits: Limits, path: str) -> None:
    """Names must be defined once, before they are used; ops must be of a known domain."""
    own = {(function.domain, function.name) for function in proto.functions}
    unsupported: list[tuple[str, str]] = []
    count = _check_scope(proto.graph, set(), limits.max_depth, path, unsupported, own)
    if count > limits.max_nodes:
        raise LimitError(f"{count} nodes are more than max_nodes={limits.max_nodes}", path=path)
    if unsupported:
        raise UnsupportedOpError(unsupported, format="onnx", path=path)
    if proto.graph.sparse_initializer:
        raise ModelFormatError("sparse weights are not supported; save the model with dense ones", path=path)


def _check_scope(
    graph: Any, outer: set[str], depth: int, path: str, unsupported: list[tuple[str, str]], own: set[tuple[str, str]]
) -> int:
    if depth == 0:
        raise LimitError("graphs are nested too deeply; the file is damaged", path=path)
    known = outer | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    defined = {value.name for value in graph.input}
    count = 0
    for node in graph.node:
        count += 1
        label = node.name or (node.output[0] if node.output else node.op_type)
        if not _is_known_op(node, own):
            unsupported.append((f"{node.domain}::{node.op_type}" if node.domain else node.op_type, label))
        for name in node.input:
            if name and name not in known:
                raise ModelFormatError(
                    f"node {label!r} uses {name!r}, which nothing before it defines; the file is damaged", path=path
                )
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                count += _check_scope(inner, known, depth - 1, path, unsupported, own)
        for name in node.output:
            if name and name in defined:
                raise ModelFormatError(f"two nodes define {name!r}; the file is damaged", path=path)
            defined.add(name)
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise ModelFormatError(f"output {value.name!r} is not defined; the file is damaged", path=path)
    return count


def _is_known_op(node: Any, own: set[tuple[str, str]]) -> bool:
    if node.domain in ENGINE_DOMAINS or (node.domain, node.op_type) in own:
        return True
    return node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type)


# Weights --------------------------------------------------------------------------------------------------------------


def _inner_tensors(graph: Any) -> Iterator[Any]:
    """The tensors in attributes and inner graphs; not the weights of the main graph."""
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from inner.initializer
                yield from _inner_tensors(inner)


def _bring_inside(tensor: Any, path: str, limits: Limits) -> None:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    location, blob = _external(tensor, path)
    expected = _nbytes(tensor, path, limits)
    with open_beside(path, location, limits) as data:
        place = Blob(blob.offset, blob.length or expected)
        _check_place(tensor, place, expected, data.size, path)
        tensor.raw_data = data.read(place.offset, place.length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _external(tensor: Any, path: str) -> tuple[str, Blob]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        return entries.get("location", ""), Blob(int(entries.get("offset", 0)), int(entries.get("length", 0)))
    except ValueError:
        raise ModelFormatError(
            f"tensor {tensor.name!r} has a broken external data entry; the file is damaged", path=path
        ) from None


def _nbytes(tensor: Any, path: str, limits: Limits) -> int:
    """The bytes that a tensor declares, checked against the limits."""
    if len(tensor.dims) > 64 or any(size < 0 for size in tensor.dims):
        raise ModelFormatError(f"tensor {tensor.name!r} has an impossible shape; the file is damaged", path=path)
    try:
        dtype = ir.DataType(tensor.data_type)
        bits = dtype.bitwidth
    except (ValueError, TypeError):
        raise ModelFormatError(
            f"tensor {tensor.name!r} has the unknown dtype number {tensor.data_type}", path=path
        ) from None
    size = -(-bits * int(np.prod(tensor.dims, dtype=object)) // 8)
    if size > limits.max_tensor_bytes:
        raise LimitError(
            f"tensor {tensor.name!r} declares {size} bytes, more than max_tensor_bytes={limits.max_tensor_bytes}",
            path=path,
        )
    return size


def _check_place(tensor: Any, place: Blob, expected: int, available: int, path: str) -> None:
    if place.length != expected:
        raise ModelFormatError(
            f"tensor {tensor.name!r} of shape {list(tensor.dims)} has {place.length} bytes, not {expected}; the file is damaged",
            path=path,
        )
    if place.offset < 0 or place.offset + place.length > available:
        raise ModelFormatError(
            f"tensor {tensor.name!r} lies behind the end of its data ({available} bytes); the file is cut off or damaged",
            path=path,
        )


def _read_weights(proto: Any, blobs: list[Blob | None], source: Source, limits: Limits) -> Weights:
    """The weights of the main graph in one arena. Those with typed fields or sub-byte dtypes stay in the graph."""
    path = source.path
    builder = WeightsBuilder()
    jobs: list[tuple[str, str, Blob]] = []
    opened: dict[str, Source] = {"": source}
    try:
        for tensor, blob in zip(proto.graph.initializer, blobs, strict=True):
            location = ""
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                location, blob = _external(tensor, path)
            if blob is None:
                continue
            expected = _nbytes(tensor, path, limits)
            if location and location not in opened:
                opened[location] = open_beside(path, location, limits)
            place = Blob(blob.offset, blob.length or (expected if location else 0))
            _check_place(tensor, place, expected, opened[location].size, path)
            dtype = ir.DataType(tensor.data_type)
            if dtype.bitwidth < 8 or dtype == ir.DataType.STRING:
                tensor.raw_data = opened[location].read(place.offset, place.length)
                tensor.data_location = onnx.TensorProto.DEFAULT
                continue
            builder.reserve(tensor.name, np.dtype(dtype.numpy()), tuple(tensor.dims))
            jobs.append((tensor.name, location, place))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        weights = builder.build()
        for name, location, place in jobs:
            opened[location].read_into(place.offset, weights[name])
    finally:
        for location, data in opened.items():
            if location:
                data.close()
    return weights


# Signature ------------------------------------------------------------------------------------------------------------


def _input_info(value: ir.Value, path: str) -> TensorInfo:
    if value.dtype is None or value.shape is None or not isinstance(value.type, ir.TensorType):
        raise ModelFormatError(
            f"input {value.name!r} is not a tensor of known rank; only those are supported", path=path
        )
    return _info(value)


def _info(value: ir.Value) -> TensorInfo:
    assert value.name is not None and value.dtype is not None
    shape = (
        UNKNOWN_RANK
        if value.shape is None
        else tuple(size if isinstance(size, int) else size.value for size in value.shape)
    )
    return TensorInfo(value.name, np.dtype(value.dtype.numpy()), shape)


def _output_infos(graph: ir.Model, proto: Any, path: str) -> tuple[TensorInfo, ...]:
    if any(value.shape is None or value.dtype is None for value in graph.graph.outputs):
        inferred = onnx.shape_inference.infer_shapes(proto)
        found = {value.name: value for value in inferred.graph.output}
        for value in graph.graph.outputs:
            type_ = found[value.name].type.tensor_type if value.name in found else None
            if type_ is None or not type_.elem_type:
                raise ModelFormatError(
                    f"output {value.name!r} is not a tensor of known dtype; only those are supported", path=path
                )
            value.dtype = ir.DataType(type_.elem_type)
            if type_.HasField("shape"):
                value.shape = ir.Shape(
                    [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in type_.shape.dim]
                )
    return tuple(_info(value) for value in graph.graph.outputs)

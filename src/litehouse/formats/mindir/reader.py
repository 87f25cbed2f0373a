"""Reads a MindIR file: container, weights, then the translation of its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from google.protobuf.message import DecodeError

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.mindir.crypto import decrypt
from litehouse.formats.mindir.literals import checked_shape, dtype_of, numpy_dtype
from litehouse.formats.mindir.schema_pb2 import Model as ModelProto
from litehouse.formats.mindir.schema_pb2 import Tensor
from litehouse.formats.mindir.translate import Translator
from litehouse.formats.source import Source, open_beside
from litehouse.formats.wire import Blob, cut
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits
from litehouse.weights import Weights, WeightsBuilder

GRAPH_FIELD, PARAMETER_FIELD, RAW_DATA_FIELD = 7, 3, 9
IR_VERSION = 10


def read_mindir(source: Source, limits: Limits, *, key: bytes | None = None, mode: str = "AES-GCM") -> Model:
    """Read a MindIR file, decrypted with `key` where it is encrypted.

    Raises:
        ModelFormatError: The file is broken or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
    """
    path = source.path
    if key is not None or source.read(0, 1) != b"\x0a":
        source = Source.over(decrypt(source.read(0, source.size), key, mode, path), path)
    proto, blobs = _parse(source)
    _check(proto, limits, path)
    weights = _read_weights(proto, blobs, source, limits, key, mode)
    translator = Translator(proto, weights, limits, path)
    graph = translator.run()
    return Model(
        graph=ir.Model(graph, ir_version=IR_VERSION, producer_name="litehouse"),
        weights=weights,
        inputs=tuple(_info(value) for value in graph.inputs),
        outputs=tuple(_info(value) for value in graph.outputs),
        format="mindir",
        path=path,
        metadata=_metadata(proto),
        source_ops=translator.source_ops,
        fixed_nodes=tuple(translator.tape.fixed),
    )


def _parse(source: Source) -> tuple[ModelProto, list[Blob | None]]:
    rest, blobs = cut(source, GRAPH_FIELD, PARAMETER_FIELD, RAW_DATA_FIELD)
    try:
        proto = ModelProto.FromString(rest)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ModelFormatError(
            f"not a readable MindIR file ({error}); it is cut off or damaged", path=source.path
        ) from error
    if not proto.HasField("graph"):
        raise ModelFormatError("the file has no graph; it is cut off, or not a network", path=source.path)
    if len(blobs) != len(proto.graph.parameter):
        raise ModelFormatError("the file has two main graphs; it is damaged", path=source.path)
    return proto, blobs


def _check(proto: ModelProto, limits: Limits, path: str) -> None:
    if proto.HasField("little_endian") and not proto.little_endian:
        raise ModelFormatError(
            "the file was written on a big-endian machine; export it again on a little-endian one", path=path
        )
    count = len(proto.graph.node) + sum(len(function.node) for function in proto.functions)
    if count > limits.max_nodes:
        raise LimitError(
            f"{count} nodes are more than max_nodes={limits.max_nodes}; raise the limit if you trust the file",
            path=path,
        )
    if proto.graph.map_parameter:
        raise ModelFormatError("hash-table parameters are not supported; export the network without them", path=path)


def _metadata(proto: ModelProto) -> dict[str, str]:
    facts = {
        "producer": proto.producer_name,
        "producer_version": proto.model_version,
        "ir_version": proto.ir_version,
        **{f"user_info.{name}": text for name, text in sorted(proto.user_info.items())},
    }
    return {name: text for name, text in facts.items() if text}


def _info(value: ir.Value) -> TensorInfo:
    assert value.name is not None and value.dtype is not None and value.shape is not None
    shape = tuple(size if isinstance(size, int) else size.value for size in value.shape)
    return TensorInfo(value.name, numpy_dtype(value.dtype), shape)


# Weights --------------------------------------------------------------------------------------------------------------


def public_name(name: str) -> str:
    """A parameter's or input's name as the user knows it: without its graph's name."""
    return name.partition(":")[2] or name


def _read_weights(
    proto: ModelProto, blobs: list[Blob | None], source: Source, limits: Limits, key: bytes | None, mode: str
) -> Weights:
    """All weights in one arena, read from where they lie without another copy."""
    places = [
        _place(tensor, blob, source.path, limits) for tensor, blob in zip(proto.graph.parameter, blobs, strict=True)
    ]
    builder = WeightsBuilder()
    for tensor in proto.graph.parameter:
        dtype = numpy_dtype(dtype_of(tensor.data_type, source.path))
        builder.reserve(public_name(tensor.name), dtype, checked_shape(tensor, source.path))
    opened: dict[str, Source] = {"": source}
    try:
        for tensor, place in zip(proto.graph.parameter, places, strict=True):
            location = tensor.external_data.location if place is not None and tensor.HasField("external_data") else ""
            if location not in opened:
                opened[location] = _open_data(source.path, location, limits, key, mode)
            if place is not None:
                _check_end(opened[location], place, tensor)
        weights = builder.build()
        for tensor, place in zip(proto.graph.parameter, places, strict=True):
            if place is not None:
                location = tensor.external_data.location if tensor.HasField("external_data") else ""
                opened[location].read_into(place.offset, weights[public_name(tensor.name)])
    finally:
        for location, data in opened.items():
            if location:
                data.close()
    return weights


def _place(tensor: Tensor, blob: Blob | None, path: str, limits: Limits) -> Blob | None:
    """Where a weight's bytes lie, checked against its shape; None for a weight of no bytes."""
    if tensor.compression_type:
        raise ModelFormatError(
            f"weight {tensor.name!r} is compressed, which is not supported; export without it", path=path
        )
    shape = checked_shape(tensor, path)
    expected = numpy_dtype(dtype_of(tensor.data_type, path)).itemsize * int(np.prod(shape, dtype=object))
    if expected > limits.max_tensor_bytes:
        raise LimitError(
            f"weight {tensor.name!r} declares {expected} bytes, more than max_tensor_bytes={limits.max_tensor_bytes}",
            path=path,
        )
    if tensor.HasField("external_data"):
        blob = Blob(tensor.external_data.offset, tensor.external_data.length)
    if blob is None:
        if expected:
            raise ModelFormatError(
                f"weight {tensor.name!r} has no data; export the network again with its weights", path=path
            )
        return None
    if blob.length != expected:
        raise ModelFormatError(
            f"weight {tensor.name!r} of shape {list(shape)} has {blob.length} bytes, not {expected}; the file is damaged",
            path=path,
        )
    return blob


def _check_end(data: Source, place: Blob, tensor: Tensor) -> None:
    if place.offset < 0 or place.offset + place.length > data.size:
        raise ModelFormatError(
            f"weight {tensor.name!r} lies at bytes {place.offset} to {place.offset + place.length} of a file of {data.size} bytes; "
            "the file is cut off or damaged",
            path=data.path,
        )


def _open_data(path: str, location: str, limits: Limits, key: bytes | None, mode: str) -> Source:
    data = open_beside(path, location, limits)
    if key is None:
        return data
    with data:
        return Source.over(decrypt(data.read(0, data.size), key, mode, data.path), data.path)


__all__: list[Any] = ["public_name", "read_mindir"]

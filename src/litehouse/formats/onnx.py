"""Reads an ONNX file, with weights inside it or in files beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.loader import MAX_RANK, Place, WeightLoader, check_shape
from litehouse.formats.onnx_check import check, tensors
from litehouse.formats.source import Source
from litehouse.formats.wire import MAX_STRUCTURE, Blob, cut, parse
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits
from litehouse.weights import Weights

GRAPH_FIELD, INITIALIZER_FIELD, RAW_DATA_FIELD = 7, 5, 9
SMALL_BYTES = 1024  # weights up to this size stay in the message too, where shape inference reads them
UNKNOWN_RANK = ("...",)

EXTERNAL = onnx.TensorProto.EXTERNAL
TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def read_onnx(source: Source, limits: Limits, updatable: Sequence[str] = ()) -> Model:
    """Read an ONNX file.

    Raises:
        ModelFormatError: The file is broken.
        UnsupportedOpError: It uses ops of a domain that no engine has.
    """
    path = source.path
    rest, blobs = cut(source, GRAPH_FIELD, INITIALIZER_FIELD, RAW_DATA_FIELD)
    proto = parse(onnx.ModelProto, rest, path)
    proto.ClearField("training_info")
    check(proto, limits, path)
    weights = _read_weights(proto, blobs, WeightLoader(source, limits), path)
    try:
        if proto.functions:
            proto = onnx.inliner.inline_local_functions(proto)
        _infer_outputs(proto)
        graph = ir.serde.deserialize_model(proto)
        for name, array in weights.items():
            value = graph.graph.initializers[name]
            value.const_value = ir.Tensor(array, dtype=value.dtype, name=name)
        common.RemoveInitializersFromInputsPass()(graph)
    except Exception as error:
        # These libraries raise many types on messages that are malformed in ways too many to foresee.
        raise ModelFormatError(f"not a valid ONNX graph ({error}); the file is damaged", path=path) from error
    return Model(
        graph=graph,
        weights=weights,
        inputs=tuple(_info(value, "input", path) for value in graph.graph.inputs),
        outputs=tuple(_info(value, "output", path) for value in graph.graph.outputs),
        format="onnx",
        path=path,
        metadata=_metadata(proto),
        source_ops=_count_ops(graph),
        updatable=weights.like(updatable),
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


# Weights --------------------------------------------------------------------------------------------------------------


def _read_weights(proto: Any, blobs: list[Blob | None], loader: WeightLoader, path: str) -> Weights:
    """The weights of the main graph in one arena. Text, elements below a byte, and other tensors stay in place."""
    small = []
    for tensor, blob in zip(proto.graph.initializer, blobs, strict=True):
        dtype = _dtype(tensor, path)
        place = _place(tensor, blob, path)
        if _bits(dtype) < 8:
            _settle(tensor, place, loader, path)
            continue
        numpy = np.dtype(dtype.numpy())
        loader.add(tensor.name, numpy, tensor.dims, place or _typed(tensor, path))
        _forget(tensor)
        if math.prod(tensor.dims) * numpy.itemsize <= SMALL_BYTES:
            small.append(tensor)
    for part in (*proto.graph.node, *proto.functions):
        for tensor in tensors(part):
            _settle(tensor, _place(tensor, None, path), loader, path)
    if proto.ByteSize() > MAX_STRUCTURE:
        raise LimitError("the graph without its weights is over 2 GB; protobuf cannot hold it", path=path)
    weights = loader.load()
    for tensor in small:
        tensor.raw_data = weights[tensor.name].tobytes()
    return weights


def _dtype(tensor: Any, path: str) -> ir.DataType:
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        dtype = ir.DataType.UNDEFINED
    if dtype == ir.DataType.UNDEFINED:
        raise ModelFormatError(
            f"tensor {tensor.name!r} has the unknown dtype number {tensor.data_type}; "
            "the file is damaged, or newer than this version",
            path=path,
        )
    return dtype


def _bits(dtype: ir.DataType) -> int:
    return 0 if dtype == ir.DataType.STRING else dtype.bitwidth


def _place(tensor: Any, blob: Blob | None, path: str) -> Place | None:
    """Where a tensor's bytes lie; None where they are in the message."""
    if tensor.data_location != EXTERNAL:
        return None if blob is None else Place(blob.offset, blob.length)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        length = int(entries["length"]) if "length" in entries else None
        return Place(int(entries.get("offset", 0)), length, entries.get("location", ""))
    except ValueError:
        raise ModelFormatError(
            f"tensor {tensor.name!r} has a broken external data entry; the file is damaged", path=path
        ) from None


def _settle(tensor: Any, place: Place | None, loader: WeightLoader, path: str) -> None:
    """Bring the data of a tensor that stays in the message inside it, and check it."""
    bits = _bits(_dtype(tensor, path))
    if bits and place is None and tensor.HasField("raw_data"):
        expected = -(-bits * math.prod(check_shape(tensor.name, tensor.dims, path)) // 8)
        if len(tensor.raw_data) != expected:
            raise ModelFormatError(
                f"tensor {tensor.name!r} of shape {list(tensor.dims)} has {len(tensor.raw_data)} bytes, "
                f"not {expected}; the file is damaged",
                path=path,
            )
    elif bits and place is not None:
        data = loader.fetch(tensor.name, bits, tensor.dims, place)
        _forget(tensor)
        tensor.raw_data = data
    elif place is not None or tensor.HasField("raw_data"):
        raise ModelFormatError(f"tensor {tensor.name!r} keeps text as bytes; the file is damaged", path=path)
    else:
        _typed(tensor, path)


def _typed(tensor: Any, path: str) -> np.ndarray:
    """The array of a tensor that is stored as a list of numbers or texts."""
    dtype = _dtype(tensor, path)
    count = math.prod(check_shape(tensor.name, tensor.dims, path))
    stored = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        count *= 2
    elif _bits(dtype) in (2, 4):
        count = -(-count * _bits(dtype) // 8)
    if stored != count:
        raise ModelFormatError(
            f"tensor {tensor.name!r} of shape {list(tensor.dims)} has {stored} numbers, not {count}; "
            "the file lacks data or is damaged",
            path=path,
        )
    try:
        array: np.ndarray = ir.serde.TensorProtoTensor(tensor).numpy()
    except (AssertionError, OverflowError, TypeError, ValueError) as error:
        raise ModelFormatError(
            f"tensor {tensor.name!r} has numbers that do not fit {dtype} ({error}); the file is damaged", path=path
        ) from error
    return array


def _forget(tensor: Any) -> None:
    """Drop the data of a tensor from the message."""
    for field in (*TYPED_FIELDS, "raw_data", "external_data", "data_location"):
        tensor.ClearField(field)


# Signature ------------------------------------------------------------------------------------------------------------


def _infer_outputs(proto: Any) -> None:
    """Fill in the types of outputs that the file leaves open."""
    outputs = [value for value in proto.graph.output if not _is_typed(value)]
    if not outputs:
        return
    try:
        inferred = onnx.shape_inference.infer_shapes(proto)
    except onnx.shape_inference.InferenceError:
        return
    found = {value.name: value.type for value in inferred.graph.output}
    for value in outputs:
        value.type.CopyFrom(found[value.name])


def _is_typed(value: Any) -> bool:
    return bool(value.type.tensor_type.elem_type) and value.type.tensor_type.HasField("shape")


def _info(value: ir.Value, what: str, path: str) -> TensorInfo:
    """Name, dtype and shape of an input or output; an output may be of unknown rank."""
    if not isinstance(value.type, ir.TensorType) or value.dtype in (None, ir.DataType.UNDEFINED):
        raise ModelFormatError(
            f"{what} {value.name!r} is not a tensor of known dtype; only those are supported", path=path
        )
    if (value.shape is None and what == "input") or (value.shape is not None and len(value.shape) > MAX_RANK):
        raise ModelFormatError(f"{what} {value.name!r} has no sane rank; export with a fixed one", path=path)
    shape: tuple[Any, ...] = UNKNOWN_RANK
    if value.shape is not None:
        # A negative size is how some writers say that a dimension is dynamic.
        sizes = [size if isinstance(size, int) else size.value for size in value.shape]
        shape = tuple(None if isinstance(size, int) and size < 0 else size for size in sizes)
        value.shape = ir.Shape(shape)
    assert value.name is not None
    return TensorInfo(value.name, np.dtype(value.type.dtype.numpy()), shape)

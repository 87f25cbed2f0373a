"""The weights of a `.ms` file: read into the arena, and made plain numbers in the graph where they are quantised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import ModelFormatError
from litehouse.formats.loader import Place, WeightLoader, check_shape
from litehouse.formats.mindir.literals import TensorType, numpy_dtype
from litehouse.formats.mindir.ops.quantized import quant_dtype_cast, quantized_axis
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.ms.meta import BIT_PACKED, INT8, INT16, MetaGraph, NodeRecord, TensorRecord, dtype_of
from litehouse.formats.names import unique
from litehouse.formats.source import Source
from litehouse.weights import Weights

INDEX_OFFSET = 128  # indices into clusters are stored as signed bytes
CHUNK = 1 << 20  # numbers to unpack at once; a multiple of 8, so that a chunk ends at a whole byte


def load_weights(meta: MetaGraph, source: Source, loader: WeightLoader) -> tuple[Weights, dict[int, str]]:
    """All weights, and the names that the tensors which have data got in them."""
    ends = {index for graph in meta.graphs for index in (*graph.inputs, *graph.outputs)}
    taken = {meta.tensors[index].name for index in ends}
    indices = [index for index, tensor in enumerate(meta.tensors) if tensor.place is not None]
    wanted = [meta.tensors[index].name or f"weight_{index}" for index in indices]
    names = dict(zip(indices, unique(wanted, taken), strict=True))
    for index, name in names.items():
        tensor = meta.tensors[index]
        place = tensor.place
        assert place is not None
        dtype = numpy_dtype(dtype_of(tensor, source.path))
        shape = tensor.shape or ()
        if _is_packed(tensor):
            _check_packed(tensor, place, source.path)
            loader.add(name, dtype, shape, np.broadcast_to(dtype.type(0), shape))
        else:
            loader.add(name, dtype, shape, place)
    weights = loader.load()
    for index, name in names.items():
        if _is_packed(meta.tensors[index]):
            _unpack(meta.tensors[index], source, weights[name])
    return weights, names


# Packed bits ----------------------------------------------------------------------------------------------------------


def _is_packed(tensor: TensorRecord) -> bool:
    """Whether numbers take less bits than their dtype has. Older files do not say so, but their bits do."""
    if not tensor.quantisation or tensor.type_id not in (INT8, INT16):
        return False
    return tensor.compression == BIT_PACKED or tensor.quantisation[0].bits not in (8, 16)


def _check_packed(tensor: TensorRecord, place: Place, path: str) -> None:
    bits, width = tensor.quantisation[0].bits, 8 if tensor.type_id == INT8 else 16
    count = math.prod(check_shape(tensor.name, tensor.shape or (), path))
    bytes_needed = -(-count * bits // width) * width // 8
    if not 0 < bits < width or place.location is not None or place.length != bytes_needed:
        raise ModelFormatError(
            f"weight {tensor.name!r} of shape {list(tensor.shape or ())} in {bits} bits has {place.length} bytes, "
            f"not {bytes_needed}; the file is damaged",
            path=path,
        )


def _unpack(tensor: TensorRecord, source: Source, target: np.ndarray) -> None:
    """Numbers of a few bits, one behind the other from the lowest bit on, stored with half their range added."""
    assert tensor.place is not None
    bits = tensor.quantisation[0].bits
    flat = target.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        raw = source.read(tensor.place.offset + start * bits // 8, -(-part.size * bits // 8))
        stream = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little", count=part.size * bits)
        numbers = stream.reshape(-1, bits) @ (1 << np.arange(bits)) - (1 << bits - 1)
        part[...] = numbers


# Quantised weights as plain numbers -----------------------------------------------------------------------------------


def plain(tape: MindirTape, value: ir.Value, tensor: TensorRecord, axis: int) -> ir.Value:
    """The real numbers of a quantised weight; `axis` is the one along which each channel has its own scale."""
    if tensor.clusters:
        return _from_clusters(tape, value, tensor)
    items, shape = tensor.quantisation, tensor.shape or ()
    # One scale for all channels comes without corrections: MindSpore Lite ignores them then.
    corrections: dict[str, Any] = {}
    if len(items) > 1:
        if not 0 <= axis < len(shape) or shape[axis] != len(items):
            tape.refuse(f"weight {tensor.name!r} of shape {list(shape)} is quantised in {len(items)} channels")
        corrections["var_corr_list"] = [item.variance for item in items]
        corrections["mean_corr_list"] = [item.mean for item in items]
    tape.expected = TensorType(ir.DataType.FLOAT, shape)
    made: ir.Value = quant_dtype_cast(
        tape,
        value,
        scale_list=[item.scale for item in items],
        zero_point_list=[item.zero_point for item in items],
        channel_axis=axis,
        **corrections,
    )
    return made


def channel_axis(node: NodeRecord, operand: int, tensor: TensorRecord) -> int:
    """The axis along which each channel of a node's weight has its own scale."""
    shape = tensor.shape or ()
    axis = quantized_axis(node.op, operand, len(shape), node.attributes, kernel_last=True)
    # Versions before 1.8 took the first axis for transposed convolutions.
    fits = 0 <= axis < len(shape) and shape[axis] == len(tensor.quantisation)
    return axis if fits or node.op != "Conv2dTransposeFusion" else 0


def _from_clusters(tape: MindirTape, value: ir.Value, tensor: TensorRecord) -> ir.Value:
    places = tape.cast(value, ir.DataType.INT32)
    places = tape.op("Add", [places, tape.constant(INDEX_OFFSET, ir.DataType.INT32)], like=places)
    numbers = tape.constant(tensor.clusters, ir.DataType.FLOAT)
    made: ir.Value = tape.op("Gather", [numbers, places], like=places, dtype=ir.DataType.FLOAT)
    return made

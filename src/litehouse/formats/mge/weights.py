"""The tensors that a MegEngine file holds: weights, small constants, and default values of inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from litehouse.errors import ModelFormatError
from litehouse.formats.loader import WeightLoader
from litehouse.formats.mge.compressed import compressed_sizes, decompress
from litehouse.formats.mge.records import GraphRecord, TensorRecord
from litehouse.formats.names import unique
from litehouse.formats.source import Source
from litehouse.weights import Weights

INPUT = "Host2DeviceCopy"
LARGEST_MATRIX = 9  # elements of a matrix that maps coordinates
NAMELESS = "const"  # how MegEngine calls literals of the traced function
LARGEST_CONSTANT = 64  # elements; a larger integer tensor is no shape, axis list or the like


@dataclass(frozen=True, slots=True)
class Tensors:
    """All tensors with data.

    Attributes:
        weights: The weights.
        names: Their names in it, by variable.
        constants: Small tensors, most of them shapes, by variable.
        defaults: The default values of inputs, by name.
    """

    weights: Weights
    names: dict[int, str]
    constants: dict[int, np.ndarray]
    defaults: dict[str, np.ndarray]


def load_tensors(graph: GraphRecord, source: Source, loader: WeightLoader, *, compressed: bool) -> Tensors:
    """Read all tensors that the file has values for.

    A packed model says whether its values are compressed. Of a bare one the sizes tell.

    Raises:
        ModelFormatError: One is broken, or has a dtype that is not supported.
    """
    compressed = compressed or _looks_compressed(graph)
    held: dict[int, TensorRecord] = {}
    defaults: dict[str, np.ndarray] = {}
    constants: dict[int, np.ndarray] = {}
    for operator in graph.operators:
        for variable, tensor in zip(operator.outputs, operator.tensors, strict=False):
            if operator.type == INPUT:
                if tensor.place is not None:
                    defaults[tensor.name] = _array(tensor, source, loader, compressed)
            elif _is_small(tensor, graph.names.get(variable, "")):
                constants[variable] = _array(tensor, source, loader, compressed)
            else:
                held[variable] = tensor
    taken = {tensor.name for operator in graph.operators if operator.type == INPUT for tensor in operator.tensors}
    taken.update(graph.names.get(variable, "") for variable in graph.outputs)
    wanted = [held[variable].name or graph.names.get(variable) or f"weight_{variable}" for variable in held]
    names = dict(zip(held, unique(wanted, taken), strict=True))
    for variable, name in names.items():
        tensor = held[variable]
        dtype = _dtype(tensor, source.path)
        if compressed and tensor.place is not None:
            loader.add(name, dtype, tensor.shape, _array(tensor, source, loader, compressed))
        elif tensor.place is None and 0 not in tensor.shape:
            raise ModelFormatError(f"weight {name!r} has no values; the file is damaged", path=source.path)
        else:
            loader.add(name, dtype, tensor.shape, tensor.place or np.zeros(tensor.shape, dtype))
    return Tensors(loader.load(), names, constants, defaults)


def _looks_compressed(graph: GraphRecord) -> bool:
    """Whether no tensor is as long as its plain values, and each as long as compressed ones."""
    found = [tensor for operator in graph.operators for tensor in operator.tensors if tensor.place is not None]
    differs = False
    for tensor in found:
        assert tensor.place is not None
        count, dtype = math.prod(tensor.shape), tensor.dtype.numpy
        if dtype is None or tensor.place.length not in compressed_sizes(count, dtype):
            return False
        differs |= tensor.place.length != count * dtype.itemsize
    return differs


def _is_small(tensor: TensorRecord, name: str) -> bool:
    """Whether the tensor is a constant to compute with: a number, a few integers, or a nameless matrix for points."""
    count = math.prod(tensor.shape)
    if tensor.place is None or tensor.dtype.is_quantised:
        return False
    if tensor.dtype.name == "Float32" and len(tensor.shape) <= 2 and count <= LARGEST_MATRIX:
        return count == 1 or name.startswith(NAMELESS)
    return count == 1 or (count <= LARGEST_CONSTANT and tensor.dtype.name in ("Int32", "Bool"))


def _dtype(tensor: TensorRecord, path: str) -> np.dtype:
    if tensor.dtype.numpy is None:
        raise ModelFormatError(f"a tensor of dtype {tensor.dtype.name} is not supported", path=path)
    return tensor.dtype.numpy


def _array(tensor: TensorRecord, source: Source, loader: WeightLoader, compressed: bool) -> np.ndarray:
    assert tensor.place is not None
    dtype = _dtype(tensor, source.path)
    if compressed:
        data = source.read(tensor.place.offset, tensor.place.length or 0)
        return decompress(data, dtype, tensor.shape, source.path, tensor.name)
    data = loader.fetch(tensor.name, dtype.itemsize * 8, tensor.shape, tensor.place)
    return np.frombuffer(data, dtype).reshape(tensor.shape)

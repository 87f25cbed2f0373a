"""A model as ONNX Runtime has optimised it, over weights that lie in memory of others: nothing of them is copied."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litehouse.engines.base import Names
from litehouse.engines.onnxruntime import OnnxRuntimeProgram, by_memory, make_settings, open_session, source_of
from litehouse.errors import EngineError
from litehouse.model import Model
from litehouse.options import Options

FOLDER = "/proc/self/fd"  # a file in memory is written like any other, by its descriptor
# The weights stay in the order in which other processes can use them, too: packed ones are memory of a session.
UNPACKED = {"session.disable_prepacking": "1"}
MIN_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Frozen:
    """An optimised graph without its weights, and those weights.

    Attributes:
        graph: The graph, an ONNX file.
        weights: The weights.
        is_plain: Whether it is the graph of the file, without the passes that make most graphs faster.
    """

    graph: bytes
    weights: Mapping[str, np.ndarray]
    is_plain: bool


def freeze(model: Model, options: Options, *, is_plain: bool) -> Frozen:
    """Let ONNX Runtime optimise a model, and take the result apart. Nothing is written to a disk.

    Raises:
        EngineError: It cannot build the model.
    """
    import onnx

    graph, weights = (os.memfd_create("litehouse", os.MFD_CLOEXEC) for _ in range(2))
    try:
        entries = {
            **UNPACKED,
            "session.optimized_model_external_initializers_file_name": str(weights),
            "session.optimized_model_external_initializers_min_size_in_bytes": str(MIN_BYTES),
        }
        source = source_of(model, options, is_plain=is_plain)
        source.open(options, Names.of(model), f"{FOLDER}/{graph}", entries)
        proto = onnx.ModelProto.FromString(os.pread(graph, os.fstat(graph).st_size, 0))
        size = os.fstat(weights).st_size
        memory = mmap.mmap(weights, size, mmap.MAP_SHARED, mmap.PROT_READ) if size else None
    finally:
        os.close(graph)
        os.close(weights)
    found: dict[str, np.ndarray] = {}
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            found[tensor.name] = _taken(tensor, memory, model.path)
    for inner in _inner_graphs(proto.graph):  # no session can be given these by memory
        for tensor in inner.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _put_back(tensor, memory)
    return Frozen(proto.SerializeToString(), found, is_plain)


def _inner_graphs(graph: Any) -> Iterator[Any]:
    """The bodies of ifs and loops, however deep."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield inner
                yield from _inner_graphs(inner)


def _put_back(tensor: Any, memory: mmap.mmap | None) -> None:
    """Put the content of a tensor into the message."""
    import onnx

    places = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key in ("offset", "length")}
    start = places.get("offset", 0)
    tensor.raw_data = (memory or b"")[start : start + places["length"]]
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.DEFAULT


def _taken(tensor: Any, memory: mmap.mmap | None, path: str) -> np.ndarray:
    """The array of an initializer, which is then declared to lie nowhere."""
    import onnx

    places = {entry.key: entry.value for entry in tensor.external_data}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if memory is None:
        raise EngineError(f"{path}: ONNX Runtime has not written the weights of its optimised graph")
    array = np.ndarray(tuple(tensor.dims), dtype, memory, int(places["offset"]))
    del tensor.external_data[:]
    for key, value in (("location", STUB), ("offset", "0"), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return array


# Where weights are said to lie that are handed over by memory: the file is looked for, but never read.
STUB_FOLDER, STUB = "/dev", "null"


def thaw(frozen: Frozen, names: Names, options: Options) -> OnnxRuntimeProgram:
    """The program of an optimised graph, which reads its weights where they are.

    Raises:
        EngineError: ONNX Runtime does not take it.
    """
    import onnxruntime

    settings = make_settings(onnxruntime, options)
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in {**UNPACKED, "session.model_external_initializers_file_folder_path": STUB_FOLDER}.items():
        settings.add_session_config_entry(key, value)
    values = {name: by_memory(onnxruntime, array) for name, array in frozen.weights.items()}
    for name, value in values.items():
        settings.add_initializer(name, value)
    session = open_session(frozen.graph, settings, options, names)
    return OnnxRuntimeProgram(session, names, options, memory=(values, frozen.weights))

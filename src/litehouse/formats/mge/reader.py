"""Reads a MegEngine file: its container, what its graph declares, its weights, then the translation of the graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from litehouse.errors import ModelFormatError
from litehouse.formats import opaque
from litehouse.formats.loader import WeightLoader
from litehouse.formats.mge.pack import TAG as PACKED
from litehouse.formats.mge.pack import Info, open_packed
from litehouse.formats.mge.records import GraphRecord
from litehouse.formats.mge.translate import FORMAT, Translator, count_kinds, refuse_unsupported
from litehouse.formats.mge.v1 import AREA_STARTS, read_v1
from litehouse.formats.mge.v2 import IDENTIFIERS, read_v2
from litehouse.formats.mge.weights import Tensors, load_tensors
from litehouse.formats.source import Source
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits

IR_VERSION = 10
TEST_CASES = b"mgbtest0"
TEST_HEAD = 12


def read_mge(source: Source, limits: Limits, updatable: Sequence[str] = ()) -> Model:
    """Read a MegEngine file or a packed model.

    Raises:
        ModelFormatError: The file is broken.
        UnsupportedOpError: It uses operators that Litehouse does not run.
    """
    plain, info = unpacked(source, limits)
    graph = read_graph(plain, limits)
    refuse_unsupported(graph, source.path)
    compressed = info is not None and info.has_compression
    tensors = load_tensors(graph, plain, WeightLoader(plain, limits), compressed=compressed)

    def make(changing: frozenset[str]) -> Model:
        return _File(graph, tensors, source.path, info, changing).translate()

    return opaque.translate(make, lambda made: made.graph.graph, tensors.weights, updatable, source.path)[0]


def unpacked(source: Source, limits: Limits) -> tuple[Source, Info | None]:
    """The model itself, and what a packed one tells about it."""
    if source.read(0, len(PACKED)) != PACKED:
        return source, None
    packed = open_packed(source, limits)
    return packed.model, packed.info


def read_graph(source: Source, limits: Limits) -> GraphRecord:
    """What the first graph of a file declares, whatever its container is."""
    head = source.read(0, TEST_HEAD)
    if not head.startswith(TEST_CASES):
        return _read_container(source, 0, limits)
    graph = _read_container(source, TEST_HEAD, limits)
    return _without_test(graph)


def _read_container(source: Source, start: int, limits: Limits) -> GraphRecord:
    head = source.read(start, 12)
    if head[:4] in AREA_STARTS:
        return read_v1(source, start, limits)
    if head[8:12] in IDENTIFIERS:
        return read_v2(source, start, limits)
    raise ModelFormatError(
        "invalid model format: no MegEngine graph lies where one is expected; the file is damaged, or encrypted",
        path=source.path,
    )


def _without_test(graph: GraphRecord) -> GraphRecord:
    """The network that a test case wraps: its outputs are what is compared with the expected values, if anything is."""
    compared = {
        operator.outputs[0]: operator.inputs[1]
        for operator in graph.operators
        if operator.type == "AssertEqual" and len(operator.inputs) == 3 and operator.outputs
    }
    outputs = [compared.get(variable, variable) for variable in graph.outputs]
    needed = set(outputs)
    kept = []
    for operator in reversed(graph.operators):
        if needed.intersection(operator.outputs):
            needed.update(operator.inputs)
            kept.append(operator)
    metadata = {**graph.metadata, "container": f"mgbtest0, {graph.metadata['container']}"}
    return GraphRecord(kept[::-1], graph.names, list(dict.fromkeys(outputs)), {}, metadata)


@dataclass(frozen=True, slots=True)
class _File:
    """A file that was read, from which a model is made for each size of the inputs."""

    graph: GraphRecord
    tensors: Tensors
    path: str
    info: Info | None
    changing: frozenset[str]

    def translate(self, shapes: Sequence[Sequence[int]] | None = None, every: bool = False) -> Model:
        """The model for these shapes of its inputs; `every` makes an output of each variable."""
        translator = Translator(self.graph, self.tensors, self.path, self.changing)
        graph = translator.run(shapes, every=every)
        named = list(zip(translator.output_names, graph.outputs, strict=True))
        metadata = dict(self.graph.metadata)
        if self.info is not None:
            metadata["container"] = f"packed, {metadata['container']}"
            metadata["info"] = self.info.text
            metadata["file_outputs"] = json.dumps(translator.output_names)
            listed = [item.name for item in self.info.outputs]
            named.sort(key=lambda item: listed.index(item[0]) if item[0] in listed else len(listed))
            graph.outputs.clear()
            graph.outputs.extend(value for _, value in named)
        return Model(
            graph=ir.Model(graph, ir_version=IR_VERSION, producer_name="litehouse"),
            weights=self.tensors.weights,
            inputs=tuple(_info(str(value.name), value, self.path) for value in graph.inputs),
            outputs=tuple(_info(name, value, self.path) for name, value in named),
            format=FORMAT,
            path=self.path,
            metadata=metadata,
            source_ops=dict(count_kinds(self.graph)),
            defaults=self.tensors.defaults,
            translate=self.translate,
            updatable=tuple(name for name in self.tensors.weights if name in self.changing),
        )


def _info(name: str, value: ir.Value, path: str) -> TensorInfo:
    if value.dtype is None or value.shape is None:
        raise ModelFormatError(f"the rank of {name!r} does not follow from the network", path=path)
    dtype = np.dtype(value.dtype.numpy())
    return TensorInfo(name, dtype, tuple(size if isinstance(size, int) else None for size in value.shape))

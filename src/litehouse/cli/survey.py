"""What a file declares, for `litehouse inspect` on a model that Litehouse cannot translate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from litehouse import ciphers
from litehouse.errors import ModelFormatError
from litehouse.formats.detect import detect
from litehouse.formats.source import Source, open_source
from litehouse.formats.wire import cut, parse
from litehouse.identity import find
from litehouse.model import TensorInfo
from litehouse.options import Limits

GRAPH_FIELD, RAW_DATA_FIELD = 7, 9
MINDIR_WEIGHT_FIELD, ONNX_WEIGHT_FIELD = 3, 5
REFERENCE = "REF::"


def survey(path: Path, key: bytes | None, mode: str) -> dict[str, Any]:
    """Metadata, inputs, outputs, ops and weights of a file, read without translating it and without the weights' data.

    The file is one that `litehouse.read` refused for its ops: it opens. What else it declares may be damaged, and is
    left out then.
    """
    with open_source(find(path), Limits()) as source:
        try:
            if ciphers.is_registered(mode):
                plain = ciphers.decrypt(mode, source.read(0, source.size), path=source.path, key=key)
                source = Source.over(plain, source.path)
            kind = detect(source)
            if kind == "encrypted":
                from litehouse.formats.mindir.crypto import decrypt

                source = decrypt(source, key, mode)
                kind = detect(source)
            return SURVEYS[kind](source)
        except (ModelFormatError, ValueError, TypeError):
            return {"metadata": {}, "inputs": [], "outputs": [], "source_ops": {}, "onnx_ops": {}, "weights": []}


def _survey_onnx(source: Source) -> dict[str, Any]:
    import onnx
    import onnx_ir as ir

    rest, _ = cut(source, GRAPH_FIELD, ONNX_WEIGHT_FIELD, RAW_DATA_FIELD)
    proto = parse(onnx.ModelProto, rest, source.path)
    ops: Counter[str] = Counter()
    for node in _onnx_nodes(proto.graph):
        ops[node.op_type] += 1

    def info(value: Any) -> TensorInfo:
        type_ = value.type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in type_.shape.dim]
        return TensorInfo(value.name, np.dtype(ir.DataType(type_.elem_type).numpy()), tuple(sizes))

    tensors = proto.graph.initializer
    weights = [TensorInfo(t.name, np.dtype(ir.DataType(t.data_type).numpy()), tuple(t.dims)) for t in tensors]
    names = {weight.name for weight in weights}
    facts = {"producer": proto.producer_name, "producer_version": proto.producer_version}
    return {
        "metadata": {name: text for name, text in facts.items() if text},
        "inputs": [info(value) for value in proto.graph.input if value.name not in names],
        "outputs": [info(value) for value in proto.graph.output if value.type.tensor_type.elem_type],
        "source_ops": ops,
        "onnx_ops": {},
        "weights": weights,
    }


def _onnx_nodes(graph: Any) -> list[Any]:
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                nodes += _onnx_nodes(inner)
    return nodes


def _survey_mindir(source: Source) -> dict[str, Any]:
    from litehouse.formats.mindir.literals import dtype_of, numpy_dtype
    from litehouse.formats.mindir.names import public_name
    from litehouse.formats.mindir.schema_pb2 import Model

    path = source.path
    proto = parse(Model, cut(source, GRAPH_FIELD, MINDIR_WEIGHT_FIELD, RAW_DATA_FIELD)[0], path)

    def info(name: str, tensor: Any) -> TensorInfo:
        sizes = tuple(size if size >= 0 else None for size in tensor.dims)
        return TensorInfo(public_name(name), numpy_dtype(dtype_of(tensor.data_type, path)), sizes)

    facts = {"producer": proto.producer_name, "producer_version": proto.model_version, "ir_version": proto.ir_version}
    return {
        "metadata": {name: text for name, text in facts.items() if text},
        "inputs": [info(value.name, value.tensor[0]) for value in proto.graph.input if value.tensor],
        "outputs": [
            info(f"output_{index}", value.tensor[0]) for index, value in enumerate(proto.graph.output) if value.tensor
        ],
        "source_ops": _mindir_ops(proto),
        "onnx_ops": {},
        "weights": [info(tensor.name, tensor) for tensor in proto.graph.parameter],
    }


def _mindir_ops(proto: Any) -> Counter[str]:
    """How often each op occurs; calls of the file's own functions are no ops."""
    primitives = {primitive.name: primitive.op_type for primitive in proto.primitives}
    functions = {graph.name for graph in proto.functions}
    ops: Counter[str] = Counter()
    for graph in (proto.graph, *proto.functions):
        for node in graph.node:
            name = node.op_type.removeprefix(REFERENCE)
            if name == "Constant" or name in functions:
                continue
            if node.op_type.startswith(REFERENCE):
                name = primitives.get(name, "call of a closure")
            ops[name] += 1
    return ops


def _survey_ms(source: Source) -> dict[str, Any]:
    from litehouse.formats.mindir.literals import numpy_dtype
    from litehouse.formats.ms.meta import dtype_of, read_meta

    meta = read_meta(source, Limits())

    def infos(indices: Iterable[int]) -> list[TensorInfo]:
        tensors = [meta.tensors[index] for index in indices]
        return [
            TensorInfo(
                tensor.name,
                numpy_dtype(dtype_of(tensor, source.path)),
                tuple(size if size >= 0 else None for size in tensor.shape or ()),
            )
            for tensor in tensors
        ]

    return {
        "metadata": meta.metadata,
        "inputs": infos(meta.graphs[0].inputs),
        "outputs": infos(meta.graphs[0].outputs),
        "source_ops": Counter(node.op for node in meta.nodes),
        "onnx_ops": {},
        "weights": infos(index for index, tensor in enumerate(meta.tensors) if tensor.place is not None),
    }


def _survey_mge(source: Source) -> dict[str, Any]:
    from litehouse.formats.mge.reader import read_graph, unpacked
    from litehouse.formats.mge.records import TensorRecord
    from litehouse.formats.mge.translate import count_kinds
    from litehouse.formats.mge.weights import INPUT

    plain, _ = unpacked(source, Limits())
    graph = read_graph(plain, Limits())

    def infos(of_inputs: bool) -> list[TensorInfo]:
        held = [
            (tensor, graph.names.get(variable) or f"weight_{variable}")
            for operator in graph.operators
            for variable, tensor in zip(operator.outputs, operator.tensors, strict=False)
            if (operator.type == INPUT) == of_inputs
        ]
        return [_mge_info(tensor, name) for tensor, name in held]

    def _mge_info(tensor: TensorRecord, name: str) -> TensorInfo:
        return TensorInfo(tensor.name or name, tensor.dtype.numpy or np.dtype(np.uint8), tensor.shape)

    return {
        "metadata": graph.metadata,
        "inputs": infos(True),
        "outputs": [],
        "source_ops": count_kinds(graph),
        "onnx_ops": {},
        "weights": infos(False),
    }


SURVEYS: dict[str, Callable[[Source], dict[str, Any]]] = {
    "onnx": _survey_onnx,
    "mindir": _survey_mindir,
    "ms": _survey_ms,
    "mge": _survey_mge,
}

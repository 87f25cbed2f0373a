"""What a `.ms` file declares, as plain records: its tensors, nodes and graphs. No weight is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.flat import FlatBuffer, Table
from litehouse.formats.loader import MAX_RANK, Place
from litehouse.formats.mindir.literals import TYPE_IDS
from litehouse.formats.ms.schema import decode, op_name
from litehouse.formats.source import Source
from litehouse.options import Limits

TAG = b"MSL2"
MAX_TENSORS_PER_NODE = 1000
CONSTANT = 0  # the node type of tensors that no node computes
FRAMEWORKS = {0: "TensorFlow", 1: "Caffe", 2: "ONNX", 3: "MindSpore", 4: "TensorFlow Lite", 5: "PyTorch"}
COMPRESSIONS = {1: "INDEXING", 2: "SPARSE", 3: "FSE", 5: "FSE_INT", 6: "FSE_INFER"}
BIT_PACKED = 4
INT8, INT16, INT32, UINT8, FLOAT16 = 32, 33, 34, 37, 42  # MindSpore's numbers of these dtypes


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How numbers were quantised: real = (stored - zero_point) * scale * variance + mean."""

    scale: float
    zero_point: int
    bits: int
    variance: float
    mean: float


@dataclass(slots=True)
class TensorRecord:
    """One tensor of the file.

    Attributes:
        name: Its name; may be empty, and need not be the only one of that name.
        type_id: MindSpore's number of its dtype.
        shape: None where the file has none; a size is -1 where it is dynamic.
        format: The layout as the file's number: 0 NCHW, 1 NHWC.
        place: Where its bytes are; None for what nodes compute.
        quantisation: One per channel, or one for all; empty for plain numbers.
        clusters: The numbers that the stored bytes are indices into, counted from -128.
        compression: How the bytes are packed; 0 for plain ones.
    """

    name: str
    type_id: int
    shape: tuple[int, ...] | None
    format: int
    place: Place | None
    quantisation: tuple[Quantisation, ...] = ()
    clusters: tuple[float, ...] = ()
    compression: int = 0


@dataclass(slots=True)
class NodeRecord:
    """One node: its op with the attributes, and the tensors that it reads and writes."""

    name: str
    op: str
    attributes: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    quant_type: int


@dataclass(slots=True)
class GraphRecord:
    """One graph: the tensors that go in and come out, and its nodes in order."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(slots=True)
class MetaGraph:
    """The whole file; the first graph is the one to run."""

    name: str
    version: str
    framework: int
    tensors: list[TensorRecord]
    nodes: list[NodeRecord]
    graphs: list[GraphRecord]
    metadata: dict[str, str] = field(default_factory=dict)


def read_meta(source: Source, limits: Limits) -> MetaGraph:
    """All that a `.ms` file declares.

    Raises:
        ModelFormatError: The file is broken, or of a kind that is not supported.
    """
    buffer = FlatBuffer(source)
    if buffer.identifier() != TAG:
        found = buffer.identifier().decode("ascii", "replace")
        raise ModelFormatError(
            f"the file is of the schema {found} of MindSpore Lite, and only {TAG.decode()} is supported; "
            "convert the source model again with MindSpore Lite 1.3 to 2, or export it as .mindir or .onnx",
            path=source.path,
        )
    root = buffer.root()
    if root.number(9, "?") or root.count(10, 1):
        raise ModelFormatError(
            "the file is obfuscated, so only its maker's runtime can read it; convert it without obfuscation",
            path=source.path,
        )
    count = root.count(6)
    if count > limits.max_nodes:
        raise LimitError(
            f"{count} nodes are more than max_nodes={limits.max_nodes}; raise the limit if you trust the file",
            path=source.path,
        )
    if root.count(7) > MAX_TENSORS_PER_NODE * (count + 1):
        raise LimitError(
            f"{root.count(7)} tensors for {count} nodes are too many; the file is damaged", path=source.path
        )
    tensors = [_tensor(table, source.path) for table in root.tables(7)]
    nodes = [_node(table, len(tensors), source.path) for table in root.tables(6)]
    main = GraphRecord("", root.numbers(3, "I"), root.numbers(4, "I"), tuple(range(len(nodes))))
    graphs = [GraphRecord(g.text(0), *(g.numbers(slot, "I") for slot in (1, 2, 3))) for g in root.tables(8)]
    if graphs:
        graphs[0] = GraphRecord(graphs[0].name, main.inputs, main.outputs, graphs[0].nodes)
    meta = MetaGraph(root.text(0), root.text(1), root.number(2, "i"), tensors, nodes, graphs or [main])
    _check_graphs(meta, source.path)
    meta.metadata = _metadata(meta)
    return meta


def dtype_of(tensor: TensorRecord, path: str) -> ir.DataType:
    """The dtype of a tensor."""
    if tensor.type_id not in TYPE_IDS:
        raise ModelFormatError(
            f"tensor {tensor.name!r} has the data type number {tensor.type_id}, which is not supported", path=path
        )
    return TYPE_IDS[tensor.type_id]


def _metadata(meta: MetaGraph) -> dict[str, str]:
    facts = {
        "producer": "MindSpore Lite",
        "producer_version": meta.version.removeprefix("MindSpore Lite "),
        "source_framework": FRAMEWORKS.get(meta.framework, ""),
    }
    return {name: text for name, text in facts.items() if text}


def _tensor(table: Table, path: str) -> TensorRecord:
    name = table.text(9)
    compression = table.number(11, "i")
    if table.number(10, "?") or compression in COMPRESSIONS:
        kind = COMPRESSIONS.get(compression, "Huffman")
        raise ModelFormatError(
            f"the weight {name!r} is compressed ({kind}), which is not supported; convert without compression",
            path=path,
        )
    shape = table.numbers(2, "i") if table.has(2) else None
    if shape is not None and len(shape) > MAX_RANK:
        raise ModelFormatError(f"tensor {name!r} has the impossible rank {len(shape)}; the file is damaged", path=path)
    return TensorRecord(
        name=name,
        type_id=table.number(1, "i"),
        shape=shape,
        format=table.number(3, "i"),
        place=_place(table, shape),
        quantisation=tuple(_quantisation(item) for item in table.tables(7) if _is_quantised(table, item)),
        clusters=table.numbers(8, "f"),
        compression=compression,
    )


def _place(table: Table, shape: tuple[int, ...] | None) -> Place | None:
    external = table.tables(12)
    if external:
        length = external[0].number(3, "q", -1)
        return Place(external[0].number(2, "q"), None if length < 0 else length, external[0].text(1))
    place = table.place(6)
    if place is not None and place.length:
        return place
    is_empty = table.number(0, "i") == CONSTANT and shape is not None and 0 in shape
    return Place(0, 0) if is_empty else None


def _is_quantised(tensor: Table, item: Table) -> bool:
    """Small integers are. Wider ones may be plain numbers, as a shape; of a bias, the item says its own dtype."""
    dtype = tensor.number(1, "i")
    return dtype in (INT8, INT16, UINT8) or bool(item.number(6, "?")) or item.number(9, "i", INT8) == INT32 == dtype


def _quantisation(table: Table) -> Quantisation:
    return Quantisation(
        scale=table.number(0, "d", 1.0),
        zero_point=table.number(1, "i"),
        bits=table.number(5, "i", 8),
        variance=table.number(7, "f", 1.0),
        mean=table.number(8, "f"),
    )


def _node(table: Table, tensors: int, path: str) -> NodeRecord:
    name = table.text(0)
    primitive = table.table(2)
    if primitive is None:
        raise ModelFormatError(f"node {name!r} has no op; the file is damaged", path=path)
    number, content = primitive.union(0)
    op = op_name(number)
    inputs, outputs = table.numbers(3, "I"), table.numbers(4, "I")
    _check_tensors(f"node {name!r}", (*inputs, *outputs), tensors, path)
    if not outputs:
        raise ModelFormatError(f"node {name!r} has no result; the file is damaged", path=path)
    return NodeRecord(name, op, decode(op, content), inputs, outputs, table.number(5, "i"))


def _check_graphs(meta: MetaGraph, path: str) -> None:
    seen: set[int] = set()
    for graph in meta.graphs:
        _check_tensors(f"graph {graph.name!r}", (*graph.inputs, *graph.outputs), len(meta.tensors), path)
        if any(index >= len(meta.nodes) for index in graph.nodes):
            raise ModelFormatError(f"graph {graph.name!r} has nodes that the file lacks; it is damaged", path=path)
        if len(set(graph.nodes)) < len(graph.nodes) or not seen.isdisjoint(graph.nodes):
            raise ModelFormatError(f"graph {graph.name!r} has a node twice; the file is damaged", path=path)
        seen.update(graph.nodes)


def _check_tensors(what: str, indices: Sequence[int], count: int, path: str) -> None:
    if indices and max(indices) >= count:
        raise ModelFormatError(
            f"{what} uses tensor {max(indices)} of {count}; the file is cut off or damaged", path=path
        )

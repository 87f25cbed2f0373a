"""Reads a MindIR file: container, weights, then the translation of its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from litehouse.errors import ModelFormatError
from litehouse.formats import opaque
from litehouse.formats.loader import Place, WeightLoader
from litehouse.formats.mindir.calls import REFERENCE, UNRESOLVED, count_nodes
from litehouse.formats.mindir.converted import is_converted, settle
from litehouse.formats.mindir.literals import dtype_of, numpy_dtype
from litehouse.formats.mindir.names import public_name
from litehouse.formats.mindir.schema_pb2 import Model as ModelProto
from litehouse.formats.mindir.schema_pb2 import Tensor
from litehouse.formats.mindir.translate import Translator
from litehouse.formats.source import Source
from litehouse.formats.wire import Blob, cut, parse
from litehouse.model import Model, State, TensorInfo
from litehouse.options import Limits
from litehouse.weights import Weights

__all__ = ["public_name", "read_mindir"]

GRAPH_FIELD, PARAMETER_FIELD, RAW_DATA_FIELD = 7, 3, 9
IR_VERSION = 10


def read_mindir(
    source: Source,
    limits: Limits,
    updatable: Sequence[str] = (),
    *,
    unlock: Callable[[Source], Source] | None = None,
) -> Model:
    """Read a MindIR file.

    Args:
        source: The file, decrypted.
        limits: What it may ask for.
        updatable: Patterns for names of weights that nothing may be computed from.
        unlock: Decrypts a data file beside it.

    Raises:
        ModelFormatError: The file is broken.
        UnsupportedOpError: It uses ops that Litehouse does not run.
    """
    path = source.path
    rest, blobs = cut(source, GRAPH_FIELD, PARAMETER_FIELD, RAW_DATA_FIELD)
    proto = parse(ModelProto, rest, path)
    if is_converted(proto):
        settle(proto, path)
    nodes = _check(proto, limits, path)
    weights = _read_weights(proto, blobs, WeightLoader(source, limits, unlock), path)

    def make(changing: frozenset[str]) -> Translator:
        return _translated(proto, weights, limits, path, nodes, changing)

    translator, open_names = opaque.translate(make, lambda made: made.graph, weights, updatable, path)
    graph = translator.graph
    states = tuple(State(str(value.name), str(last.name)) for value, last in translator.states.items())
    return Model(
        graph=ir.Model(graph, ir_version=IR_VERSION, producer_name="litehouse"),
        weights=weights,
        inputs=tuple(_info(value) for value in graph.inputs[: len(graph.inputs) - len(states)]),
        outputs=tuple(_info(value) for value in graph.outputs[: len(graph.outputs) - len(states)]),
        format="mindir",
        path=path,
        metadata=_metadata(proto),
        source_ops=translator.source_ops,
        states=states,
        fixed_nodes=tuple(translator.tape.fixed),
        updatable=tuple(name for name in open_names if name not in {state.name for state in states}),
    )


def _translated(
    proto: ModelProto, weights: Weights, limits: Limits, path: str, nodes: int, changing: frozenset[str]
) -> Translator:
    """The translation. Where weights turn out to change, it is made again without using what they hold in the file."""
    translator = Translator(proto, weights, limits, path, nodes, changing)
    while not {value.name for value in translator.states} <= translator.changing:
        changing = translator.changing | {str(value.name) for value in translator.states}
        translator = Translator(proto, weights, limits, path, nodes, changing)
    return translator


def _metadata(proto: ModelProto) -> dict[str, str]:
    facts = {
        "producer": proto.producer_name,
        "producer_version": proto.model_version,
        "ir_version": proto.ir_version,
        **{f"user_info.{name}": text for name, text in sorted(proto.user_info.items())},
    }
    return {name: text for name, text in facts.items() if text}


def _info(value: ir.Value) -> TensorInfo:
    assert value.name is not None
    assert value.dtype is not None
    assert value.shape is not None
    shape = tuple(size if isinstance(size, int) else size.value for size in value.shape)
    return TensorInfo(value.name, numpy_dtype(value.dtype), shape)


# Checks ---------------------------------------------------------------------------------------------------------------


def _check(proto: ModelProto, limits: Limits, path: str) -> int:
    """Check what concerns the file as a whole. Gives the count of its nodes, with every call written out."""
    if not proto.HasField("graph"):
        raise ModelFormatError("the file has no graph; it is cut off, or not a network", path=path)
    if proto.HasField("little_endian") and not proto.little_endian:
        raise ModelFormatError(
            "the file was written on a big-endian machine; export it again on a little-endian one", path=path
        )
    if proto.graph.map_parameter:
        raise ModelFormatError("hash-table parameters are not supported; export the network without them", path=path)
    if not proto.graph.output:
        raise ModelFormatError("the network returns nothing; the file is damaged", path=path)
    _check_names(proto, path)
    _check_references(proto, path)
    return count_nodes(proto.graph, proto.functions, limits, path)


def _check_names(proto: ModelProto, path: str) -> None:
    """Inputs and weights become values of one graph, so their public names must differ."""
    taken: set[str] = set()
    for item in (*proto.graph.input, *proto.graph.parameter):
        name = public_name(item.name)
        if not name or name in taken:
            raise ModelFormatError(f"two inputs or weights are named {name!r}; the file is damaged", path=path)
        taken.add(name)
    functions: set[str] = {proto.graph.name}
    for function in proto.functions:
        if function.name in functions:
            raise ModelFormatError(f"two graphs are named {function.name!r}; the file is damaged", path=path)
        functions.add(function.name)


def _check_references(proto: ModelProto, path: str) -> None:
    """What a node calls must be in the file, which stores it behind the graph: a cut file may lack just that."""
    graphs = (proto.graph, *proto.functions)
    known = {item.name for item in (*proto.primitives, *proto.functions, *proto.graph.parameter)}
    known |= {info.name for graph in graphs for info in graph.input}
    known |= {name for graph in graphs for node in graph.node for name in (*node.output, node.name)}
    for graph in graphs:
        for node in graph.node:
            name = node.op_type.removeprefix(REFERENCE)
            if node.op_type.startswith(REFERENCE) and name not in known and not name.startswith(UNRESOLVED):
                raise ModelFormatError(
                    f"a node calls {name!r}, which the file lacks; it is cut off or damaged", path=path
                )


# Weights --------------------------------------------------------------------------------------------------------------


def _read_weights(proto: ModelProto, blobs: list[Blob | None], loader: WeightLoader, path: str) -> Weights:
    for tensor, blob in zip(proto.graph.parameter, blobs, strict=True):
        if tensor.compression_type:
            raise ModelFormatError(
                f"weight {tensor.name!r} is compressed, which is not supported; export without it", path=path
            )
        dtype = numpy_dtype(dtype_of(tensor.data_type, path))
        if dtype.hasobject:
            raise ModelFormatError(f"weight {tensor.name!r} holds text, which is not supported", path=path)
        loader.add(public_name(tensor.name), dtype, tensor.dims, _place(tensor, blob, path))
    return loader.load()


def _place(tensor: Tensor, blob: Blob | None, path: str) -> Place:
    if tensor.HasField("external_data"):
        data = tensor.external_data
        return Place(data.offset, data.length, data.location)
    if blob is not None:
        return Place(blob.offset, blob.length)
    if 0 in tensor.dims:
        return Place(0, 0)
    raise ModelFormatError(f"weight {tensor.name!r} has no data; export the network again with its weights", path=path)

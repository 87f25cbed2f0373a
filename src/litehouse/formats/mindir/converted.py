"""What is special to files of MindSpore Lite's converter: names, missing shapes, quantised weights."""

from __future__ import annotations

from collections.abc import Iterator

from litehouse.errors import ModelFormatError
from litehouse.formats.mindir.calls import REFERENCE
from litehouse.formats.mindir.literals import TENSORS, UNKNOWN_RANK, decode
from litehouse.formats.mindir.ops.quantized import quantized_axis
from litehouse.formats.mindir.schema_pb2 import Attribute, Graph, Node, Primitive, Tensor
from litehouse.formats.mindir.schema_pb2 import Model as ModelProto

MARKS = {"fmk", "isOptimized"}  # attributes that the converter gives a graph
FLOAT, INT8, INT64 = 1, 3, 7
FLOATS = (FLOAT, 10, 11, 16)
LINEAR = "linear_quant"
# Ops that share a name with one of MindSpore's own, which means something else: it writes to its first operand, or
# gives rows where Lite's gives columns.
RENAMED = {"ScatterNdUpdate": "TensorScatterUpdate", "NonZero": "LiteNonZero"}


def is_converted(proto: ModelProto) -> bool:
    """Whether the Lite converter wrote the file."""
    return bool(MARKS & {attribute.name for attribute in proto.graph.attribute})


def settle(proto: ModelProto, path: str) -> None:
    """Write the file's content, in place, as MindSpore itself would have.

    Raises:
        ModelFormatError: The network is quantised in a way that is not supported.
    """
    if any(attribute.name == "quant_param" for primitive in proto.primitives for attribute in primitive.attribute):
        raise ModelFormatError(
            "the numbers between its ops are quantised, which is not supported in a .mindir file; "
            "convert the network to .ms, or convert it before it is quantised",
            path=path,
        )
    graph = proto.graph
    _name_inputs(graph)
    for primitive in proto.primitives:
        primitive.op_type = RENAMED.get(primitive.op_type, primitive.op_type)
    primitives = {REFERENCE + primitive.name: primitive for primitive in proto.primitives}
    dynamic = any(primitive.op_type == "DynamicQuant" for primitive in proto.primitives)
    for node in graph.node:
        is_cast = node.op_type in primitives and primitives[node.op_type].op_type == "Cast"
        for attribute in node.attribute:
            if attribute.name == "shape":
                for tensor in _tensors(attribute):
                    _settle_type(tensor, floats=dynamic and not is_cast)
    _dequantize(proto, primitives, path)


def _name_inputs(graph: Graph) -> None:
    """Inputs are called by the name that the source model gave them, not by the converter's numbers."""
    names = {
        info.name: f"{graph.name}:{info.tensor[0].name}"
        for info in graph.input
        if info.tensor and info.tensor[0].name and not info.name.endswith(f":{info.tensor[0].name}")
    }
    for info in graph.input:
        info.name = names.get(info.name, info.name)
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]
    for output in graph.output:
        output.name = names.get(output.name, output.name)


def _tensors(attribute: Attribute) -> Iterator[Tensor]:
    yield from attribute.tensors
    for item in attribute.values:
        yield from _tensors(item)


def _settle_type(tensor: Tensor, *, floats: bool) -> None:
    if not tensor.dims:
        tensor.dims.extend(UNKNOWN_RANK)  # the converter could not tell, or it is a single number
    if floats and tensor.data_type == INT8:
        tensor.data_type = FLOAT  # so recorded for all that follows from DynamicQuant, which gives floats here


# Quantised weights ----------------------------------------------------------------------------------------------------


def _dequantize(proto: ModelProto, primitives: dict[str, Primitive], path: str) -> None:
    """Put a cast to floats between every quantised weight and the nodes that use it."""
    uses: dict[str, tuple[Node, int]] = {}
    for node in proto.graph.node:
        for place, name in enumerate(node.input):
            uses.setdefault(name, (node, place))
    casts: dict[str, Node] = {}
    for tensor in proto.graph.parameter:
        if tensor.quant_params and tensor.name in uses and tensor.data_type not in FLOATS:
            node, place = uses[tensor.name]
            casts[tensor.name] = _cast(proto, tensor, primitives.get(node.op_type), place, path)
    for node in proto.graph.node:
        for place, name in enumerate(node.input):
            if name in casts:
                node.input[place] = casts[name].output[0]
    nodes = [*casts.values(), *proto.graph.node]
    if casts:
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)


def _cast(proto: ModelProto, tensor: Tensor, user: Primitive | None, place: int, path: str) -> Node:
    """A node that makes floats of a weight, and its primitive, which carries the weight's parameters."""
    kind = tensor.quant_params[0].quant_algo_name
    if kind != LINEAR or len(tensor.quant_params) != 1:
        raise ModelFormatError(
            f"weight {tensor.name!r} is quantised by {kind!r}, which is not supported, only {LINEAR}", path=path
        )
    primitive = proto.primitives.add()
    primitive.name, primitive.op_type = f"{tensor.name}:floats", "QuantDTypeCast"
    primitive.attribute.extend(tensor.quant_params[0].attribute)
    axis = primitive.attribute.add()
    axis.name, axis.type, axis.i = "channel_axis", INT64, _channel_axis(tensor, user, place, path)
    node = Node(op_type=REFERENCE + primitive.name, name=primitive.name, input=[tensor.name], output=[primitive.name])
    recorded = node.attribute.add()
    recorded.name, recorded.type = "shape", TENSORS
    recorded.tensors.add(dims=tensor.dims, data_type=FLOAT)
    return node


def _channel_axis(tensor: Tensor, user: Primitive | None, place: int, path: str) -> int:
    scales = next((len(item.values) for item in tensor.quant_params[0].attribute if item.name == "scale_list"), 0)
    attributes = {} if user is None else {item.name: decode(item, path) for item in user.attribute}
    op = "" if user is None else user.op_type
    axis = quantized_axis(op, place, len(tensor.dims), attributes, kernel_last=False)
    if scales != 1 and (not tensor.dims or tensor.dims[axis] != scales):
        raise ModelFormatError(
            f"weight {tensor.name!r} of shape {list(tensor.dims)} has {scales} scales; the file is damaged", path=path
        )
    return axis

"""Shapes and dtypes of values where the source file records none: found from the ONNX nodes that compute them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from litehouse.formats.loader import MAX_RANK

LARGEST_OPERAND = 64  # a constant with more elements is no shape, axis list or the like
RANK_OF_OPERAND = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}


def infer(nodes: Sequence[ir.Node], opset: int) -> None:
    """Give the outputs of these nodes, in order, the dtypes and shapes that follow from their inputs.

    What a value already has stays. Where nothing follows, nothing is given.
    """
    for node in nodes:
        if all(value.dtype is not None and value.shape is not None for value in node.outputs):
            continue
        _from_schema(node, opset)
        if node.outputs[0].shape is None:
            _from_length(node)
        if node.outputs[0].shape is None and node.op_type == "GatherND":
            _of_gathered(node)


def _from_schema(node: ir.Node, opset: int) -> None:
    if node.domain or any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
        return
    given = [value for value in node.inputs if value is not None]
    if any(value.dtype is None for value in given):
        return
    schema = onnx.defs.get_schema(node.op_type, opset)
    types = {value.name: _type(value) for value in given}
    data = {
        value.name: ir.to_proto(value.const_value)
        for value in given
        if value.const_value is not None and value.const_value.size <= LARGEST_OPERAND
    }
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.to_proto(node),
            types,  # type: ignore[arg-type]
            data,  # type: ignore[arg-type]
            opset_imports=[onnx.helper.make_opsetid("", opset)],
        )
    except onnx.shape_inference.InferenceError:
        return
    for value in node.outputs:
        if value.name in found:
            _give(value, found[value.name].tensor_type)


def _type(value: ir.Value) -> onnx.TypeProto:
    assert value.dtype is not None
    shape = None
    if value.shape is not None:
        shape = [size if isinstance(size, int) else size.value for size in value.shape]
    return onnx.helper.make_tensor_type_proto(int(value.dtype), shape)


def _give(value: ir.Value, found: onnx.TypeProto.Tensor) -> None:
    if value.dtype is None and found.elem_type:
        value.dtype = ir.DataType(found.elem_type)
    if value.shape is None and found.HasField("shape"):
        sizes = [size.dim_value if size.HasField("dim_value") else (size.dim_param or None) for size in found.shape.dim]
        value.shape = ir.Shape(sizes)


def _from_length(node: ir.Node) -> None:
    """A rank without sizes: the length of the operand that states the shape."""
    if node.op_type not in RANK_OF_OPERAND:
        return
    wanted = node.inputs[RANK_OF_OPERAND[node.op_type]]
    length = wanted.shape[0] if wanted is not None and wanted.shape is not None and wanted.shape.rank() == 1 else None
    if not isinstance(length, int) or length > MAX_RANK:
        return
    if node.op_type == "Expand":
        operand = node.inputs[0]
        if operand is None or operand.shape is None:
            return
        length = max(length, operand.shape.rank())
    node.outputs[0].shape = ir.Shape([None] * length)


def _of_gathered(node: ir.Node) -> None:
    """What GatherND picks; ONNX does not say so where it is a single number."""
    operand, index = node.inputs
    if operand is None or index is None or operand.shape is None or index.shape is None or index.shape.rank() == 0:
        return
    depth = index.shape[-1]
    if isinstance(depth, int) and 0 < depth <= operand.shape.rank() and not node.attributes.get_int("batch_dims", 0):
        node.outputs[0].shape = ir.Shape([*index.shape[:-1], *operand.shape[depth:]])

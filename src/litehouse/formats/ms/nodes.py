"""Translates single nodes of a `.ms` file, with the converters of MindIR's ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir.converted import RENAMED
from litehouse.formats.mindir.literals import TensorType, Type
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.ms.meta import FLOAT16, MetaGraph, NodeRecord, TensorRecord, dtype_of
from litehouse.formats.ms.quantised import QUANTISED, QUANTISED_NODES, rounded
from litehouse.formats.ms.weights import channel_axis, plain
from litehouse.formats.tape import RefusedError

CAST = "QuantDTypeCast"
UNKNOWN = (-1,)

# Fields that the converter of MindSpore Lite leaves at zero where the source model said nothing: zero is not meant.
UNSET = {("Activation", "alpha"), ("TopKFusion", "largest"), ("LRN", "beta"), ("LRN", "bias")}


def is_supported(op: str) -> bool:
    """Whether there is a converter for an op."""
    return op == CAST or RENAMED.get(op, op) in CONVERTERS


def recorded_type(tensor: TensorRecord, path: str) -> TensorType:
    """The type that the file records. Without sizes, a tensor may be a single number, or of unknown rank."""
    dtype = ir.DataType.FLOAT if tensor.type_id in QUANTISED and tensor.quantisation else dtype_of(tensor, path)
    if not tensor.shape or tensor.shape == UNKNOWN:
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(size if size >= 0 else None for size in tensor.shape))


class NodeConverter:
    """Translates the nodes of one file."""

    def __init__(self, meta: MetaGraph, tape: MindirTape, path: str) -> None:
        """Prepare to write on a tape."""
        self._meta = meta
        self._tape = tape
        self._path = path

    def convert(self, node: NodeRecord, operands: Sequence[ir.Value]) -> list[ir.Value | None]:
        """The results of a node, one for each of its outputs; None for one that is only computed for training."""
        self._tape.label = node.name
        try:
            plain_operands = [self._operand(node, place, operands) for place in range(len(operands))]
            results = self._convert(node, plain_operands)
            if len(results) < len(node.outputs):
                raise RefusedError(f"{len(node.outputs)} results where {len(results)} are known")
            tensors = [self._meta.tensors[index] for index in node.outputs]
            return [
                result if result is None else rounded(self._tape, result, tensor)
                for result, tensor in zip(results, tensors, strict=False)
            ]
        except RefusedError as refused:
            raise UnsupportedOpError(
                [(node.op, node.name)], format="ms", path=self._path, reason=str(refused)
            ) from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, AssertionError) as error:
            # A converter trusts its operands to be of the documented kind. Where they are not, the file is at fault.
            raise ModelFormatError(
                f"node {node.name} ({node.op}) has operands or attributes that do not fit the op ({error}); "
                "the file is damaged, or of a version that writes this op in another way",
                path=self._path,
            ) from error

    def _convert(self, node: NodeRecord, operands: list[ir.Value]) -> list[ir.Value | None]:
        if node.op == CAST:
            return [operands[0]]  # values are real numbers here; those stored in few bits are rounded to their steps
        types: list[Type] = [recorded_type(self._meta.tensors[index], self._path) for index in node.outputs]
        if node.op == "DynamicQuant":  # gives real numbers, too
            types = [TensorType(ir.DataType.FLOAT, type_.shape) for type_ in types if isinstance(type_, TensorType)]
        self._tape.expected = tuple(types) if len(types) > 1 else types[0]
        converter = CONVERTERS[RENAMED.get(node.op, node.op)]
        if converter.writes:
            self._tape.refuse("the graph writes to its weights")
        result = converter(self._tape, operands, self._attributes(node))
        results = list(result) if isinstance(result, tuple | list) else [result]
        return [_typed(self._tape, item, type_) for item, type_ in zip(results, types, strict=False)]

    def _attributes(self, node: NodeRecord) -> dict[str, Any]:
        attributes = {name: value for name, value in node.attributes.items() if value or (node.op, name) not in UNSET}
        if "format" not in attributes and node.inputs:
            attributes["format"] = self._meta.tensors[node.inputs[0]].format
        attributes["fmk_type"] = self._meta.framework
        return attributes

    def _operand(self, node: NodeRecord, place: int, operands: Sequence[ir.Value]) -> ir.Value:
        """An operand as the converter takes it: weights that are stored in few bits become real numbers."""
        value, tensor = operands[place], self._meta.tensors[node.inputs[place]]
        if tensor.place is None:
            return value
        if node.quant_type in QUANTISED_NODES and (tensor.quantisation or tensor.clusters):
            return plain(self._tape, value, tensor, self._channel_axis(node, place, operands))
        if tensor.type_id == FLOAT16 and not self._computes_in_halves(node):
            return self._tape.cast(value, ir.DataType.FLOAT)
        return value

    def _computes_in_halves(self, node: NodeRecord) -> bool:
        tensors = [self._meta.tensors[index] for index in (*node.inputs, *node.outputs)]
        return any(tensor.type_id == FLOAT16 and tensor.place is None for tensor in tensors)

    def _channel_axis(self, node: NodeRecord, place: int, operands: Sequence[ir.Value]) -> int:
        if node.op == "Gather" and len(operands) > 2:
            (axis,) = np.ravel(self._tape.literal(operands[2]))
            return int(axis)
        return channel_axis(node, place, self._meta.tensors[node.inputs[place]])


def _typed(tape: MindirTape, result: Any, type_: Type) -> ir.Value | None:
    """The result with the dtype and shape that the file records."""
    if result is None:
        return None
    value = tape.tensor(result)
    if value.const_value is None and isinstance(type_, TensorType):
        value.dtype = type_.dtype
        if type_.shape is not None:
            value.shape = ir.Shape(type_.shape)
    return value

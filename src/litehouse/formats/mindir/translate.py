"""Translates the graph of a MindIR file to ONNX, by evaluating it symbolically in file order.

A value is one of: a tensor's memory, a Python literal, a tuple of values, a dtype, or an ordering token. Converters get
the memory's content (`ir.Value`); those that only arrange values get the values themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import LimitError, ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir.literals import (
    MONAD,
    ScalarType,
    TensorType,
    Type,
    decode,
    decode_type,
    tensor_type,
)
from litehouse.formats.mindir.memory import (
    ABSENT,
    Memory,
    content,
    last_content,
    note_reads,
    remembered,
    views,
    written,
)
from litehouse.formats.mindir.names import flat, output_names, public_name, unique
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.schema_pb2 import Graph, Node, ValueInfo
from litehouse.formats.mindir.schema_pb2 import Model as ModelProto
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError
from litehouse.options import Limits
from litehouse.weights import Weights

OPSET = 20
REFERENCE = "REF::"
CLOSURE = "call of a closure"


@dataclass(frozen=True, slots=True)
class Primitive:
    """An op with its attributes, as nodes refer to it."""

    op: str
    attributes: dict[str, Any]


class Translator:
    """Translates one file."""

    def __init__(self, proto: ModelProto, weights: Weights, limits: Limits, path: str) -> None:
        """Prepare the model-wide tables: primitives, functions, constants."""
        self.tape = MindirTape()
        self.source_ops: Counter[str] = Counter()
        self._proto = proto
        self._weights = weights
        self._limits = limits
        self._path = path
        self._functions: dict[str, Graph] = {graph.name: graph for graph in proto.functions}
        self._primitives = {
            primitive.name: Primitive(primitive.op_type, self._attributes(primitive.attribute))
            for primitive in proto.primitives
        }
        self._values: dict[str, Any] = {}
        self._depth = 0

    def run(self) -> ir.Graph:
        """The ONNX graph of the file's main graph."""
        self._refuse_unsupported()
        graph = self._proto.graph
        for node in self._all_nodes():
            if node.op_type == "Constant":
                self._values[_key(node)] = self._constant(node)
        inputs = [self._input(info) for info in graph.input if not self._is_monad(info)]
        weights = [self._weight(tensor.name) for tensor in graph.parameter]
        result = self._evaluate(graph)
        outputs = self._outputs(result, graph)
        return ir.Graph(
            inputs,
            outputs,
            nodes=self.tape.nodes,
            initializers=[*weights, *self.tape.constants],
            opset_imports={"": OPSET},
            name=graph.name,
        )

    # Tables ----------------------------------------------------------------------------------------------------------

    def _all_nodes(self) -> Iterator[Node]:
        for graph in (self._proto.graph, *self._proto.functions):
            yield from graph.node

    def _attributes(self, attributes: Any) -> dict[str, Any]:
        return {attribute.name: decode(attribute, self._path, self._limits.max_depth) for attribute in attributes}

    def _constant(self, node: Node) -> Any:
        for attribute in node.attribute:
            if attribute.name == "value":
                literal = decode(attribute, self._path, self._limits.max_depth)
                return self._lift(literal)
        raise ModelFormatError(f"constant {_key(node)!r} has no value; the file is damaged", path=self._path)

    def _lift(self, literal: Any) -> Any:
        """A literal with its arrays made memory that holds values of the graph."""
        if isinstance(literal, np.ndarray):
            return Memory(self.tape.constant(literal), "a constant")
        if isinstance(literal, tuple):
            return tuple(self._lift(item) for item in literal)
        return literal

    def _resolve(self, node: Node) -> Primitive | Graph | None:
        """What a node calls; None for a value that is called (a closure)."""
        name = node.op_type
        if not name.startswith(REFERENCE):
            attributes = [a for a in node.attribute if a.name not in ("", "shape")]
            return Primitive(name, self._attributes(attributes))
        name = name.removeprefix(REFERENCE)
        return self._primitives.get(name) or self._functions.get(name)

    def _refuse_unsupported(self) -> None:
        """Count the ops of the file, and refuse all that are unsupported at once."""
        unsupported = []
        for node in self._all_nodes():
            if node.op_type == "Constant":
                continue
            target = self._resolve(node)
            if isinstance(target, Graph):
                continue
            op = target.op if target else CLOSURE
            self.source_ops[op] += 1
            if op not in CONVERTERS:
                unsupported.append((op, _label(node)))
        if unsupported:
            raise UnsupportedOpError(unsupported, format="mindir", path=self._path, reason=_why(unsupported))

    # Inputs, weights, outputs ----------------------------------------------------------------------------------------

    def _is_monad(self, info: ValueInfo) -> bool:
        if not info.tensor and "Monad" in info.denotation:
            self._values[info.name] = MONAD
            return True
        return False

    def _input(self, info: ValueInfo) -> ir.Value:
        name = public_name(info.name)
        if not info.tensor:
            kind = info.denotation or "a value that is no tensor"
            raise ModelFormatError(f"input {name!r} is {kind}; only tensors are supported as inputs", path=self._path)
        type_ = tensor_type(info.tensor[0], self._path)
        if type_.shape is None:
            raise ModelFormatError(
                f"input {name!r} has a dynamic rank, which is not supported; export with a fixed rank", path=self._path
            )
        value = ir.Value(name=name, type=ir.TensorType(type_.dtype))
        value.shape = ir.Shape(
            [size if size is not None else f"{name}_{axis}" for axis, size in enumerate(type_.shape)]
        )
        self._values[info.name] = Memory(value)
        return value

    def _weight(self, name: str) -> ir.Value:
        public = public_name(name)
        tensor = ir.Tensor(self._weights[public], name=public)
        value = ir.Value(name=public, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        self._values[name] = Memory(value, "a weight")
        return value

    def _outputs(self, result: Any, graph: Graph) -> list[ir.Value]:
        try:
            result = last_content(result)
        except RefusedError as refused:
            raise UnsupportedOpError(
                [("Return", "output")], format="mindir", path=self._path, reason=str(refused)
            ) from None
        leaves = list(flat(result))
        if not leaves:
            raise ModelFormatError("the network returns no tensor", path=self._path)
        taken = {public_name(info.name) for info in graph.input} | set(self._weights)
        names = unique(output_names(graph, self._op_of, result), taken)
        self.tape.label = "output"
        outputs: list[ir.Value] = []
        for leaf, name in zip(leaves, names, strict=True):
            value = self.tape.tensor(leaf, ir.DataType.FLOAT if isinstance(leaf, float) else None)
            if value.dtype is None or value.shape is None:
                raise ModelFormatError(
                    f"the type of output {name!r} is not recorded; the file is damaged", path=self._path
                )
            # An output must be a value of its own: not an input, a weight, a constant or another output.
            outputs.append(self.tape.op("Identity", [value], like=value))
            outputs[-1].name = name
        return outputs

    def _op_of(self, node: Node) -> str:
        target = None if node.op_type == "Constant" else self._resolve(node)
        return target.op if isinstance(target, Primitive) else ""

    # Evaluation ------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> Any:
        if name not in self._values:
            if name in self._functions:
                raise RefusedError("functions as values are not supported")
            raise ModelFormatError(f"a node uses {name!r}, which nothing defines; the file is damaged", path=self._path)
        return self._values[name]

    def _evaluate(self, graph: Graph) -> Any:
        self._depth += 1
        if self._depth > self._limits.max_depth:
            raise LimitError(
                f"functions call each other more than {self._limits.max_depth} deep; recursion is not supported",
                path=self._path,
            )
        for node in graph.node:
            if node.op_type != "Constant":
                self._node(node)
        self._depth -= 1
        results = [self._read(info.name) for info in graph.output]
        return results[0] if len(results) == 1 else tuple(results)

    def _node(self, node: Node) -> None:
        target = self._resolve(node)
        self.tape.label = _label(node)
        try:
            if isinstance(target, Graph):
                self._values[_key(node)] = self._call(target, [self._read(name) for name in node.input])
            elif target is not None:
                self._values[_key(node)] = self._apply(node, target)
        except RefusedError as refused:
            op = target.op if isinstance(target, Primitive) else "call"
            raise UnsupportedOpError(
                [(op, _label(node))], format="mindir", path=self._path, reason=str(refused)
            ) from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, AssertionError) as error:
            # A converter trusts its operands to be of the documented kind. Where they are not, the file is at fault.
            op = target.op if isinstance(target, Primitive) else "call"
            raise ModelFormatError(
                f"node {_label(node)} ({op}) has operands or attributes that do not fit the op ({error}); "
                "the file is damaged, or of a version that writes this op in another way",
                path=self._path,
            ) from error

    def _call(self, function: Graph, arguments: list[Any]) -> Any:
        if len(arguments) != len(function.input):
            raise ModelFormatError(
                f"function {function.name!r} is called with {len(arguments)} arguments, takes {len(function.input)}",
                path=self._path,
            )
        for info, argument in zip(function.input, arguments, strict=True):
            self._values[info.name] = argument
        return self._evaluate(function)

    def _apply(self, node: Node, primitive: Primitive) -> Any:
        converter = CONVERTERS[primitive.op]
        operands = [self._read(name) for name in node.input]
        type_ = self._result_type(node)

        def convert(*arguments: Any) -> Any:
            self.tape.expected = type_
            return _typed(converter(self.tape, arguments, primitive.attributes), type_)

        if converter.structural:
            return convert(*operands)
        operands = [operand for operand in operands if operand is not MONAD]
        contents = content(operands)
        result = convert(*contents)
        if isinstance(result, tuple):
            result = tuple(ABSENT if item is None else item for item in result)
        if converter.writes:
            return written(operands[0], result)
        if converter.view:
            return views(self.tape, operands[0], lambda base: convert(base, *contents[1:]), result, converter.overlaps)
        note_reads(operands, result)
        return remembered(result)

    def _result_type(self, node: Node) -> Type:
        for attribute in node.attribute:
            if attribute.name == "shape" or attribute.ref_attr_name.startswith("shape"):
                return decode_type(attribute, self._path, self._limits.max_depth)
        return None


def _why(unsupported: list[tuple[str, str]]) -> str:
    """What a user should know about these ops."""
    ops = {op for op, _ in unsupported}
    if ops & {"Switch", "Partial", "switch_layer", CLOSURE}:
        return "control flow (if, while, for) is not supported yet"
    if any(op.endswith("Fusion") or op in ("Activation", "FullConnection") for op in ops):
        return "the file was written by MindSpore Lite's converter, which is not supported yet; use mindspore.export"
    return ""


def _key(node: Node) -> str:
    return node.output[0] if node.output else node.name


def _label(node: Node) -> str:
    """The node's place in the network where the file records it, else its name."""
    return node.domain if "/" in node.domain else public_name(_key(node))


def _typed(result: Any, type_: Type) -> Any:
    """The result, its tensors given the dtypes and shapes that the file records."""
    if isinstance(result, ir.Value) and result.const_value is None:
        if isinstance(type_, TensorType):
            result.dtype = type_.dtype
            if type_.shape is not None:
                result.shape = ir.Shape(type_.shape)
        elif isinstance(type_, ScalarType):
            result.dtype, result.shape = type_.dtype, ir.Shape(())
    elif isinstance(result, tuple | list) and isinstance(type_, tuple):
        for item, item_type in zip(result, type_, strict=False):
            _typed(item, item_type)
    return result

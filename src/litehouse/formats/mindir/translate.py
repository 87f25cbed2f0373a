"""Translates a MindIR file to an ONNX graph: its inputs, weights, state and outputs, and what is evaluated between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir.evaluate import Evaluator, Primitive, decoded, key_of, label_of
from litehouse.formats.mindir.literals import MONAD, decode, tensor_type
from litehouse.formats.mindir.memory import Memory, last_content
from litehouse.formats.mindir.names import flat, output_names, public_name
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.schema_pb2 import Graph, Node, ValueInfo
from litehouse.formats.mindir.schema_pb2 import Model as ModelProto
from litehouse.formats.mindir.tape import OPSET, MindirTape
from litehouse.formats.names import unique
from litehouse.formats.tape import RefusedError
from litehouse.model import EXCHANGE_DOMAIN
from litehouse.options import Limits
from litehouse.weights import Weights


class Translator:
    """Translates one file.

    Attributes:
        graph: The ONNX graph.
        tape: The nodes.
        changing: Weights whose content in the file was not used.
        source_ops: How often each op occurs in the file.
        states: The weights that the network changes when it runs, with the values that they have afterwards.
    """

    def __init__(
        self,
        proto: ModelProto,
        weights: Weights,
        limits: Limits,
        path: str,
        nodes: int,
        changing: Collection[str] = (),
    ) -> None:
        """Translate a file.

        Args:
            proto: The file.
            weights: Its weights.
            limits: What it may ask for.
            path: Where it is, for errors.
            nodes: The count of its nodes, with every call written out.
            changing: Weights that change, so that nothing may be computed from what they hold in the file.
        """
        self.changing = frozenset(changing)
        self.tape = MindirTape()
        self.source_ops: Counter[str] = Counter()
        self.states: dict[ir.Value, ir.Value] = {}
        self._proto = proto
        self._weights = weights
        self._limits = limits
        self._path = path
        primitives = {
            primitive.name: Primitive(primitive.op_type, decoded(primitive.attribute, path, limits))
            for primitive in proto.primitives
        }
        self._evaluator = Evaluator(self.tape, primitives, proto.functions, limits, path, nodes)
        self.graph = self._run()

    def _run(self) -> ir.Graph:
        """The ONNX graph of the file's main graph. State follows the inputs, and its next values the outputs."""
        self._refuse_unsupported()
        graph = self._proto.graph
        for node in self._all_nodes():
            if node.op_type == "Constant":
                self._evaluator.define(key_of(node), self._constant(node))
        arguments = [self._input(info) for info in graph.input]
        inputs = [argument.read() for argument in arguments if isinstance(argument, Memory)]
        weights = dict(map(self._weight, graph.parameter))
        result = self._evaluator.evaluate(graph, arguments)
        outputs = self._outputs(result, graph)
        self.states = self._next_states(weights, outputs)
        for value in weights:
            value.const_value = ir.Tensor(self._weights[str(value.name)], name=value.name)
        made = ir.Graph(
            [*inputs, *self.states],
            [*outputs, *self.states.values()],
            nodes=self.tape.nodes,
            initializers=[*weights, *self.tape.constants],
            opset_imports={"": OPSET},
            name=graph.name,
        )
        if any(node.domain == EXCHANGE_DOMAIN for node in made.all_nodes()):
            made.opset_imports[EXCHANGE_DOMAIN] = 1
        return made

    def _effects(self, leaves: list[Any]) -> list[ir.Value]:
        """The results of communication that nothing uses. The first output waits for them, so that they are kept."""
        ours = [node for node in self.tape.nodes if node.domain == EXCHANGE_DOMAIN]
        return [node.outputs[0] for node in ours if not any(v.uses() or v in leaves for v in node.outputs)]

    # Tables ----------------------------------------------------------------------------------------------------------

    def _all_nodes(self) -> Iterator[Node]:
        for graph in (self._proto.graph, *self._proto.functions):
            yield from graph.node

    def _constant(self, node: Node) -> Any:
        for attribute in node.attribute:
            if attribute.name == "value":
                literal = decode(attribute, self._path, self._limits.max_depth)
                return self._lift(literal)
        raise ModelFormatError(f"constant {key_of(node)!r} has no value; the file is damaged", path=self._path)

    def _lift(self, literal: Any) -> Any:
        """A literal with its arrays made memory that holds values of the graph."""
        if isinstance(literal, np.ndarray):
            return Memory(self.tape.heap, self.tape.constant(literal))
        if isinstance(literal, tuple):
            return tuple(self._lift(item) for item in literal)
        return literal

    def _refuse_unsupported(self) -> None:
        """Count the ops of the file, and refuse all that are unsupported at once."""
        unsupported = []
        for node in self._all_nodes():
            op = self._op_of(node)
            if not op:
                continue
            self.source_ops[op] += 1
            if op not in CONVERTERS:
                unsupported.append((op, label_of(node)))
        if unsupported:
            raise UnsupportedOpError(unsupported, format="mindir", path=self._path)

    def _op_of(self, node: Node) -> str:
        """The op of a node; empty for a constant and for a call."""
        target = None if node.op_type == "Constant" else self._evaluator.resolve(node)
        return target.op if isinstance(target, Primitive) else ""

    # Inputs, weights, outputs ----------------------------------------------------------------------------------------

    def _input(self, info: ValueInfo) -> Any:
        """The memory of an input; an ordering token is no input."""
        if not info.tensor and "Monad" in info.denotation:
            return MONAD
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
        return Memory(self.tape.heap, value)

    def _weight(self, parameter: Any) -> tuple[ir.Value, Memory]:
        public = public_name(parameter.name)
        tensor = ir.Tensor(self._weights[public], name=public)
        value = ir.Value(name=public, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        if public in self.changing:
            self.tape.open_weights.add(value)
        else:
            value.const_value = tensor
        memory = Memory(self.tape.heap, value, lasting=True)
        self._evaluator.define(parameter.name, memory)
        return value, memory

    def _next_states(self, weights: dict[ir.Value, Memory], outputs: list[ir.Value]) -> dict[ir.Value, ir.Value]:
        """The weights that were written, and what they hold at the end."""
        written = {value: memory.read() for value, memory in weights.items() if memory.read() is not value}
        taken = {value.name or "" for value in (*weights, *outputs)}
        names = unique([f"{value.name}/next" for value in written], taken)
        states = {}
        for (value, last), name in zip(written.items(), names, strict=True):
            if value.shape is None or last.shape is None or last.dtype != value.dtype:
                raise ModelFormatError(
                    f"the network stores a value of another type into the weight {value.name!r}", path=self._path
                )
            states[value] = self.tape.op("Identity", [last], like=value)
            states[value].name = name
        return states

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
            if value.dtype is None:
                raise ModelFormatError(
                    f"the type of output {name!r} is not recorded; the file is damaged", path=self._path
                )
            if value.shape is None:
                raise ModelFormatError(
                    f"output {name!r} has a dynamic rank, which is not supported; export with a fixed rank",
                    path=self._path,
                )
            effects = [] if outputs else self._effects(leaves)
            if effects:
                value = self.tape.op("Depend", [value, *effects], domain=EXCHANGE_DOMAIN, like=value)
            # An output must be a value of its own: not an input, a weight, a constant or another output.
            outputs.append(self.tape.op("Identity", [value], like=value))
            outputs[-1].name = name
        return outputs

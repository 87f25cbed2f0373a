"""Evaluates the graphs of a MindIR file symbolically, in file order, onto a tape of ONNX nodes.

A value is one of: a tensor's memory, a Python literal, a tuple of values, a dtype, an ordering token, a function.
Converters get the memory's content (`ir.Value`); those that only arrange values get the values themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.errors import LimitError, ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir.branch import Join, scalar_condition, scoped
from litehouse.formats.mindir.calls import REFERENCE, UNRESOLVED, CallGraph
from litehouse.formats.mindir.flow import RETURN, Choice, Closure, Leaf, Outcome, Tail
from litehouse.formats.mindir.known import known
from litehouse.formats.mindir.literals import MONAD, Type, decode, decode_type
from litehouse.formats.mindir.loop import ActiveLoop, LoopBuilder
from litehouse.formats.mindir.memory import ABSENT, content, note_reads, remembered, views, written
from litehouse.formats.mindir.names import public_name, states_type
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.schema_pb2 import Graph, Node
from litehouse.formats.mindir.tape import OPSET, MindirTape
from litehouse.formats.mindir.typed import typed, typed_content
from litehouse.formats.tape import RefusedError
from litehouse.options import Limits

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
NOW, LEAVING, ALL = 0, 1, 2  # which of the calls that a function ends with wait: none, those that leave a loop, all
STEPS, STEPS_PER_NODE = 10_000, 50  # nodes may be evaluated more than once to find out what a loop changes
RECURSION = Outcome.refusal


@dataclass(frozen=True, slots=True)
class Primitive:
    """An op with its attributes, as nodes refer to it."""

    op: str
    attributes: dict[str, Any]


class WriteAfterCallError(Exception):
    """Memory is written behind a call that was to wait."""


class Evaluator:
    """Evaluates graphs.

    Attributes:
        tape: Where the nodes are written.
        functions: The functions of the file.
        path: The file.
        loops: The loops whose bodies are being evaluated, the innermost last.
    """

    def __init__(
        self,
        tape: MindirTape,
        primitives: Mapping[str, Primitive],
        functions: Sequence[Graph],
        limits: Limits,
        path: str,
        nodes: int,
        kind: str = "mindir",
    ) -> None:
        """Prepare to evaluate the graphs of one file of that kind, with that many nodes when calls are written out."""
        self.tape = tape
        self.functions = {graph.name: graph for graph in functions}
        self.loops: list[ActiveLoop] = []
        self._format = kind
        self._primitives = primitives
        self._calls = CallGraph(functions)
        self._limits = limits
        self.path = path
        self._frames: list[dict[str, Any]] = [{}]
        self._ends: dict[str, frozenset[str]] = {}
        self._steps = STEPS + STEPS_PER_NODE * nodes

    # Names -----------------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Any) -> None:
        """Give a name its value: in the whole file, or in the function that is being evaluated."""
        self._frames[-1][name] = value

    def read(self, name: str) -> Any:
        """The value of a name. Constants and weights are known everywhere, other values in their own function."""
        for frame in (self._frames[-1], self._frames[0]):
            if name in frame:
                return frame[name]
        if name in self.functions:
            return Closure(self.functions[name])
        for frame in reversed(self._frames):
            if name in frame:
                return frame[name]
        raise ModelFormatError(f"a node uses {name!r}, which nothing defines; the file is damaged", path=self.path)

    def resolve(self, node: Node) -> Primitive | Graph | None:
        """What a node calls; None for a value that is called."""
        name = node.op_type
        if not name.startswith(REFERENCE):
            attributes = [a for a in node.attribute if a.name and not states_type(a)]
            return Primitive(name, decoded(attributes, self.path, self._limits))
        name = name.removeprefix(REFERENCE)
        if name.startswith(UNRESOLVED):
            return Primitive(name, {})
        return self._primitives.get(name) or self.functions.get(name)

    # Graphs ----------------------------------------------------------------------------------------------------------

    def evaluate(self, graph: Graph, arguments: Sequence[Any], *, tail: int = NOW, stop: bool = False) -> Any:
        """What a graph gives back.

        Args:
            graph: The graph.
            arguments: What it is called with.
            tail: Which of the calls that it ends with to give as an outcome, instead of making them.
            stop: Give back a choice that the graph ends with, instead of making it.
        """
        self._check(graph, arguments)
        self._frames.append({info.name: value for info, value in zip(graph.input, arguments, strict=True)})
        try:
            return self._run(graph, tail, stop)
        finally:
            self._frames.pop()

    def _check(self, graph: Graph, arguments: Sequence[Any]) -> None:
        if len(arguments) != len(graph.input):
            raise ModelFormatError(
                f"function {graph.name!r} is called with {len(arguments)} arguments, takes {len(graph.input)}",
                path=self.path,
            )
        if len(self._frames) > self._limits.max_depth:
            raise LimitError(f"functions call each other more than {self._limits.max_depth} deep", path=self.path)
        self._steps -= len(graph.node) + 1
        if self._steps < 0:
            raise LimitError("loops are nested so that they take too long to translate", path=self.path)

    def _run(self, graph: Graph, tail: int, stop: bool) -> Any:
        ends = self._ends_of(graph) if tail else frozenset()
        writes = None
        for node in graph.node:
            if node.op_type == "Constant":
                continue
            key = key_of(node)
            value = self._node(node, tail if key in ends else NOW, stop and key in ends)
            self.define(key, value)
            if writes is None and isinstance(value, Outcome):  # later ones only pass it on
                writes = self.tape.heap.writes
        if writes not in (None, self.tape.heap.writes):
            if tail == ALL:
                raise WriteAfterCallError
            raise UnsupportedOpError(
                [("call", graph.name)],
                format=self._format,
                path=self.path,
                reason="memory is written after the call that goes round a loop",
            )
        results = [self.read(info.name) for info in graph.output]
        return results[0] if len(results) == 1 else tuple(results)

    def _ends_of(self, graph: Graph) -> frozenset[str]:
        """The names of the node that computes what the graph gives back, and of those that only pass it on."""
        if graph.name not in self._ends:
            nodes = {key_of(node): node for node in graph.node}
            found: list[str] = []
            name = graph.output[0].name if len(graph.output) == 1 else ""
            while name in nodes and name not in found:
                found.append(name)
                target = self.resolve(nodes[name]) if nodes[name].op_type != "Constant" else None
                passes_on = isinstance(target, Primitive) and target.op == "Depend" and nodes[name].input
                name = nodes[name].input[0] if passes_on else ""
            self._ends[graph.name] = frozenset(found)
        return self._ends[graph.name]

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _node(self, node: Node, tail: int, stop: bool) -> Any:
        target = self.resolve(node)
        self.tape.label = label_of(node)
        op = target.op if isinstance(target, Primitive) else "call"
        try:
            return (
                self._convert(node, target) if isinstance(target, Primitive) else self._call(node, target, tail, stop)
            )
        except RefusedError as refused:
            raise UnsupportedOpError(
                [(op, label_of(node))], format=self._format, path=self.path, reason=str(refused)
            ) from None

    def _call(self, node: Node, target: Graph | None, tail: int, stop: bool) -> Any:
        callee = self.read(node.op_type.removeprefix(REFERENCE)) if target is None else Closure(target)
        type_ = self._result_type(node)
        result = self.invoke(callee, [self.read(name) for name in node.input], tail=tail, stop=stop)
        return result if isinstance(result, Outcome | Choice) else typed_content(result, type_)

    def _convert(self, node: Node, primitive: Primitive) -> Any:
        try:
            return self._apply(node, primitive)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, AssertionError) as error:
            # A converter trusts its operands to be of the documented kind. Where they are not, the file is at fault.
            raise ModelFormatError(
                f"node {label_of(node)} ({primitive.op}) has operands or attributes that do not fit the op ({error}); "
                "the file is damaged, or of a version that writes this op in another way",
                path=self.path,
            ) from error

    def _apply(self, node: Node, primitive: Primitive) -> Any:
        converter = CONVERTERS[primitive.op]
        operands = [self.read(name) for name in node.input]
        type_ = self._result_type(node)

        def convert(*arguments: Any) -> Any:
            self.tape.expected = type_
            return typed(converter(self.tape, arguments, primitive.attributes), type_)

        if converter.structural:
            return convert(*operands)
        operands = [operand for operand in operands if operand is not MONAD]
        contents = content(operands)
        result = convert(*contents)
        if isinstance(result, tuple):
            result = tuple(ABSENT if item is None else item for item in result)
        if converter.writes:
            return written(operands[0], result)
        heap = self.tape.heap
        if converter.view:
            return views(
                heap, self.tape, operands[0], lambda base: convert(base, *contents[1:]), result, converter.overlaps
            )
        note_reads(operands, result)
        return remembered(heap, result)

    def _result_type(self, node: Node) -> Type:
        for attribute in node.attribute:
            if states_type(attribute):
                return decode_type(attribute, self.path, self._limits.max_depth)
        return None

    # Calls -----------------------------------------------------------------------------------------------------------

    def invoke(self, callee: Any, arguments: Sequence[Any], *, tail: int, stop: bool = False) -> Any:
        """What a function, or the choice of one, gives back; see `evaluate`."""
        if isinstance(callee, Choice):
            return self._choose(callee, arguments, tail, stop)
        if not isinstance(callee, Closure):
            raise RefusedError("it calls a value that is no function")
        arguments = (*callee.arguments, *arguments)
        return self.go(Tail(callee.function.name, arguments), tail=tail)

    def go(self, end: Tail, *, tail: int) -> Any:
        """Make a call that a function ends with, unless it waits."""
        if end.target == RETURN:
            return end.arguments[0]
        if tail == ALL or self._leaves(end, tail):
            return Outcome((end,))
        return self._enter(end, tail)

    def _leaves(self, end: Tail, tail: int) -> bool:
        """Whether a call waits until behind the loop, or goes round it."""
        around = any(loop.header == end.target for loop in self.loops)
        if around and not tail:
            raise RefusedError(RECURSION)
        return bool(tail) and bool(self.loops) and (around or end.target not in self.loops[-1].members)

    def _enter(self, end: Tail, tail: int) -> Any:
        """Make a call."""
        if end.target == RETURN:
            return end.arguments[0]
        function = self.functions[end.target]
        members = self._calls.circle(function.name, [loop.header for loop in self.loops])
        if members:
            return LoopBuilder(self, function, end.arguments, members).build(tail=tail)
        return self.evaluate(function, end.arguments, tail=tail)

    def _choose(self, choice: Choice, arguments: Sequence[Any], tail: int, stop: bool) -> Any:
        if stop and not arguments and not self.tape.is_literal(choice.condition):
            return choice
        truth = literal_condition(self.tape, choice.condition)
        if truth is not None:
            return self.invoke(choice.then if truth else choice.otherwise, arguments, tail=tail, stop=stop)
        sides = (choice.then, choice.otherwise)
        try:
            joined = self.choose(choice.condition, *(partial(self._branch, side, arguments) for side in sides))
        except WriteAfterCallError:
            return self.choose(choice.condition, *(partial(self.invoke, side, arguments, tail=tail) for side in sides))
        return self._settle(joined, tail)

    def _branch(self, callee: Any, arguments: Sequence[Any]) -> Any:
        """One side of an if, with the call that it ends with left to be made behind the if."""
        if isinstance(callee, Choice):
            return self._choose(callee, arguments, ALL, stop=False)
        if not isinstance(callee, Closure):
            raise RefusedError("it calls a value that is no function")
        end = Tail(callee.function.name, (*callee.arguments, *arguments))
        return Outcome((end,)) if self._leaves(end, ALL) else self._enter(end, ALL)

    def choose(self, condition: ir.Value, *runs: Callable[[], Any]) -> Any:
        """What one of two ways gives back, as the condition decides when the model runs."""
        label = self.tape.label
        branches = [scoped(self.tape, run) for run in runs]
        self.tape.label = label
        return Join(self.tape, scalar_condition(self.tape, condition), branches, self.fill).join()

    def finish(self, ends: Sequence[tuple[int, Tail]], which: ir.Value | None, *, tail: int) -> Any:
        """Make the call that the number chooses, unless it waits."""
        if len(ends) == 1:
            return self.go(ends[0][1], tail=tail)
        assert which is not None
        numbers = dict.fromkeys(range(1 + max(number for number, _ in ends)), 0)
        numbers |= {number: place for place, (number, _) in enumerate(ends)}
        return self._settle(Outcome(tuple(end for _, end in ends), self._renumbered(which, numbers)), tail)

    def _settle(self, joined: Any, tail: int) -> Any:
        """Make the calls that need not wait, each once: first those that lead to others."""
        while isinstance(joined, Outcome) and tail != ALL:
            ends = joined.tails
            now = [end for end in ends if end.target != RETURN and not self._leaves(end, tail)]
            if not now:
                return joined
            if joined.which is None:
                return self.go(ends[0], tail=tail)
            target = self._calls.first([end.target for end in now], [loop.header for loop in self.loops])
            end = next(end for end in now if end.target == target)
            number = ends.index(end)
            taken, rest = self._is(joined.which, number), partial(self._without, joined, number)
            try:
                joined = self.choose(taken, partial(self._enter, end, ALL), rest)
            except WriteAfterCallError:
                joined = self.choose(taken, partial(self._enter, end, tail), rest)
        return joined

    def _without(self, outcome: Outcome, number: int) -> Any:
        """The other ways to end."""
        rest = [end for place, end in enumerate(outcome.tails) if place != number]
        if len(rest) == 1:
            return rest[0].arguments[0] if rest[0].target == RETURN else Outcome((rest[0],))
        assert outcome.which is not None
        numbers = {place: max(place - (place > number), 0) for place in range(len(outcome.tails))}
        return Outcome(tuple(rest), self._renumbered(outcome.which, numbers))

    def _is(self, which: ir.Value, number: int) -> ir.Value:
        same: ir.Value = self.tape.op("Equal", [which, self.tape.constant(number, INT64)], dtype=BOOL, shape=[])
        return same

    def _renumbered(self, which: ir.Value, numbers: Mapping[int, int]) -> ir.Value:
        table = self.tape.constant([numbers[place] for place in range(len(numbers))], INT64)
        made: ir.Value = self.tape.op("Gather", [table, which], dtype=INT64, shape=[])
        return made

    def fill(self, target: str, place: int, like: Leaf) -> ir.Value:
        """A value for an argument of a call that is not made: what the loop holds there, or zeros."""
        for loop in reversed(self.loops):
            if (target, place) in loop.slots:
                return loop.slots[target, place]
        if like.value is None:
            return self.tape.tensor(like.source, ir.DataType.FLOAT if isinstance(like.source, float) else None)
        shape = like.value.shape
        sizes = [size if isinstance(size, int) else 1 for size in shape] if shape is not None else []
        zero = self.tape.constant(0, self.tape.dtype(like.value))
        if not sizes:
            return zero
        filled: ir.Value = self.tape.op("Expand", [zero, self.tape.ints(sizes)], like=like.value)
        return filled


# Helpers --------------------------------------------------------------------------------------------------------------


def literal_condition(tape: MindirTape, condition: Any) -> bool | None:
    """The truth of a condition that is known; None for one that is computed when the model runs."""
    found = tape.literal(condition) if tape.is_literal(condition) else known(condition, OPSET)
    if found is None:
        return None
    if np.size(found) != 1:
        tape.refuse("a condition of several numbers")
    return bool(np.ravel(found)[0])


def decoded(attributes: Any, path: str, limits: Limits) -> dict[str, Any]:
    """Attributes by name."""
    return {attribute.name: decode(attribute, path, limits.max_depth) for attribute in attributes}


def key_of(node: Node) -> str:
    """The name under which other nodes refer to a node."""
    return node.output[0] if node.output else node.name


def label_of(node: Node) -> str:
    """The node's place in the network where the file records it, else its name."""
    return node.domain if "/" in node.domain else public_name(key_of(node))

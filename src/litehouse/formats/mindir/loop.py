"""A function that calls itself last, as MindSpore writes a loop, as an ONNX Loop."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from litehouse.formats.mindir.branch import (
    Exits,
    Scope,
    common_shape,
    detach,
    scalar_condition,
    scoped,
    tensor_of,
)
from litehouse.formats.mindir.flow import (
    Choice,
    Closure,
    Leaf,
    Outcome,
    Tail,
    as_outcome,
    is_same,
    leaf_types,
    leave,
    leaves,
    rebuilt,
    same_form,
)
from litehouse.formats.mindir.literals import ScalarType, TensorType, Type, input_type
from litehouse.formats.mindir.memory import Memory, Passed
from litehouse.formats.mindir.schema_pb2 import Graph
from litehouse.formats.tape import RefusedError

if TYPE_CHECKING:
    from litehouse.formats.mindir.evaluate import Evaluator

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
Place = tuple[str, int]


@dataclass(slots=True)
class Found:
    """What was found to change in a loop.

    Attributes:
        varying: Arguments, of the call that goes round it and of those that leave it.
        written: Memory.
        inner: What was found in the loops inside, by header and its place among its calls in the body.
    """

    varying: dict[Place, Leaf] = field(default_factory=dict)
    written: dict[Memory, None] = field(default_factory=dict)
    inner: dict[Place, Found] = field(default_factory=dict)


@dataclass(slots=True)
class ActiveLoop:
    """A loop whose body is being evaluated.

    Attributes:
        header: The function that is called to go round it.
        members: The functions on the way round.
        slots: What the loop holds for the arguments of the calls that end its body, where they change.
        inner: What was found to change in the loops inside.
        met: How often each header was called in the body so far.
    """

    header: str
    members: frozenset[str]
    slots: dict[Place, ir.Value] = field(default_factory=dict)
    inner: dict[Place, Found] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Body:
    """A loop's body, evaluated.

    Attributes:
        scope: Its nodes and how it ends.
        slots: The inputs that hold arguments.
        memory: The inputs that hold the content of memory that the loop writes.
        condition: Whether to go on, where the header decides it alone; None where the outcome does.
    """

    scope: Scope
    slots: dict[Place, ir.Value]
    memory: dict[Memory, ir.Value]
    condition: Any


class LoopBuilder:
    """Builds one loop.

    What changes from one round to the next is found by trying: evaluate the body as if nothing changed, see what its
    calls pass on that is not the same, and try again with that in the loop's hands. The last finds nothing more.
    """

    def __init__(
        self, evaluator: Evaluator, header: Graph, arguments: tuple[Any, ...], members: frozenset[str]
    ) -> None:
        """Prepare a loop.

        Args:
            evaluator: Evaluates the functions.
            header: The function that is called to go round.
            arguments: What it is called with first.
            members: The functions on the way round.
        """
        self._evaluator = evaluator
        self._tape = evaluator.tape
        self._header = header
        self._arguments = arguments
        self._members = members
        self._initial: dict[Place, Leaf] = {
            (header.name, place): leave(leaf, self._tape.heap.depth, set())
            for place, leaf in enumerate(leaves(arguments))
        }
        recorded = tuple(input_type(info, evaluator.path) for info in header.input)
        self._types = dict(enumerate(leaf_types(recorded, arguments)))
        self._found = self._remembered()

    def build(self, *, tail: int) -> Any:
        """What the loop gives back."""
        label = self._tape.label
        body = self._try()
        while self._learn(body):
            detach(body.scope.nodes)
            body = self._try()
        self._tape.label = label
        if body.scope.outcome.ends_in(self._header.name) is None:
            # What decides is known already: it never goes round.
            detach(body.scope.nodes)
            return self._evaluator.evaluate(self._header, self._arguments, tail=tail)
        finals, which = self._write(body)
        return self._evaluator.finish(self._ends(body, finals), which, tail=tail)

    def _remembered(self) -> Found:
        """What an earlier try of the loop around this one found here: else the tries double with each level."""
        found = Found()
        if self._evaluator.loops:
            around = self._evaluator.loops[-1]
            place = (self._header.name, around.met[self._header.name])
            around.met[self._header.name] += 1
            known = around.inner.get(place, found)
            if all(item in self._initial for item in known.varying if item[0] == self._header.name):
                # Memory that is made in the body of the loop around is new in each try.
                written = [memory for memory in known.written if memory.depth < self._tape.heap.depth]
                found = Found(dict(known.varying), dict.fromkeys(written), known.inner)
            around.inner[place] = found
        return found

    # Trying ----------------------------------------------------------------------------------------------------------

    def _try(self) -> Body:
        slots = {place: self._slot(place, leaf) for place, leaf in self._found.varying.items()}
        memory = {item: self._input(item.read().dtype, item.read().shape) for item in self._found.written}
        condition: list[Any] = []

        def run() -> Any:
            for item, value in memory.items():
                item.write(value)
            return self._round(slots, condition)

        self._evaluator.loops.append(ActiveLoop(self._header.name, self._members, slots, self._found.inner))
        try:
            scope = scoped(self._tape, run)
        finally:
            self._evaluator.loops.pop()
        return Body(scope, slots, memory, condition[0])

    def _round(self, slots: dict[Place, ir.Value], condition: list[Any]) -> Outcome:
        """One round: the header, what it goes on with, and the header again to see whether there is another round."""
        evaluator, heap = self._evaluator, self._tape.heap
        arguments = self._held(slots)
        writes = heap.writes
        head = evaluator.evaluate(self._header, arguments, tail=True, stop=True)
        stay = self._sides(head)[0] if heap.writes == writes else None
        if stay is None:
            condition.append(None)
            return as_outcome(evaluator.invoke(head, (), tail=True) if isinstance(head, Choice) else head)
        outcome = as_outcome(evaluator.invoke(stay, (), tail=True))
        around = outcome.ends_in(self._header.name)
        if around is None:
            condition.append(None)
            return outcome
        condition.append(self._condition(outcome.tails[around].arguments))
        return outcome

    def _held(self, slots: dict[Place, ir.Value]) -> tuple[Any, ...]:
        """The arguments of a round: what changes comes from the loop's hands."""
        items = []
        for place, leaf in self._initial.items():
            value = slots.get(place)
            items.append(leaf.source if value is None else Passed(self._tape.heap, value, leaf.bases))
        held: tuple[Any, ...] = rebuilt(self._arguments, iter(items))
        return held

    def _sides(self, head: Any) -> tuple[Closure | None, Closure | None]:
        """What the header goes on with, and what it leaves with, where it is as simple as that."""
        if not isinstance(head, Choice):
            return None, None
        sides = (head.then, head.otherwise)
        if not all(isinstance(side, Closure) for side in sides):
            return None, None
        inside = [side.function.name in self._members for side in sides]
        if inside == [True, False]:
            return head.then, head.otherwise
        return (head.otherwise, head.then) if inside == [False, True] else (None, None)

    def _condition(self, arguments: tuple[Any, ...]) -> ir.Value:
        """Whether the header goes on with these arguments."""
        head = self._evaluator.evaluate(self._header, arguments, tail=True, stop=True)
        if self._sides(head)[0] is None:
            raise RefusedError("the header of a loop decides in one round what it computes in another")
        condition = scalar_condition(self._tape, self._tape.tensor(head.condition, BOOL))
        if self._sides(head)[0] is head.then:
            return condition
        negated: ir.Value = self._tape.op("Not", [condition], dtype=BOOL, shape=[])
        return negated

    def _learn(self, body: Body) -> bool:
        """Note what the last try showed to change. Whether there was anything new."""
        count = len(self._found.varying) + len(self._found.written)
        self._found.written.update(dict.fromkeys(body.scope.written))
        for tail, ends in zip(body.scope.outcome.tails, body.scope.ends, strict=True):
            around = tail.target == self._header.name
            if around and not same_form(tail.arguments, self._arguments):
                raise RefusedError("a loop goes on with tuples of another form than it began with")
            for number, leaf in enumerate(ends):
                place = (tail.target, number)
                if place in self._found.varying:
                    continue
                if not (is_same(leaf.source, self._initial[place].source) if around else leaf.outside):
                    self._found.varying[place] = leaf
        return len(self._found.varying) + len(self._found.written) > count

    # Writing ---------------------------------------------------------------------------------------------------------

    def _slot(self, place: Place, leaf: Leaf) -> ir.Value:
        """The input of the body for an argument that changes."""
        target, number = place
        recorded: Type = self._types[number] if target == self._header.name else None
        if isinstance(recorded, TensorType):
            return self._input(recorded.dtype, None if recorded.shape is None else ir.Shape(recorded.shape))
        if isinstance(recorded, ScalarType):
            return self._input(recorded.dtype, ir.Shape(()))
        first = self._tape.tensor(tensor_of(leaf))
        return self._input(first.dtype, first.shape)

    def _input(self, dtype: ir.DataType | None, shape: ir.Shape | None) -> ir.Value:
        if dtype is None:
            raise RefusedError("the dtype of what a loop changes is not recorded in the file")
        return ir.Value(name=self._tape.name(), type=ir.TensorType(dtype), shape=shape)

    def _write(self, body: Body) -> tuple[dict[Place, ir.Value], ir.Value | None]:
        """Write the Loop. Gives what it holds at the end, and the number of the way that it ended."""
        tape, scope = self._tape, body.scope
        around = scope.outcome.ends_in(self._header.name)
        first = [self._first(place) for place in body.slots]
        first += [memory.read() for memory in body.memory]
        condition = tape.constant(True) if body.condition is None else self._condition_before()
        exits = Exits(tape, scope.nodes)
        with tape.into(scope.nodes):
            goes_on = body.condition
            if scope.outcome.which is not None:
                same = tape.op("Equal", [scope.outcome.which, tape.constant(around, INT64)], dtype=BOOL, shape=[])
                goes_on = same if goes_on is None else tape.op("And", [same, goes_on], dtype=BOOL, shape=[])
        if goes_on is None:
            raise RefusedError("a loop has no end")
        exits.add(goes_on, BOOL)
        inputs = [*body.slots.values(), *body.memory.values()]
        for (target, number), value in body.slots.items():
            exits.add(self._next(scope, target, number, value), value.dtype)
        for memory, value in body.memory.items():
            # What is lost by the end of a round is read by nobody.
            exits.add(scope.written.get(memory, value), value.dtype)
        if scope.outcome.which is not None:
            first.append(tape.constant(around, INT64))  # a loop without a round ends where it would go round
            inputs.append(self._input(INT64, ir.Shape(())))
            exits.add(scope.outcome.which, INT64)
        outputs = self._node(condition, first, inputs, exits)
        for memory, value in zip(body.memory, outputs[len(body.slots) :], strict=False):
            memory.write(value)
        for memory in scope.lost:
            memory.lose()
        return dict(zip(body.slots, outputs, strict=False)), outputs[-1] if scope.outcome.which is not None else None

    def _condition_before(self) -> ir.Value:
        self._evaluator.loops.append(ActiveLoop(self._header.name, self._members))
        try:
            return self._condition(self._arguments)
        finally:
            self._evaluator.loops.pop()

    def _first(self, place: Place) -> ir.Value:
        """What the loop begins with."""
        if place in self._initial:
            type_ = self._types[place[1]]
            dtype = type_.dtype if isinstance(type_, TensorType | ScalarType) else None
            return self._tape.tensor(tensor_of(self._initial[place]), dtype)
        return self._evaluator.fill(*place, self._found.varying[place])

    def _next(self, scope: Scope, target: str, number: int, held: ir.Value) -> Any:
        """What a round leaves in a slot; what was there, where no way ends so any more."""
        index = scope.outcome.ends_in(target)
        return held if index is None else tensor_of(scope.ends[index][number])

    def _node(self, condition: ir.Value, first: list[ir.Value], inputs: list[ir.Value], exits: Exits) -> list[ir.Value]:
        tape = self._tape
        counter, entered = self._input(INT64, ir.Shape(())), self._input(BOOL, ir.Shape(()))
        nodes = exits.nodes
        graph = ir.Graph([counter, entered, *inputs], exits.values, nodes=nodes, name=tape.name())
        outputs = []
        for value, begun, ended in zip(inputs, first, exits.values[1:], strict=True):
            output = self._input(value.dtype, common_shape([begun, ended]))
            # Sizes that change from round to round are not those that the first round has.
            value.shape = common_shape([value, begun, ended])
            outputs.append(output)
        tape.node("Loop", [None, condition, *first], outputs, body=graph)
        return outputs

    # Behind the loop -------------------------------------------------------------------------------------------------

    def _ends(self, body: Body, finals: dict[Place, ir.Value]) -> list[tuple[int, Tail]]:
        """The calls that leave the loop, by their number."""
        found = []
        for number, tail in enumerate(body.scope.outcome.tails):
            if tail.target != self._header.name:
                found.append((number, self._exit(tail, body.scope.ends[number], finals)))
            elif body.condition is not None:
                found.append((number, self._leaving(finals)))
        return found

    def _exit(self, tail: Tail, ends: list[Leaf], finals: dict[Place, ir.Value]) -> Tail:
        items = []
        for number, leaf in enumerate(ends):
            value = finals.get((tail.target, number))
            items.append(leaf.source if value is None else Passed(self._tape.heap, value, leaf.bases))
        return Tail(tail.target, rebuilt(tail.arguments, iter(items)))

    def _leaving(self, finals: dict[Place, ir.Value]) -> Tail:
        """The call that the header makes when it does not go on."""
        self._evaluator.loops.append(ActiveLoop(self._header.name, self._members))
        try:
            head = self._evaluator.evaluate(self._header, self._held(finals), tail=True, stop=True)
        finally:
            self._evaluator.loops.pop()
        leaving = self._sides(head)[1]
        assert leaving is not None  # it is the same header as in the body
        return Tail(leaving.function.name, leaving.arguments)

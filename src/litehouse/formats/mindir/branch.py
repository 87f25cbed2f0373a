"""A choice between two functions as an ONNX If."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.flow import (
    RAISED,
    Leaf,
    Outcome,
    Tail,
    as_outcome,
    is_same,
    leave,
    leaves,
    rebuilt,
    same_form,
)
from litehouse.formats.mindir.memory import Memory, Passed
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError
from litehouse.model import EXCHANGE_DOMAIN

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
MAX_NESTING = 30  # ONNX's messages may be nested 100 deep, and each If or Loop takes three levels
Fill = Callable[[str, int, Leaf], ir.Value]
Pair = tuple[Leaf | None, Leaf | None]


@dataclass(slots=True)
class Scope:
    """What was evaluated into nodes of its own: a branch, or a loop's body.

    Attributes:
        nodes: The nodes.
        outcome: How it ends.
        ends: The leaves of each tail's arguments, as they are at the end.
        written: The memory outside that it wrote, and the content at the end.
        lost: The memory outside whose content is not known any more.
    """

    nodes: list[ir.Node]
    outcome: Outcome
    ends: list[list[Leaf]]
    written: dict[Memory, ir.Value]
    lost: list[Memory]


def scoped(tape: MindirTape, run: Callable[[], Any]) -> Scope:
    """Evaluate into a scope; memory is as before afterwards."""
    heap = tape.heap
    if heap.depth == MAX_NESTING:
        raise RefusedError(f"ifs and loops are nested more than {MAX_NESTING} deep, which ONNX cannot hold")
    with heap.scope() as changes, tape.into([]) as nodes:
        try:
            outcome = as_outcome(run())
        except Exception:
            detach(nodes)  # another try may follow
            raise
        if any(node.domain == EXCHANGE_DOMAIN for node in nodes):
            raise RefusedError("communication with other ranks inside an if or a loop")
        inside = set(nodes)
        ends = [[leave(leaf, heap.depth - 1, inside) for leaf in leaves(tail.arguments)] for tail in outcome.tails]
        lost = [memory for memory in changes.lost if memory.depth < heap.depth]
        written = {
            memory: memory.read()
            for memory in changes.written
            if memory.depth < heap.depth and memory not in changes.lost
        }
    return Scope(nodes, outcome, ends, written, lost)


class Exits:
    """The outputs of a subgraph, each produced in it."""

    def __init__(self, tape: MindirTape, nodes: list[ir.Node]) -> None:
        """Start with no outputs."""
        self._tape = tape
        self.nodes = nodes
        self._inside = set(nodes)
        self.values: list[ir.Value] = []

    def add(self, value: Any, dtype: ir.DataType | None) -> ir.Value:
        """Give out a value or literal, in that dtype."""
        with self._tape.into(self.nodes):
            made = self._tape.tensor(value, dtype)
            if made.producer() not in self._inside or made in self.values:
                made = self._tape.op("Identity", [made], like=made)
                self._inside.add(self.nodes[-1])
        self.values.append(made)
        return made


class Join:
    """Joins two branches to an If."""

    def __init__(self, tape: MindirTape, condition: ir.Value, branches: Sequence[Scope], fill: Fill) -> None:
        """Take in the branches.

        Args:
            tape: Where the If is written.
            condition: Which branch is taken.
            branches: The two.
            fill: Gives a value for an argument of a tail that a branch never takes.
        """
        self._tape = tape
        self._condition = condition
        self._branches = branches
        self._fill = fill
        self._exits = [Exits(tape, branch.nodes) for branch in branches]
        self._outputs: list[ir.Value] = []

    def join(self) -> Any:
        """What both give back."""
        outcomes = [branch.outcome for branch in self._branches if not branch.outcome.is_error]
        if not outcomes:
            return RAISED
        targets = list(dict.fromkeys(tail.target for outcome in outcomes for tail in outcome.tails))
        tails = tuple(self._tail(target) for target in targets)
        which = self._which(targets) if len(targets) > 1 else None
        written = dict.fromkeys(memory for branch in self._branches for memory in branch.written)
        lost = dict.fromkeys(memory for branch in self._branches for memory in branch.lost)
        contents = {memory: self._written(memory) for memory in written if memory not in lost}
        self._write()
        for memory, value in contents.items():
            memory.write(value)
        for memory in lost:
            memory.lose()
        if which is None and not targets[0]:
            return tails[0].arguments[0]
        return Outcome(tails, which)

    def _tail(self, target: str) -> Tail:
        numbers = [None if branch.outcome.is_error else branch.outcome.ends_in(target) for branch in self._branches]
        taken = [
            branch.outcome.tails[number]
            for branch, number in zip(self._branches, numbers, strict=True)
            if number is not None
        ]
        if not all(same_form(taken[0].arguments, tail.arguments) for tail in taken):
            raise RefusedError("the two branches of an if give back tuples of different form")
        missing: list[Leaf | None] = [None] * len(list(leaves(taken[0].arguments)))
        sides = [
            missing if number is None else list(branch.ends[number])
            for branch, number in zip(self._branches, numbers, strict=True)
        ]
        items = [self._leaf(target, place, pair) for place, pair in enumerate(zip(*sides, strict=True))]
        return Tail(target, rebuilt(taken[0].arguments, iter(items)))

    def _leaf(self, target: str, place: int, pair: Pair) -> Any:
        given = [leaf for leaf in pair if leaf is not None]
        checked = given[0].value is not None and any(branch.outcome.is_error for branch in self._branches)
        if not checked and all(leaf.outside and is_same(given[0].source, leaf.source) for leaf in given):
            return given[0].source
        example = next((leaf for leaf in given if leaf.value is not None), given[0])
        sides = []
        for leaf, branch in zip(pair, self._branches, strict=True):
            if leaf is None:
                with self._tape.into(branch.nodes):
                    fails = branch.outcome.is_error
                    sides.append(self._failure(example) if fails else self._fill(target, place, example))
            else:
                sides.append(tensor_of(leaf))
        bases = dict.fromkeys(base for leaf in given for base in leaf.bases)
        return Passed(self._tape.heap, self._output(*sides), list(bases))

    def _failure(self, like: Leaf) -> ir.Value:
        """A value that no engine can compute, and that none sees before it runs: one number as two or three."""
        assert like.value is not None  # a literal needs no value
        tape, dtype = self._tape, self._tape.dtype(like.value)
        number = tape.op("Cast", [self._condition], dtype=dtype, to=int(dtype))
        count = tape.op("Add", [tape.cast(self._condition, INT64), tape.ints(2)], dtype=INT64, shape=[1])
        sizes = tape.op("Concat", [count, tape.ints((1,) * tape.rank(like.value))], axis=0, dtype=INT64)
        failing = tape.op("Reshape", [number, sizes], dtype=dtype)
        failed: ir.Value = tape.op("Squeeze", [failing, tape.ints(0)], like=like.value)
        return failed

    def _which(self, targets: list[str]) -> ir.Value:
        sides = []
        for branch in self._branches:
            fails = branch.outcome.is_error
            numbers = [0] if fails else [targets.index(tail.target) for tail in branch.outcome.tails]
            with self._tape.into(branch.nodes):
                number = self._tape.constant(numbers, INT64)
                chosen = branch.outcome.which or self._tape.constant(0, INT64)
                sides.append(self._tape.op("Gather", [number, chosen], dtype=INT64, shape=[]))
        return self._output(*sides)

    def _written(self, memory: Memory) -> ir.Value:
        return self._output(*(branch.written.get(memory, memory.read()) for branch in self._branches))

    def _output(self, *sides: Any) -> ir.Value:
        """One output of the If, from both branches."""
        dtype = common_dtype(sides)
        made = [exits.add(side, dtype) for exits, side in zip(self._exits, sides, strict=True)]
        output = ir.Value(name=self._tape.name(), type=ir.TensorType(self._tape.dtype(made[0])))
        output.shape = common_shape(made)
        self._outputs.append(output)
        return output

    def _write(self) -> None:
        if not self._outputs:  # ONNX knows no If without an output; all that could differ is the same
            for branch in self._branches:
                detach(branch.nodes)
            return
        then, otherwise = (
            ir.Graph([], exits.values, nodes=branch.nodes, name=self._tape.name())
            for exits, branch in zip(self._exits, self._branches, strict=True)
        )
        self._tape.node("If", [self._condition], self._outputs, then_branch=then, else_branch=otherwise)


def scalar_condition(tape: MindirTape, condition: ir.Value) -> ir.Value:
    """A condition as ONNX takes it: one truth value."""
    condition = tape.cast(condition, BOOL)
    if condition.shape is not None and condition.shape.rank() == 0:
        return condition
    scalar: ir.Value = tape.op("Reshape", [condition, tape.constant([], INT64)], dtype=BOOL, shape=[])
    return scalar


def tensor_of(leaf: Leaf) -> Any:
    """The value of a leaf that must be a tensor, or a literal that can be one."""
    if leaf.value is not None:
        return leaf.value
    if isinstance(leaf.source, bool | int | float):
        return leaf.source
    raise RefusedError("the ways through an if or a loop give back values of different kinds")


def common_dtype(values: Sequence[Any]) -> ir.DataType | None:
    """The dtype of values and literals that stand for the same thing."""
    dtypes = {value.dtype for value in values if isinstance(value, ir.Value) and value.dtype is not None}
    if len(dtypes) > 1:
        raise RefusedError("the ways through an if or a loop give back tensors of different dtypes")
    if dtypes:
        return dtypes.pop()
    return ir.DataType.FLOAT if any(isinstance(value, float) for value in values) else None


def common_shape(values: Sequence[ir.Value]) -> ir.Shape | None:
    """The sizes that all have; None for the others."""
    shapes = [value.shape for value in values]
    if any(shape is None or shape.rank() != (shapes[0].rank() if shapes[0] else 0) for shape in shapes):
        return None
    sizes = zip(*(shape for shape in shapes if shape is not None), strict=True)
    return ir.Shape([size[0] if len(set(size)) == 1 and isinstance(size[0], int) else None for size in sizes])


def detach(nodes: list[ir.Node]) -> None:
    """Take nodes that are not needed out of the lists of users of the values that they take."""
    for node in nodes:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                detach(list(attribute.as_graph()))
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)

"""The values of control flow: functions, the choice between them, and calls that are still to be made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import Type
from litehouse.formats.mindir.memory import Function, Loaded, Memory, content
from litehouse.formats.mindir.schema_pb2 import Graph

RETURN = ""


@dataclass(frozen=True, slots=True, eq=False)
class Closure(Function):
    """A function with its first arguments."""

    function: Graph
    arguments: tuple[Any, ...] = ()

    refusal = "a function as an operand is not supported"


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Function):
    """One of two functions, as the run decides."""

    condition: Any
    then: Any
    otherwise: Any

    refusal = Closure.refusal


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The last thing that a function does: a call, or to return.

    Attributes:
        target: The name of the function that is called; RETURN to return the argument.
        arguments: What it is called with.
    """

    target: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome(Function):
    """How the way through a loop's body may end.

    Attributes:
        tails: The ways to end. The arguments of those that are not taken have no meaning.
        which: The number of the one that is taken, a scalar; None where there is one only.
    """

    tails: tuple[Tail, ...]
    which: ir.Value | None = None

    refusal = "recursion is not supported, but for loops: a function computes with the result of calling itself"

    @property
    def is_error(self) -> bool:
        """Whether it only ends in an error."""
        return len(self.tails) == 1 and self.tails[0].arguments == (RAISED,)

    def ends_in(self, target: str) -> int | None:
        """The number of the way that ends in this target."""
        return next((index for index, tail in enumerate(self.tails) if tail.target == target), None)


class Raised(Function):
    """What a function gives back that raises an error instead."""

    refusal = "the network does nothing but raise an error"


RAISED = Raised()


def as_outcome(result: Any) -> Outcome:
    """What a function gave back, as an outcome."""
    return result if isinstance(result, Outcome) else Outcome((Tail(RETURN, (result,)),))


def leaves(value: Any) -> Iterator[Any]:
    """What nested tuples hold, in order."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def rebuilt(value: Any, items: Iterator[Any]) -> Any:
    """Nested tuples of the same form that hold other things."""
    if isinstance(value, tuple):
        return tuple(rebuilt(item, items) for item in value)
    return next(items)


def same_form(first: Any, second: Any) -> bool:
    """Whether two values are nested tuples of the same form."""
    if isinstance(first, tuple) != isinstance(second, tuple):
        return False
    if not isinstance(first, tuple):
        return True
    return len(first) == len(second) and all(same_form(*pair) for pair in zip(first, second, strict=True))


def leaf_types(type_: Type, value: Any) -> Iterator[Type]:
    """The recorded types of what nested tuples hold; None where there is none."""
    if isinstance(value, tuple):
        types = type_ if isinstance(type_, tuple) and len(type_) == len(value) else (None,) * len(value)
        for item_type, item in zip(types, value, strict=True):
            yield from leaf_types(item_type, item)
    else:
        yield None if isinstance(type_, tuple) else type_


def is_same(first: Any, second: Any) -> bool:
    """Whether two leaves are the same memory, function or literal."""
    if first is second:
        return True
    if isinstance(first, Closure) and isinstance(second, Closure):
        return (
            first.function is second.function
            and same_form(first.arguments, second.arguments)
            and all(map(is_same, leaves(first.arguments), leaves(second.arguments)))
        )
    if isinstance(first, Loaded) and isinstance(second, Loaded):
        return first.memory is second.memory and first.content is second.content
    if isinstance(first, Memory | Loaded | Function) or isinstance(second, Memory | Loaded | Function):
        return False
    return type(first) is type(second) and bool(first == second)


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A leaf of what leaves a scope, as it is at the scope's end.

    Attributes:
        source: The leaf.
        value: The content of its memory; None for a literal.
        outside: Whether it is known outside of the scope too.
        bases: The memory outside of the scope that it may share.
    """

    source: Any
    value: ir.Value | None
    outside: bool
    bases: list[Memory]


def leave(source: Any, depth: int, nodes: set[ir.Node]) -> Leaf:
    """A leaf at the end of a scope.

    Args:
        source: The leaf.
        depth: The depth outside of the scope.
        nodes: The nodes of the scope.
    """
    memory = source.memory if isinstance(source, Loaded) else source
    if isinstance(memory, Memory):
        value: ir.Value = content(source)
        bases = [root for root in memory.roots() if root.depth <= depth]
        inside = memory.depth > depth or (isinstance(source, Loaded) and value.producer() in nodes)
        return Leaf(source, value, not inside, bases)
    if isinstance(source, Closure):
        parts = [leave(item, depth, nodes) for item in leaves(source.arguments)]
        return Leaf(source, None, all(part.outside for part in parts), [])
    return Leaf(source, None, not isinstance(source, Choice), [])

"""Ops that choose a function to call. The call itself is a node of its own, which the translator makes."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.flow import RAISED, Choice, Closure
from litehouse.formats.mindir.memory import content
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64


@op("Partial", structural=True)
def partial(t: MindirTape, function: Any, *arguments: Any) -> Any:
    if not isinstance(function, Closure):
        t.refuse("its first operand is no function")
    return Closure(function.function, (*function.arguments, *arguments))


@op("Switch", structural=True)
def switch(t: MindirTape, condition: Any, then: Any, otherwise: Any) -> Any:
    return Choice(content(condition), then, otherwise)


@op("switch_layer", structural=True)
def switch_layer(t: MindirTape, index: Any, functions: Any) -> Any:
    """One of several functions. An index out of range is an error of the engine, as it is one in MindSpore."""
    if not isinstance(functions, tuple) or not functions:
        t.refuse("its second operand is no tuple of functions")
    index = content(index)
    if t.is_literal(index):
        return functions[t.literal(index)]
    places = t.constant(list(range(len(functions))), INT64)
    place = t.op("Gather", [places, t.op("Reshape", [index, t.constant([], INT64)])], dtype=INT64, shape=[])
    return _between(t, place, functions, 0)


def _between(t: MindirTape, place: ir.Value, functions: tuple[Any, ...], first: int) -> Any:
    if len(functions) == 1:
        return functions[0]
    half = len(functions) // 2
    condition = t.op("Less", [place, t.constant(first + half, INT64)], dtype=ir.DataType.BOOL, shape=[])
    rest = _between(t, place, functions[half:], first + half)
    return Choice(condition, _between(t, place, functions[:half], first), rest)


@op("raise", structural=True)
def raise_error(t: MindirTape, *operands: Any) -> Any:
    """An error. It is one of the engine, without the text, and only where what the network gives back depends on it."""
    return RAISED

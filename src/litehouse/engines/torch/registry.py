"""The table of ops. An op is found here by its ONNX name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own ops


class LackingError(Exception):
    """An op's word that torch cannot compute this use of it: ONNX Runtime does so instead."""


@dataclass(frozen=True, slots=True)
class Op:
    """A registered op.

    Attributes:
        function: Takes the inputs by position, as torch tensors, and the attributes by name; returns one or more.
        parameters: The names of its inputs.
        attributes: The names of the attributes that it knows.
        known: The inputs whose numbers it must know, as a shape: it gets these as tensors on the CPU.
        seen: The inputs that it gets so where they are single constants.
        small: The inputs that it takes as int8 where they are constants of 4 bits, which torch has no type for.
        is_variadic: Whether it takes any number of inputs.
        takes_outputs: Whether it is told how many outputs are wanted, as `outputs`.
        takes_place: Whether it is told the device, as `place`: where it has no inputs, nothing else tells it.
        since: The first version of its domain that it serves.
    """

    function: Function
    parameters: tuple[str, ...]
    attributes: frozenset[str]
    known: frozenset[str]
    seen: frozenset[str]
    small: frozenset[str]
    is_variadic: bool
    takes_outputs: bool
    takes_place: bool
    since: int

    def knows(self, place: int) -> bool:
        """Whether the input at a place is one whose numbers it must know."""
        return self.parameters[place] in self.known if place < len(self.parameters) else False

    def sees(self, place: int) -> bool:
        """Whether the input at a place is one whose number it makes use of where it is a single constant."""
        return self.parameters[place] in self.seen if place < len(self.parameters) else False

    def takes_small(self, place: int) -> bool:
        """Whether the input at a place is one that it takes as int8 where it is a constant of 4 bits."""
        return self.parameters[place] in self.small if place < len(self.parameters) else False

    def refusal(self, attributes: Mapping[str, Any], count: int) -> str:
        """Why it cannot take these attributes and so many inputs; empty where it can."""
        unknown = sorted(attributes.keys() - self.attributes)
        if unknown:
            return f"the attribute {unknown[0]} is not known"
        if count > len(self.parameters) and not self.is_variadic:
            return f"{count} inputs where at most {len(self.parameters)} are known"
        return ""


_TABLE: dict[tuple[str, str], list[Op]] = {}


def op(
    *names: str,
    domain: str = "",
    since: int = 1,
    known: Sequence[str] = (),
    seen: Sequence[str] = (),
    small: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Register a function under the ONNX names of its op.

    Its positional parameters are the op's inputs, None where one is left out; its keyword parameters are the op's
    attributes, with ONNX's own names and defaults. Lists of numbers are lists, text is str, and tensors are on the
    CPU. It computes on whatever device its inputs are on, and changes none of them.

    Args:
        *names: The op's names.
        domain: Its domain.
        since: The first version of the domain whose op it is. Of several functions, the newest one serves.
        known: The inputs whose numbers it must know: they arrive on the CPU.
        seen: The inputs that arrive there where they are constants of one element, and on its device otherwise.
        small: The inputs that arrive as int8 where they are constants of 4 bits, which torch has no type for.
    """

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        made = Op(
            function=function,
            parameters=tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD),
            attributes=frozenset(named - {"outputs", "place"}),
            known=frozenset(known),
            seen=frozenset(seen),
            small=frozenset(small),
            is_variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
            takes_outputs="outputs" in named,
            takes_place="place" in named,
            since=since,
        )
        for name in names:
            found = _TABLE.setdefault((domain, name), [])
            if any(other.since == since for other in found):
                raise ValueError(f"op {name} is registered twice")
            found.append(made)
            found.sort(key=lambda each: each.since)
        return function

    return register


def find_op(domain: str, name: str, version: int) -> Op | None:
    """The function for an op of a version of its domain; None where there is none."""
    from litehouse.engines.torch import ops

    ops.load()
    domain = "" if domain == "ai.onnx" else domain
    return next((each for each in reversed(_TABLE.get((domain, name), [])) if each.since <= version), None)


def table() -> dict[tuple[str, str], list[Op]]:
    """All ops, by domain and name."""
    from litehouse.engines.torch import ops

    ops.load()
    return _TABLE

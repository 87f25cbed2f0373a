"""The table of op converters. An op is found here by its MindIR name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Converter:
    """A registered converter.

    Attributes:
        function: Takes the tape, the operands by position and the attributes by name; returns values.
        parameters: The names of its parameters, the tape left out.
        required: How many of them have no default.
        variadic: Whether it takes any number of operands.
        structural: Whether it arranges values of any kind (tuples, ordering tokens) instead of computing tensors.
        writes: Whether its result is stored into its first operand (in-place ops).
        view: Whether its result shares memory with its first operand.
        overlaps: Whether several places of that view may share one place of the operand.
    """

    function: Function
    parameters: tuple[str, ...]
    required: int
    variadic: bool
    structural: bool
    writes: bool
    view: bool
    overlaps: bool

    def __call__(self, tape: MindirTape, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Translate one node. Attributes that the converter does not name have no meaning for inference."""
        start = len(tape.nodes)
        result = self._convert(tape, operands, attributes)
        tape.complete(start)
        return result

    def _convert(self, tape: MindirTape, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        if self.variadic:
            return self.function(tape, *operands, **_named(self.parameters, attributes))
        if len(operands) > len(self.parameters):
            raise RefusedError(f"{len(operands)} operands where at most {len(self.parameters)} are known")
        named = _named(self.parameters[len(operands) :], attributes)
        missing = [name for name in self.parameters[len(operands) : self.required] if name not in named]
        if missing:
            raise RefusedError(f"{', '.join(missing)} missing")
        return self.function(tape, *operands, **named)


def _named(parameters: Sequence[str], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes for these parameters; one that is a keyword of Python (`global`) has an underscore behind it."""
    sources = {name: name.removesuffix("_") for name in parameters}
    return {name: attributes[source] for name, source in sources.items() if source in attributes}


CONVERTERS: dict[str, Converter] = {}


def op(
    *names: str, structural: bool = False, writes: bool = False, view: bool = False, overlaps: bool = False
) -> Callable[[Function], Function]:
    """Register a converter under the MindIR names of its op.

    The converter's parameters carry MindIR's own names and defaults: a parameter of the op arrives by position in files
    of MindSpore 2.3 and later, and as an attribute of the same name in older ones. Both reach the same function.
    """

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        converter = Converter(
            function=function,
            parameters=tuple(p.name for p in parameters if p.kind != p.VAR_POSITIONAL),
            required=sum(p.default is p.empty and p.kind != p.VAR_POSITIONAL for p in parameters),
            variadic=any(p.kind == p.VAR_POSITIONAL for p in parameters),
            structural=structural,
            writes=writes,
            view=view,
            overlaps=overlaps,
        )
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"op {name} is registered twice")
            CONVERTERS[name] = converter
        return function

    return register

"""The table of op converters. An operator is found here by its MegEngine name, without version and `Forward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.blocked import on_plain
from litehouse.formats.mge.tape import MgeTape

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Converter:
    """A registered converter.

    Attributes:
        function: Takes the tape, the operands by position and the parameters by name; returns values.
        least: How many operands it needs.
        most: How many it takes; None for any number.
        parameters: The names of the parameters that it wants.
        all_parameters: Whether it takes all others too, as `**params`.
        keeps: Whether it only moves numbers, so that its results are quantised as its first operand is.
        quantised: Whether it handles quantised operands itself.
    """

    function: Function
    least: int
    most: int | None
    parameters: tuple[str, ...]
    all_parameters: bool
    keeps: bool
    quantised: bool

    def __call__(
        self, tape: MgeTape, operands: Sequence[ir.Value], params: Mapping[str, Any]
    ) -> tuple[ir.Value | None, ...]:
        """Translate one operator."""
        if len(operands) < self.least or (self.most is not None and len(operands) > self.most):
            tape.refuse(f"{len(operands)} operands, where {self.least} to {self.most or 'any number of'} are known")
        missing = [name for name in self.parameters if name not in params]
        if missing:
            tape.refuse(f"its parameter {missing[0]} is missing")
        dtypes = [tape.quantised(value) for value in operands]
        if any(dtypes) and not (self.keeps or self.quantised):
            tape.refuse("quantised operands are not supported here")
        wanted = params if self.all_parameters else {name: params[name] for name in self.parameters}
        result = self.function(tape, *operands, **wanted)
        results: tuple[ir.Value | None, ...] = result if isinstance(result, tuple) else (result,)
        if self.keeps and dtypes and (dtype := dtypes[0]) is not None:
            return tuple(None if value is None else tape.as_quantised(value, dtype) for value in results)
        return results


CONVERTERS: dict[str, Converter] = {}


def op(*names: str, keeps: bool = False, quantised: bool = False) -> Callable[[Function], Function]:
    """Register a converter under the names of its operator.

    Operands come by position, `None` by default for optional ones, or as `*operands`; the fields of the operator's
    parameter table that the converter names come by keyword. Several results are a tuple; one that inference never
    uses may be None.
    """

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        places = [p for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        converter = Converter(
            function=function,
            least=sum(p.default is p.empty for p in places),
            most=None if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(places),
            parameters=tuple(p.name for p in parameters if p.kind == p.KEYWORD_ONLY),
            all_parameters=any(p.kind == p.VAR_KEYWORD for p in parameters),
            keeps=keeps,
            quantised=quantised,
        )
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"operator {name} is registered twice")
            CONVERTERS[name] = replace(converter, function=on_plain(name, function))
        return function

    return register

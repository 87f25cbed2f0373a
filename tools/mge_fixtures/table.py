"""The words that case tables are written in: inputs to draw, weights, and cases."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import megengine as mge
import numpy as np
from fixture_inputs import Draw, boolean, f16, f32, i8, i16, i32, u8, u16, values
from megengine.core._imperative_rt.core2 import apply

__all__ = [
    "ARGUMENTS",
    "CASES",
    "CHECKS",
    "KEEP",
    "RAW",
    "Case",
    "Draw",
    "add",
    "applied",
    "boolean",
    "case",
    "f16",
    "f32",
    "i8",
    "i16",
    "i32",
    "run_op",
    "u8",
    "u16",
    "values",
    "weight",
    "words",
]

ARGUMENTS = ("x", "y", "z", "w", "v", "u", "t", "s")
KEEP = {"no_change_graph": True}
RAW = {"no_change_graph": True, "optimize_for_inference": False}


def weight(*shape: int, dtype: str = "float32", scale: float = 1.0, low: float | None = None) -> mge.Tensor:
    """A constant of the graph: normal values, or uniform ones from ``low`` to ``low + scale``."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, dtype)).encode()))
    array = rng.standard_normal(shape) * scale if low is None else low + scale * rng.random(shape)
    return mge.Tensor((np.round(array * 256) / 256).astype(dtype))


def words(text: str) -> list[str]:
    """A list of names."""
    return text.split()


def run_op(op: Any, *inputs: mge.Tensor) -> Any:
    """Apply an operator of `megengine.core.ops.builtin`; the only output, or the list of outputs."""
    outputs = apply(op, *inputs)
    return outputs[0] if len(outputs) == 1 else list(outputs)


def applied(op: Any, *before: mge.Tensor) -> Callable[..., Any]:
    """The function that applies an operator to its arguments, behind these constants."""
    return lambda *inputs: run_op(op, *before, *inputs)


Input = Draw | np.ndarray


@dataclass
class Case:
    """One fixture: a function (or module), its inputs, and how it is dumped."""

    name: str
    function: Callable[..., Any]
    inputs: Sequence[Input]
    options: dict[str, Any] = field(default_factory=dict)
    """Keywords of MegEngine's ``dump``."""
    resized: Sequence[Input] | None = None
    """A second set of inputs, in other shapes."""
    reference: dict[str, Any] | Callable[..., Any] | None = None
    """What gives the outputs where lite cannot run the file, or runs it wrongly: other options of the dump, or an
    equivalent function."""
    checks: dict[str, Any] = field(default_factory=dict)
    """How the outputs are compared: ``step``, ``relative``, ``unordered``."""


CASES: list[Case] = []
"""The cases of the family that was imported."""

CHECKS = ("step", "relative", "unordered")


def add(name: str, function: Callable[..., Any], *inputs: Input, **options: Any) -> None:
    """Declare a case; see the package's documentation."""
    own = {key: options.pop(key) for key in ("resized", "reference") if key in options}
    checks = {key: options.pop(key) for key in CHECKS if key in options}
    CASES.append(Case(name, function, inputs, options, **own, checks=checks))


def case(*inputs: Input, name: str = "", **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the decorated function or module class as a case, by its name unless another is given."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        add(name or function.__name__, function, *inputs, **options)
        return function

    return declare

"""What an engine is: it compiles a `Model` to a `Program`, which gives `Runner`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from litehouse.model import Model
from litehouse.options import Options
from litehouse.weights.store import has_nan


@dataclass(frozen=True, slots=True)
class Names:
    """What a compiled model is called, and what it calls its inputs and outputs.

    Attributes:
        path: The model's file, for error texts.
        fed: All that it takes, in order.
        given: All that it gives.
        live: How many of those that it takes, at their end, are weights.
    """

    path: str
    fed: list[str]
    given: list[str]
    live: int = 0

    @classmethod
    def of(cls, model: Model) -> Self:
        """The names of a model."""
        return cls(model.path, model.fed_names, model.given_names, len(model.live))


Stoppable = Callable[[Callable[[], None] | None], None]
"""Told how another thread stops a run that begins, and None when it has ended."""


class Runner(Protocol):
    """Runs a program. Used by one thread at a time."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for C-contiguous inputs in model order. They own their memory."""
        ...

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The same, in a run that can be stopped: it then raises EngineError, within an operator's time."""
        ...


class Program(Protocol):
    """A compiled model.

    Attributes:
        precision: What it computes in: "fp32", "fp16" or "bf16".
        is_rewritten: Whether passes changed the graph to make it faster.
    """

    precision: str
    is_rewritten: bool

    def bind(self) -> Runner:
        """A new runner."""
        ...

    def save(self, folder: Path) -> None:
        """Write the compiled model into a folder, from which `Engine.restore` takes it."""
        ...


class Engine(Protocol):
    """A way to run models.

    Attributes:
        name: The name, as in `Options.engine`.
        capabilities: What it offers beyond running: "affinity", "inter_op", "keeps" (programs that can be saved),
            "arena" (its programs hold all weights themselves, on a device), "ranks" (one part of a job).
    """

    name: str
    capabilities: frozenset[str]

    def available(self, options: Options) -> str | None:
        """Why the engine cannot serve these options on this machine; None when it can."""
        ...

    def lower_precisions(self) -> tuple[str, ...]:
        """The 16-bit precisions that the engine has on some CPUs, the best first; a trial tells of this one."""
        ...

    def forms(self, model: Model, options: Options, precision: str) -> tuple[str, ...]:
        """The other forms in which it can build a model: a race tells which is the fastest here."""
        ...

    def making_seconds(self, model: Model, form: str) -> float:
        """About how long the first run of a form takes for the kernels that are made in it; 0 where none are."""
        ...

    def compile(
        self,
        model: Model,
        options: Options,
        shapes: Sequence[Sequence[int]] | None = None,
        precision: str = "fp32",
        *,
        is_plain: bool = False,
        parts: int = 1,
        form: str = "",
    ) -> Program:
        """Compile a model.

        Args:
            model: The model.
            options: How to run it; its `precision` only says what is allowed.
            shapes: What replaces the shapes of its inputs.
            precision: What to compute in.
            is_plain: Leave out the passes that make most graphs faster.
            parts: Compile it for one of so many equal parts of its batch.
            form: One of `forms`; empty for the usual one.

        Raises:
            EngineError: The engine cannot run the model, or its batch cannot be split.
        """
        ...

    def hold(self, array: np.ndarray) -> Any:
        """What a run may be given in the place of an array that many runs take: the same memory."""
        ...

    def keep(self, model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Copies of what live weights are to hold; `update` may come next, or not."""
        ...

    def not_numbers(self, model: Model, kept: Mapping[str, np.ndarray]) -> list[str]:
        """Which copies have a value that is not a number."""
        ...

    def update(self, model: Model, arrays: Mapping[str, np.ndarray]) -> None:
        """Let runs that start from now on use these live weights, where they are not given them."""
        ...

    def restore(self, folder: Path, names: Names, options: Options, precision: str) -> Program:
        """The compiled model that `Program.save` wrote.

        Raises:
            EngineError: The engine does not take it.
        """
        ...


class OneForm:
    """An engine that builds a model in one form alone: it decides by itself."""

    def forms(self, model: Model, options: Options, precision: str) -> tuple[str, ...]:  # noqa: ARG002
        """No other."""
        return ()

    def making_seconds(self, model: Model, form: str) -> float:  # noqa: ARG002
        """Nothing: no kernels are made in a run."""
        return 0.0


class GivenWeights:
    """How an engine treats weights that change where each run is given them: as the arrays that they are."""

    def hold(self, array: np.ndarray) -> Any:
        """The array itself."""
        return array

    def keep(self, model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:  # noqa: ARG002
        """Copies of what live weights are to hold."""
        return {name: np.array(array, order="C") for name, array in arrays.items()}

    def not_numbers(self, model: Model, kept: Mapping[str, np.ndarray]) -> list[str]:  # noqa: ARG002
        """Which copies have a value that is not a number."""
        return [name for name, array in kept.items() if has_nan(array)]

    def update(self, model: Model, arrays: Mapping[str, np.ndarray]) -> None:
        """Nothing: the next run is given them."""

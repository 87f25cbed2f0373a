"""What an engine is: it compiles a `Model` to a `Program`, which gives `Runner`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from litehouse.model import Model
from litehouse.options import Options


class Runner(Protocol):
    """Runs a program. Used by one thread at a time."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for C-contiguous inputs in model order. They own their memory."""
        ...


class Program(Protocol):
    """A compiled model.

    Attributes:
        precision: What it computes in: "fp32", "fp16" or "bf16".
    """

    precision: str

    def bind(self) -> Runner:
        """A new runner."""
        ...


class Engine(Protocol):
    """A way to run models.

    Attributes:
        name: The name, as in `Options.engine`.
        capabilities: What it offers beyond running: "affinity", "inter_op", "cache".
    """

    name: str
    capabilities: frozenset[str]

    def available(self, options: Options) -> str | None:
        """Why the engine cannot serve these options on this machine; None when it can."""
        ...

    def lower_precision(self) -> str | None:
        """The 16-bit precision that the engine has on this machine; None without one."""
        ...

    def compile(self, model: Model, options: Options, shapes: Sequence[Sequence[int]] | None = None) -> Program:
        """Compile a model; `shapes` replaces the shapes of its inputs.

        Raises:
            EngineError: The engine cannot run the model.
        """
        ...

"""The words that case tables are written in: inputs to draw, and cases."""

from __future__ import annotations  # MindSpore 2.0 needs Python 3.9

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mindspore import nn


@dataclass(frozen=True)
class Draw:
    """An input to draw: dtype, shape and how to fill it, with a seed that comes from the case's name."""

    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def __call__(self, rng: np.random.Generator) -> np.ndarray:
        kind = np.dtype(self.dtype).kind
        if kind == "b":
            return rng.random(self.shape) < 0.5
        if kind in "iu":
            low = -9 if self.low is None else int(self.low)
            high = 9 if self.high is None else int(self.high)
            return rng.integers(low, high, size=self.shape, dtype=np.int64).astype(self.dtype)
        free = self.low is None or self.high is None
        drawn = rng.standard_normal(self.shape) * 1.5 if free else rng.uniform(self.low, self.high, self.shape)
        return (np.round(drawn * 256) / 256).astype(self.dtype)  # short fractions: the files compress better


def f32(*shape: int, low: float | None = None, high: float | None = None) -> Draw:
    return Draw("float32", shape, low, high)


def f16(*shape: int, low: float | None = None, high: float | None = None) -> Draw:
    return Draw("float16", shape, low, high)


def f64(*shape: int, low: float | None = None, high: float | None = None) -> Draw:
    return Draw("float64", shape, low, high)


def i32(*shape: int, low: int = -9, high: int = 9) -> Draw:
    return Draw("int32", shape, low, high)


def i64(*shape: int, low: int = -9, high: int = 9) -> Draw:
    return Draw("int64", shape, low, high)


def u8(*shape: int, low: int = 0, high: int = 200) -> Draw:
    return Draw("uint8", shape, low, high)


def i8(*shape: int, low: int = -100, high: int = 100) -> Draw:
    return Draw("int8", shape, low, high)


def i16(*shape: int, low: int = -100, high: int = 100) -> Draw:
    return Draw("int16", shape, low, high)


def boolean(*shape: int) -> Draw:
    return Draw("bool", shape)


def values(items: Any, dtype: str = "float32") -> np.ndarray:
    """A literal input."""
    return np.array(items, dtype=dtype)


@dataclass
class Case:
    """One fixture: a network (a cell, or the text of ``construct``) and its inputs."""

    name: str
    network: str | nn.Cell
    inputs: Sequence[Draw | np.ndarray]
    members: dict[str, Any] = field(default_factory=dict)
    shapes: Sequence[Sequence[int | None] | None] | None = None
    """Shapes to export with, where they differ from the inputs' (None = dynamic dimension)."""
    dtype: str | None = None
    """Cast the whole cell to this float type before the export."""
    reference: str | None = None
    """Text of an equivalent network: gives the outputs where MindSpore has no CPU kernel for the exported one."""
    loader_bug: str | None = None
    """Why MindSpore's own loader computes something else from the exported file."""


def case(
    name: str,
    network: str | nn.Cell,
    *inputs: Draw | np.ndarray,
    shapes: Sequence[Sequence[int | None] | None] | None = None,
    dtype: str | None = None,
    reference: str | None = None,
    loader_bug: str | None = None,
    **members: Any,
) -> Case:
    """Declare a case.

    Args:
        name: File name of the fixture.
        network: A cell, or Python text: an expression over x, y, z, ... and ``self.<member>``, or a whole body.
        *inputs: What to draw for each argument, or literal arrays.
        shapes: Shapes for the export, with None for dynamic dimensions.
        dtype: Float type that the cell is cast to.
        reference: Text of an equivalent network that gives the outputs, for operators without a CPU kernel.
        loader_bug: Why MindSpore's own loader computes something else from the exported file; None = it must agree.
        **members: Attributes of the generated cell (primitives, layers, parameters).
    """
    return Case(name, network, inputs, members, shapes, dtype, reference, loader_bug)

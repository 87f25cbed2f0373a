"""The words that case tables are written in: inputs to draw, and cases."""

from __future__ import annotations  # MindSpore 2.0 needs Python 3.9

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fixture_inputs import Draw, boolean, f16, f32, f64, i8, i16, i32, i64, u8, values
from mindspore import nn

__all__ = [
    "Case",
    "Draw",
    "boolean",
    "case",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "values",
]


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

"""The words that the lists of networks are written in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mindir_fixtures.table import Draw
from mindspore import nn

Inputs = Sequence[Draw | np.ndarray]


@dataclass
class Network:
    """A network to export. It is called once per entry of `calls`, one after the other, so that state shows."""

    name: str
    source: str
    build: Callable[[], nn.Cell]
    calls: Sequence[Inputs]
    shapes: Sequence[Sequence[int | None]] | None = None
    """Shapes to export with, where they differ from the first call's (None = dynamic dimension)."""


def by_hand(
    build: Callable[[], nn.Cell],
    *calls: Inputs,
    name: str = "",
    shapes: Sequence[Sequence[int | None]] | None = None,
) -> Network:
    """A network written for this purpose, called as its class unless a name is given."""
    return Network(name or getattr(build, "__name__", ""), "by hand", build, calls, shapes)

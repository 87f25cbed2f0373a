"""The words that the lists of networks are written in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import megengine.module as M
import numpy as np
from mge_fixtures.table import Draw

Inputs = Sequence[Draw | np.ndarray]


@dataclass
class Network:
    """A network to dump."""

    name: str
    what: str
    """Its kind in a few words."""
    build: Callable[[], M.Module]
    inputs: Inputs
    resized: Inputs
    """The second set of inputs, in other shapes."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keywords of MegEngine's ``dump``."""
    quantised: bool = False
    """Whether it is calibrated and converted to 8-bit data."""
    plain: bool = False
    """Whether the outputs come from a dump without options, because lite cannot run this one, or runs it wrongly."""


NETWORKS: list[Network] = []
"""All that were declared so far."""


def network(
    name: str,
    what: str,
    build: Callable[[], M.Module],
    *sets: Inputs,
    quantised: bool = False,
    plain: bool = False,
    **options: Any,
) -> None:
    """Declare a network, with its two sets of inputs; further keywords are options of the dump."""
    first, second = sets
    NETWORKS.append(Network(name, what, build, first, second, options, quantised, plain))

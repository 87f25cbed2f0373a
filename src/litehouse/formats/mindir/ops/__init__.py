"""The op converters, one file per family. Importing this package fills the table."""

from litehouse.formats.mindir.ops import (
    activation,
    arithmetic,
    array,
    convolution,
    create,
    index,
    linear,
    logic,
    normalization,
    pooling,
    recurrent,
    reduction,
    resize,
    structure,
    vision,
)
from litehouse.formats.mindir.registry import CONVERTERS

__all__ = [
    "CONVERTERS",
    "activation",
    "arithmetic",
    "array",
    "convolution",
    "create",
    "index",
    "linear",
    "logic",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "resize",
    "structure",
    "vision",
]

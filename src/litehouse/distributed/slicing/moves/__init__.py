"""How a cut moves from the results of a node to its operands: one file per family of ops, found by `registry`."""

from litehouse.distributed.slicing.moves import along, attention, elementwise, images, layout, matrix, select
from litehouse.distributed.slicing.moves.registry import Edit, Move, Site, array_of, move_for, sizes_of

__all__ = [
    "Edit",
    "Move",
    "Site",
    "along",
    "array_of",
    "attention",
    "elementwise",
    "images",
    "layout",
    "matrix",
    "move_for",
    "select",
    "sizes_of",
]

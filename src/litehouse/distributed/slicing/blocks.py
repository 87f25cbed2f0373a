"""Suggests blocks for an axis that a sum runs over: such that a cut of it can move further up."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from litehouse.distributed.slicing.cuts import group_of
from litehouse.distributed.slicing.moves import Site, sizes_of

# The axis stays where it is, and keeps its size.
SAME = frozenset(("Cast", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "PRelu", "Relu"))
SAME |= frozenset(("AveragePool", "BatchNormalization", "Dropout", "Erf", "MaxPool", "Sigmoid", "Softplus", "Tanh"))
MOST_STEPS = 8
MOST_BLOCKS = 4096


def blocks_of(site: Site, place: int, axis: int) -> Iterator[tuple[int, ...]]:
    """Blocks other than the whole axis: the parts that are joined along it, or the axes that it was made of."""
    value = site.input(place)
    node = None if value is None else value.producer()
    for _ in range(MOST_STEPS):
        if node is None or node.domain or node.op_type not in SAME or node.inputs[0] is None:
            break
        node = node.inputs[0].producer()
    if node is None or node.domain:
        return
    if node.op_type == "Concat":
        yield from _joined(node, axis)
    elif node.op_type in ("Flatten", "Reshape"):
        yield from _merged(node, axis)


def _joined(node: ir.Node, axis: int) -> Iterator[tuple[int, ...]]:
    shapes = [sizes_of(value) for value in node.inputs]
    if any(sizes is None for sizes in shapes):
        return
    known = [sizes for sizes in shapes if sizes is not None]
    if node.attributes["axis"].as_int() % len(known[0]) == axis:
        sizes = [shape[axis] for shape in known]
        if all(isinstance(size, int) for size in sizes):
            yield tuple(size for size in sizes if isinstance(size, int))


def _merged(node: ir.Node, axis: int) -> Iterator[tuple[int, ...]]:
    before, after = sizes_of(node.inputs[0]), sizes_of(node.outputs[0])
    group = None if before is None or after is None else group_of(before, after, axis)
    if group is None:
        return
    for index, size in enumerate(group.old if len(group.new) == 1 else ()):
        repeats = math.prod(group.old[:index])
        if index and size > 1 and 1 < repeats <= MOST_BLOCKS:
            yield (size * math.prod(group.old[index + 1 :]),) * repeats

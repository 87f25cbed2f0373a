"""Tells sizes that do not depend on those of the inputs, where ONNX's rules cannot: by trying many.

The shapes of all values are worked out for inputs of several sizes, in which every open size also changes by itself and
with each other one. Sizes that the network cannot have, since then shapes do not fit each other, tell nothing. A size
that comes out the same in all others is taken for fixed. Nothing is run for this.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir

from litehouse.distributed.slicing.cuts import Size
from litehouse.distributed.slicing.moves.registry import sizes_of
from litehouse.passes.fold_shapes import FoldShapesPass

MAX_ROUNDS = 64
MAX_OPEN = 8  # sizes of inputs that are not known; with more of them nothing is concluded
LEAST = 3  # of the first tries that must fit
MADE_UP = "~"  # what the names begin with that are given here
# For the first axis, the second, and so on: inputs that belong together mostly have their sizes on the same axes.
FIRST = (
    (3, 10, 64, 96, 14, 22),
    (4, 12, 96, 128, 18, 26),
    (5, 14, 160, 64, 20, 34),
    (2, 7, 32, 32, 8, 12),
    (1, 33, 224, 224, 40, 46),
    (17, 129, 257, 257, 67, 71),
    (67, 509, 509, 509, 131, 139),
    (131, 1021, 1031, 1031, 257, 263),
    (13, 8191, 2053, 2053, 521, 523),
)
ALONE = 31  # what a size is larger by that changes alone, and twice that for a second one

Open = str | tuple[int, int]
"""A size that is not known: its name, or the input and the axis that have none."""


def settle_sizes(model: ir.Model) -> None:
    """Record the sizes of values that are the same whatever the sizes of the inputs; only unknown ones are set.

    Those that are not are given names: the same for those that came out the same each time. `forget_names` takes them
    away again.
    """
    axes = _open(model)
    if not axes or len(axes) > MAX_OPEN:
        return
    tries = [{each: _at(sizes, axis) for each, axis in axes.items()} for sizes in FIRST]
    found = [_shapes(model, each) for each in tries]
    for some in itertools.chain(*(itertools.combinations(axes, count) for count in (1, 2) if len(axes) > count)):
        changed = {each: tries[0][each] + ALONE * (place + 1) for place, each in enumerate(some)}
        found.append(_shapes(model, tries[0] | changed))
    counts = [sum(_is_known(shape) for shape in shapes.values()) for shapes in found]
    fitting = [shapes for shapes, count in zip(found, counts, strict=True) if count == max(counts)]
    if sum(count == max(counts) for count in counts[: len(FIRST)]) < LEAST:
        return
    for value in (*model.graph.inputs, *(value for node in model.graph for value in node.outputs)):
        merged = _merged(sizes_of(value), [shapes.get(str(value.name)) for shapes in fitting])
        if merged is not None:
            value.shape = ir.Shape(merged)


def _open(model: ir.Model) -> dict[Open, int]:
    """The sizes of inputs that are not known, with the axis where each first stands."""
    found: dict[Open, int] = {}
    for place, value in enumerate(model.graph.inputs):
        for axis, size in enumerate(sizes_of(value) or ()):
            if not isinstance(size, int):
                found.setdefault(size or (place, axis), axis)
    return found


def _at(sizes: tuple[int, ...], axis: int) -> int:
    return sizes[min(axis, len(sizes) - 1)]


def _is_known(shape: tuple[Size, ...]) -> bool:
    return all(isinstance(size, int) for size in shape)


def is_static(model: ir.Model) -> bool:
    """Whether all inputs have known sizes."""
    return all(isinstance(size, int) for value in model.graph.inputs for size in sizes_of(value) or (None,))


def forget_names(model: ir.Model) -> None:
    """Take the names of sizes away that `settle_sizes` gave."""
    for value in (value for node in model.graph for value in node.outputs):
        sizes = sizes_of(value)
        if sizes is not None and any(isinstance(size, str) and size.startswith(MADE_UP) for size in sizes):
            kept = [None if isinstance(size, str) and size.startswith(MADE_UP) else size for size in sizes]
            value.shape = ir.Shape(kept)


def shapes_for(model: ir.Model, probe: tuple[int, ...]) -> dict[str, tuple[Size, ...]]:
    """The shapes of all values for inputs of these sizes, by their axes."""
    return _shapes(model, {each: _at(probe, axis) for each, axis in _open(model).items()})


def _shapes(model: ir.Model, sizes: dict[Open, int]) -> dict[str, tuple[Size, ...]]:
    """The shapes of all values for inputs of these sizes."""
    copy = model.clone()
    for place, value in enumerate(copy.graph.inputs):
        if value.shape is not None:
            known = enumerate(sizes_of(value) or ())
            value.shape = ir.Shape([s if isinstance(s, int) else sizes[s or (place, axis)] for axis, s in known])
    for value in copy.graph.outputs:
        value.shape = None  # names of sizes there would contradict
    # What is there for its shape alone would be gone when that is told.
    asked = [node.inputs[0] for node in copy.graph if node.op_type == "Shape" and node.inputs[0] is not None]
    copy.graph.outputs.extend(value for value in dict.fromkeys(asked) if value.producer() is not None)
    fold_all(copy)
    values = [*copy.graph.inputs, *(value for node in copy.graph for value in node.outputs)]
    return {str(value.name): found for value in values if (found := sizes_of(value)) is not None}


def fold_all(model: ir.Model) -> None:
    """Tell shapes and fold what is computed with them until nothing more follows: in deep networks layer by layer."""
    FoldShapesPass(MAX_ROUNDS, data_prop=True)(model)


def _merged(known: tuple[Size, ...] | None, shapes: list[tuple[Size, ...] | None]) -> tuple[Size, ...] | None:
    """A shape with the sizes that are the same in all others; None where they do not even agree in their rank."""
    if any(shape is None for shape in shapes):
        return None
    first, *others = [shape for shape in shapes if shape is not None]
    known = (None,) * len(first) if known is None else known
    if any(len(shape) != len(known) for shape in (first, *others)):
        return None
    return tuple(
        size if isinstance(size, int) else _size(size, [first[axis], *(shape[axis] for shape in others)])
        for axis, size in enumerate(known)
    )


def _size(known: Size, tried: list[Size]) -> Size:
    """A size that is not known, from what it was for other sizes of the inputs."""
    if not all(isinstance(size, int) for size in tried):
        return known
    return tried[0] if len(set(tried)) == 1 else MADE_UP + ",".join(map(str, tried))

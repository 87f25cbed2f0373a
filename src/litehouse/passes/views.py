"""Tells how values lie in the memory of one that they only rearrange."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from litehouse.passes.sketch import ints_of, order_of, static_shape

MAX_STEPS = 16
SAME_ORDER = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, slots=True)
class View:
    """Where the elements of a value are in another one.

    Attributes:
        source: The value that is rearranged.
        axes: The size of every axis, and how far its elements are apart in the source.
        start: Where the first element is.
    """

    source: ir.Value
    axes: tuple[tuple[int, int], ...]
    start: int


def view_of(value: ir.Value, steps: int = MAX_STEPS) -> View | None:
    """The view of the earliest value that this one only rearranges; None if its shape is unknown, or it is empty."""
    shape = static_shape(value)
    if shape is None or 0 in shape:
        return None
    node = value.producer()
    behind = node.inputs[0] if node is not None and node.inputs and not node.domain and steps else None
    whole = None if behind is None else view_of(behind, steps - 1)
    found = None if node is None or whole is None else _through(node, value, whole, shape)
    return found or View(value, _laid_out(shape, 1), 0)


def _through(node: ir.Node, value: ir.Value, whole: View, shape: tuple[int, ...]) -> View | None:
    """The view of a node's result, from that of its operand; None if it is no mere rearrangement."""
    axes, start = whole.axes, whole.start
    if node.op_type in SAME_ORDER:
        made = _reshaped(axes, shape)
        return None if made is None else View(whole.source, made, start)
    if node.op_type == "Transpose":
        order = order_of(node) or tuple(reversed(range(len(axes))))
        return View(whole.source, tuple(axes[axis] for axis in order), start)
    first = _first(node, value, axes)
    if first is None:
        return None
    axis, index = first
    start += index * axes[axis][1]
    if node.op_type == "Gather":
        return View(whole.source, axes[:axis] + axes[axis + 1 :], start)
    return View(whole.source, (*axes[:axis], (shape[axis], axes[axis][1]), *axes[axis + 1 :]), start)


def _first(node: ir.Node, value: ir.Value, axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The axis along which a node takes one part, and the first index of that part."""
    if node.op_type == "Slice":
        return _sliced(node, axes)
    attribute = node.attributes.get("axis")
    axis = (0 if attribute is None else attribute.as_int()) % max(1, len(axes))
    if node.op_type == "Gather":
        index = ints_of(node, 1)
        is_one = index is not None and node.inputs[1].const_value.shape.rank() == 0  # type: ignore[union-attr]
        return (axis, index[0] % axes[axis][0]) if index is not None and is_one else None
    if node.op_type == "Split":
        before = [static_shape(each) for each in node.outputs[: node.outputs.index(value)]]
        return None if None in before else (axis, sum(shape[axis] for shape in before if shape is not None))
    return None


def _sliced(node: ir.Node, axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The axis of a slice along one axis, and where it starts."""
    starts, along, steps = ints_of(node, 1), ints_of(node, 3), ints_of(node, 4)
    if starts is None or along is None or len(starts) != 1 or (steps != [1] and len(node.inputs) > 4):
        return None
    axis = along[0] % len(axes)
    size = axes[axis][0]
    return axis, max(0, starts[0] + size) if starts[0] < 0 else min(starts[0], size)


def _reshaped(axes: Sequence[tuple[int, int]], shape: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
    """The axes of a view after a reshape; None where elements that come to one axis are not evenly apart."""
    old, new = [axis for axis in axes if axis[0] > 1], list(shape)
    made: list[tuple[int, int]] = []
    while new:
        taken: list[tuple[int, int]] = []
        sizes = [new.pop(0)]
        while old and math.prod(size for size, _ in taken) < math.prod(sizes):
            taken.append(old.pop(0))
        while math.prod(sizes) < math.prod(size for size, _ in taken):
            sizes.append(new.pop(0))
        if math.prod(sizes) != math.prod(size for size, _ in taken):
            return None
        if any(stride != below[0] * below[1] for (_, stride), below in itertools.pairwise(taken)):
            return None
        made += _laid_out(sizes, taken[-1][1] if taken else 1)
    return tuple(made)


def _laid_out(sizes: Sequence[int], step: int) -> tuple[tuple[int, int], ...]:
    """Axes of elements one behind the other, the last one by steps."""
    return tuple((size, step * math.prod(sizes[place + 1 :])) for place, size in enumerate(sizes))

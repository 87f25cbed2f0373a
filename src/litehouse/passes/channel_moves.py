"""Finds which channels of which images a value consists of, through ops that only move numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from litehouse.passes.channels import channels_of
from litehouse.passes.sketch import is_fixed, static_shape

MAX_NUMBERS = 1 << 22  # of an image whose way is followed number by number
MAX_TOTAL = 1 << 27  # of all of them together: about a second
MAX_CHANNELS = 1 << 12
MAX_LISTED = 1 << 18  # channels of all values together

Channel = tuple[ir.Value, int]  # an image, and which of its channels


class ChannelMoves:
    """The values of a graph that are channels of other images, in any order and from any number of them.

    Attributes:
        channels: What each such value consists of. An image that it begins with is no such value.
        nodes: The nodes that move the numbers.
        lost: The images of which some numbers went where they could not be followed.
    """

    def __init__(self, graph: ir.Graph) -> None:
        """Follow all images of a graph, in order."""
        self.channels: dict[ir.Value, list[Channel]] = {}
        self.nodes: set[ir.Node] = set()
        self.lost: set[ir.Value] = set()
        # Values on the way from one image to another, of whatever shape: where in that image each number was.
        self._places: dict[ir.Value, tuple[ir.Value, np.ndarray]] = {}
        self._left, self._unlisted = MAX_TOTAL, MAX_LISTED
        for node in graph:
            if not node.domain and node.op_type == "Concat":
                self._join(node)
            elif not node.domain and node.op_type in MOVES:
                self._move(node)
        for value, (image, _) in self._places.items():
            if value.is_graph_output() or any(node not in self.nodes for node in value.consumers()):
                self.lost.update(source for source, _ in self.of(image))

    def of(self, image: ir.Value) -> list[Channel]:
        """The channels of an image; its own where it is made by no moves."""
        shape = static_shape(image)
        return self.channels.get(image) or [(image, index) for index in range(0 if shape is None else shape[1])]

    def _join(self, node: ir.Node) -> None:
        axis = node.attributes["axis"].as_int()
        inputs = [value for value in node.inputs if value is not None]
        if axis != 1 or not all(_is_image(value) for value in [*inputs, node.outputs[0]]):
            return
        self._unlisted -= channels_of(node.outputs[0]) or 0
        if self._unlisted >= 0:
            self.channels[node.outputs[0]] = [channel for value in inputs for channel in self.of(value)]
            self.nodes.add(node)

    def _move(self, node: ir.Node) -> None:
        value = node.inputs[0]
        assert value is not None
        if value not in self._places and (value not in self.channels or not _is_image(value)):
            return  # only what was joined before is of interest
        shapes = [static_shape(result) for result in node.outputs]
        if any(shape is None for shape in shapes) or not all(is_fixed(each) for each in node.inputs[1:] if each):
            return
        image, places = self._places.get(value) or (value, _numbered(value))
        self._left -= places.size
        if self._left < 0:
            return
        moved = MOVES[node.op_type](node, places)
        if moved is None or [each.shape for each in moved] != shapes:
            return
        self._left -= sum(each.size for each in moved)
        self._unlisted -= sum(channels_of(result) or 0 for result in node.outputs)
        if self._unlisted < 0:
            return
        self.nodes.add(node)
        for result, each in zip(node.outputs, moved, strict=True):
            order, channels = _order(each, image), self.of(image)
            if order is None:
                self._places[result] = image, each
            else:
                self.channels[result] = [channels[index] for index in order]


def _is_image(value: ir.Value) -> bool:
    shape = static_shape(value)
    if shape is None or len(shape) != 4:
        return False
    return 0 < math.prod(shape) <= MAX_NUMBERS and shape[1] <= MAX_CHANNELS


def _numbered(value: ir.Value) -> np.ndarray:
    shape = static_shape(value)
    assert shape is not None
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


def _order(places: np.ndarray, image: ir.Value) -> np.ndarray | None:
    """Which channels of an image these numbers are; None when they are not whole channels."""
    shape = static_shape(image)
    assert shape is not None
    if places.ndim != 4 or not places.size or places.shape[2:] != shape[2:] or len(places) != shape[0]:
        return None
    size = math.prod(shape[2:])
    order = places[0, :, 0, 0] // size
    batch, inside = np.arange(shape[0])[:, None, None] * shape[1], np.arange(size)
    expected = ((batch + order[:, None]) * size + inside).reshape(places.shape)
    return order if np.array_equal(places, expected) else None


def _reshape(node: ir.Node, places: np.ndarray) -> list[np.ndarray] | None:
    shape = static_shape(node.outputs[0])
    return None if shape is None or math.prod(shape) != places.size else [places.reshape(shape)]


def _transpose(node: ir.Node, places: np.ndarray) -> list[np.ndarray]:
    perm = node.attributes.get("perm")
    return [places.transpose(None if perm is None else perm.as_ints())]


def _split(node: ir.Node, places: np.ndarray) -> list[np.ndarray] | None:
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    sizes = [shape[axis] for shape in map(static_shape, node.outputs) if shape is not None]
    return np.split(places, np.cumsum(sizes)[:-1], axis) if sum(sizes) == places.shape[axis] else None


def _gather(node: ir.Node, places: np.ndarray) -> list[np.ndarray] | None:
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    index = _numbers(node, 1)
    if index is None or not 0 < index.size * places.size <= MAX_NUMBERS * places.shape[axis]:
        return None
    if not -places.shape[axis] <= index.min() <= index.max() < places.shape[axis]:
        return None
    return [np.take(places, index, axis)]


def _slice(node: ir.Node, places: np.ndarray) -> list[np.ndarray] | None:
    starts, ends = _numbers(node, 1), _numbers(node, 2)
    if starts is None or ends is None:
        return None
    axes = _numbers(node, 3) if len(node.inputs) > 3 and node.inputs[3] is not None else np.arange(starts.size)
    steps = _numbers(node, 4) if len(node.inputs) > 4 and node.inputs[4] is not None else np.ones(starts.size, int)
    if axes is None or steps is None or (steps < 1).any():
        return None
    cuts = [slice(None)] * places.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(int(start), int(end), int(step))
    return [places[tuple(cuts)]]


def _numbers(node: ir.Node, index: int) -> np.ndarray | None:
    value = node.inputs[index]
    return None if value is None or value.const_value is None else value.const_value.numpy()


MOVES: dict[str, Callable[[ir.Node, np.ndarray], list[np.ndarray] | None]] = {
    "Flatten": _reshape,
    "Gather": _gather,
    "Identity": _reshape,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}

"""What follows when the channels of an image are put in another order: the weights of the ops around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, is_fixed, static_shape

ZERO = -1  # in an order: a channel of zeros
OLDEST_OPSET = 13  # of the ops that are written here

# Ops that treat each number, or each channel, by itself. They make finite numbers of a channel of zeros.
SINGLE = {
    *("Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mish", "Relu", "Selu"),
    *("Sigmoid", "Softplus", "Softsign", "Tanh", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
}
PAIRED = ("Add", "Mul")
APART = {*SINGLE, *PAIRED, "BatchNormalization"}
MAX_NODES = 16  # between two convolutions; sums of many branches are followed no further
VARIANCE = 4  # which input of a BatchNormalization is divided by


@dataclass(slots=True)
class Region:
    """All that changes with the order of the channels of a value.

    Attributes:
        values: The values with these channels.
        keeping: The nodes that keep the channels apart.
        mixing: The convolutions that make other channels of them.
        leaving: The values that other nodes take, which the caller allowed.
    """

    values: dict[ir.Value, None]
    keeping: dict[ir.Node, None] = field(default_factory=dict)
    mixing: list[ir.Node] = field(default_factory=list)
    leaving: dict[ir.Value, None] = field(default_factory=dict)


def channels_of(value: ir.Value | None) -> int | None:
    """How many channels an image of [batch, channels, height, width] has; None for what is no image."""
    shape = None if value is None else value.shape
    count = None if shape is None or shape.rank() != 4 else shape[1]
    return count if isinstance(count, int) else None


def is_mixing(node: ir.Node | None) -> bool:
    """Whether a node is a convolution of one group with fixed weights."""
    if node is None or node.op_type != "Conv" or node.domain or _group(node) != 1:
        return False
    shape = static_shape(node.inputs[1])
    return shape is not None and len(shape) == 4 and all(each is None or is_fixed(each) for each in node.inputs[1:])


def region_of(start: ir.Value, is_exit: Callable[[ir.Node], bool] = lambda _: False) -> Region | None:
    """The region that begins with a value; None when something else would see that its channels have moved.

    Args:
        start: A value of [batch, channels, height, width].
        is_exit: Tells the nodes that may take values of the region, for which the caller cares.
    """
    channels = channels_of(start)
    if channels is None or start.dtype != ir.DataType.FLOAT:
        return None
    region = Region({start: None})
    todo = [start]
    while todo:
        value = todo.pop()
        if value.is_graph_output():
            return None
        for node, index in value.uses():
            if is_exit(node):
                region.leaving[value] = None
            elif index == 0 and is_mixing(node) and node.graph is start.graph:
                region.mixing.append(node)
            elif node.graph is not start.graph or not _keeps(node, index, channels) or len(region.keeping) > MAX_NODES:
                return None
            elif node not in region.keeping:
                region.keeping[node] = None
                region.values[node.outputs[0]] = None
                todo.append(node.outputs[0])
    whole = all(each in region.values for node in region.keeping for each in _images(node))
    return region if whole else None


def maker_of(value: ir.Value) -> ir.Node | None:
    """The convolution whose results the channels of a value are, through nodes that keep them apart."""
    node = value.producer()
    for _ in range(MAX_NODES):
        if node is None or is_mixing(node):
            return node
        images = _images(node)
        channels = channels_of(images[0]) if images else None
        if channels is None or not _keeps(node, list(node.inputs).index(images[0]), channels):
            return None
        node = images[0].producer()
    return None


def is_blocked(value: ir.Value) -> bool:
    """Whether a value comes from a convolution in a way that ONNX Runtime takes in the layout of its convolutions."""
    node = value.producer()
    for _ in range(MAX_NODES):
        if node is None or node.domain or node.op_type not in APART:
            break
        node = next((image.producer() for image in _images(node)), None)
    if node is None or node.domain or node.op_type != "Conv" or value.dtype != ir.DataType.FLOAT:
        return False
    return all(each is None or is_fixed(each) for each in node.inputs[1:])


def reorder(graph: ir.Graph, region: Region, order: Sequence[int]) -> None:
    """Change the weights of a region for channels in another order: `order` tells which of the old ones stand where."""
    for node in region.keeping:
        for index, axis in _weights(node):
            fill = 1.0 if node.op_type == "BatchNormalization" and index == VARIANCE else 0.0
            _reorder_weight(graph, node, index, axis, order, fill)
        if node.op_type == "Conv":
            node.attributes["group"] = ir.AttrInt64("group", len(order))
    for node in region.mixing:
        _reorder_weight(graph, node, 1, 1, order)
    for value in region.values:
        if value.shape is not None:
            value.shape = ir.Shape([value.shape[0], len(order), *value.shape[2:]])


def reorder_results(graph: ir.Graph, maker: ir.Node, order: Sequence[int]) -> None:
    """Change the weights of a convolution for results in another order."""
    for index in range(1, len(maker.inputs)):
        if maker.inputs[index] is not None:
            _reorder_weight(graph, maker, index, 0, order)


def _reorder_weight(
    graph: ir.Graph, node: ir.Node, index: int, axis: int, order: Sequence[int], fill: float = 0.0
) -> None:
    weight = node.inputs[index]
    shape = static_shape(weight)
    assert weight is not None
    assert shape is not None
    count = shape[axis]
    if list(order) == list(range(count)):
        return
    sketch = Sketch(graph, node)
    if ZERO in order:
        pads = [0] * (2 * len(shape))
        pads[len(shape) + axis] = 1
        weight = sketch.shared("Pad", [weight, sketch.ints(*pads), sketch.constant(np.array(fill, np.float32))])
    places = sketch.ints(*(count if place == ZERO else place for place in order))
    moved = sketch.shared("Gather", [weight, places], axis=axis)
    moved.shape = ir.Shape([*shape[:axis], len(order), *shape[axis + 1 :]])
    node.replace_input_with(index, moved)


def _keeps(node: ir.Node, index: int, channels: int) -> bool:
    """Whether a node that takes an image as this input keeps its channels apart."""
    if node.domain or len(node.outputs) != 1:
        return False
    others = [value for place, value in enumerate(node.inputs) if place != index and value is not None]
    if node.op_type in PAIRED:
        return all(not is_fixed(value) or _is_number(value) or _axis(value, channels) is not None for value in others)
    if index != 0 or not all(is_fixed(value) for value in others):
        return False
    if node.op_type == "BatchNormalization":
        training = node.attributes.get("training_mode")
        return (training is None or not training.as_int()) and all(static_shape(each) == (channels,) for each in others)
    if node.op_type == "Conv":
        shape = static_shape(node.inputs[1])
        return shape is not None and len(shape) == 4 and shape[:2] == (channels, 1) and _group(node) == channels
    return node.op_type in SINGLE


def _images(node: ir.Node) -> list[ir.Value]:
    """The inputs that depend on what the network is given."""
    return [value for value in node.inputs if value is not None and not is_fixed(value)]


def _weights(node: ir.Node) -> list[tuple[int, int]]:
    """The inputs of a node that have a number, or more, for each channel, and the axis along which they have it."""
    if node.op_type in SINGLE:
        return []
    found = [(index, value) for index, value in enumerate(node.inputs) if value is not None and is_fixed(value)]
    if node.op_type not in PAIRED:
        return [(index, 0) for index, _ in found]
    return [(index, len(value.shape or ()) - 3) for index, value in found if not _is_number(value)]


def _is_number(value: ir.Value) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) <= 4 and all(size == 1 for size in shape)


def _axis(value: ir.Value, channels: int) -> int | None:
    """Along which axis of an operand of [channels, 1, 1] or [1, channels, 1, 1] the channels lie."""
    shape = static_shape(value)
    if shape is None or shape[-3:] != (channels, 1, 1) or shape[:-3] not in ((), (1,)):
        return None
    return len(shape) - 3


def _group(node: ir.Node) -> int:
    attribute = node.attributes.get("group")
    return 1 if attribute is None else attribute.as_int()

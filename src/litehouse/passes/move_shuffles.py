"""Puts shuffles of channels into the weights of the convolutions around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.passes.channel_moves import Channel, ChannelMoves
from litehouse.passes.channels import OLDEST_OPSET, ZERO, Region, maker_of, region_of, reorder, reorder_results
from litehouse.passes.sketch import Sketch, static_shape

MULTIPLE = 4  # ONNX Runtime's fast layout takes images with such a number of channels alone


class MoveShufflesPass(ir.passes.InPlacePass):
    """Lets convolutions give their results in the order in which others take them, and exchange them in whole pieces.

    In a ShuffleNet the channels of two branches are joined, shuffled and divided again, unit after unit. Here each
    convolution gives those channels side by side that go to the same place: one Split behind it and one Concat before
    the next take the place of the shuffle, and a channel that only passes a unit by is not copied there.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Move every shuffle whose ends are all convolutions, in the main graph."""
        modified = False
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET:
            moves = ChannelMoves(model.graph)
            for images, takers in _connected(moves):
                exchange = _exchange(images, takers, moves)
                if exchange is not None:
                    _rewrite(model.graph, exchange)
                    modified = True
        if modified:
            model.graph.sort()
            common.RemoveUnusedNodesPass()(model)  # the moves, which other passes would take for users of the images
        return ir.passes.PassResult(model, modified)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Images that convolutions make, and images of the same channels that convolutions take.

    Attributes:
        makers: By image that is made: the convolution, and what changes with the order of its results.
        takers: By image that is taken: what changes with the order of its channels.
        moves: The moves between them.
    """

    makers: dict[ir.Value, tuple[ir.Node, Region]]
    takers: dict[ir.Value, Region]
    moves: ChannelMoves


def _connected(moves: ChannelMoves) -> Iterator[tuple[list[ir.Value], list[ir.Value]]]:
    """The images that exchange channels: those that are made, and those that are taken by something but a move."""
    links: dict[ir.Value, dict[ir.Value, None]] = {}
    for taker, channels in moves.channels.items():
        if taker.is_graph_output() or any(node not in moves.nodes for node in taker.consumers()):
            for image, _ in channels:
                links.setdefault(image, {})[taker] = None
                links.setdefault(taker, {})[image] = None
    seen: set[ir.Value] = set()
    for start in links:
        found, todo = [], [start]
        while todo:
            value = todo.pop()
            if value not in seen:
                seen.add(value)
                found.append(value)
                todo += links[value]
        made = [each for each in found if each not in moves.channels]
        if found:
            yield made, [each for each in found if each in moves.channels]


def _exchange(images: list[ir.Value], takers: list[ir.Value], moves: ChannelMoves) -> _Exchange | None:
    """The exchange between images; None when nothing is shuffled, or something else would see what is moved."""
    taken = [moves.channels[taker] for taker in takers]
    if not any(map(_is_shuffled, taken)) or any(len(set(channels)) != len(channels) for channels in taken):
        return None
    exchange = _Exchange({}, {}, moves)
    for image in images:
        maker = None if image in moves.lost else maker_of(image)
        region = None if maker is None else region_of(maker.outputs[0], moves.nodes.__contains__)
        if maker is None or region is None or list(region.leaving) != [image]:
            return None
        exchange.makers[image] = maker, region
    for taker in takers:
        region = region_of(taker, moves.nodes.__contains__)
        if region is None or not {taker}.issuperset(region.leaving):
            return None
        exchange.takers[taker] = region
    return exchange


def _is_shuffled(channels: list[Channel]) -> bool:
    """Whether channels are apart that were side by side: more often than when images are cut in two and joined."""
    breaks = sum(later != (image, index + 1) for (image, index), later in pairwise(channels))
    return breaks > 2 * len({image for image, _ in channels})


def _rewrite(graph: ir.Graph, exchange: _Exchange) -> None:
    """Put pieces in the place of the moves."""
    pieces: dict[ir.Value, list[tuple[ir.Value, list[Channel]]]] = {taker: [] for taker in exchange.takers}
    for image, parts in _parts(exchange).items():
        maker, region = exchange.makers[image]
        order = [index for part in parts.values() for index in part]
        reorder_results(graph, maker, order)
        reorder(graph, region, order)
        values = _divide(graph, image, [len(part) for part in parts.values()])
        for (takers, part), value in zip(parts.items(), values, strict=True):
            for taker in takers:
                pieces[taker].append((value, [(image, index) for index in part]))
    for taker, region in exchange.takers.items():
        places = {channel: place for place, channel in enumerate(exchange.moves.channels[taker])}
        reorder(graph, region, [places.get(channel, ZERO) for _, channels in pieces[taker] for channel in channels])
        joined = _join(graph, taker, [value for value, _ in pieces[taker]])
        for node, index in tuple(taker.uses()):
            if node not in exchange.moves.nodes:
                node.replace_input_with(index, joined)


def _parts(exchange: _Exchange) -> dict[ir.Value, dict[tuple[ir.Value, ...], list[int]]]:
    """The channels of each image that is made, by the images that take them; zeros fill up what these are short of."""
    users: dict[Channel, tuple[ir.Value, ...]] = {}
    for taker in exchange.takers:
        for channel in exchange.moves.channels[taker]:
            users[channel] = (*users.get(channel, ()), taker)
    parts: dict[ir.Value, dict[tuple[ir.Value, ...], list[int]]] = {}
    for (image, index), takers in users.items():
        parts.setdefault(image, {}).setdefault(takers, []).append(index)
    for image, (_, region) in exchange.makers.items():
        if region.mixing:  # these take all channels
            for image_channel in exchange.moves.of(image):
                if image_channel not in users:
                    parts[image].setdefault((), []).append(image_channel[1])
    for taker in exchange.takers:
        missing = -len(exchange.moves.channels[taker]) % MULTIPLE
        own = [part for image in parts.values() for takers, part in image.items() if takers == (taker,)]
        if own:
            own[0] += [ZERO] * missing
    return parts


def _divide(graph: ir.Graph, image: ir.Value, sizes: list[int]) -> list[ir.Value]:
    shape, producer = static_shape(image), image.producer()
    if len(sizes) == 1 or shape is None or producer is None:
        return [image]
    sketch = Sketch(graph, producer)
    values = sketch.op("Split", [image, sketch.ints(*sizes)], outputs=len(sizes), axis=1)
    for value, size in zip(values, sizes, strict=True):
        value.shape = ir.Shape([shape[0], size, *shape[2:]])
    return list(values)


def _join(graph: ir.Graph, taker: ir.Value, pieces: list[ir.Value]) -> ir.Value:
    producer = taker.producer()
    if len(pieces) == 1 or producer is None:
        return pieces[0]
    joined: ir.Value = Sketch(graph, producer).op("Concat", pieces, axis=1)
    joined.shape = taker.shape  # which has changed with its region
    return joined

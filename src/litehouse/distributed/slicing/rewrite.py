"""Writes what was chosen into the graph: parts of values and weights, and the exchanges that make results whole."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.constants import part_of
from litehouse.distributed.slicing.cuts import Cut, Size
from litehouse.distributed.slicing.demands import Demands
from litehouse.distributed.slicing.joined_sums import join_sums
from litehouse.distributed.slicing.moves import sizes_of
from litehouse.distributed.slicing.seeds import Seed
from litehouse.distributed.slicing.writer import Writer


def rewrite(demands: Demands, seeds: list[Seed], writer: Writer) -> list[tuple[Seed, ir.Node]]:
    """Change the graph into the one that every rank runs with its own constants.

    Returns:
        The exchanges in the order of the graph, and what they belong to.
    """
    whole = {seed.node: sizes_of(seed.node.outputs[0]) or () for seed in seeds}
    writer.cut = demands.cut
    _take_parts(demands, writer)
    for node, move in demands.moves.items():
        for edit in move.edits:
            edit(writer, node)
    for value, cut in demands.cut.items():
        _shrink(value, cut, writer, demands)
    exchanges = [(seed, _finish(seed, whole[seed.node], writer)) for seed in seeds]
    exchanges = join_sums(demands.graph, exchanges, writer)
    demands.graph.sort()
    order = {node: index for index, node in enumerate(demands.graph)}
    return sorted(exchanges, key=lambda item: order[item[1]])


def _take_parts(demands: Demands, writer: Writer) -> None:
    """Give those that want a part of a whole value that part."""
    made: dict[tuple[ir.Value, Cut], ir.Value] = {}
    for (node, place), cut in demands.uses.items():
        value = node.inputs[place]
        assert value is not None
        if value in demands.cut:
            continue
        if (value, cut) not in made:
            made[value, cut] = writer.slice_for_rank(value, cut, node)
        node.replace_input_with(place, made[value, cut])


def _shrink(value: ir.Value, cut: Cut, writer: Writer, demands: Demands) -> None:
    """State that a value is a part now; who asks for its shape is told that of the whole."""
    sizes = list(sizes_of(value) or ())
    local = cut.local(writer.ranks)
    for node, _ in value.uses():
        if demands.asks_shape(node):
            _tell_whole(node, cut, len(sizes), writer)
    sizes[cut.axis] = local
    value.shape = ir.Shape(sizes)
    if value.is_initializer():
        assert value.const_value is not None
        assert value.name is not None
        make = part_of(value.const_value, cut, writer.ranks, value.name)
        writer.constants[value.name] = make
        value.const_value = make(0)


def _tell_whole(node: ir.Node, cut: Cut, rank: int, writer: Writer) -> None:
    start, end = (node.attributes[name].as_int() if name in node.attributes else None for name in ("start", "end"))
    factors = np.where(np.arange(rank) == cut.axis, writer.ranks, 1).astype(np.int64)[start:end]
    result = node.outputs[0]
    if (factors == 1).all():
        return
    made = writer.op("Mul", [result, writer.constant(factors)], node, behind=True, like=result)
    user = made.producer()
    assert user is not None
    writer.replace(result, made, user)


def _finish(seed: Seed, whole: tuple[Size, ...], writer: Writer) -> ir.Node:
    """Write the exchange behind a node."""
    result, last = seed.node.outputs[0], seed.node
    users = [(use.node, use.idx) for use in result.uses()]
    is_output = result.is_graph_output()
    own = result
    if seed.finish is not None:
        own, last = seed.finish(writer, seed.node, result)
    if seed.cut is None:
        made = writer.exchange("AllReduce", own, last, whole, op="sum")
        exchange = made.producer()
    else:
        sizes = list(whole)
        sizes[seed.cut.axis] = seed.cut.local(writer.ranks)
        result.shape = ir.Shape(sizes)
        made, exchange = gather(writer, own, last, seed.cut, whole)
    for node, place in users:
        node.replace_input_with(place, made)
    if is_output:
        writer.replace_output(result, made)
    assert exchange is not None
    return exchange


def gather(
    writer: Writer, value: ir.Value, at: ir.Node, cut: Cut, whole: tuple[Size, ...]
) -> tuple[ir.Value, ir.Node | None]:
    """The parts of all ranks side by side along an axis; and the exchange, which joins along the first."""
    axis, local, ranks = cut.axis, cut.local(writer.ranks), writer.ranks
    padded = list(whole)
    padded[axis] = local * ranks
    if axis == 0:
        made = writer.exchange("AllGather", value, at, padded)
        exchange = made.producer()
    elif all(isinstance(size, int) for size in whole[axis + 1 :]):
        made, exchange = _gather_blocks(writer, value, at, axis, padded)
    else:
        made, exchange = _gather_turned(writer, value, at, axis, padded)
    last = made.producer()
    assert last is not None
    if padded[axis] != whole[axis]:
        bounds = [writer.ints(number) for number in (0, int(whole[axis] or 0), axis)]
        made = writer.op("Slice", [made, *bounds], last, behind=True, like=made, shape=whole)
    return made, exchange


def _gather_blocks(
    writer: Writer, value: ir.Value, at: ir.Node, axis: int, whole: list[Size]
) -> tuple[ir.Value, ir.Node | None]:
    """Each rank's part as a block of its own, which then goes to its place: runs of numbers stay together."""
    own = list(sizes_of(value) or ())
    if writer.opset < 13:
        made = writer.op("Unsqueeze", [value], at, behind=True, like=value, shape=[1, *own], axes=[0])
    else:
        made = writer.op("Unsqueeze", [value, writer.ints(0)], at, behind=True, like=value, shape=[1, *own])
    made = writer.exchange("AllGather", made, _maker(made), [writer.ranks, *own])
    exchange = made.producer()
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(own) + 1)]
    turned = [*own[:axis], writer.ranks, *own[axis:]]
    made = writer.op("Transpose", [made], _maker(made), behind=True, like=made, shape=turned, perm=order)
    shape = writer.ints(*(0 for _ in range(axis)), *(int(size or 0) for size in whole[axis:]))
    return writer.op("Reshape", [made, shape], _maker(made), behind=True, like=made, shape=whole), exchange


def _gather_turned(
    writer: Writer, value: ir.Value, at: ir.Node, axis: int, whole: list[Size]
) -> tuple[ir.Value, ir.Node | None]:
    """The axis goes to the front and back: for sizes behind it that are not known."""
    own = list(sizes_of(value) or ())
    order = [axis, *(place for place in range(len(own)) if place != axis)]
    turned = [own[place] for place in order]
    made = writer.op("Transpose", [value], at, behind=True, like=value, shape=turned, perm=order)
    made = writer.exchange("AllGather", made, _maker(made), [whole[axis], *turned[1:]])
    exchange = made.producer()
    back = [order.index(place) for place in range(len(own))]
    return writer.op("Transpose", [made], _maker(made), behind=True, like=made, shape=whole, perm=back), exchange


def _maker(value: ir.Value) -> ir.Node:
    node = value.producer()
    assert node is not None
    return node

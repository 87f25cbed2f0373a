"""Sums over the ranks that are added to each other become one: attention and a layer beside it, say."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from litehouse.distributed.slicing.constants import only_first
from litehouse.distributed.slicing.demands import is_weight
from litehouse.distributed.slicing.moves import sizes_of
from litehouse.distributed.slicing.seeds import Seed
from litehouse.distributed.slicing.writer import Writer

Written = list[tuple[Seed, ir.Node]]


@dataclass(frozen=True, slots=True)
class _Summand:
    """An operand of a sum: what all ranks sum up, and the node that adds a constant to that, if there is one."""

    exchange: ir.Node
    biased: ir.Node | None


def join_sums(graph: ir.Graph, written: Written, writer: Writer) -> Written:
    """Let the ranks sum up once what is the sum of sums. Returns the exchanges that are left."""
    exchanges = {node: seed for seed, node in written if node.op_type == "AllReduce"}
    for node in list(graph):
        if node.op_type not in ("Add", "Sum") or node.domain:
            continue
        summands = [_summand(value, node, exchanges) for value in node.inputs]
        known = [summand for summand in summands if summand is not None]
        if len(known) < 2 or len(known) != len(node.inputs) or len({summand.exchange for summand in known}) < 2:
            continue
        seed = exchanges[known[0].exchange]
        for place, summand in enumerate(known):
            del exchanges[summand.exchange]
            _undo(node, place, summand, writer)
        exchanges[_sum_up(node, writer)] = seed
    kept = [(seed, node) for seed, node in written if node.op_type != "AllReduce"]
    return kept + [(seed, node) for node, seed in exchanges.items()]


def _summand(value: ir.Value | None, user: ir.Node, exchanges: dict[ir.Node, Seed]) -> _Summand | None:
    """An operand that is a sum over the ranks, which nothing else uses."""
    node = _only_maker(value, user)
    if node in exchanges:
        return _Summand(node, None)
    if node is None or node.op_type != "Add" or node.domain or value is None:
        return None
    for place, other in ((0, 1), (1, 0)):
        exchange, bias = _only_maker(node.inputs[place], node), node.inputs[other]
        if exchange in exchanges and bias is not None and is_weight(bias):
            return _Summand(exchange, node) if sizes_of(exchange.outputs[0]) == sizes_of(value) else None
    return None


def _only_maker(value: ir.Value | None, user: ir.Node) -> ir.Node | None:
    """The node that makes a value of the same shape as the user's result, where nobody else uses it."""
    if value is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    sizes = sizes_of(value)
    return value.producer() if sizes is not None and sizes == sizes_of(user.outputs[0]) else None


def _undo(node: ir.Node, place: int, summand: _Summand, writer: Writer) -> None:
    """Let a node add what this rank has of a sum; the first rank adds the constant."""
    own, whole = summand.exchange.inputs[0], summand.exchange.outputs[0]
    if summand.biased is None:
        node.replace_input_with(place, own)
    else:
        for at, value in enumerate(summand.biased.inputs):
            assert value is not None
            summand.biased.replace_input_with(at, own if value is whole else writer.own(value, only_first))
    graph = summand.exchange.graph
    assert graph is not None
    graph.remove(summand.exchange, safe=True)


def _sum_up(node: ir.Node, writer: Writer) -> ir.Node:
    """Write the exchange behind the sum."""
    result = node.outputs[0]
    made = writer.exchange("AllReduce", result, node, sizes_of(result) or (), op="sum")
    exchange = made.producer()
    assert exchange is not None
    writer.replace(result, made, exchange)
    return exchange

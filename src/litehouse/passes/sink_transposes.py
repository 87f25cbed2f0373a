"""Moves transpositions towards the outputs where they then cancel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, is_fixed, order_of, static_shape
from litehouse.passes.turning import Order, common_order, inverse, turned

OLDEST_OPSET = 13  # of what the ops mean that are moved


@dataclass(slots=True)
class _Region:
    """Nodes between transpositions, which could compute in the order of axes that is before these."""

    nodes: list[ir.Node] = field(default_factory=list)
    values: list[ir.Value] = field(default_factory=list)
    joined: _Region | None = None

    def last(self) -> _Region:
        """The region that this one has become a part of."""
        region = self
        while region.joined is not None:
            region.joined = region.joined.joined or region.joined  # a shorter way for the next call
            region = region.joined
        return region


class SinkTransposesPass(ir.passes.InPlacePass):
    """Computes between two transpositions in the order of axes from before the first, so that the second undoes it.

    Files of MindSpore Lite hold images with channels last, and a convolution is written between two transpositions.
    Where they meet, OpenVINO (seen in 2026.4.1) removes them, but not where anything is between them: a small U-Net
    took 1.5 times as long.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite those parts of the main graph where less is transposed afterwards."""
        orders: dict[ir.Value, Order] = {}
        regions = _regions(model.graph, orders) if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET else []
        chosen = _chosen(regions, orders)
        nodes = {node for region in chosen for node in region.nodes}
        values = {value for region in chosen for value in region.values}
        sources: dict[ir.Value, ir.Value] = {}
        for node in list(model.graph):
            if node in nodes:
                _turn(model.graph, node, orders, sources)
            elif node.op_type == "Transpose" and not node.domain:
                source, result = node.inputs[0], node.outputs[0]
                if source in sources and _undoes(node, orders[source]):
                    result.replace_all_uses_with(sources[source])
                elif result in values and source is not None:
                    sources[result] = source
        return ir.passes.PassResult(model, bool(chosen))


def _regions(graph: ir.Graph, orders: dict[ir.Value, Order]) -> list[_Region]:
    """All regions, and how every value in them was transposed."""
    place: dict[ir.Value, _Region] = {}
    for node in graph:
        if node.domain or any(static_shape(value) is None for value in node.outputs):
            continue
        region, order = _Region(), None
        if node.op_type == "Transpose" and not is_fixed(node.inputs[0]):
            order = order_of(node)
        elif any(value in orders for value in node.inputs):
            order = common_order(node, orders)
            for value in node.inputs if order is not None else ():
                region = _join(region, place[value].last()) if value in place else region
            region.nodes += [node] if order is not None else []
        if order is not None:
            orders.update(dict.fromkeys(node.outputs, order))
            place.update(dict.fromkeys(node.outputs, region))
            region.values += node.outputs
    return list({id(region.last()): region.last() for region in place.values()}.values())


def _join(first: _Region, second: _Region) -> _Region:
    if len(first.values) > len(second.values):
        first, second = second, first
    if first is not second:
        second.nodes += first.nodes
        second.values += first.values
        first.joined = second
    return second


def _chosen(regions: list[_Region], orders: dict[ir.Value, Order]) -> list[_Region]:
    """The regions to rewrite: those that gain, but of two that share a transposition only one."""
    chosen = []
    taken: set[ir.Node | None] = set()
    for region in regions:
        inside = set(region.nodes)
        ends = {value.producer() for value in region.values} - inside
        ends |= {user for value in region.values for user in value.consumers() if _undoes(user, orders[value])}
        if taken.isdisjoint(ends) and _gain(region, orders) > 0:
            chosen.append(region)
            taken |= ends
    return chosen


def _gain(region: _Region, orders: dict[ir.Value, Order]) -> int:
    """How many elements less are transposed if the region computes in the other order."""
    gain, inside = 0, set(region.nodes)
    for value in region.values:
        size, users = math.prod(static_shape(value) or ()), value.consumers()
        undone = [user for user in users if _undoes(user, orders[value])]
        is_needed = value.is_graph_output() or any(user not in inside and user not in undone for user in users)
        gain += size * len(undone)
        if value.producer() in inside:
            gain -= size if is_needed else 0
        else:
            gain += 0 if is_needed else size
    return gain


def _undoes(node: ir.Node, order: Order) -> bool:
    if node.op_type != "Transpose" or node.domain or node.outputs[0].is_graph_output():
        return False
    return order_of(node) == inverse(order)


def _turn(graph: ir.Graph, node: ir.Node, orders: dict[ir.Value, Order], sources: dict[ir.Value, ir.Value]) -> None:
    """Write a node in the order of axes before, and transpose its results for those that need them so."""
    sketch = Sketch(graph, node)
    order = orders[node.outputs[0]]
    for old, made in zip(node.outputs, turned(sketch, node, order, sources), strict=True):
        made.type = old.type
        made.shape = ir.Shape([old.shape[axis] for axis in inverse(order)])  # type: ignore[index]
        new = sketch.op("Transpose", [made], perm=order)
        sketch.replace(old, new)
        sources[new], orders[new] = made, order
    graph.remove(node, safe=True)

"""Chooses which weights are cut.

The rule: a weight is cut where that saves more bytes of weights on every rank than it makes every rank send in one run,
an exchange counted as `Costs.exchange` bytes more, since it also takes time when it carries nothing. What a cut saves
includes the weights further up that can be cut because of it. Weights are looked at from the end of the graph to its
beginning: then a layer that ends a pair is met before the one that begins it. Pairs come first, since one exchange
serves two weights or more, then the other layers, and last what is only added or multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from litehouse.distributed.slicing.demands import Demands, is_weight
from litehouse.distributed.slicing.moves import sizes_of
from litehouse.distributed.slicing.probes import is_static, shapes_for
from litehouse.distributed.slicing.seeds import Seed, seeds_of
from litehouse.passes.sketch import has_graphs

LAYERS = frozenset(("Conv", "ConvInteger", "ConvTranspose", "Einsum", "Gather", "Gemm", "MatMul", "MatMulInteger"))
LAYERS |= {"QLinearConv"}  # biases and the like follow them
SMALLEST = 1024  # bytes; what is smaller is not looked at by itself


@dataclass(frozen=True, slots=True)
class Costs:
    """What an exchange is taken to cost.

    Attributes:
        worth: How many bytes of weights must be saved for a byte that is sent in a run.
        exchange: Bytes that an exchange counts in addition to those that it carries.
        batch: What a first size that is not known is taken for.
        unknown: What any other size that is not known is taken for.
    """

    worth: float = 1.0
    exchange: int = 16384
    batch: int = 1
    unknown: int = 128

    @property
    def probe(self) -> tuple[int, ...]:
        """The sizes of an input of which none is known."""
        return self.batch, self.unknown


class Traffic:
    """Tells what exchanges cost in a graph."""

    def __init__(self, model: ir.Model, ranks: int, costs: Costs) -> None:
        """Work out the sizes that values have under the costs' assumptions."""
        self.ranks, self.costs = ranks, costs
        self._shapes = {} if is_static(model) else shapes_for(model, costs.probe)

    def nbytes(self, value: ir.Value) -> int:
        """The bytes of a value."""
        sizes = self._shapes.get(str(value.name)) or sizes_of(value) or ()
        known = [
            size if isinstance(size, int) else (self.costs.unknown if axis else self.costs.batch)
            for axis, size in enumerate(sizes)
        ]
        dtype = value.dtype
        width = 4.0 if dtype is None or dtype == ir.DataType.STRING else dtype.itemsize
        return math.prod(known) * math.ceil(width)

    def sent(self, op_type: str, value: ir.Value) -> int:
        """The bytes that each rank sends when this value is summed or gathered in a ring."""
        whole = self.nbytes(value)
        return whole * (self.ranks - 1) * (2 if op_type == "AllReduce" else 1) // self.ranks

    def price(self, seeds: list[Seed]) -> int:
        """The bytes that the exchanges of seeds count."""
        return sum(self.sent(seed.exchange, seed.node.outputs[0]) + self.costs.exchange for seed in seeds)


Ends = list[tuple[ir.Node, int]]


def choose(demands: Demands, traffic: Traffic) -> list[Seed]:
    """The seeds that pay, in the order of the graph; `demands` then holds what follows from them."""
    order = {node: index for index, node in enumerate(demands.graph)}
    found: list[tuple[bool, int, ir.Value, Ends]] = []
    layers: set[ir.Value] = set()
    for value in demands.graph.initializers.values():
        if is_weight(value) and value.const_value is not None and value.const_value.nbytes >= SMALLEST:
            ends = _ends(value, demands.graph)
            if ends:
                is_layer = any(node.op_type in LAYERS for node, _ in ends)
                layers |= {value} if is_layer else set()
                found.append((is_layer, max(order[node] for node, _ in ends), value, ends))
    found.sort(key=lambda item: item[:2], reverse=True)
    chosen: list[Seed] = []
    for only_pairs in (True, False):
        for is_layer, _, weight, ends in found:
            if weight not in demands.cut and (is_layer or not only_pairs):
                ends.sort(key=lambda end: -order[end[0]])
                chosen += _best(demands, weight, ends, traffic, layers if only_pairs else None)
    return sorted(chosen, key=lambda seed: order[seed.node])


def _best(demands: Demands, weight: ir.Value, ends: Ends, traffic: Traffic, layers: set[ir.Value] | None) -> list[Seed]:
    """The seeds that cut a weight at the least cost; none where it does not pay.

    Args:
        demands: What is settled so far.
        weight: The weight.
        ends: The nodes that use it.
        traffic: What exchanges cost.
        layers: If given, only sums are looked at that cut another one of these weights as well.
    """
    best: tuple[float, int, list[Seed]] | None = None
    for seeds in _options(demands, weight, ends):
        if layers is not None and seeds[0].cut is not None:
            continue
        cut = _cut_by(demands, seeds)
        if layers is not None and not (layers - {weight}) & set(cut):
            continue
        saved = sum(value.const_value.nbytes for value in cut if value.const_value) * (1 - 1 / demands.ranks)
        price = traffic.price(seeds)
        gain = saved - traffic.costs.worth * price
        if gain >= 0 and saved > 0 and (best is None or (gain, -price) > best[:2]):
            best = gain, -price, seeds
    if best is None:
        return []
    for seed in best[2]:
        demands.settle(seed.node, seed.move)
    return best[2]


def _cut_by(demands: Demands, seeds: list[Seed]) -> list[ir.Value]:
    """The weights that seeds cut."""
    mark = demands.mark()
    for seed in seeds:
        demands.settle(seed.node, seed.move)
    found = demands.cut_since(mark)
    demands.take_back(mark)
    return found


def _options(demands: Demands, weight: ir.Value, ends: Ends) -> Iterator[list[Seed]]:
    """Seeds for all nodes that use a weight, which together cut it in one way."""
    (node, place), *others = ends
    for seed in seeds_of(demands, node, place):
        mark = demands.mark()
        seeds = [seed]
        is_whole = demands.settle(seed.node, seed.move)
        for end in others:
            more = _companion(demands, weight, end) if is_whole and weight not in demands.cut else None
            if more is not None:
                seeds.append(more)
                demands.settle(more.node, more.move)
        is_cut = weight in demands.cut and demands.is_filled_since(mark)
        demands.take_back(mark)
        if is_cut:
            yield seeds


def _companion(demands: Demands, weight: ir.Value, end: tuple[ir.Node, int]) -> Seed | None:
    """The seed for another node that uses a weight, which cuts it in the way that is settled for some."""
    wanted = _cuts(demands, weight)
    for seed in seeds_of(demands, *end):
        mark = demands.mark()
        fits = demands.settle(seed.node, seed.move) and _cuts(demands, weight) == wanted
        demands.take_back(mark)
        if fits:
            return seed
    return None


def _cuts(demands: Demands, weight: ir.Value) -> set[object]:
    return {demands.uses[use.node, use.idx] for use in weight.uses() if (use.node, use.idx) in demands.uses}


def _ends(weight: ir.Value, graph: ir.Graph) -> Ends | None:
    """The nodes that join a weight, or what is computed of it alone, with something else."""
    ends: Ends = []
    left = [weight]
    while left:
        value = left.pop()
        if value.is_graph_output():
            return None
        for node, place in value.uses():
            if node.graph is not graph or has_graphs(node):
                return None
            if all(each is None or each is value or is_fixed(each) for each in node.inputs):
                left += node.outputs
            else:
                ends.append((node, place))
    return list(dict.fromkeys(ends))


def is_fixed(value: ir.Value) -> bool:
    """Whether a value is a constant."""
    return value.is_initializer() and not value.is_graph_input()

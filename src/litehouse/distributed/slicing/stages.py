"""Finds the stages of a pipeline: runs of nodes with about as many bytes of weights, and few bytes between them."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from litehouse.distributed.segments import used_by
from litehouse.distributed.slicing.choice import Traffic
from litehouse.distributed.slicing.demands import is_plain
from litehouse.errors import LitehouseError

SLACK = 1.1  # how much larger than need be the largest stage may be, where less has to be sent then
MOST_PLACES = 400  # where a graph may be cut that are looked at


def is_sendable(value: ir.Value) -> bool:
    """Whether it is an array of a known type and rank: no text, no sequence."""
    node = value.producer()
    # What is inferred for such results is not always what they are.
    is_doubtful = node is not None and ("Sequence" in node.op_type or node.op_type.startswith("Optional"))
    if is_doubtful or not isinstance(value.type, ir.TensorType) or value.dtype is None or value.shape is None:
        return False
    return is_plain(value.dtype)


def _draws(node: ir.Node) -> bool:
    """Whether it, or something inside of it, draws random numbers."""
    inner = [node]
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            inner += attribute.value.all_nodes()
    return any(each.op_type in RANDOM or (each.op_type == "Dropout" and len(each.inputs) > 2) for each in inner)


@dataclass(frozen=True, slots=True)
class Stages:
    """Which stage computes which values, and which use them. Constants belong to no stage: each computes its own."""

    made: dict[ir.Value, int]
    used: dict[ir.Value, set[int]]


def find_stages(graph: ir.Graph, ranks: int, traffic: Traffic, path: str) -> Stages:
    """Cut a graph into stages.

    Raises:
        LitehouseError: There is no place to cut it: what would have to be sent is no tensor of known type.
    """
    line = _Line(graph, traffic)
    bounds = line.best(ranks)
    if bounds is None:
        raise LitehouseError(
            f"{path}: the graph cannot be cut into {ranks} stages: what goes from one to the next is not of known type "
            "everywhere; use fewer ranks, or slice without --pipeline"
        )
    made: dict[ir.Value, int] = {}
    used: dict[ir.Value, set[int]] = {}
    for place, node in enumerate(line.nodes):
        stage = sum(place >= bound for bound in bounds)
        made |= dict.fromkeys(node.outputs, stage)
        for value in line.uses[node]:
            used.setdefault(value, set()).add(stage)
    return Stages(made, used)


class _Line:
    """The nodes of a graph in order, but for those that follow from weights alone."""

    def __init__(self, graph: ir.Graph, traffic: Traffic) -> None:
        self._constant: dict[ir.Value, frozenset[ir.Value]] = {}  # and the weights that it is made of
        self.nodes: list[ir.Node] = []
        self.uses: dict[ir.Node, list[ir.Value]] = {}
        self._weights: list[set[ir.Value]] = []
        for value in graph.initializers.values():
            if not value.is_graph_input():
                self._constant[value] = frozenset((value,))
        for node in graph:
            uses = [value for value in used_by(node) if value.graph is graph]
            parts = [self._constant.get(value) for value in uses]
            weights = frozenset[ir.Value]().union(*(part for part in parts if part is not None))
            if all(part is not None for part in parts) and uses and not _draws(node):
                self._constant |= dict.fromkeys(node.outputs, weights)
                continue
            self.nodes.append(node)
            self.uses[node] = [value for value in uses if value not in self._constant]
            self._weights.append(set(weights))
        self._crossing = self._cross(set(graph.outputs), traffic)

    def _cross(self, outputs: set[ir.Value], traffic: Traffic) -> list[float]:
        """The bytes that are sent if the line is cut in front of each node; infinite where that cannot be."""
        last: dict[ir.Value, int] = {}
        for place, node in enumerate(self.nodes):
            last |= dict.fromkeys(self.uses[node], place)
        change = [0.0] * (len(self.nodes) + 1)
        bad = [0] * (len(self.nodes) + 1)
        for place, node in enumerate(self.nodes):
            for value in node.outputs:
                if value not in last:
                    continue
                is_sound = is_sendable(value)
                is_sound = is_sound and (not value.is_graph_output() or value in outputs)
                size = traffic.nbytes(value) if is_sound else 0
                for at, sign in ((place + 1, 1), (last[value] + 1, -1)):
                    change[at] += sign * size
                    bad[at] += sign * (not is_sound)
        total, faults, found = 0.0, 0, []
        for amount, more in zip(change, bad, strict=True):
            total, faults = total + amount, faults + more
            found.append(float("inf") if faults else total)
        return found

    def best(self, ranks: int) -> list[int] | None:
        """The places to cut: the largest stage is about as small as can be, and then as little is sent as can be."""
        places = [0, *self._places(ranks), len(self.nodes)]
        sizes = [self._sizes(places, start) for start in range(len(places))]
        count = min(ranks, len(places) - 1)  # more stages than there are places for are empty
        smallest = _smallest(sizes, count)
        found = None if smallest is None else _cheapest(sizes, count, smallest * SLACK, self._crossing, places)
        return None if found is None else [*found, *[len(self.nodes)] * (ranks - count)]

    def _places(self, ranks: int) -> list[int]:
        """Where it may be cut: between two nodes with weights where least is sent; anywhere, if those are few."""
        weighted = [place for place, weights in enumerate(self._weights) if weights]
        found = []
        for start, end in zip([0, *weighted], [*weighted, len(self.nodes) - 1], strict=True):
            gap = [place for place in range(max(start, 0) + 1, end + 1) if self._crossing[place] != float("inf")]
            if gap:
                found.append(min(gap, key=lambda place: (self._crossing[place], -place)))
        if len(found) < ranks - 1:
            found = [place for place in range(1, len(self.nodes)) if self._crossing[place] != float("inf")]
        found = sorted(set(found))
        step = -(-len(found) // MOST_PLACES) or 1
        return found[::step]

    def _sizes(self, places: list[int], start: int) -> dict[int, int]:
        """The bytes of the stage from one place to each later one; a node counts one, to share out what has none."""
        seen: set[ir.Value] = set()
        total, found = 0, {}
        for index in range(start + 1, len(places)):
            for place in range(places[index - 1], places[index]):
                new = self._weights[place] - seen
                seen |= new
                total += 1 + sum(value.const_value.nbytes for value in new if value.const_value is not None)
            found[index] = total
        return found


def _smallest(sizes: list[dict[int, int]], ranks: int) -> int | None:
    """The size of the largest stage, if it is as small as can be."""
    count = len(sizes) - 1
    best = dict(sizes[0])  # the largest of the stages so far, by where the last of them ends
    for _ in range(ranks - 1):
        # A stage may be empty: there may be fewer nodes than ranks.
        best = {
            end: min(max(best[mid], sizes[mid].get(end, 0)) for mid in range(1, end + 1)) for end in range(1, count + 1)
        }
    return best.get(count)


def _cheapest(
    sizes: list[dict[int, int]], ranks: int, limit: float, crossing: list[float], places: list[int]
) -> list[int] | None:
    """The places to cut into stages within the limit: of sizes as equal as can be, and such that little is sent."""
    count, ideal = len(sizes) - 1, max(1, *sizes[0].values(), 1) / ranks
    best: dict[int, tuple[float, list[int]]] = {
        end: ((size / ideal) ** 2, []) for end, size in sizes[0].items() if size <= limit
    }
    for _ in range(ranks - 1):
        step: dict[int, tuple[float, list[int]]] = {}
        for mid, (cost, bounds) in best.items():
            sent = crossing[places[mid]] / ideal if mid < count else 0.0
            for end, size in [(mid, 0), *sizes[mid].items()]:
                price = cost + sent + (size / ideal) ** 2
                if size <= limit and (end not in step or price < step[end][0]):
                    step[end] = price, [*bounds, places[mid]]
        best = step
    return best[count][1] if count in best else None


RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)

"""Which functions of a file refer to which, and so where its loops are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from litehouse.errors import LimitError
from litehouse.formats.mindir.schema_pb2 import Graph
from litehouse.options import Limits

REFERENCE = "REF::"
UNRESOLVED = ("MetaFuncGraph::", "ClassType::")  # in files that were exported without being compiled


def references(graph: Graph, functions: Collection[str]) -> Iterator[str]:
    """The functions that a graph calls or passes on, once per place."""
    for node in graph.node:
        called = node.op_type.removeprefix(REFERENCE)
        if called in functions and node.op_type.startswith(REFERENCE):
            yield called
        for name in node.input:
            if name in functions:
                yield name


def count_nodes(main: Graph, functions: Sequence[Graph], limits: Limits, path: str) -> int:
    """Count the nodes with every call written out: a few functions that call each other twice grow without bound."""
    named = {function.name: function for function in functions}
    counts: dict[str, int] = {}

    def count(graph: Graph, depth: int) -> int:
        if depth > limits.max_depth:
            raise LimitError(f"functions call each other more than {limits.max_depth} deep", path=path)
        if graph.name not in counts:
            counts[graph.name] = 0  # once round a loop
            called = references(graph, named)
            counts[graph.name] = len(graph.node) + sum(count(named[name], depth + 1) for name in called)
        return counts[graph.name]

    total = max(count(main, 1), len(main.node) + sum(len(function.node) for function in functions))
    if total > limits.max_nodes:
        raise LimitError(
            f"{total} nodes are more than max_nodes={limits.max_nodes}; raise the limit if you trust the file",
            path=path,
        )
    return total


class CallGraph:
    """The functions of a file, and what each refers to."""

    def __init__(self, graphs: Iterable[Graph]) -> None:
        """Find the groups of functions that refer to each other in a circle."""
        named = {graph.name: graph for graph in graphs}
        self._targets = {name: list(dict.fromkeys(references(graph, named))) for name, graph in named.items()}
        self._group: dict[str, frozenset[str]] = {}
        for group in _groups(self._targets):
            if len(group) > 1 or group[0] in self._targets[group[0]]:
                self._group.update(dict.fromkeys(group, frozenset(group)))

    def circle(self, name: str, without: Collection[str]) -> frozenset[str]:
        """The functions on the ways from one back to itself that avoid some others; empty where there is no way."""
        group = self._group.get(name)
        if group is None:
            return frozenset()
        inside = group.difference(without) | {name}
        sources: dict[str, list[str]] = {}
        for source in inside:
            for target in self._targets[source]:
                sources.setdefault(target, []).append(source)
        back = _reach(name, {source: sources.get(source, []) for source in inside}, inside)
        if name not in back:
            return frozenset()
        return frozenset(back & _reach(name, self._targets, inside))

    def first(self, names: Sequence[str], without: Collection[str]) -> str:
        """One of some functions that no other of them leads to, on ways that avoid some others."""
        inside = self._targets.keys() - set(without)
        reached = {found for name in names for found in _reach(name, self._targets, inside) if found != name}
        return next((name for name in names if name not in reached), names[0])


def _reach(start: str, edges: dict[str, list[str]], inside: Collection[str]) -> set[str]:
    """What can be reached from one, in a step at least."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges[waiting.pop()]:
            if target in inside and target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _groups(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """The strongly connected components, by Tarjan's method."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: dict[str, None] = {}
    for root in edges:
        if root in order:
            continue
        waiting: list[tuple[str, Iterator[str]]] = []
        _enter(root, edges, order, lowest, open_, waiting)
        while waiting:
            name, targets = waiting[-1]
            target = next(targets, None)
            if target is None:
                waiting.pop()
                if waiting:
                    parent = waiting[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[name])
                if lowest[name] == order[name]:
                    yield _close(name, open_)
            elif target not in order:
                _enter(target, edges, order, lowest, open_, waiting)
            elif target in open_:
                lowest[name] = min(lowest[name], order[target])


def _enter(
    name: str,
    edges: dict[str, list[str]],
    order: dict[str, int],
    lowest: dict[str, int],
    open_: dict[str, None],
    waiting: list[tuple[str, Iterator[str]]],
) -> None:
    order[name] = lowest[name] = len(order)
    open_[name] = None
    waiting.append((name, iter(edges[name])))


def _close(name: str, open_: dict[str, None]) -> list[str]:
    group: list[str] = []
    while not group or group[-1] != name:
        group.append(open_.popitem()[0])
    return group

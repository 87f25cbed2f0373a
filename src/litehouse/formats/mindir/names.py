"""Names as users know them: of weights and inputs, and of outputs as MindSpore Lite shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from litehouse.formats.mindir.literals import MONAD
from litehouse.formats.mindir.schema_pb2 import Attribute, Graph, Node


def public_name(name: str) -> str:
    """A parameter's or input's name as the user knows it: without its graph's name."""
    return name.partition(":")[2] or name


def output_names(graph: Graph, op_of: Callable[[Node], str], result: Any) -> list[str]:
    """One name per tensor of the result, in order; not yet unique, and empty where the file has none.

    An output is called as the tensor in its producer's recorded type (files of MindSpore 1.x and of the Lite
    converter), else as the producer's place in the network, with the item's number where the producer gives several.

    Args:
        graph: The main graph.
        op_of: The op of a node.
        result: What the graph returns: nested tuples of values.
    """
    nodes = {node.output[0]: node for node in graph.node if node.output}
    named = Namer(nodes, op_of)
    results = result if len(graph.output) > 1 else (result,)
    return [name for info, value in zip(graph.output, results, strict=True) for name in named.leaves(info.name, value)]


class Namer:
    """Finds names by following the nodes that only arrange values."""

    def __init__(self, nodes: dict[str, Node], op_of: Callable[[Node], str]) -> None:
        """Keep the nodes of the graph by the name of their result."""
        self._nodes = nodes
        self._op_of = op_of

    def leaves(self, name: str, value: Any) -> Iterator[str]:
        """The names of the tensors in a value that the graph knows under `name`."""
        node = self._nodes.get(name)
        op = self._op_of(node) if node is not None else ""
        if node is None:
            yield from [public_name(name)] * len(list(flat(value)))
        elif op == "Depend":
            yield from self.leaves(node.input[0], value)
        elif op in ("MakeTuple", "make_tuple", "MakeList", "make_list") and isinstance(value, tuple):
            for item_name, item in zip(node.input, value, strict=True):
                yield from self.leaves(item_name, item)
        elif op in ("TupleGetItem", "tuple_getitem", "list_getitem") and node.input[0] in self._nodes:
            yield from self._item(node, value)
        elif isinstance(value, tuple):
            yield from (self._name(node, index) for index, _ in enumerate(flat(value)))
        else:
            yield from (self._name(node, None) for _ in flat(value))

    def _item(self, node: Node, value: Any) -> Iterator[str]:
        producer, index = self._nodes[node.input[0]], self._index(node.input[1])
        yield from (self._name(producer, index) for _ in flat(value))

    def _index(self, name: str) -> int | None:
        node = self._nodes.get(name)
        value = node.attribute[0] if node is not None and node.attribute else Attribute()
        return value.i if value.HasField("i") else (value.ints[0] if value.ints else None)

    def _name(self, node: Node, index: int | None) -> str:
        recorded = next((attribute for attribute in node.attribute if states_type(attribute)), None)
        if recorded is not None:
            types = list(recorded.tensors) or [tensor for item in recorded.values for tensor in item.tensors[:1]]
            place = index or 0
            if place < len(types) and types[place].name:
                return str(types[place].name)
        return node.domain if index is None else f"{node.domain}_{index}"


def states_type(attribute: Attribute) -> bool:
    """Whether an attribute of a node states the type of its result; in old files an op's own may be called `shape`."""
    if attribute.HasField("ref_attr_name"):
        return bool(attribute.ref_attr_name.startswith("shape"))
    return bool(attribute.name == "shape")


def flat(value: Any) -> Iterator[Any]:
    """The tensors and literals of nested tuples, depth first; None and ordering tokens are no outputs."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from flat(item)
    elif value is not MONAD and value is not None:
        yield value

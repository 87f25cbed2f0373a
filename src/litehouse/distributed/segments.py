"""Cuts a graph at the ops between ranks: into segments that an engine runs, and exchanges between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from litehouse.errors import EngineError
from litehouse.model import EXCHANGE_DOMAIN, Model, TensorInfo
from litehouse.weights import Weights

# Ops that are worth a call of their own, to be computed while letters are under way.
HEAVY = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN", "Loop", "Scan", "If", "Attention"}
AS_FLOAT = {ir.DataType.BFLOAT16}  # numpy has no such type: between segments these are float32


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of the graph that an engine runs in one go.

    Attributes:
        nodes: Its nodes, in order.
        inputs: What it takes from before it.
        outputs: What others take from it.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """An exchange begins."""

    node: ir.Node


@dataclass(frozen=True, slots=True, eq=False)
class Finish:
    """An exchange is waited for."""

    node: ir.Node


Step = Segment | Begin | Finish


def is_exchange(node: ir.Node) -> bool:
    """Whether it is an op between ranks."""
    return node.domain == EXCHANGE_DOMAIN


def find(graph: ir.Graph, path: str) -> list[ir.Node]:
    """The exchanges of a graph.

    Raises:
        EngineError: One is inside an If or a Loop: not all ranks may come by there.
    """
    for node in graph.all_nodes():
        if is_exchange(node) and node.graph is not graph:
            raise EngineError(
                f"{path}: {node.op_type} (node {node.name}) exchanges data with other ranks inside an If or a Loop, "
                "which is not supported: not all ranks may come by there"
            )
    return [node for node in graph if is_exchange(node)]


def cut(graph: ir.Graph, path: str) -> list[Step]:
    """The steps of a run.

    Raises:
        EngineError: An exchange is inside an If or a Loop.
    """
    find(graph, path)
    nodes = _needed(graph)
    constant = _constant(nodes)
    schedule = _Schedule([node for node in nodes if node not in constant], graph)
    return _with_bounds(schedule.steps, nodes, constant, graph)


class _Schedule:
    """Puts nodes into steps.

    Exchanges begin in the order of the file, each as soon as what it sends is there, and are waited for when something
    needs what they give: whatever ranks wait for each other in the order of the file, they also do here, and no more.

    Attributes:
        steps: The steps; a list of nodes is computed in one go.
    """

    def __init__(self, nodes: list[ir.Node], graph: ir.Graph) -> None:
        """Schedule nodes that are in a valid order."""
        self.steps: list[list[ir.Node] | Begin | Finish] = []
        self._left = dict.fromkeys(node for node in nodes if not is_exchange(node))
        self._makers = {value: node for node in nodes for value in node.outputs}
        self._pending: dict[ir.Node, None] = {}
        self._begun: set[ir.Node] = set()
        for node in nodes:
            if is_exchange(node):
                self._compute(used_by(node))
                self.steps.append(Begin(node))
                self._pending[node] = None
                self._begun.add(node)
        self._compute(list(graph.outputs))
        self._finish(list(self._pending))

    def _compute(self, values: list[ir.Value]) -> None:
        """Compute values, and all that they need."""
        wanted, waited = self._needs(values)
        if waited:
            self._meanwhile()
            self._finish([node for node in self._pending if node in waited])
        mine = [node for node in self._left if node in wanted]
        if mine:
            self._add(mine)

    def _meanwhile(self) -> None:
        """Compute what can be computed while exchanges are under way, if that is worth a call."""
        late: set[ir.Node] = set(self._pending)
        free = []
        for node in self._left:
            makers = {self._makers[value] for value in used_by(node) if value in self._makers}
            # What has not begun yet can only be something that comes later.
            if makers & late or any(is_exchange(maker) and maker not in self._begun for maker in makers):
                late.add(node)
            else:
                free.append(node)
        if any(node.op_type in HEAVY for node in free):
            self._add(free)

    def _needs(self, values: list[ir.Value]) -> tuple[set[ir.Node], set[ir.Node]]:
        """The nodes that values need, and the exchanges that are under way."""
        wanted: set[ir.Node] = set()
        waited: set[ir.Node] = set()
        open_ = list(values)
        while open_:
            node = self._makers.get(open_.pop())
            if node in self._pending:
                waited.add(node)
            elif node in self._left and node not in wanted:
                wanted.add(node)
                open_ += used_by(node)
        return wanted, waited

    def _add(self, nodes: list[ir.Node]) -> None:
        self.steps.append(nodes)
        for node in nodes:
            del self._left[node]

    def _finish(self, nodes: list[ir.Node]) -> None:
        for node in nodes:
            self.steps.append(Finish(node))
            del self._pending[node]


def used_by(node: ir.Node) -> list[ir.Value]:
    """All values that a node uses, those inside its own graphs included."""
    found = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        graphs = [attribute.value] if attribute.type == ir.AttributeType.GRAPH else []
        graphs = list(attribute.value) if attribute.type == ir.AttributeType.GRAPHS else graphs
        for graph in graphs:
            inner = [value for each in graph.all_nodes() for value in each.inputs if value is not None]
            inner += [value for each in (graph, *graph.subgraphs()) for value in each.outputs]
            found += [value for value in inner if value.graph is node.graph]
    return found


def _needed(graph: ir.Graph) -> list[ir.Node]:
    """The nodes that the outputs or the exchanges need, in order."""
    needed = {node for node in graph if is_exchange(node)}
    open_ = [*graph.outputs, *(value for node in needed for value in used_by(node))]
    while open_:
        node = open_.pop().producer()
        if node is not None and node.graph is graph and node not in needed:
            needed.add(node)
            open_ += used_by(node)
    return [node for node in graph if node in needed]


def _constant(nodes: list[ir.Node]) -> set[ir.Node]:
    """The nodes that follow from weights alone: every segment computes those that it needs, once, when it is built."""
    found: set[ir.Node] = set()
    for node in nodes:
        makers = [(value, value.producer()) for value in used_by(node)]
        is_free = all(maker in found if maker is not None else value.is_initializer() for value, maker in makers)
        if is_free and not is_exchange(node) and not node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
            found.add(node)
    return found


def _with_bounds(
    steps: list[list[ir.Node] | Begin | Finish], nodes: list[ir.Node], constant: set[ir.Node], graph: ir.Graph
) -> list[Step]:
    """The steps with what each segment takes and gives."""
    order: dict[ir.Node, int] = {node: place for place, node in enumerate(nodes)}
    users: dict[ir.Value, set[int]] = {}
    complete: list[list[ir.Node] | Begin | Finish] = []
    for place, step in enumerate(steps):
        if isinstance(step, list):
            step = sorted({*step, *_makers(step, constant)}, key=order.__getitem__)
        complete.append(step)
        for node in step if isinstance(step, list) else [step.node] if isinstance(step, Begin) else []:
            for value in used_by(node):
                users.setdefault(value, set()).add(place)
    for value in graph.outputs:
        users.setdefault(value, set()).add(len(steps))
    loose = {value for value in users if value.producer() in constant}
    found: list[Step] = []
    for place, step in enumerate(complete):
        if not isinstance(step, list):
            found.append(step)
        elif step:
            made = [value for node in step for value in node.outputs]
            own = set(made)
            takes = {value: None for node in step for value in used_by(node) if value not in own}
            inputs = [value for value in takes if not value.is_initializer()]
            outputs = [
                value
                for value in made
                if value not in loose and users.get(value, set()) - {place}  # constants are made by each on its own
            ]
            if outputs:
                found.append(Segment(tuple(step), tuple(inputs), tuple(outputs)))
    return [*_for_loose(loose, users, complete, constant, order), *found]


def _for_loose(
    loose: set[ir.Value],
    users: dict[ir.Value, set[int]],
    steps: list[list[ir.Node] | Begin | Finish],
    constant: set[ir.Node],
    order: dict[ir.Node, int],
) -> list[Step]:
    """A segment for constants that an exchange sends, or the model gives: there is no segment that makes them."""
    is_sent = [not isinstance(step, list) for step in steps] + [True]
    wanted = [value for value in users if value in loose and any(is_sent[place] for place in users[value])]
    if not wanted:
        return []
    makers = {maker for value in wanted if (maker := value.producer()) is not None}
    nodes = sorted({*makers, *_makers(makers, constant)}, key=order.__getitem__)
    return [Segment(tuple(nodes), (), tuple(wanted))]


def _makers(nodes: Iterable[ir.Node], constant: set[ir.Node]) -> set[ir.Node]:
    """The constant nodes that nodes need."""
    found: set[ir.Node] = set()
    open_ = list(nodes)
    while open_:
        for value in used_by(open_.pop()):
            maker = value.producer()
            if maker in constant and maker not in found and maker is not None:
                found.add(maker)
                open_.append(maker)
    return found


def part_of(model: Model, segment: Segment) -> Model:
    """The model of one segment."""
    initializers = {
        value.name: value
        for node in segment.nodes
        for value in used_by(node)
        if value.is_initializer() and value.name is not None
    }
    view = ir.GraphView(
        segment.inputs,
        segment.outputs,
        nodes=segment.nodes,
        initializers=tuple(initializers.values()),
        opset_imports=model.graph.graph.opset_imports,
        name=model.graph.graph.name,
    )
    graph = view.clone()
    inputs = tuple(_info(value, model.path) for value in segment.inputs)
    outputs = tuple(_info(value, model.path) for value in segment.outputs)
    _use_floats(graph)
    weights = Weights.of({name: model.weights[name] for name in initializers if name in model.weights})
    return replace(
        model,
        graph=ir.Model(graph, ir_version=model.graph.ir_version),
        weights=weights,
        inputs=inputs,
        outputs=outputs,
        states=(),
        translate=None,
        updatable=(),
        defaults={},
        live=tuple(name for name in model.live if name in initializers),
    )


def _info(value: ir.Value, path: str) -> TensorInfo:
    if value.dtype is None:
        raise EngineError(
            f"{path}: the type of {value.name!r}, which goes to or comes from other ranks, is not recorded"
        )
    dtype = ir.DataType.FLOAT if value.dtype in AS_FLOAT else value.dtype
    shape = value.shape
    dims = tuple(size if isinstance(size, int) else None for size in shape) if shape is not None else ("...",)
    return TensorInfo(str(value.name), np.dtype(dtype.numpy()), dims)


def _use_floats(graph: ir.Graph) -> None:
    """Put casts where types come in or go out that numpy does not have."""
    for place, value in enumerate(graph.inputs):
        if value.dtype in AS_FLOAT:
            fed = ir.Value(name=value.name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
            value.name = f"{value.name}_own"
            cast = ir.node("Cast", [fed], {"to": int(value.dtype)}, name=f"{fed.name}_cast")
            graph.insert_before(graph[0], cast) if len(graph) else graph.append(cast)
            cast.outputs[0].name, cast.outputs[0].type, cast.outputs[0].shape = value.name, value.type, value.shape
            ir.convenience.replace_all_uses_with(value, cast.outputs[0])
            graph.inputs[place] = fed
    for place, value in enumerate(graph.outputs):
        if value.dtype in AS_FLOAT:
            cast = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT)}, name=f"{value.name}_cast")
            name = value.name
            value.name = f"{name}_own"
            made = cast.outputs[0]
            made.name, made.type, made.shape = name, ir.TensorType(ir.DataType.FLOAT), value.shape
            graph.append(cast)
            graph.outputs[place] = made

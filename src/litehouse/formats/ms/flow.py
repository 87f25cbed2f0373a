"""The graphs of a `.ms` file, and how they call each other, in the form in which MindIR has them.

A node `PartialFusion` gives a graph with its first arguments, `Switch` one of two such values, and `Call` calls one. A
loop is a graph that ends in a call of itself. MindIR says all this in the same way, so its evaluator does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.errors import ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir.calls import count_nodes
from litehouse.formats.mindir.evaluate import Evaluator, Primitive
from litehouse.formats.mindir.literals import DTYPES
from litehouse.formats.mindir.memory import ABSENT, Memory, content
from litehouse.formats.mindir.schema_pb2 import Graph, Node, Tensor, ValueInfo
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.ms.meta import GraphRecord, MetaGraph, NodeRecord
from litehouse.formats.ms.nodes import NodeConverter, recorded_type
from litehouse.formats.tape import RefusedError
from litehouse.options import Limits

PARTIAL, CALL = "PartialFusion", "Call"
FLOW = {PARTIAL: "Partial", "Switch": "Switch", "MakeTuple": "MakeTuple", "TupleGetItem": "TupleGetItem"}
CONTROL_FLOW = {PARTIAL, CALL, "Switch"}
NUMBERS = {dtype: number for number, dtype in reversed(DTYPES.items())}


def tensor_name(index: int) -> str:
    """How the value of a tensor is called while the graphs are evaluated."""
    return f"t{index}"


class FlowEvaluator(Evaluator):
    """Evaluates the graphs of a `.ms` file."""

    def __init__(self, meta: MetaGraph, tape: MindirTape, limits: Limits, path: str) -> None:
        """Prepare to evaluate."""
        graphs = [_graph(meta, number, path) for number in range(len(meta.graphs))]
        primitives = {op: Primitive(op, {}) for op in FLOW.values()}
        primitives |= {f"n{index}": Primitive(node.op, {"index": index}) for index, node in enumerate(meta.nodes)}
        super().__init__(
            tape, primitives, graphs[1:], limits, path, count_nodes(graphs[0], graphs[1:], limits, path), "ms"
        )
        self._meta = meta
        self._main = graphs[0]
        self._converter = NodeConverter(meta, tape, path)

    def run(self, inputs: Sequence[ir.Value], weights: dict[int, ir.Value]) -> list[ir.Value]:
        """What the main graph gives back."""
        for index, value in weights.items():
            self.define(tensor_name(index), Memory(self.tape.heap, value, lasting=True))
        for place in range(max(len(node.outputs) for node in self._meta.nodes) if self._meta.nodes else 0):
            self.define(f"#{place}", place)
        try:
            result = content(self.evaluate(self._main, [Memory(self.tape.heap, value) for value in inputs]))
        except RefusedError as refused:
            raise UnsupportedOpError([(CALL, "output")], format="ms", path=self.path, reason=str(refused)) from None
        results = list(result) if isinstance(result, tuple) else [result]
        count = len(self._meta.graphs[0].outputs)
        if len(results) != count or not all(isinstance(item, ir.Value) for item in results):
            raise ModelFormatError(
                f"the network does not give back {count} tensors; the file is damaged", path=self.path
            )
        return results

    def read(self, name: str) -> Any:
        """The value of a name."""
        try:
            return super().read(name)
        except ModelFormatError:
            index = int(name[1:]) if name[:1] == "t" and name[1:].isdecimal() else None
            if index is None:
                raise
            raise ModelFormatError(
                f"tensor {index} ({self._meta.tensors[index].name!r}) is used, but no node computes it and it has no "
                "data; the file is damaged",
                path=self.path,
            ) from None

    def _apply(self, node: Node, primitive: Primitive) -> Any:
        if "index" not in primitive.attributes:
            return super()._apply(node, primitive)
        record = self._meta.nodes[primitive.attributes["index"]]
        operands: list[ir.Value] = [content(self.read(name)) for name in node.input]
        results = [
            ABSENT if result is None else Memory(self.tape.heap, result)
            for result in self._converter.convert(record, operands)
        ]
        for index, result in zip(record.outputs, results, strict=True):
            self.define(tensor_name(index), result)
        return results[0]


# Graphs ---------------------------------------------------------------------------------------------------------------


def _graph(meta: MetaGraph, number: int, path: str) -> Graph:
    record = meta.graphs[number]
    last = _last_call(meta, record)
    nodes = [made for index in record.nodes for made in _nodes(meta, index, path, is_last=index == last)]
    if len(record.outputs) == 1:
        result = tensor_name(record.outputs[0])
    elif last is not None:
        result = f"call{last}"
    else:
        result = f"result{number}"
        names = [tensor_name(index) for index in record.outputs]
        nodes.append(Node(op_type="REF::MakeTuple", input=names, output=[result]))
    return Graph(
        name=f"graph{number}",
        node=nodes,
        input=[_input(meta, index, path) for index in record.inputs],
        output=[ValueInfo(name=result)],
    )


def _last_call(meta: MetaGraph, record: GraphRecord) -> int | None:
    """The node that calls what gives all results of the graph, and gives them to nothing else in it."""
    used = {operand for index in record.nodes for operand in meta.nodes[index].inputs}
    for index in record.nodes:
        node = meta.nodes[index]
        if node.op == CALL and node.outputs == record.outputs and used.isdisjoint(node.outputs):
            return index
    return None


def _input(meta: MetaGraph, index: int, path: str) -> ValueInfo:
    type_ = recorded_type(meta.tensors[index], path)
    info = ValueInfo(name=tensor_name(index))
    if type_.shape is not None:
        sizes = [-1 if size is None else size for size in type_.shape]
        info.tensor.append(Tensor(dims=sizes, data_type=NUMBERS[type_.dtype]))
    return info


def _nodes(meta: MetaGraph, index: int, path: str, *, is_last: bool) -> list[Node]:
    """A node; a call with several results becomes one with a tuple as its result, and its items."""
    record = meta.nodes[index]
    inputs = [tensor_name(operand) for operand in record.inputs]
    outputs = [tensor_name(result) for result in record.outputs]
    if record.op == PARTIAL:
        inputs.insert(0, _called(meta, record, path))
    if record.op != CALL:
        target = FLOW.get(record.op, f"n{index}")
        return [Node(op_type=f"REF::{target}", input=inputs, output=outputs[:1], domain=record.name)]
    if not inputs:
        raise ModelFormatError(f"node {record.name!r} calls nothing; the file is damaged", path=path)
    key = outputs[0] if len(outputs) == 1 else f"call{index}"
    nodes = [Node(op_type=f"REF::{inputs[0]}", input=inputs[1:], output=[key], domain=record.name)]
    if len(outputs) > 1 and not is_last:
        nodes += [
            Node(op_type="REF::TupleGetItem", input=[key, f"#{place}"], output=[name])
            for place, name in enumerate(outputs)
        ]
    return nodes


def _called(meta: MetaGraph, record: NodeRecord, path: str) -> str:
    number = record.attributes["sub_graph_index"]
    if not 0 < number < len(meta.graphs):
        raise ModelFormatError(
            f"node {record.name!r} refers to graph {number} of {len(meta.graphs)}; the file is damaged", path=path
        )
    return f"graph{number}"

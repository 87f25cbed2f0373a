"""Runs the ranks of a job without processes: their graphs become one, in which an exchange is an ordinary op."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from litehouse import read
from litehouse.distributed.slicing import Costs, Plan, plan
from litehouse.model import EXCHANGE_DOMAIN, Model

FREE = Costs(worth=0.0)  # cut whatever can be cut
SMALL = Costs(exchange=0, unknown=4)  # networks of tests are too small to pay for an exchange


def together(models: Sequence[Model]) -> ir.Model:
    """One graph of all ranks' graphs, with the outputs of each of them."""
    graphs = [model.graph.clone() for model in models]
    inputs = [ir.Value(name=value.name, type=value.type, shape=value.shape) for value in graphs[0].graph.inputs]
    nodes: list[ir.Node] = []
    exchanges: list[list[ir.Node]] = []
    weights, outputs = [], []
    for rank, graph in enumerate(graphs):
        _rename(graph.graph, f"r{rank}.")
        states = set(graph.graph.inputs)
        for own, value in zip(graph.graph.inputs, inputs, strict=True):
            ir.convenience.replace_all_uses_with(own, value, replace_graph_outputs=True)
        weights += [value for value in graph.graph.initializers.values() if value not in states]
        own_outputs = list(graph.graph.outputs)
        graph.graph.outputs.clear()
        outputs += own_outputs
        graph.graph.initializers.clear()
        own_nodes = list(graph.graph)
        graph.graph.remove(own_nodes)
        nodes += own_nodes
        exchanges.append([node for node in own_nodes if node.domain == EXCHANGE_DOMAIN])
    made = _joined(exchanges)
    outputs = [made.get(value, value) for value in outputs]
    nodes += [value.producer() for value in made.values()]
    nodes = [node for node in nodes if node.domain != EXCHANGE_DOMAIN]
    for place, value in enumerate(outputs):  # an input or weight may be an output
        made = ir.node("Identity", [value])
        made.outputs[0].name = f"out{place}"
        made.outputs[0].type, made.outputs[0].shape = value.type, None
        nodes.append(made)
        outputs[place] = made.outputs[0]
    opsets = {name: version for name, version in graphs[0].graph.opset_imports.items() if name != EXCHANGE_DOMAIN}
    whole = ir.Graph(inputs, outputs, nodes=nodes, initializers=weights, opset_imports=opsets, name="together")
    whole.sort()
    return ir.Model(whole, ir_version=10)


def _rename(graph: ir.Graph, prefix: str) -> None:
    for each in (graph, *graph.subgraphs()):
        values = [*each.inputs, *each.initializers.values(), *(value for node in each for value in node.outputs)]
        weights = list(each.initializers.values())
        each.initializers.clear()
        for value in dict.fromkeys(values):
            if value.name:
                value.name = prefix + value.name
        for weight in weights:
            each.register_initializer(weight)
        for node in each:
            node.name = None


def _joined(exchanges: Sequence[Sequence[ir.Node]]) -> dict[ir.Value, ir.Value]:
    """Ordinary values for those of exchanges; the nth collective op of a rank meets the nth of the others."""
    made: dict[ir.Value, ir.Value] = {}
    sent = {}
    for rank, nodes in enumerate(exchanges):
        for node in nodes:
            if node.op_type == "Send":
                sent[rank, node.attributes["dest_rank"].as_int(), node.attributes["sr_tag"].as_int()] = node
    for rank, nodes in enumerate(exchanges):
        for node in nodes:
            if node.op_type in ("Send", "Depend"):
                _become(made, "Identity", [node.inputs[0]], node)
            elif node.op_type == "Receive":
                key = node.attributes["src_rank"].as_int(), rank, node.attributes["sr_tag"].as_int()
                _become(made, "Identity", [sent.pop(key).inputs[0]], node)
    assert not sent, "somebody sends what nobody receives"
    collective = [[node for node in nodes if node.op_type in ("AllReduce", "AllGather")] for nodes in exchanges]
    assert len({len(nodes) for nodes in collective}) == 1, "the ranks do not exchange equally often"
    for group in zip(*collective, strict=True):
        assert len({node.op_type for node in group}) == 1
        shapes = {str(node.inputs[0].shape) for node in group}
        assert len(shapes) == 1, f"the ranks have other shapes: {shapes}"
        assert all(
            value.dtype is not None and value.shape is not None
            for node in group
            for value in (*node.inputs, *node.outputs)
        )
        assert all(node.attributes["rank_size"].as_int() == len(group) for node in group)
        for node in group:
            operands = [each.inputs[0] for each in group]
            if node.op_type == "AllReduce":
                _become(made, "Sum", operands, node)
            else:
                _become(made, "Concat", operands, node, axis=0)
    return made


def _become(
    made: dict[ir.Value, ir.Value], op: str, inputs: Sequence[ir.Value | None], old: ir.Node, **attributes: int
) -> None:
    node = ir.node(op, inputs, attributes)
    node.outputs[0].name = f"{old.outputs[0].name}!"
    node.outputs[0].type = old.outputs[0].type
    ir.convenience.replace_all_uses_with(old.outputs[0], node.outputs[0], replace_graph_outputs=True)
    made[old.outputs[0]] = node.outputs[0]


def run(graph: ir.Model, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a graph computes, by ONNX Runtime without optimisation."""
    proto = ir.serde.serialize_model(graph)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    names = [value.name for value in graph.graph.inputs]
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


def assert_same(made: Plan, inputs: Sequence[np.ndarray], models: Sequence[Model] | None = None) -> float:
    """Check that every rank computes what the whole model does. Returns the largest error, as part of the range."""
    expected = run(made.model.graph.clone(), inputs)
    models = [made.model_for(rank) for rank in range(made.ranks)] if models is None else models
    actual = run(together(models), inputs)
    assert len(actual) == made.ranks * len(expected)
    worst = 0.0
    for place, array in enumerate(actual):
        wanted = expected[place % len(expected)]
        assert array.dtype == wanted.dtype
        assert array.shape == wanted.shape, f"output {place}: {array.shape} is not {wanted.shape}"
        if wanted.dtype.kind == "f" and wanted.size:
            span = float(np.abs(np.where(np.isfinite(wanted), wanted, 0)).max()) or 1.0
            same = np.isclose(
                array.astype("d"),
                wanted.astype("d"),
                rtol=0,
                atol=max(1e-4, 2 * np.finfo(wanted.dtype).eps) * span,
                equal_nan=True,
            )
            error = float(np.nanmax(np.where(np.isfinite(wanted), np.abs(array.astype("d") - wanted), 0))) / span
            assert same.all(), f"output {place} of rank {place // len(expected)}: error {error:.2e} of the range"
            worst = max(worst, error)
        else:
            assert np.array_equal(array, wanted), f"output {place} of rank {place // len(expected)}"
    return worst


def sliced(data: bytes | onnx.ModelProto, ranks: int, costs: Costs = SMALL, *, pipeline: bool = False) -> Plan:
    """The plan of a model that a test has made."""
    if not isinstance(data, bytes):
        data = data.SerializeToString()
    return plan(read(data), ranks, costs=costs, pipeline=pipeline)


def split(made: Plan) -> dict[str, str]:
    """How the weights are cut that are."""
    return {row.weight: row.how for row in made.rows if row.how not in ("whole", "added")}


def ops(made: Plan) -> list[str]:
    """The exchanges."""
    return [exchange.op for exchange in made.exchanges]

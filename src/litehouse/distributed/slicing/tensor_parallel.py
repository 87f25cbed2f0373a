"""Plans in which every rank has a part of each layer."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.distributed.slicing.choice import Costs, Traffic, choose
from litehouse.distributed.slicing.constants import ForRank
from litehouse.distributed.slicing.demands import Demands
from litehouse.distributed.slicing.moves.registry import array_of
from litehouse.distributed.slicing.plan import Exchange, Plan, Row
from litehouse.distributed.slicing.probes import forget_names
from litehouse.distributed.slicing.rewrite import rewrite
from litehouse.distributed.slicing.seeds import Seed
from litehouse.distributed.slicing.stages import RANDOM
from litehouse.distributed.slicing.writer import Writer
from litehouse.errors import LitehouseError
from litehouse.model import EXCHANGE_DOMAIN, Model

WORDS = {"MatMul": "columns", "Gemm": "columns", "Gather": "columns", "Conv": "channels", "ConvTranspose": "channels"}


def plan_parts(model: Model, source: ir.Model, ranks: int, costs: Costs) -> Plan:
    """Choose what is cut, and write the graph that all ranks share; `source` is the prepared graph."""
    _refuse_chance(source, model.path)
    template = source.clone()
    opset = template.graph.opset_imports.get("", 0)
    demands = Demands(template.graph, ranks, opset)
    traffic = Traffic(template, ranks, costs)
    seeds = choose(demands, traffic)
    kinds = {str(value.name): _kind(value, seeds, demands) for value in demands.cut if value.is_initializer()}
    states = _states(demands, seeds)
    prices = {seed.node: traffic.sent(seed.exchange, seed.node.outputs[0]) for seed in seeds}
    writer = Writer(template.graph, ranks, opset)
    written = rewrite(demands, seeds, writer)
    if seeds:
        template.graph.opset_imports[EXCHANGE_DOMAIN] = 1
    common.RemoveUnusedNodesPass()(template)
    forget_names(template)
    exchanges = [Exchange(node.op_type, str(node.outputs[0].name), prices[seed.node]) for seed, node in written]
    constants = writer.constants
    return Plan(
        model=model,
        ranks=ranks,
        is_pipeline=False,
        rows=_rows(source, template, constants, kinds, ranks),
        exchanges=tuple(exchanges),
        states=states,
        bytes_sent=sum(exchange.bytes_sent for exchange in exchanges),
        _source=source,
        _make=lambda rank: _bound(template, constants, rank),
    )


def _refuse_chance(source: ir.Model, path: str) -> None:
    """What every rank computes must come out the same on all."""
    for node in source.graph.all_nodes():
        training = node.inputs[2] if node.op_type == "Dropout" and len(node.inputs) > 2 else None
        switch = None if training is None else array_of(training)
        is_training = training is not None and (switch is None or bool(switch.any()))
        if node.op_type in RANDOM or is_training:
            raise LitehouseError(
                f"{path}: {node.op_type} (node {node.name}) draws random numbers, and every rank would draw others; "
                "slice it with --pipeline, where each node runs on one rank only"
            )


def _bound(template: ir.Model, constants: dict[str, ForRank], rank: int) -> ir.Model:
    """The graph with the constants of one rank."""
    graph = template.clone()
    for name, value in graph.graph.initializers.items():
        if name in constants:
            value.const_value = constants[name](rank)
    return graph


def _kind(weight: ir.Value, seeds: list[Seed], demands: Demands) -> str:
    """A word for how a weight is cut."""
    kinds = {seed.node: seed.kind for seed in seeds}
    left, seen = [weight], set()
    while left:
        value = left.pop()
        for node, place in value.uses():
            if node in kinds:
                return kinds[node] if place < 2 else "parts"
            if node in demands.moves and node.op_type in WORDS and place < 2:
                return WORDS[node.op_type]
            if node not in seen and all(each is None or each.is_initializer() or each is value for each in node.inputs):
                seen.add(node)
                left += node.outputs
    return "parts"


def _states(demands: Demands, seeds: list[Seed]) -> dict[str, str]:
    states = {str(value.name): f"Split({cut.axis})" for value, cut in demands.cut.items()}
    for seed in seeds:
        name = str(seed.node.outputs[0].name)
        states[name] = "Partial" if seed.cut is None else f"Split({seed.cut.axis})"
    return states


def _rows(
    source: ir.Model, template: ir.Model, constants: dict[str, ForRank], kinds: dict[str, str], ranks: int
) -> tuple[Row, ...]:
    """What becomes of the weights; small constants that the cut itself needs are among them."""
    rows, left = [], dict(template.graph.initializers)
    for name, value in source.graph.initializers.items():
        if (tensor := value.const_value) is None:
            continue
        own = left.pop(name, None)
        sizes = _sizes(own, name, constants, ranks)
        shape = tuple(int(size) for size in tensor.shape)  # type: ignore[arg-type]
        how = kinds.get(name, "rank 0" if name in constants else "whole")
        rows.append(Row(name, how, shape, tensor.nbytes, sizes))
    for name, value in left.items():
        if value.const_value is not None:
            shape = tuple(int(size) for size in value.const_value.shape)  # type: ignore[arg-type]
            rows.append(Row(name, "added", shape, 0, _sizes(value, name, constants, ranks)))
    return tuple(rows)


def _sizes(value: ir.Value | None, name: str, constants: dict[str, ForRank], ranks: int) -> tuple[int, ...]:
    if value is None or value.const_value is None:
        return (0,) * ranks
    if name in constants:
        return tuple(constants[name](rank).nbytes for rank in range(ranks))
    return (value.const_value.nbytes,) * ranks

"""Plans in which every rank has some of the layers: it takes what it needs from earlier ranks, and gives to later ones.

Every rank takes all inputs and gives all outputs, as the whole model does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.distributed.slicing.choice import Traffic
from litehouse.distributed.slicing.plan import Exchange, Plan, Row
from litehouse.distributed.slicing.probes import forget_names
from litehouse.distributed.slicing.stages import Stages, find_stages, is_sendable
from litehouse.distributed.slicing.writer import GROUP, Writer
from litehouse.errors import LitehouseError
from litehouse.model import EXCHANGE_DOMAIN, Model


@dataclass(frozen=True, slots=True)
class Message:
    """A value that goes from one rank to another; `tag` tells it from all others."""

    value: str
    source: int
    target: int
    tag: int
    nbytes: int


def plan_stages(model: Model, source: ir.Model, ranks: int, traffic: Traffic) -> Plan:
    """Cut a graph into stages of about as many bytes of weights; `source` is the prepared graph."""
    stages = find_stages(source.graph, ranks, traffic, model.path)
    messages = _messages(source.graph, stages, ranks, traffic)
    graphs = [_stage(source, messages, rank, ranks) for rank in range(ranks)]
    sent = [sum(each.nbytes for each in messages if each.source == rank) for rank in range(ranks)]
    return Plan(
        model=model,
        ranks=ranks,
        is_pipeline=True,
        rows=_rows(source, graphs),
        exchanges=tuple(Exchange("Send", f"{each.value} to rank {each.target}", each.nbytes) for each in messages),
        states={},
        bytes_sent=max(sent),
        _source=source,
        _make=lambda rank: graphs[rank].clone(),
    )


def _messages(graph: ir.Graph, stages: Stages, ranks: int, traffic: Traffic) -> list[Message]:
    """What goes from rank to rank, in an order in which all of them can go: earlier senders first."""
    found: list[Message] = []
    outputs = set(graph.outputs)
    for value in outputs:
        if value.producer() is not None and ranks > 1 and not is_sendable(value):
            raise LitehouseError(
                f"the output {value.name!r} cannot be sent to other ranks: its type or its count of axes is not known, "
                "or it is text; slice the model by tensors"
            )
    for value, stage in sorted(stages.made.items(), key=lambda item: item[1]):
        targets = set(range(ranks)) if value in outputs else stages.used.get(value, set())
        for target in sorted(targets - {stage}):
            found.append(Message(str(value.name), stage, target, len(found), traffic.nbytes(value)))
    return found


def _stage(source: ir.Model, messages: list[Message], rank: int, ranks: int) -> ir.Model:
    """The graph of one rank."""
    model = source.clone()
    graph = model.graph
    if not messages:
        forget_names(model)
        return model
    writer = Writer(graph, ranks, graph.opset_imports.get("", 0))
    values = {str(value.name): value for node in graph for value in node.outputs}
    first, last = graph[0], graph[-1]
    token = graph.inputs[0] if graph.inputs else writer.constant(np.zeros(1, np.float32), "token")
    for message in (each for each in messages if each.target == rank and each.source < rank):
        _receive(writer, message, values[message.value], token, first, behind=False)
    sends = []
    for message in (each for each in messages if each.source == rank):
        value = values[message.value]
        sends.append(
            writer.op(
                "Send",
                [value],
                last,
                behind=True,
                like=value,
                domain=EXCHANGE_DOMAIN,
                name=f"{message.value}/Send{message.target}",
                group=GROUP,
                dest_rank=message.target,
                sr_tag=message.tag,
            )
        )
        last = _maker(sends[-1])
    token = sends[-1] if sends else token
    for message in (each for each in messages if each.target == rank and each.source > rank):
        received = _receive(writer, message, values[message.value], token, last, behind=True)
        last = _maker(received)
    if sends:
        _keep(writer, graph, sends, last)
    graph.opset_imports[EXCHANGE_DOMAIN] = 1
    common.RemoveUnusedNodesPass()(model)
    graph.sort()
    forget_names(model)
    return model


def _receive(
    writer: Writer, message: Message, value: ir.Value, token: ir.Value, at: ir.Node, *, behind: bool
) -> ir.Value:
    """Let what comes from another rank stand where a value stood."""
    made = writer.op(
        "Receive",
        [token],
        at,
        behind=behind,
        like=value,
        domain=EXCHANGE_DOMAIN,
        name=f"{message.value}/Receive",
        group=GROUP,
        src_rank=message.source,
        sr_tag=message.tag,
    )
    writer.replace(value, made, _maker(made))
    return made


def _keep(writer: Writer, graph: ir.Graph, sends: list[ir.Value], last: ir.Node) -> None:
    """Let the first output depend on what is sent, since nothing else uses that."""
    output = graph.outputs[0]
    made = writer.op("Depend", [output, *sends], last, behind=True, like=output, domain=EXCHANGE_DOMAIN)
    keep = _maker(made)
    for place, value in enumerate(graph.outputs):
        if value is output:
            graph.outputs[place] = made
    if output.producer() is not None:
        name = output.name
        output.name = writer.free_name(f"{name}/made")
        made.name = name
    keep.name = made.name


def _maker(value: ir.Value) -> ir.Node:
    node = value.producer()
    assert node is not None
    return node


def _rows(source: ir.Model, graphs: list[ir.Model]) -> tuple[Row, ...]:
    rows = []
    for name, value in source.graph.initializers.items():
        if (tensor := value.const_value) is None:
            continue
        here = [name in graph.graph.initializers for graph in graphs]
        stages = [str(rank) for rank, is_here in enumerate(here) if is_here]
        how = f"stage {stages[0]}" if len(stages) == 1 else f"stages {', '.join(stages)}" if stages else "unused"
        shape = tuple(tensor.shape.numpy())
        rows.append(Row(name, how, shape, tensor.nbytes, tuple(tensor.nbytes * is_here for is_here in here)))
    return tuple(rows)

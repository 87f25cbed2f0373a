"""Communication between the ranks of a distributed job: each op becomes one node of the domain `litehouse`.

The node has the name of the op, and its attributes under MindIR's names. ONNX has no such ops, and no engine of one
process runs them.
"""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape
from litehouse.model import EXCHANGE_DOMAIN


def _node(t: MindirTape, op_type: str, inputs: list[ir.Value], outputs: int = 1, **attributes: Any) -> Any:
    """A node that the other ranks take part in; attributes that the file lacks are left out."""
    kept = {name: t.literal(value) for name, value in attributes.items() if value is not None}
    kept = {name: int(value) if isinstance(value, bool | ir.DataType) else value for name, value in kept.items()}
    return t.op(op_type, inputs, outputs=outputs, domain=EXCHANGE_DOMAIN, **kept)


@op("AllReduce")
def all_reduce(t: MindirTape, x: ir.Value, *, group: Any, op: Any = "sum", rank_size: Any = None) -> Any:
    return _node(t, "AllReduce", [x], group=group, op=op, rank_size=rank_size)


@op("AllGather")
def all_gather(t: MindirTape, x: ir.Value, *, group: Any, rank_size: Any) -> Any:
    return _node(t, "AllGather", [x], group=group, rank_size=rank_size)


@op("ReduceScatter")
def reduce_scatter(t: MindirTape, x: ir.Value, *, group: Any, rank_size: Any, op: Any = "sum") -> Any:
    return _node(t, "ReduceScatter", [x], group=group, rank_size=rank_size, op=op)


@op("Broadcast")
def broadcast(t: MindirTape, x: Any, *, group: Any, root_rank: Any) -> Any:
    """A tuple of tensors, as the root has them."""
    made = _node(t, "Broadcast", list(x), len(x), group=group, root_rank=root_rank)
    return made if isinstance(made, tuple) else (made,)


@op("AlltoAll")
def all_to_all(
    t: MindirTape, x: ir.Value, *, group: Any, rank_size: Any, split_count: Any, split_dim: Any, concat_dim: Any
) -> Any:
    return _node(
        t,
        "AlltoAll",
        [x],
        group=group,
        rank_size=rank_size,
        split_count=split_count,
        split_dim=split_dim,
        concat_dim=concat_dim,
    )


@op("AlltoAllV")
def all_to_all_v(
    t: MindirTape, x: ir.Value, send_numel_list: Any, recv_numel_list: Any, *, group: Any, block_size: Any = 1
) -> Any:
    """The counts of numbers that go to each rank and come from it are operands: they may be computed."""
    counts = [t.ints(send_numel_list), t.ints(recv_numel_list)]
    return _node(t, "AlltoAllV", [x, *counts], group=group, block_size=block_size)


@op("Send")
def send(t: MindirTape, x: ir.Value, *, group: Any, dest_rank: Any, sr_tag: Any) -> Any:
    """Gives its operand. Often nothing uses that: the node is there to be run."""
    return _node(t, "Send", [x], group=group, dest_rank=dest_rank, sr_tag=sr_tag)


@op("Receive")
def receive(t: MindirTape, x: ir.Value, *, group: Any, src_rank: Any, sr_tag: Any) -> Any:
    """What comes has the recorded type. The operand has no meaning but its place in the order of the ops."""
    return _node(t, "Receive", [x], group=group, src_rank=src_rank, sr_tag=sr_tag)


@op("NeighborExchange")
def neighbor_exchange(
    t: MindirTape, x: Any, *, group: Any, send_rank_ids: Any, recv_rank_ids: Any, recv_type: Any
) -> Any:
    """A tensor to each of some ranks, and one from each of others; the shapes are those of the values."""
    count = len(t.literal(recv_rank_ids))
    made = _node(
        t,
        "NeighborExchange",
        list(x),
        count,
        group=group,
        send_rank_ids=send_rank_ids,
        recv_rank_ids=recv_rank_ids,
        recv_type=recv_type,
    )
    return made if isinstance(made, tuple) else (made,)


@op("NeighborExchangeV2")
def neighbor_exchange_v2(
    t: MindirTape,
    x: ir.Value,
    *,
    group: Any,
    send_rank_ids: Any,
    recv_rank_ids: Any,
    send_lens: Any,
    recv_lens: Any,
    format: Any = "NCHW",
) -> Any:
    return _node(
        t,
        "NeighborExchangeV2",
        [x],
        group=group,
        send_rank_ids=send_rank_ids,
        recv_rank_ids=recv_rank_ids,
        send_lens=send_lens,
        recv_lens=recv_lens,
        format=format,
    )


@op("Reduce")
def reduce(t: MindirTape, x: ir.Value, *, group: Any, dest_rank: Any, op: Any = "sum") -> Any:
    return _node(t, "Reduce", [x], group=group, dest_rank=dest_rank, op=op)


@op("CollectiveScatter")
def collective_scatter(t: MindirTape, x: ir.Value, *, group: Any, src_rank: Any, rank_id: Any, rank_size: Any) -> Any:
    return _node(t, "CollectiveScatter", [x], group=group, src_rank=src_rank, rank_id=rank_id, rank_size=rank_size)


@op("CollectiveGather")
def collective_gather(t: MindirTape, x: ir.Value, *, group: Any, dest_rank: Any, rank_id: Any, rank_size: Any) -> Any:
    return _node(t, "CollectiveGather", [x], group=group, dest_rank=dest_rank, rank_id=rank_id, rank_size=rank_size)


@op("Barrier")
def barrier(t: MindirTape, *, group: Any) -> Any:
    """Waits for the other ranks. Its result has no meaning, and nothing uses it."""
    return _node(t, "Barrier", [], group=group)

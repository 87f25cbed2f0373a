"""The ops between ranks on tensors, wherever these are; what they mean is told by `distributed/collectives.py`.

All of them move bytes, and reduce in the order of the ranks by themselves: all ranks have the same result to the bit,
and the same one as on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from litehouse.distributed.meanings import PARTED_BYTES
from litehouse.engines.torch.exchanges import Call, bytes_of, from_bytes, kind_of, nbytes_of
from litehouse.engines.torch.values import Tensor, name_of
from litehouse.errors import RankError


def all_reduce(call: Call, x: Tensor) -> list[Tensor]:
    count = call.exchange.count
    if count <= 2 or x.nbytes < PARTED_BYTES:
        return [call.reduce(call.gather(x))]
    flat, size = x.reshape(-1), x.numel()
    each = -(-size // count)
    if each * count > size:
        flat = torch.cat([flat, flat.new_zeros(each * count - size)])
    kind = name_of(x.dtype), (each,)
    own = call.reduce([part for part in call.deal(flat.split(each), [kind] * count) if part is not None])
    return [torch.cat(call.gather(own))[:size].reshape(x.shape)]


def all_gather(call: Call, x: Tensor) -> list[Tensor]:
    found = call.gather(x)
    return [torch.cat(found) if x.ndim else torch.stack(found)]


def reduce_scatter(call: Call, x: Tensor) -> list[Tensor]:
    kind = call.part(kind_of(x))
    found = call.deal(x.split(kind[1][0]), [kind] * call.exchange.count)
    return [call.reduce([part for part in found if part is not None])]


def all_to_all(call: Call, x: Tensor) -> list[Tensor]:
    axis = int(call.exchange.attributes["split_dim"])
    kind = call.part(kind_of(x), axis)
    found = call.deal(x.split(kind[1][axis], axis), [kind] * call.exchange.count)
    return [torch.cat([part for part in found if part is not None], int(call.exchange.attributes["concat_dim"]))]


def all_to_all_v(call: Call, x: Tensor, sent: Tensor, received: Tensor) -> list[Tensor]:
    block, count = int(call.exchange.attributes.get("block_size", 1)), call.exchange.count
    sizes, expected = ([int(each) * block for each in counts.reshape(-1)] for counts in (sent, received))
    flat = x.reshape(-1)
    if len(sizes) != count or len(expected) != count or sum(sizes) > flat.numel() or min(*sizes, *expected) < 0:
        what = call.exchange.what
        raise RankError(f"{what}: the sizes {sizes} do not divide {flat.numel()} numbers", op=what)
    call.check_counts(name_of(x.dtype), sizes, expected)
    pieces = flat[: sum(sizes)].split(sizes)
    found = call.deal(pieces, [(name_of(x.dtype), (size,)) for size in expected])
    return [torch.cat([part for part in found if part is not None])]


def broadcast(call: Call, *tensors: Tensor) -> list[Tensor]:
    root = call.member("root_rank")
    return [call.share(tensor, kind_of(tensor), root) for tensor in tensors]


def send(call: Call, x: Tensor) -> list[Tensor]:
    return [call.share(x, kind_of(x), call.exchange.place)]


def receive(call: Call, *_: Tensor) -> list[Tensor]:
    source = 1 - call.exchange.place
    return [call.share(None, call.kinds[source][0], source)]


def reduce(call: Call, x: Tensor) -> list[Tensor]:
    found = _at_one(call, x)
    return [call.reduce(found) if found else call.nothing(x)]


def collective_gather(call: Call, x: Tensor) -> list[Tensor]:
    found = _at_one(call, x)
    return [torch.cat(found) if found else call.nothing(x)]


def _at_one(call: Call, x: Tensor) -> list[Tensor]:
    """The tensors of all ranks at one of them; nothing at others."""
    target, count = call.member("dest_rank"), call.exchange.count
    is_here = target == call.exchange.place
    sent = [x if place == target else None for place in range(count)]
    found = call.deal(sent, [kind_of(x) if is_here else None] * count)
    return [part for part in found if part is not None]


def collective_scatter(call: Call, x: Tensor) -> list[Tensor]:
    source, count = call.member("src_rank"), call.exchange.count
    kind = call.part(call.kinds[source][0])
    is_here = source == call.exchange.place
    sent: Sequence[Tensor | None] = x.split(kind[1][0]) if is_here else [None] * count
    found = call.deal(sent, [kind if place == source else None for place in range(count)])
    return [part for part in found if part is not None]


def neighbor_exchange(call: Call, *tensors: Tensor) -> list[Tensor]:
    sources = [call.exchange.at(place) for place in call.exchange.attributes.get("recv_rank_ids", ())]
    found = _with_neighbours(call, tensors, sources)
    return [next(found[place]) for place in sources]


def neighbor_exchange_v2(call: Call, x: Tensor) -> list[Tensor]:
    top, bottom, left, right = call.exchange.attributes["recv_lens"]  # zeros where there is no neighbour
    sources = call.exchange.neighbours("recv_rank_ids")
    found = _with_neighbours(call, (x,), [place for _, place in sources])
    height, width = x.shape[-2:]
    result = x.new_zeros((*x.shape[:-2], top + height + bottom, left + width + right))
    result[..., top : top + height, left : left + width] = x
    for (row, column), place in sources:
        rows = (slice(0, top), slice(top, top + height), slice(top + height, None))[row + 1]
        columns = (slice(0, left), slice(left, left + width), slice(left + width, None))[column + 1]
        target, piece = result[..., rows, columns], next(found[place])
        if piece.shape != target.shape:
            raise call.exchange.mismatch(place, [kind_of(piece)], [kind_of(target)])
        target.copy_(piece)
    return [result]


def _with_neighbours(call: Call, tensors: Sequence[Tensor], sources: Sequence[int]) -> dict[int, Iterator[Tensor]]:
    """What other ranks have for this one, by their places; what goes to one rank goes there as one."""
    sent = [torch.cat([bytes_of(each) for each in out]) if out else None for out in call.exchange.outgoing(tensors)]
    for place in set(sources):
        if len(call.kinds[place]) != sources.count(place):
            raise call.exchange.mismatch(place, call.kinds[place], [("tensors", (sources.count(place),))])
    coming = [call.kinds[place] for place in range(call.exchange.count)]
    found = call.deal(sent, [("uint8", (sum(map(nbytes_of, kinds)),)) if kinds else None for kinds in coming])
    return {
        place: iter([from_bytes(*pair) for pair in zip(data.split([*map(nbytes_of, kinds)]), kinds, strict=True)])
        for place, (data, kinds) in enumerate(zip(found, coming, strict=True))
        if data is not None
    }


def barrier(call: Call) -> list[Tensor]:
    call.gather(torch.zeros(1, dtype=torch.uint8, device=call.device))
    return [torch.zeros(1, device=call.device)]


EXCHANGES: dict[str, Callable[..., list[Tensor]]] = {
    "AllGather": all_gather,
    "AllReduce": all_reduce,
    "AlltoAll": all_to_all,
    "AlltoAllV": all_to_all_v,
    "Barrier": barrier,
    "Broadcast": broadcast,
    "CollectiveGather": collective_gather,
    "CollectiveScatter": collective_scatter,
    "NeighborExchange": neighbor_exchange,
    "NeighborExchangeV2": neighbor_exchange_v2,
    "Receive": receive,
    "Reduce": reduce,
    "ReduceScatter": reduce_scatter,
    "Send": send,
}

"""The ops between ranks on tensors, wherever these are; what they mean is told by `distributed/collectives.py`.

All of them are made of three ways to move bytes, which a `Line` has, and reduce in the order of the ranks by
themselves: all ranks have the same result to the bit, and the same one as on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from litehouse.engines.torch.frame import NONE, WIDER, Frame, Step
from litehouse.engines.torch.values import Tensor, name_of
from litehouse.errors import RankError

PARTED_BYTES = 1 << 16  # from here on, three and more ranks reduce a part each: less is sent in all
SHORT = (torch.float16, torch.bfloat16)  # are reduced in 32 bits, and rounded once
REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}
# Ops to which all ranks give tensors of one dtype and shape.
MUST_MATCH = {"AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "Broadcast", "Reduce", "CollectiveGather"}
FOR_ONE = {"Reduce", "CollectiveGather"}  # whose results the other ranks get without a meaning
COUNTS = (1, 2)  # the inputs of AlltoAllV whose numbers must be known
DIRECTIONS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))  # as on the CPU

Kind = tuple[str, tuple[int, ...]]
"""The dtype and the shape of a tensor."""


class Line(Protocol):
    """What connects the ranks of a group: all of them call the same, in the same order. Tensors are flat bytes."""

    def all_gather(self, data: Tensor) -> Tensor:
        """The bytes of all ranks, as many from each, one behind the other."""
        ...

    def all_to_all(self, data: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """What all ranks have for this one; `sent` and `received` are counts of bytes, for each rank."""
        ...

    def broadcast(self, data: Tensor, root: int) -> None:
        """Put the bytes of one rank into those of all."""
        ...


Given = list[list[Kind]]
"""What a rank gives to each rank of the group, by place."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the ranks have told each other about the sizes of a run.

    Attributes:
        key: Tells these sizes from others.
        given: By the number of the exchange, what this rank gives to each in it.
        found: What each gives to this rank.
        ask: In the first run of these sizes, tells the other ranks what this one gives, and gives what they do.
    """

    key: Any
    given: dict[int, Given] = field(default_factory=dict)
    found: dict[int, Given] = field(default_factory=dict)
    ask: Callable[[TorchExchange, Given], Given] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TorchExchange:
    """One exchange of the graph.

    Attributes:
        number: Its number in the file.
        turn: Its place in the order in which all ranks run all exchanges.
        op: Its op.
        name: The name of its node.
        what: The op and its node, for error texts.
        label: What all ranks of the group call it.
        group: The ranks that take part, in their order; for Send and Receive the two, the smaller one first.
        place: The place of this rank among them.
        attributes: Those of the node.
        line: What connects them; None for Depend, which exchanges nothing.
        sizes: The shapes of what it gives, as far as the file tells them; None for one that it does not.
    """

    number: int
    turn: int
    op: str
    name: str
    what: str
    label: str
    group: tuple[int, ...]
    place: int
    attributes: dict[str, Any]
    line: Line | None
    sizes: tuple[tuple[int, ...] | None, ...] = ()

    @property
    def count(self) -> int:
        """How many ranks take part."""
        return len(self.group)

    def at(self, place: int) -> int:
        """A place in the group, if there is one."""
        if not 0 <= place < self.count:
            raise RankError(f"{self.what} names rank {place} of a group of {self.count}", op=self.what)
        return int(place)

    def run(self, frame: Frame, step: Step) -> list[Any]:
        """Run as a step of a graph, into the frame."""
        tensors = [
            frame.on_host(slot, step) if self.op == "AlltoAllV" and place in COUNTS else frame.on_device(slot)
            for place, slot in enumerate(step.inputs)
            if slot != NONE
        ]
        call = Call(self, self._agreed(frame.told, tensors), frame.place, is_dry=frame.is_dry)
        results = EXCHANGES[self.op](call, *tensors)
        if frame.told.ask is not None and self.op not in FOR_ONE:
            self._check(results)
        for slot, value in zip(step.outputs, results, strict=False):
            if slot != NONE:
                frame.put(slot, value)
        return []

    def _check(self, results: Sequence[Tensor]) -> None:
        for value, shape in zip(results, self.sizes, strict=False):
            if shape is not None and tuple(value.shape) != shape:
                raise RankError(
                    f"{self.what} gave {_text([_kind(value)])}, where the file has {list(shape)}: the ranks run models "
                    "that do not belong together, or got other inputs",
                    op=self.what,
                )

    def outgoing(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors that go to each rank, for an exchange between neighbours."""
        found: list[list[Tensor]] = [[] for _ in self.group]
        if self.op == "NeighborExchangeV2":
            lengths = self.attributes["send_lens"]
            for direction, place in self.neighbours("send_rank_ids"):
                found[place].append(tensors[0][(..., *_edge(direction, lengths, tensors[0].shape[-2:]))])
        else:
            for tensor, place in zip(tensors, self.attributes.get("send_rank_ids", ()), strict=True):
                found[self.at(place)].append(tensor)
        return found

    def neighbours(self, name: str) -> list[tuple[tuple[int, int], int]]:
        """The directions of NeighborExchangeV2 in which there is a neighbour, and the places of these."""
        places = self.attributes[name]
        if len(places) != len(DIRECTIONS):
            text = f"{self.what}: {name} must have {len(DIRECTIONS)} ranks, not {len(places)}"
            raise RankError(text, op=self.what)
        return [(way, self.at(place)) for way, place in zip(DIRECTIONS, places, strict=True) if place >= 0]

    def mismatch(self, place: int, found: list[Kind], own: list[Kind]) -> RankError:
        """The error for what a rank sends that does not fit."""
        return RankError(
            f"rank {self.group[place]} sent {_text(found)} in {self.what}, where rank {self.group[self.place]} has "
            f"{_text(own)}: the ranks run models that do not belong together, or got different inputs",
            rank=self.group[place],
            op=self.what,
        )

    def _agreed(self, told: Told | None, tensors: Sequence[Tensor]) -> Given:
        """What all ranks of the group give to this one."""
        if told is None:
            raise RankError(f"{self.what} is run without the other ranks", op=self.what)
        if self.op.startswith("Neighbor"):
            own = [[_kind(tensor) for tensor in each] for each in self.outgoing(tensors)]
        else:
            kinds = [_kind(tensor) for tensor in tensors[: 1 if self.op == "AlltoAllV" else None]]
            own = [[] if self.op == "Receive" else kinds] * self.count
        if told.ask is not None:
            told.given[self.number], found = own, told.ask(self, own)
            told.found[self.number] = found
            for place, kinds in enumerate(found):
                if self.op in MUST_MATCH and kinds != own[place]:
                    raise self.mismatch(place, kinds, own[place])
        elif told.given[self.number] != own:
            before = [kind for kinds in told.given[self.number] for kind in kinds]
            raise RankError(
                f"{self.what} has {_text([kind for kinds in own for kind in kinds])} in this run, and had "
                f"{_text(before)} in an earlier one with the same sizes of inputs: one torch program of several ranks "
                "exchanges what has fixed sizes; let another engine run the model on the CPU",
                op=self.what,
            )
        return told.found[self.number]


def _kind(tensor: Tensor) -> Kind:
    return name_of(tensor.dtype), tuple(tensor.shape)


def _text(kinds: list[Kind]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for dtype, shape in kinds) or "nothing"


@dataclass(frozen=True, slots=True)
class Call:
    """One exchange of a run.

    Attributes:
        exchange: The exchange.
        kinds: What each rank gives to this one, by place.
        device: Where the tensors are.
        is_dry: Whether nothing is sent: it only matters what results look like.
    """

    exchange: TorchExchange
    kinds: Given
    device: torch.device
    is_dry: bool

    @property
    def _line(self) -> Line:
        assert self.exchange.line is not None
        return self.exchange.line

    def gather(self, x: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which are like this one."""
        count = self.exchange.count
        if self.is_dry or not x.numel():
            return [x] * count
        return list(self._line.all_gather(_bytes(x)).view(x.dtype).reshape(count, *x.shape).unbind())

    def deal(self, sent: Sequence[Tensor | None], received: Sequence[Kind | None]) -> list[Tensor | None]:
        """Give each rank a tensor, and get one from each; None for nothing."""
        flat = [None if piece is None else _bytes(piece) for piece in sent]
        going = [0 if piece is None else piece.numel() for piece in flat]
        coming = [0 if kind is None else _nbytes(kind) for kind in received]
        if self.is_dry:
            return [None if kind is None else _made(kind, self.device) for kind in received]
        pieces = [piece for piece in flat if piece is not None]
        data = torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8, device=self.device)
        found = self._line.all_to_all(data, going, coming)
        cut = torch.split(found, coming)
        return [None if kind is None else _of(piece, kind) for piece, kind in zip(cut, received, strict=True)]

    def share(self, x: Tensor | None, kind: Kind, root: int) -> Tensor:
        """The tensor of one rank; x is what that one has."""
        is_root = root == self.exchange.place
        found = x.contiguous() if is_root and x is not None else _made(kind, self.device)
        if not self.is_dry and found.numel():
            self._line.broadcast(_bytes(found), root)
        return found

    def reduce(self, parts: Sequence[Tensor]) -> Tensor:
        """Tensors of all ranks, reduced in the order of the ranks."""
        name = self.exchange.attributes.get("op", "sum")
        if name not in REDUCTIONS:
            text = f"{self.exchange.what} reduces by {name!r}; known are {', '.join(REDUCTIONS)}"
            raise RankError(text, op=self.exchange.what)
        dtype = parts[0].dtype
        wide = torch.float32 if dtype in SHORT else WIDER.get(dtype, dtype)
        if dtype == torch.uint64 and name in ("max", "min"):
            raise RankError(f"{self.exchange.what}: torch has no {name} of uint64; use int64", op=self.exchange.what)
        total = parts[0].to(wide)
        for part in parts[1:]:
            total = REDUCTIONS[name](total, part.to(wide))
        return total.to(dtype)

    def member(self, name: str) -> int:
        """The place that an attribute names."""
        return self.exchange.at(self.exchange.attributes[name])

    def nothing(self, x: Tensor) -> Tensor:
        """One element without meaning, which ranks get where only one rank has a result."""
        return torch.zeros(1, dtype=x.dtype, device=self.device)

    def part(self, kind: Kind, axis: int = 0) -> Kind:
        """What a tensor's equal parts along an axis are, one for each rank."""
        dtype, shape = kind
        count, what = self.exchange.count, self.exchange.what
        if not -len(shape) <= axis < len(shape) or shape[axis] % count:
            raise RankError(f"{what}: {list(shape)} has no {count} equal parts along axis {axis}", op=what)
        sizes = list(shape)
        sizes[axis] //= count
        return dtype, tuple(sizes)


def _bytes(x: Tensor) -> Tensor:
    return x.contiguous().reshape(-1).view(torch.uint8)


def _nbytes(kind: Kind) -> int:
    dtype, shape = kind
    return math.prod(shape) * int(getattr(torch, dtype).itemsize)


def _made(kind: Kind, device: torch.device) -> Tensor:
    return torch.zeros(kind[1], dtype=getattr(torch, kind[0]), device=device)


def _of(data: Tensor, kind: Kind) -> Tensor:
    """Bytes as what they are."""
    dtype = getattr(torch, kind[0])
    if data.storage_offset() % dtype.itemsize:
        data = data.clone()
    return data.view(dtype).reshape(kind[1])


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
    kind = call.part(_kind(x))
    found = call.deal(x.split(kind[1][0]), [kind] * call.exchange.count)
    return [call.reduce([part for part in found if part is not None])]


def all_to_all(call: Call, x: Tensor) -> list[Tensor]:
    axis = int(call.exchange.attributes["split_dim"])
    kind = call.part(_kind(x), axis)
    found = call.deal(x.split(kind[1][axis], axis), [kind] * call.exchange.count)
    return [torch.cat([part for part in found if part is not None], int(call.exchange.attributes["concat_dim"]))]


def all_to_all_v(call: Call, x: Tensor, sent: Tensor, received: Tensor) -> list[Tensor]:
    block, count = int(call.exchange.attributes.get("block_size", 1)), call.exchange.count
    sizes, expected = ([int(each) * block for each in counts.reshape(-1)] for counts in (sent, received))
    flat = x.reshape(-1)
    if len(sizes) != count or len(expected) != count or sum(sizes) > flat.numel() or min(*sizes, *expected) < 0:
        what = call.exchange.what
        raise RankError(f"{what}: the sizes {sizes} do not divide {flat.numel()} numbers", op=what)
    pieces = flat[: sum(sizes)].split(sizes)
    found = call.deal(pieces, [(name_of(x.dtype), (size,)) for size in expected])
    return [torch.cat([part for part in found if part is not None])]


def broadcast(call: Call, *tensors: Tensor) -> list[Tensor]:
    root = call.member("root_rank")
    return [call.share(tensor, _kind(tensor), root) for tensor in tensors]


def send(call: Call, x: Tensor) -> list[Tensor]:
    return [call.share(x, _kind(x), call.exchange.place)]


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
    found = call.deal(sent, [_kind(x) if is_here else None] * count)
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
            raise call.exchange.mismatch(place, [_kind(piece)], [_kind(target)])
        target.copy_(piece)
    return [result]


def _with_neighbours(call: Call, tensors: Sequence[Tensor], sources: Sequence[int]) -> dict[int, Iterator[Tensor]]:
    """What other ranks have for this one, by their places; what goes to one rank goes there as one."""
    sent = [torch.cat([_bytes(each) for each in out]) if out else None for out in call.exchange.outgoing(tensors)]
    for place in set(sources):
        if len(call.kinds[place]) != sources.count(place):
            raise call.exchange.mismatch(place, call.kinds[place], [("tensors", (sources.count(place),))])
    coming = [call.kinds[place] for place in range(call.exchange.count)]
    found = call.deal(sent, [("uint8", (sum(map(_nbytes, kinds)),)) if kinds else None for kinds in coming])
    return {
        place: iter([_of(*pair) for pair in zip(data.split([*map(_nbytes, kinds)]), kinds, strict=True)])
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


def _edge(direction: tuple[int, int], lengths: Sequence[int], size: Sequence[int]) -> tuple[slice, slice]:
    """The part of an image that lies towards a neighbour."""
    found = []
    for way, (before, behind), whole in zip(direction, (lengths[:2], lengths[2:]), size, strict=True):
        found.append((slice(0, before), slice(0, whole), slice(whole - behind, whole))[way + 1])
    return found[0], found[1]

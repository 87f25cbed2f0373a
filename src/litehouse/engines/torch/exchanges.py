"""What the ops between ranks are made of: three ways to move bytes, which a `Line` has, and steps that use them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from litehouse.distributed.meanings import DIRECTIONS, FOR_ONE, MUST_MATCH, edge
from litehouse.engines.torch.frame import NONE, WIDER, Frame, Step
from litehouse.engines.torch.values import Tensor, name_of
from litehouse.errors import RankError

SHORT = (torch.float16, torch.bfloat16)  # are reduced in 32 bits, and rounded once
REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}
COUNTS = (1, 2)  # the inputs of AlltoAllV whose numbers must be known

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
        tell: The same, for what may change with every run.
    """

    key: Any
    tell: Callable[[TorchExchange, Given], Given]
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
        function: Takes a call and the inputs, and gives the outputs.
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
    function: Callable[..., list[Tensor]]
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
        call = Call(self, self._agreed(frame.told, tensors), frame.place, frame.told.tell, is_dry=frame.is_dry)
        results = self.function(call, *tensors)
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
                    f"{self.what} gave {_text([kind_of(value)])}, where the file has {list(shape)}: the ranks run "
                    "models that do not belong together, or got other inputs",
                    op=self.what,
                )

    def outgoing(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors that go to each rank, for an exchange between neighbours."""
        found: list[list[Tensor]] = [[] for _ in self.group]
        if self.op == "NeighborExchangeV2":
            lengths = self.attributes["send_lens"]
            for direction, place in self.neighbours("send_rank_ids"):
                found[place].append(tensors[0][(..., *edge(direction, lengths, tensors[0].shape[-2:]))])
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
            own = [[kind_of(tensor) for tensor in each] for each in self.outgoing(tensors)]
        else:
            kinds = [kind_of(tensor) for tensor in tensors[: 1 if self.op == "AlltoAllV" else None]]
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


def kind_of(tensor: Tensor) -> Kind:
    """The dtype and the shape of a tensor."""
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
        tell: Tells the other ranks what this one gives in this run, and gives what they do.
        is_dry: Whether nothing is sent: it only matters what results look like.
    """

    exchange: TorchExchange
    kinds: Given
    device: torch.device
    tell: Callable[[TorchExchange, Given], Given]
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
        return list(self._line.all_gather(bytes_of(x)).view(x.dtype).reshape(count, *x.shape).unbind())

    def check_counts(self, dtype: str, sent: Sequence[int], received: Sequence[int]) -> None:
        """Raise RankError unless each rank sends this one as many numbers as it waits for.

        Process groups do not find out: gloo ends the process, and NCCL waits for the rest.
        """
        if self.is_dry:
            return
        found = self.tell(self.exchange, [[(dtype, (count,))] for count in sent])
        for place, (kinds, count) in enumerate(zip(found, received, strict=True)):
            if kinds != [(dtype, (count,))]:
                raise self.exchange.mismatch(place, kinds, [(dtype, (count,))])

    def deal(self, sent: Sequence[Tensor | None], received: Sequence[Kind | None]) -> list[Tensor | None]:
        """Give each rank a tensor, and get one from each; None for nothing."""
        flat = [None if piece is None else bytes_of(piece) for piece in sent]
        going = [0 if piece is None else piece.numel() for piece in flat]
        coming = [0 if kind is None else nbytes_of(kind) for kind in received]
        if self.is_dry:
            return [None if kind is None else _made(kind, self.device) for kind in received]
        pieces = [piece for piece in flat if piece is not None]
        data = torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8, device=self.device)
        found = self._line.all_to_all(data, going, coming)
        cut = torch.split(found, coming)
        return [None if kind is None else from_bytes(piece, kind) for piece, kind in zip(cut, received, strict=True)]

    def share(self, x: Tensor | None, kind: Kind, root: int) -> Tensor:
        """The tensor of one rank; x is what that one has."""
        is_root = root == self.exchange.place
        found = x.contiguous() if is_root and x is not None else _made(kind, self.device)
        if not self.is_dry and found.numel():
            self._line.broadcast(bytes_of(found), root)
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


def bytes_of(x: Tensor) -> Tensor:
    """A tensor as flat bytes; over the same memory, where it lies there without gaps."""
    return x.contiguous().reshape(-1).view(torch.uint8)


def nbytes_of(kind: Kind) -> int:
    """How many bytes a tensor takes."""
    dtype, shape = kind
    return math.prod(shape) * int(getattr(torch, dtype).itemsize)


def _made(kind: Kind, device: torch.device) -> Tensor:
    return torch.zeros(kind[1], dtype=getattr(torch, kind[0]), device=device)


def from_bytes(data: Tensor, kind: Kind) -> Tensor:
    """Bytes as what they are."""
    dtype = getattr(torch, kind[0])
    if data.storage_offset() % dtype.itemsize:
        data = data.clone()
    return data.view(dtype).reshape(kind[1])

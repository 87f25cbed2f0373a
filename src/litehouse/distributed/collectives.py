"""The ops between ranks, one function each. It sends what this rank gives, and returns what waits for the others.

All ranks reduce in the order of the ranks, so that all have the same result to the bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from litehouse.distributed.mail import Key, Mail
from litehouse.distributed.meanings import DIRECTIONS, PARTED_BYTES, edge
from litehouse.errors import RankError

Wait = Callable[[], list[np.ndarray]]
"""Gives the results when they are there."""
REDUCTIONS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
# One element without meaning, which ranks get where only one rank has a result.
NOTHING_SHAPE = (1,)


@dataclass(frozen=True, slots=True)
class Call:
    """One op of a run.

    Attributes:
        mail: What it sends with.
        key: What its letters are called.
        group: The ranks that take part, in their order.
        attributes: Those of the op.
        what: The op and its node, for error texts.
        given: How many results it has.
    """

    mail: Mail
    key: Key
    group: tuple[int, ...]
    attributes: dict[str, Any]
    what: str
    given: int = 1

    @property
    def place(self) -> int:
        """The place of this rank in the group."""
        return self.group.index(self.mail.rank)

    @property
    def others(self) -> list[int]:
        """The other ranks of the group."""
        return [rank for rank in self.group if rank != self.mail.rank]

    def post(self, to: int, array: np.ndarray, part: str = "") -> None:
        """Send an array to a rank."""
        self.mail.post(to, self._part(part), array, self.what)

    def received(self, source: int, part: str = "") -> AbstractContextManager[np.ndarray]:
        """What a rank sent, in its memory, which it gets back at the end."""
        return self.mail.fetched(source, self._part(part), self.what)

    def fetch(self, source: int, part: str = "") -> np.ndarray:
        """A copy of what a rank sent."""
        with self.received(source, part) as array:
            return array.copy()

    def fetch_into(self, source: int, out: np.ndarray, part: str = "", reduction: Any = None) -> None:
        """Put what a rank sent into an array, or reduce it into that.

        Raises:
            RankError: It has another dtype or shape.
        """
        with self.received(source, part) as array:
            wanted = out.dtype if reduction is None or reduction.dtype is None else reduction.dtype
            if array.shape != out.shape or array.dtype != wanted:
                raise self.mismatch(source, array, wanted, out.shape)
            if reduction is None:
                out[...] = array
            else:
                reduction.add(out, array)

    def mismatch(self, source: int, array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> RankError:
        """The error for what a rank sent that does not fit."""
        return RankError(
            f"rank {source} sent {array.dtype} {list(array.shape)} in {self.what}, where rank {self.mail.rank} has "
            f"{dtype} {list(shape)}: the ranks run models that do not belong together, or got different inputs",
            rank=source,
            op=self.what,
        )

    def _part(self, part: str) -> Key:
        return self.key._replace(label=f"{self.key.label} {part}") if part else self.key


@dataclass(frozen=True, slots=True)
class Reduction:
    """How arrays of one dtype become one: short floats add up in 32 bits, and are rounded once.

    Attributes:
        function: Reduces two arrays.
        dtype: What is sent.
        wide: What is reduced in.
    """

    function: Any
    dtype: np.dtype
    wide: np.dtype

    @classmethod
    def of(cls, call: Call, dtype: np.dtype) -> Reduction:
        """The one that an op asks for."""
        name = call.attributes.get("op", "sum")
        if name not in REDUCTIONS:
            raise RankError(f"{call.what} reduces by {name!r}; known are {', '.join(REDUCTIONS)}", op=call.what)
        is_short = dtype.itemsize == 2 and dtype.kind not in "iub"
        return cls(REDUCTIONS[name], dtype, np.dtype(np.float32) if is_short else dtype)

    def add(self, out: np.ndarray, array: np.ndarray) -> None:
        """Reduce one more array into what there is."""
        self.function(out, array.astype(out.dtype, copy=False), out=out)


def _reduce(call: Call, own: np.ndarray, part: str = "") -> np.ndarray:
    """What all ranks of the group sent, and this one's own, reduced in their order."""
    reduction = Reduction.of(call, own.dtype)
    first, *rest = call.group
    if len(call.group) == 2:  # the order does not matter for two, and saves a copy
        return _reduce_two(call, own, part, reduction)
    if first == call.mail.rank:
        total = own.astype(reduction.wide)
    else:
        received = np.empty(own.shape, own.dtype)
        call.fetch_into(first, received, part)
        total = received.astype(reduction.wide, copy=False)
    for rank in rest:
        if rank == call.mail.rank:
            reduction.add(total, own)
        else:
            call.fetch_into(rank, total, part, reduction)
    return total.astype(own.dtype, copy=False)


def _reduce_two(call: Call, own: np.ndarray, part: str, reduction: Reduction) -> np.ndarray:
    other = call.others[0]
    with call.received(other, part) as array:
        if array.shape != own.shape or array.dtype != own.dtype:
            raise call.mismatch(other, array, own.dtype, own.shape)
        wide = own.astype(reduction.wide, copy=False), array.astype(reduction.wide, copy=False)
        return np.asarray(reduction.function(*wide)).astype(own.dtype, copy=False)


def all_reduce(call: Call, x: np.ndarray) -> Wait:
    """The sum (or so) of all ranks' arrays, for all of them."""
    count = len(call.group)
    if count == 1:
        return lambda: [x]
    if count == 2 or x.nbytes < PARTED_BYTES:
        for rank in call.others:
            call.post(rank, x)
        return lambda: [_reduce(call, x)]
    flat = x.reshape(-1)
    bounds = [flat.size * place // count for place in range(count + 1)]
    parts = [flat[start:stop] for start, stop in itertools.pairwise(bounds)]
    for place, rank in enumerate(call.group):
        if rank != call.mail.rank:
            call.post(rank, parts[place])

    def wait() -> list[np.ndarray]:
        own = _reduce(call, parts[call.place])
        for rank in call.others:
            call.post(rank, own, "whole")
        result = np.empty(flat.shape, flat.dtype)
        for place, rank in enumerate(call.group):
            out = result[bounds[place] : bounds[place + 1]]
            if rank == call.mail.rank:
                out[...] = own
            else:
                call.fetch_into(rank, out, "whole")
        return [result.reshape(x.shape)]

    return wait


def all_gather(call: Call, x: np.ndarray) -> Wait:
    """All ranks' arrays, one behind the other along the first axis."""
    for rank in call.others:
        call.post(rank, x)

    def wait() -> list[np.ndarray]:
        result = np.empty((len(call.group), *x.shape), x.dtype)
        for place, rank in enumerate(call.group):
            if rank == call.mail.rank:
                result[place] = x
            else:
                call.fetch_into(rank, result[place])
        return [result.reshape(len(call.group) * x.shape[0], *x.shape[1:]) if x.ndim else result]

    return wait


def reduce_scatter(call: Call, x: np.ndarray) -> Wait:
    """The sum (or so) of all ranks' arrays, of which each rank gets its part along the first axis."""
    pieces = _pieces(call, x, 0)
    for place, rank in enumerate(call.group):
        if rank != call.mail.rank:
            call.post(rank, pieces[place])
    return lambda: [_reduce(call, pieces[call.place])]


def all_to_all(call: Call, x: np.ndarray) -> Wait:
    """Each rank gets one piece of every rank's array, joined in the order of the ranks."""
    pieces = _pieces(call, x, call.attributes["split_dim"])
    for place, rank in enumerate(call.group):
        if rank != call.mail.rank:
            call.post(rank, pieces[place])

    def wait() -> list[np.ndarray]:
        found = [pieces[call.place] if rank == call.mail.rank else call.fetch(rank) for rank in call.group]
        return [np.concatenate(found, call.attributes["concat_dim"])]

    return wait


def all_to_all_v(call: Call, x: np.ndarray, sent: np.ndarray, received: np.ndarray) -> Wait:
    """Like AlltoAll on flat arrays, with pieces of the sizes that are given."""
    block = int(call.attributes.get("block_size", 1))
    sizes, expected = (np.asarray(counts).reshape(-1) * block for counts in (sent, received))
    flat = x.reshape(-1)
    if len(sizes) != len(call.group) or len(expected) != len(call.group) or sizes.sum() > flat.size or min(sizes) < 0:
        raise RankError(f"{call.what}: the sizes {sizes.tolist()} do not divide {flat.size} numbers", op=call.what)
    pieces = np.split(flat, np.cumsum(sizes))
    for place, rank in enumerate(call.group):
        if rank != call.mail.rank:
            call.post(rank, pieces[place])

    def wait() -> list[np.ndarray]:
        found = [pieces[call.place] if rank == call.mail.rank else call.fetch(rank) for rank in call.group]
        for rank, piece, size in zip(call.group, found, expected, strict=True):
            if piece.size != size:
                raise call.mismatch(rank, piece, x.dtype, (int(size),))
        return [np.concatenate(found)]

    return wait


def broadcast(call: Call, *arrays: np.ndarray) -> Wait:
    """The arrays of one rank, for all."""
    root = _member(call, "root_rank")
    if root == call.mail.rank:
        for rank in call.others:
            for place, array in enumerate(arrays):
                call.post(rank, array, str(place))
        return lambda: list(arrays)

    def wait() -> list[np.ndarray]:
        results = [np.empty(array.shape, array.dtype) for array in arrays]
        for place, result in enumerate(results):
            call.fetch_into(root, result, str(place))
        return results

    return wait


def send(call: Call, x: np.ndarray) -> Wait:
    """Send an array to one rank, and have it still."""
    call.post(_member(call, "dest_rank"), x)
    return lambda: [x]


def receive(call: Call, *_: np.ndarray) -> Wait:
    """What another rank sends. The operand has no meaning."""
    source = _member(call, "src_rank")
    return lambda: [call.fetch(source)]


def neighbor_exchange(call: Call, *arrays: np.ndarray) -> Wait:
    """An array to each of some ranks, one from each of others."""
    counts: dict[int, int] = {}
    for array, place in zip(arrays, call.attributes.get("send_rank_ids", ()), strict=True):
        rank = _rank_at(call, place)
        call.post(rank, array, str(counts.setdefault(rank, 0)))
        counts[rank] += 1

    def wait() -> list[np.ndarray]:
        found, seen = [], dict[int, int]()
        for place in call.attributes.get("recv_rank_ids", ()):
            rank = _rank_at(call, place)
            found.append(call.fetch(rank, str(seen.setdefault(rank, 0))))
            seen[rank] += 1
        return found

    return wait


def neighbor_exchange_v2(call: Call, x: np.ndarray) -> Wait:
    """An image with the edges of the neighbours' images around it: each rank has a tile of a larger one.

    A rank is a neighbour on one side only, so its letter needs no further name.
    """
    sent, received = call.attributes["send_lens"], call.attributes["recv_lens"]
    source = _neighbours(call, "recv_rank_ids")
    for direction, rank in _neighbours(call, "send_rank_ids"):
        call.post(rank, x[..., *edge(direction, sent, x.shape[-2:])])

    def wait() -> list[np.ndarray]:
        top, bottom, left, right = received  # zeros where there is no neighbour
        height, width = x.shape[-2:]
        result = np.zeros((*x.shape[:-2], top + height + bottom, left + width + right), x.dtype)
        result[..., top : top + height, left : left + width] = x
        for (row, column), rank in source:
            rows = (slice(0, top), slice(top, top + height), slice(top + height, None))[row + 1]
            columns = (slice(0, left), slice(left, left + width), slice(left + width, None))[column + 1]
            call.fetch_into(rank, result[..., rows, columns])
        return [result]

    return wait


def _neighbours(call: Call, name: str) -> list[tuple[tuple[int, int], int]]:
    places = call.attributes[name]
    if len(places) != len(DIRECTIONS):
        raise RankError(f"{call.what}: {name} must have {len(DIRECTIONS)} ranks, not {len(places)}", op=call.what)
    return [(way, _rank_at(call, place)) for way, place in zip(DIRECTIONS, places, strict=True) if place >= 0]


def reduce(call: Call, x: np.ndarray) -> Wait:
    """The sum (or so) of all ranks' arrays, for one of them; the others get one element without meaning."""
    target = _member(call, "dest_rank")
    if target != call.mail.rank:
        call.post(target, x)
        return lambda: [np.zeros(NOTHING_SHAPE, x.dtype)]
    return lambda: [_reduce(call, x) if call.others else x]


def collective_scatter(call: Call, x: np.ndarray) -> Wait:
    """One rank's array, of which each rank gets its part along the first axis."""
    source = _member(call, "src_rank")
    if source != call.mail.rank:
        return lambda: [call.fetch(source)]
    pieces = _pieces(call, x, 0)
    for place, rank in enumerate(call.group):
        if rank != call.mail.rank:
            call.post(rank, pieces[place])
    return lambda: [pieces[call.place]]


def collective_gather(call: Call, x: np.ndarray) -> Wait:
    """All ranks' arrays for one of them; the others get one element without meaning."""
    target = _member(call, "dest_rank")
    if target != call.mail.rank:
        call.post(target, x)
        return lambda: [np.zeros(NOTHING_SHAPE, x.dtype)]
    return lambda: [np.concatenate([x if rank == target else call.fetch(rank) for rank in call.group])]


def barrier(call: Call) -> Wait:
    """Nothing, when all ranks have come so far."""
    for rank in call.others:
        call.post(rank, np.zeros(0, np.uint8))

    def wait() -> list[np.ndarray]:
        for rank in call.others:
            call.fetch(rank)
        return [np.zeros(NOTHING_SHAPE, np.float32)][: call.given]

    return wait


def depend(call: Call, x: np.ndarray, *_: np.ndarray) -> Wait:  # noqa: ARG001  (it exchanges nothing)
    """Its first operand, when the others are there."""
    return lambda: [x]


EXCHANGES: dict[str, Callable[..., Wait]] = {
    "AllGather": all_gather,
    "AllReduce": all_reduce,
    "AlltoAll": all_to_all,
    "AlltoAllV": all_to_all_v,
    "Barrier": barrier,
    "Broadcast": broadcast,
    "CollectiveGather": collective_gather,
    "CollectiveScatter": collective_scatter,
    "Depend": depend,
    "NeighborExchange": neighbor_exchange,
    "NeighborExchangeV2": neighbor_exchange_v2,
    "Receive": receive,
    "Reduce": reduce,
    "ReduceScatter": reduce_scatter,
    "Send": send,
}


def _pieces(call: Call, x: np.ndarray, axis: int) -> list[np.ndarray]:
    """The array, cut into one piece for each rank."""
    count = len(call.group)
    if not -x.ndim <= axis < x.ndim or x.shape[axis] % count:
        raise RankError(f"{call.what}: {list(x.shape)} has no {count} equal parts along axis {axis}", op=call.what)
    return [np.ascontiguousarray(piece) for piece in np.split(x, count, axis)]


def _member(call: Call, name: str) -> int:
    return _rank_at(call, call.attributes[name])


def _rank_at(call: Call, place: int) -> int:
    """The rank that the file names: its place in the group."""
    if not 0 <= place < len(call.group):
        raise RankError(f"{call.what} names rank {place} of a group of {len(call.group)}", op=call.what)
    return call.group[place]

"""The weights on the device: one piece of memory, in which each has its place."""

from __future__ import annotations

import functools
import hashlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch

from litehouse.engines.torch import ipc
from litehouse.engines.torch.values import Tensor, name_of
from litehouse.errors import WeightError

ALIGNMENT = 256  # bytes: what kernels load at once never spans two weights


@dataclass(frozen=True, slots=True)
class SharedArena:
    """An arena of another process.

    Attributes:
        handle: What its memory is opened by, as hexadecimal digits.
        nbytes: Its size.
        card: The GPU that it is on.
        table: Dtype, shape and strides of what is in it, in order.
        digest: What tells its content from others.
    """

    handle: str
    nbytes: int
    card: str
    table: list[list[Any]]
    digest: str

    def facts(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """The arena of which `facts` gave this data."""
        names = str(facts["handle"]), int(facts["nbytes"]), str(facts["card"])
        return cls(*names, list(facts["table"]), str(facts["digest"]))


class Arena:
    """Tensors in one piece of device memory.

    Attributes:
        tensors: Them, by key.
        memory: The memory, as bytes.
    """

    def __init__(
        self,
        tensors: Mapping[Any, Tensor],
        place: torch.device,
        shared: SharedArena | None = None,
        others: Iterable[Arena] = (),
    ) -> None:
        """Copy tensors of the CPU to the device; their order of elements stays as it is.

        Args:
            tensors: The tensors.
            place: The device.
            shared: The arena of another process that has them already.
            others: Arenas of the same model: what is in one of them is taken from there.

        Raises:
            WeightError: The other process has others, or cannot be reached.
        """
        self._sources = {key: each if is_dense(each) else each.contiguous() for key, each in tensors.items()}
        self.tensors: dict[Any, Tensor] = {}
        for other in others if shared is None else ():
            self.tensors |= other.have(self.digests)
        self._own = {key: tensor for key, tensor in self._sources.items() if key not in self.tensors}
        offsets, size = dict[Any, int](), 0
        for key, tensor in self._own.items():
            offsets[key] = size
            size += -(-_span(tensor) * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        nbytes = max(size, 1)
        if shared is not None:
            self._check(shared, nbytes, place)
        self.memory = ipc.allocate(nbytes, place) if shared is None else ipc.adopt(shared.handle, nbytes, place)
        for key, tensor in self._own.items():
            self.tensors[key] = self._view(tensor, offsets[key])
            if shared is None:
                self.tensors[key].copy_(tensor)

    @functools.cached_property
    def digests(self) -> dict[Any, bytes]:
        """What tells the tensors from others, by key."""
        return {key: _digest(source) for key, source in self._sources.items()}

    def have(self, digests: Mapping[Any, bytes]) -> dict[Any, Tensor]:
        """Those of some tensors that are here, by their keys; `digests` tells them from others."""
        own = {digest: self.tensors[key] for key, digest in self.digests.items()}
        return {key: own[digest] for key, digest in digests.items() if digest in own}

    def share(self) -> SharedArena:
        """What another process finds the arena by. This one must keep it.

        Raises:
            WeightError: Not all is in its own memory, or that cannot be shared.
        """
        if len(self._own) < len(self._sources):
            raise WeightError("some weights are in memory that other models use, too, which is not shared")
        handle, card = ipc.export(self.memory).hex(), ipc.card(self.memory.device)
        return SharedArena(handle, self.memory.numel(), card, self._table(), self._digest())

    def _check(self, shared: SharedArena, nbytes: int, place: torch.device) -> None:
        """Raise WeightError unless the arena of another process has what this one must have."""
        if shared.nbytes != nbytes or shared.table != self._table() or shared.digest != self._digest():
            raise WeightError("the other process has made other weights of the model")
        if place.type == "cuda" and shared.card != ipc.card(place):
            raise WeightError(
                f"the weights are on the GPU {shared.card}, and this process was asked to run on {place}, which is "
                f"{ipc.card(place)}; use the same one"
            )

    def _table(self) -> list[list[Any]]:
        return [[name_of(each.dtype), list(each.shape), list(each.stride())] for each in self._own.values()]

    def _digest(self) -> str:
        """A digest of all content, as it is on the CPU."""
        found = hashlib.blake2b(digest_size=16)
        for key in self._own:
            found.update(self.digests[key])
        return found.hexdigest()

    def _view(self, like: Tensor, offset: int) -> Tensor:
        size = _span(like) * like.element_size()
        if not size:
            return torch.empty(like.shape, dtype=like.dtype, device=self.memory.device)
        return self.memory[offset : offset + size].view(like.dtype).as_strided(like.shape, like.stride())


class Arenas:
    """Arenas that others take tensors from, as long as they are used. Any number of threads may use it at once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._known: tuple[weakref.ref[Arena], ...] = ()

    def add(self, arena: Arena) -> None:
        """Let others take from an arena."""
        with self._lock:
            self._known = (*(known for known in self._known if known() is not None), weakref.ref(arena))

    def __iter__(self) -> Iterator[Arena]:
        """Those that are still used."""
        return iter([arena for known in self._known if (arena := known()) is not None])


def _digest(tensor: Tensor) -> bytes:
    """What tells a tensor of the CPU from others: its dtype, shape, strides and elements."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}".encode()
    found = hashlib.blake2b(kind, digest_size=16)
    if tensor.numel():
        found.update(tensor.as_strided((_span(tensor),), (1,)).view(torch.uint8).numpy().data)
    return found.digest()


def is_dense(tensor: Tensor) -> bool:
    """Whether each element has a place of its own, and there are none between them."""
    return bool(_span(tensor) == tensor.numel() and torch.empty_like(tensor).stride() == tensor.stride())


def _span(tensor: Tensor) -> int:
    """How many elements lie between the first and the last, both of them counted."""
    if not tensor.numel():
        return 0
    last: int = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return last + 1

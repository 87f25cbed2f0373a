"""Ranks on several machines: letters over TCP, with torch's gloo."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import queue
import socket
import struct
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from litehouse.distributed.mail import BYE, MALFORMED, Key, Letter, Mail, next_of
from litehouse.distributed.ranks import Place
from litehouse.errors import EngineError, RankError
from litehouse.weights.store import dtype_named

HEAD_BYTES = 4096  # of the first message of a letter, which also holds a small array
HEAD = struct.Struct("<4sBBHHxxIQQ")  # what it is, kind, dimensions, length of dtype and label, channel, run, bytes
MAGIC = b"LHG1"
MAX_SENDING = 16  # letters to one rank that need not have left
TAG = 7
FOREVER = datetime.timedelta(days=3650)
FAREWELL = 2.0  # seconds that the others have to answer when this rank leaves
RETRY = 0.2  # seconds between two attempts to meet
MAX_LETTER = 1 << 40


class GlooMail(Mail):
    """The letters between processes that reach each other by network."""

    def __init__(self, place: Place, timeout: float) -> None:
        """Find the others.

        Args:
            place: Which rank this is, and where rank 0 is found.
            timeout: Seconds that they have to begin, and later to answer.

        Raises:
            EngineError: torch is not installed, or the place does not tell where rank 0 is.
            RankError: Another rank does not come.
        """
        super().__init__(place.rank, place.size, timeout)
        try:
            import torch.distributed as distributed
        except ImportError as error:
            raise EngineError(
                f"ranks on several machines need torch ({error}); install it with: pip install torch"
            ) from error
        self._box: queue.SimpleQueue[Letter | None] = queue.SimpleQueue()
        self._sending: dict[int, deque[Any]] = {other: deque() for other in self._peers}
        self._locks = {other: threading.Lock() for other in self._peers}
        self._group = self._meet(distributed, place)
        self._readers = [
            threading.Thread(target=self._read, args=(other,), name=f"litehouse-rank-{other}", daemon=True)
            for other in self._peers
        ]
        for reader in self._readers:
            reader.start()

    def _meet(self, distributed: Any, place: Place) -> Any:
        """Connect to all others; again where an attempt failed, as while the job before this one is being closed."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return self._connected(distributed, place, deadline)
            except RankError:
                if time.monotonic() + RETRY > deadline:
                    raise
                time.sleep(RETRY)

    def _connected(self, distributed: Any, place: Place, deadline: float) -> Any:
        address, port = place.rendezvous()
        limit = datetime.timedelta(seconds=max(0.1, deadline - time.monotonic()))
        names = [f"{place.job}/{rank}" for rank in range(self.size)]
        present: list[int] = []
        try:
            store = distributed.TCPStore(address, port, is_master=self.rank == 0, timeout=limit, wait_for_workers=False)
            own = place.hosts[self.rank] if place.hosts else address_towards(address, port)
            store.set(names[self.rank], own)
            for rank, name in enumerate(names):
                left = max(0.1, deadline - time.monotonic())
                store.wait([name], datetime.timedelta(seconds=left))
                present.append(rank)
            group = process_group(distributed.PrefixStore(place.job, store), self.rank, self.size, own, limit)
            # Nobody goes on, and perhaps ends, before all are connected: rank 0 holds the store.
            distributed.PrefixStore(place.job, store).set(f"met/{self.rank}", "yes")
            if self.rank == 0:
                store.wait([f"{place.job}/met/{rank}" for rank in range(self.size)], limit)
            self._store = store
            return group
        except (RuntimeError, OSError) as error:  # torch's own errors are RuntimeErrors
            missing = len(present) if present or self.rank == 0 else 0
            raise RankError(
                f"rank {missing} of {self.size} did not begin at {address}:{port} within {self.timeout:g} s; start all "
                f"ranks, and see that the machines reach each other ({_brief(error)})",
                rank=missing,
            ) from error

    def _send(self, to: int, kind: int, key: Key, array: np.ndarray, what: str) -> None:  # noqa: ARG002
        import torch

        array = np.asarray(array, order="C")
        label, dtype = key.label.encode(), array.dtype.name.encode()
        lengths = array.ndim, len(dtype), len(label)
        head = HEAD.pack(MAGIC, kind, *lengths, key.channel, key.run, array.nbytes)
        head += struct.pack(f"<{array.ndim}Q", *array.shape) + dtype + label
        if len(head) > HEAD_BYTES:
            raise RankError(f"the name {key.label!r} is too long", op=key.label)
        is_small = len(head) + array.nbytes <= HEAD_BYTES
        head += array.tobytes() if is_small else b""
        messages = [np.frombuffer(head.ljust(HEAD_BYTES, b"\0"), np.uint8).copy()]
        if not is_small:
            messages.append(array.reshape(-1).view(np.uint8).copy())
        try:
            with self._locks[to]:
                sending = self._sending[to]
                if self._group is None:
                    raise OSError("the job has ended")
                sending.extend(self._group.send([torch.from_numpy(message)], to, TAG) for message in messages)
                while len(sending) > MAX_SENDING:
                    sending.popleft().wait(datetime.timedelta(seconds=self.timeout))
        except RuntimeError as error:
            raise OSError(_brief(error)) from error

    def _read(self, other: int) -> None:
        """Take what one rank sends, in a thread of its own, until it leaves."""
        peer, kind = self._peers[other], -1
        try:
            while kind != BYE and self.failure is None and (group := self._group) is not None:
                letter = self._receive(group, other)
                kind = letter.kind
                self._box.put(letter)
        except (RuntimeError, struct.error, *MALFORMED) as error:
            peer.gone = peer.gone or (f"died ({_brief(error)})" if isinstance(error, RuntimeError) else f"sent {error}")
            self._box.put(None)

    def _receive(self, group: Any, other: int) -> Letter:
        import torch

        head = np.empty(HEAD_BYTES, np.uint8)
        group.recv([torch.from_numpy(head)], other, TAG).wait(FOREVER)
        message = head.tobytes()
        magic, kind, ndim, dtype_size, label_size, channel, run, nbytes = HEAD.unpack_from(message)
        if magic != MAGIC or nbytes > MAX_LETTER:
            raise ValueError("what is no letter")
        shape = struct.unpack_from(f"<{ndim}Q", message, HEAD.size)
        start = HEAD.size + 8 * ndim
        dtype = dtype_named(message[start : start + dtype_size].decode())
        label = message[start + dtype_size : start + dtype_size + label_size].decode()
        start += dtype_size + label_size
        if start + nbytes <= HEAD_BYTES:
            content = head[start : start + nbytes].copy()
        else:
            content = np.empty(nbytes, np.uint8)
            group.recv([torch.from_numpy(content)], other, TAG).wait(FOREVER)
        return Letter(other, kind, Key(channel, run, label), content.view(dtype).reshape(shape))

    def _pump(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            letter = next_of(self._box, seconds)
            if letter is not None:
                self._take(letter)

    def _close(self) -> None:
        """Wait for what is being sent, and for the others to take their leave, but not long."""
        deadline = time.monotonic() + self.timeout
        for other, sending in self._sending.items():
            with contextlib.suppress(RuntimeError), self._locks[other]:
                while sending and not self._peers[other].gone:
                    sending.popleft().wait(datetime.timedelta(seconds=max(0.01, deadline - time.monotonic())))
                sending.clear()
        deadline = time.monotonic() + FAREWELL
        for reader in self._readers:
            if reader is not threading.current_thread():
                reader.join(max(0.0, deadline - time.monotonic()))
        self._group = self._store = None  # rank 0 then gives up the port

    def _abandon(self) -> None:
        """Never destroy in a forked process what belongs to threads of another one."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._group, self._store, self._sending)))


def process_group(store: Any, rank: int, size: int, host: str, limit: datetime.timedelta) -> Any:
    """A process group of gloo, which the others reach at a name or address of this machine."""
    from torch.distributed import ProcessGroupGloo

    options = ProcessGroupGloo._Options()
    options._devices = [ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = limit
    return ProcessGroupGloo(store, rank, size, options)


def address_towards(address: str, port: int) -> str:
    """The address of this machine that others reach it by: the one that packets to rank 0 leave from."""
    for family, *_, target in socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    return address


def _brief(error: BaseException) -> str:
    """The first line of torch's text, without where in its source it comes from."""
    line = str(error).strip().partition("\n")[0]
    return line.rpartition("] ")[2][:200] or type(error).__name__

"""Ranks on one machine: letters over Unix sockets, with arrays in memory that both sides have mapped.

The sockets have names, not files, so nothing stays behind when a process dies; the kernel tells the others at once. A
block of memory belongs to the rank that sends: it is sealed against other sizes, and mapped read-only by the one that
reads.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import math
import mmap
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field

import numpy as np

from litehouse.distributed.mail import FREE, LETTER, MALFORMED, Key, Letter, Mail
from litehouse.errors import RankError
from litehouse.weights.store import dtype_named

INLINE_BYTES = 1 << 14  # up to this an array is sent within the message
MAX_MESSAGE = 1 << 16
MAX_AWAY = 16  # blocks that one rank has not given back, until the sender waits
MAX_KEPT = 4  # blocks of one rank with letters that nobody reads yet; of further ones a copy is made
MAX_RANK = 32  # dimensions
MAX_OWED = 4  # blocks that were read, and are given back with the next letter; more are given back at once
SPIN = 100e-6  # seconds that a rank looks again and again for a letter, until it sleeps: waking it takes as long
# Kind, dimensions, length of dtype and label, count of blocks that are given back, channel, run, block, bytes.
HEAD = struct.Struct("<BBHHBxIQIQ")
DROP = 99  # a kind of message: the sender does not use that block any more
HELLO = struct.Struct("<4sII")
MAGIC = b"LHR1"
CREDENTIALS = struct.Struct("3i")
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
RETRY = 0.02  # seconds between two attempts to find a rank that has not begun
FAREWELL = 1.0  # seconds that others have to make room for the last notices


@dataclass(slots=True)
class _Block:
    """Memory that this rank sends letters in."""

    number: int
    descriptor: int
    memory: mmap.mmap


@dataclass(slots=True)
class _Line:
    """The connection to another rank.

    Attributes:
        socket: The socket.
        free: Blocks that can be used.
        away: Blocks that the other one reads.
        mapped: The other one's blocks, by their numbers.
        kept: How many of them hold letters that nobody has read.
        owed: Blocks of the other one that were read.
        unsent: Messages about blocks that could not be sent yet.
    """

    socket: socket.socket
    free: list[_Block] = field(default_factory=list)
    away: dict[int, _Block] = field(default_factory=dict)
    mapped: dict[int, mmap.mmap] = field(default_factory=dict)
    kept: int = 0
    owed: list[int] = field(default_factory=list)
    unsent: list[bytes] = field(default_factory=list)

    def release(self, number: int) -> None:
        """Give a block back, with the next letter or soon."""
        self.kept -= 1
        self.owed.append(number)
        if len(self.owed) > MAX_OWED:
            for each in self.owed:
                self.tell(FREE, each)
            self.owed.clear()

    def tell(self, kind: int, number: int) -> None:
        """Say something about a block, when there is room for it."""
        self.unsent.append(HEAD.pack(kind, 0, 0, 0, 0, 0, 0, number, 0))
        self.settle()

    def settle(self) -> None:
        """Send what could not be sent; one that is gone needs nothing."""
        while self.unsent:
            try:
                self.socket.send(self.unsent[0])
            except BlockingIOError:
                return
            except OSError:
                pass
            del self.unsent[0]


class MemoryMail(Mail):
    """The letters between processes of one machine and one user."""

    def __init__(self, rank: int, size: int, job: str, timeout: float) -> None:
        """Find the others.

        Args:
            rank: Which rank this is.
            size: How many there are.
            job: A text that all ranks of this job have, and no other job of this user.
            timeout: Seconds that they have to begin, and later to answer.

        Raises:
            RankError: One does not come, or there are two of one number.
        """
        super().__init__(rank, size, timeout)
        self._lines: dict[int, _Line] = {}
        self._blocks = 0
        self._poll = select.poll()
        self._by_descriptor: dict[int, int] = {}
        try:
            self._meet(job, time.monotonic() + timeout)
        except BaseException:
            self._close()
            raise

    def _meet(self, job: str, deadline: float) -> None:
        """Connect to the ranks below, and be found by those above."""
        with contextlib.closing(_listener(job, self.rank, self.size)) as listener:
            for other in range(self.rank):
                self._add(other, self._call(job, other, deadline))
            while len(self._lines) < self.size - 1:
                self._accept(listener, deadline)

    def _call(self, job: str, other: int, deadline: float) -> socket.socket:
        while True:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            if time.monotonic() > deadline:
                line.close()
                raise self._absent([other])
            try:
                line.settimeout(max(0.001, deadline - time.monotonic()))
                line.connect(_address(job, other))
                if _user(line) == os.geteuid():
                    line.send(HELLO.pack(MAGIC, self.rank, self.size))
                    self._check_hello(line.recv(HELLO.size), other)
                    return line
            except OSError:  # it has not begun
                pass
            except BaseException:
                line.close()
                raise
            line.close()
            time.sleep(RETRY)

    def _accept(self, listener: socket.socket, deadline: float) -> None:
        listener.settimeout(max(0.0, deadline - time.monotonic()) or 0.001)
        try:
            line, _ = listener.accept()
        except TimeoutError:
            raise self._absent(sorted(self._peers.keys() - self._lines.keys())) from None
        try:
            line.settimeout(max(0.0, deadline - time.monotonic()) or 0.001)
            if _user(line) != os.geteuid():
                line.close()
                return
            hello = line.recv(HELLO.size)
            magic, other, _ = HELLO.unpack(hello) if len(hello) == HELLO.size else (b"", 0, 0)
            if magic == MAGIC:
                line.send(HELLO.pack(MAGIC, self.rank, self.size))
        except OSError:
            line.close()
            return
        if magic != MAGIC:
            line.close()
            return
        try:
            self._check_hello(hello, other)
            if other in self._lines or not self.rank < other < self.size:
                raise RankError(f"two processes are rank {other} of this job; start each rank once", rank=other)
        except BaseException:
            line.close()
            raise
        self._add(other, line)

    def _check_hello(self, hello: bytes, other: int) -> None:
        if len(hello) != HELLO.size:
            raise RankError(f"rank {other} does not take part: it is of another job, or has failed", rank=other)
        magic, rank, size = HELLO.unpack(hello)
        if (magic, rank) != (MAGIC, other):
            raise RankError(f"a process that is no rank {other} answers for it", rank=other)
        if size != self.size:
            raise RankError(f"rank {other} is one of {size} ranks, rank {self.rank} one of {self.size}", rank=other)

    def _absent(self, missing: list[int]) -> RankError:
        names = ", ".join(map(str, missing))
        return RankError(
            f"rank {names} of {self.size} did not begin within {self.timeout:g} s; start all ranks on this machine, or "
            "raise the timeout. Ranks that no launcher starts, as in two terminals, find each other by a common name: "
            "set LITEHOUSE_JOB, or the name of litehouse.Job, to the same word for all",
            rank=missing[0],
        )

    def _add(self, other: int, line: socket.socket) -> None:
        line.setblocking(False)
        self._lines[other] = _Line(line)
        self._by_descriptor[line.fileno()] = other
        self._poll.register(line, select.POLLIN)

    def _send(self, to: int, kind: int, key: Key, array: np.ndarray, what: str) -> None:
        line, block = self._lines[to], None
        array = np.asarray(array, order="C")
        inline = array.nbytes <= INLINE_BYTES
        is_new = False
        if not inline:
            block, is_new = self._block(line, array.nbytes, to, what)
            np.ndarray(array.shape, array.dtype, block.memory)[...] = array
            line.away[block.number] = block
        label, dtype = key.label.encode(), array.dtype.name.encode()
        number = block.number if block is not None else 0
        returned = tuple(line.owed) if kind == LETTER else ()
        del line.owed[: len(returned)]
        lengths = array.ndim, len(dtype), len(label), len(returned)
        head = HEAD.pack(kind, *lengths, key.channel, key.run, number, array.nbytes)
        numbers = struct.pack(f"<{array.ndim}Q{len(returned)}I", *array.shape, *returned)
        parts = [head, numbers, dtype, label, array.tobytes() if inline else b""]
        self._transmit(to, b"".join(parts), [block.descriptor] if block is not None and is_new else [], what)

    def _transmit(self, to: int, message: bytes, descriptors: list[int], what: str) -> None:
        line = self._lines[to]

        def is_sent() -> bool:
            line.settle()
            if line.unsent:
                return False
            try:
                if descriptors:
                    socket.send_fds(line.socket, [message], descriptors)
                else:
                    line.socket.send(message)
            except BlockingIOError:  # the other one has not read what was sent before
                return False
            return True

        if is_sent():
            return
        if what:
            self._await(to, is_sent, what)
        else:  # a notice waits for its turn
            line.unsent.append(message)

    def _block(self, line: _Line, nbytes: int, to: int, what: str) -> tuple[_Block, bool]:
        """A block of that size, and whether the other one does not know it yet."""
        if len(line.away) >= MAX_AWAY:
            self._await(to, lambda: len(line.away) < MAX_AWAY, what)
        if line.away and not any(len(block.memory) >= nbytes for block in line.free):
            self._pump(0.0)
        for place, block in enumerate(line.free):
            if len(block.memory) >= nbytes:
                return line.free.pop(place), False
        if line.free:  # all are too small: one is given up, here and there
            block = line.free.pop()
            block.memory.close()
            os.close(block.descriptor)
            line.tell(DROP, block.number)
        self._blocks += 1
        return _new_block(self._blocks, nbytes), True

    def _pump(self, seconds: float) -> None:
        for line in self._lines.values():
            line.settle()
        if seconds > 0 and self._spin():
            return
        waiting = True
        while waiting:
            waiting = False
            for descriptor, _ in self._poll.poll(max(0, math.ceil(seconds * 1000))):
                other = self._by_descriptor.get(descriptor)
                if other is not None and self._receive(other):
                    waiting = True
            seconds = 0.0

    def _spin(self) -> bool:
        """Look for a moment whether something comes, awake; whether it did."""
        ends = time.perf_counter() + SPIN
        while time.perf_counter() < ends:
            if any(self._receive(other) for other in list(self._by_descriptor.values())):
                return True
            os.sched_yield()  # whoever else wants this core, as the other rank may, goes first
        return False

    def _receive(self, other: int) -> bool:
        """Take one message; whether there may be more."""
        line = self._lines[other]
        try:
            message, descriptors, _, _ = socket.recv_fds(line.socket, MAX_MESSAGE, 1)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # it has left without reading all; what it sent before is still to come
            return True
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._unplug(other, "died")
            return False
        try:
            self._read(other, line, message, descriptors)
        except (*MALFORMED, OSError, struct.error) as error:
            self._unplug(other, f"sent what is no letter ({error})")
            return False
        return True

    def _read(self, other: int, line: _Line, message: bytes, descriptors: list[int]) -> None:
        try:
            kind, ndim, dtype_size, label_size, count, channel, run, number, nbytes = HEAD.unpack_from(message)
            if kind == FREE:
                return line.free.append(line.away.pop(number))
            if kind == DROP:
                return line.mapped.__delitem__(number)
            if descriptors:
                line.mapped[number] = _mapped(descriptors[0])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if ndim > MAX_RANK:
            raise ValueError(f"{ndim} dimensions")
        shape = struct.unpack_from(f"<{ndim}Q", message, HEAD.size)
        start = HEAD.size + 8 * ndim + 4 * count
        for free in struct.unpack_from(f"<{count}I", message, start - 4 * count):
            line.free.append(line.away.pop(free))
        dtype = dtype_named(message[start : start + dtype_size].decode())
        start += dtype_size
        label = message[start : start + label_size].decode()
        memory = line.mapped[number] if number else message
        offset = 0 if number else start + label_size
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != nbytes or offset + nbytes > len(memory):
            raise ValueError("its size is not that of its array")
        array = np.ndarray(shape, dtype, memory, offset)
        letter = Letter(other, kind, Key(channel, run, label), array)
        if number:
            line.kept += 1
            letter.release = functools.partial(line.release, number)
            if kind == LETTER and line.kept > MAX_KEPT:
                letter.array = array.copy()
                letter.close()
        self._take(letter)

    def _unplug(self, other: int, why: str) -> None:
        line = self._lines[other]
        self._peers[other].gone = self._peers[other].gone or why
        with contextlib.suppress(KeyError):
            self._poll.unregister(line.socket)
        self._by_descriptor.pop(line.socket.fileno(), None)
        line.socket.close()

    def _close(self) -> None:
        self._flush()
        for line in self._lines.values():
            line.socket.close()
            for block in (*line.free, *line.away.values()):
                os.close(block.descriptor)
            line.free, line.away, line.mapped = [], {}, {}
        self._by_descriptor.clear()

    def _abandon(self) -> None:
        for line in self._lines.values():
            line.unsent.clear()
        self._close()

    def _flush(self) -> None:
        """Send the last notices; whoever does not read for a while does without them."""
        deadline = time.monotonic() + FAREWELL
        for line in self._lines.values():
            line.settle()
            while line.unsent and line.socket.fileno() >= 0 and time.monotonic() < deadline:
                select.select([], [line.socket], [], 0.05)
                line.settle()


def _address(job: str, rank: int) -> str:
    """The name of a rank's socket: no other user's job, or other job, has the same."""
    name = hashlib.sha256(repr((os.geteuid(), job)).encode()).hexdigest()[:32]
    return f"\0litehouse-rank-{name}-{rank}"


def _listener(job: str, rank: int, size: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        listener.bind(_address(job, rank))
        listener.listen(size)
    except OSError as error:
        listener.close()
        raise RankError(
            f"another process is rank {rank} of this job already ({error.strerror}); start each rank once, and tell "
            "two jobs apart with the environment variable LITEHOUSE_JOB",
            rank=rank,
        ) from None
    return listener


def _user(line: socket.socket) -> int:
    """Who is at the other end, by the kernel's word."""
    return int(CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))[1])


def _new_block(number: int, nbytes: int) -> _Block:
    descriptor = os.memfd_create("litehouse-rank", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(descriptor, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        return _Block(number, descriptor, mmap.mmap(descriptor, 0))
    except BaseException:
        os.close(descriptor)
        raise


def _mapped(descriptor: int) -> mmap.mmap:
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS != SEALS:
        raise ValueError("its memory is not sealed")
    return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)

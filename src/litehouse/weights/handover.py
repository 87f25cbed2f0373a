"""Hands shared memory from one process to others: over a Unix socket, to those that may have it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import secrets
import select
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

from litehouse.errors import WeightError

SECONDS = 5.0  # for a whole exchange
ASKED = struct.Struct("<4sQ")  # who asks, and with which handle
ANSWERED = struct.Struct("<4sI")  # and the length of the answer behind it
MAGIC = b"LHW1"
MAX_ANSWER = 1 << 16
PAUSE = 0.1  # seconds, when nobody can be let in
MAX_DESCRIPTORS = 200  # the kernel takes 253 in a message
CREDENTIALS = struct.Struct("3i")

Answer = tuple[dict[str, Any], Sequence[int]]
log = logging.getLogger(__name__)
_offers: weakref.WeakSet[Offer] = weakref.WeakSet()


class UnavailableError(WeightError):
    """Nobody offers the memory any more, or not to this process."""


class Offer:
    """Answers those processes that may have the memory, until it is closed or the process ends.

    Attributes:
        handle: The number that they ask with: nobody can guess it.
    """

    def __init__(self, answer: Callable[[], Answer], what: str) -> None:
        """Begin to listen; nobody but this process gets an answer until `allow` names others.

        Args:
            answer: What they are told, and the descriptors that they get, which are closed here.
            what: What is offered, for the log.
        """
        self.handle = secrets.randbits(62) + 1  # below 2**63: programs keep it in signed numbers
        self._answer, self._what = answer, what
        self._allowed: dict[int, int | None] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind(_address(self.handle))
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC)[::-1]
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="litehouse-offer", daemon=True)
        self._thread.start()
        _offers.add(self)

    def allow(self, pids: Iterable[int]) -> None:
        """Answer these processes, too.

        Raises:
            WeightError: There is no such process.
        """
        added: dict[int, int | None] = {}
        try:
            for pid in pids:
                known = self._allowed.get(pid)
                is_known = pid in added or (pid in self._allowed and (known is None or not _has_ended(known)))
                if pid not in (0, os.getpid()) and not is_known:  # published programs name nobody by 0
                    added[pid] = _watch(pid)
        except BaseException:
            for descriptor in added.values():
                if descriptor is not None:
                    os.close(descriptor)
            raise
        gone = [self._allowed[pid] for pid in added if pid in self._allowed]
        self._allowed = {**self._allowed, **added}
        for descriptor in gone:  # of processes that ended, whose numbers others have now
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Answer no more. Who has the memory keeps it."""
        if self in _offers:
            _offers.discard(self)
            os.write(self._wake, b".")
            if self._thread is not threading.current_thread():
                self._thread.join()

    def abandon(self) -> None:
        """Close what a forked process has inherited, so that nobody waits for its answer."""
        self._close_sockets()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._woken:
                    return self._end()
                try:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket):
                        self._hear(key.fileobj, key.data)
                except (OSError, WeightError) as error:  # one that cannot be served is no reason to serve no other
                    log.warning("%s: the weights could not be shared: %s", self._what, error)
                    if isinstance(key.fileobj, socket.socket) and key.fileobj is not self._listener:
                        self._drop(key.fileobj)

    def _end(self) -> None:
        self._close_sockets()
        for descriptor in (self._wake, self._woken, *(found for found in self._allowed.values() if found is not None)):
            os.close(descriptor)

    def _close_sockets(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        """Let a process in; who is refused is told so at once, and logged."""
        try:
            connection, _ = self._listener.accept()
        except OSError:  # there are no descriptors left, or it has gone
            time.sleep(PAUSE)
            return
        with ExitStack() as stack:
            stack.enter_context(connection)
            connection.setblocking(False)  # nobody waits for another
            reason = self._refusal(connection)
            if not reason:
                self._selector.register(connection, selectors.EVENT_READ, data=bytearray())
                stack.pop_all()
                return
            log.warning("%s: refused to share the weights: %s", self._what, reason)
            with contextlib.suppress(OSError):
                _send(connection, {"refused": reason}, [])

    def _hear(self, connection: socket.socket, asked: bytearray) -> None:
        """Take what a process says, and answer when it has said all."""
        try:
            asked += connection.recv(ASKED.size - len(asked)) or _ended()
            if len(asked) < ASKED.size:
                return
            if ASKED.unpack(asked) != (MAGIC, self.handle):
                _ended()
            asked.clear()
            facts, descriptors = self._answer()
            try:
                _send(connection, facts, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        except BlockingIOError:
            if not asked:  # it does not read what it is sent
                self._drop(connection)
        except (OSError, EOFError):
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _refusal(self, connection: socket.socket) -> str:
        pid, uid = peer(connection)
        if uid not in (os.getuid(), 0):
            return f"process {pid} belongs to user {uid}"
        if pid == os.getpid():
            return ""
        if pid not in self._allowed:
            return f"process {pid} is not in the list of those that may have them"
        watched = self._allowed[pid]
        if watched is not None and _has_ended(watched):
            return f"process {pid} is not the one that was in the list: that one has ended"
        return ""


def _watch(pid: int) -> int | None:
    """What tells that a process has ended, so that none that gets its number later is taken for it."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:  # the kernel is too old
            return None
        raise WeightError(f"there is no process {pid} to share weights with") from None
    except (OverflowError, TypeError):
        raise WeightError(f"{pid!r} is no process to share weights with") from None


def _ended() -> NoReturn:
    raise EOFError("it has closed the connection")


def _has_ended(watched: int) -> bool:
    poll = select.poll()  # which needs no descriptor of its own
    poll.register(watched, select.POLLIN)
    return bool(poll.poll(0))


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, by the kernel's word."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(found)
    return pid, uid


class Asker:
    """Asks the process that offers the memory. Used by one thread at a time.

    Attributes:
        pid: That process.
        close: Ends the connection.
    """

    def __init__(self, handle: int) -> None:
        """Find the process.

        Raises:
            WeightError: There is none.
        """
        self._handle = handle
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._connection.settimeout(SECONDS)
        self.close = weakref.finalize(self, self._connection.close)
        try:
            if not 0 < handle < 1 << 63:
                raise OSError
            self._connection.connect(_address(handle))
        except OSError:
            self.close()
            raise UnavailableError(
                f"nobody offers weights under the handle {handle}: the process that did has ended or closed its model, "
                "or it runs on another machine or in another container"
            ) from None
        self.pid, uid = peer(self._connection)
        if uid not in (os.getuid(), 0):
            self.close()
            raise WeightError(f"the weights under the handle {handle} are offered by another user, {uid}")

    def ask(self) -> Answer:
        """What is offered now, and the descriptors, which the caller closes.

        Raises:
            WeightError: It was refused, or the other process has ended.
        """
        end = time.monotonic() + SECONDS
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who was refused is told so before
                self._connection.sendall(ASKED.pack(MAGIC, self._handle))
            facts, descriptors = _take(self._connection, end)
        except (OSError, EOFError, ValueError, struct.error) as error:
            raise WeightError(f"process {self.pid}, which offered the weights, does not answer: {error}") from error
        if "refused" in facts:
            raise UnavailableError(f"process {self.pid} refused to share its weights: {facts['refused']}")
        return facts, descriptors


def _address(handle: int) -> bytes:
    """The socket's name. It has no file, and so nothing stays behind; what is listed of it does not tell the handle."""
    return b"\0litehouse-" + hashlib.sha256(b"handle %d" % handle).hexdigest()[:32].encode()


def _send(connection: socket.socket, facts: dict[str, Any], descriptors: Sequence[int]) -> None:
    content = json.dumps({**facts, "descriptors": len(descriptors)}).encode()
    whole = ANSWERED.pack(MAGIC, len(content)) + content
    if socket.send_fds(connection, [whole], list(descriptors)) < len(whole):
        raise BlockingIOError  # it does not read


def _take(connection: socket.socket, end: float) -> Answer:
    connection.settimeout(_left(end))
    head, descriptors, _, _ = socket.recv_fds(connection, ANSWERED.size, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        head += _receive(connection, ANSWERED.size - len(head), end) if head else _ended()
        magic, length = ANSWERED.unpack(head)
        if magic != MAGIC or length > MAX_ANSWER:
            raise ValueError("it speaks another language")
        facts = json.loads(_receive(connection, length, end))
        if not isinstance(facts, dict):
            raise ValueError("it speaks another language")
        if facts.get("descriptors") != len(descriptors):
            raise ValueError("descriptors were lost on the way; this process may have too many open files")
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return facts, descriptors


def _receive(connection: socket.socket, length: int, end: float) -> bytes:
    parts = []
    while length:
        connection.settimeout(_left(end))
        parts.append(connection.recv(min(length, 1 << 16)) or _ended())
        length -= len(parts[-1])
    return b"".join(parts)


def _left(end: float) -> float:
    return max(0.001, end - time.monotonic())


def _abandon_all() -> None:
    for offer in list(_offers):
        offer.abandon()
    _offers.clear()


os.register_at_fork(after_in_child=_abandon_all)

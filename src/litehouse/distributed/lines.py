"""Process groups of torch, by which ranks exchange tensors: NCCL between GPUs, gloo between tensors of the CPU.

They are this module's own, beside whatever process groups the program has. Mail tells the ranks where they meet, and
who has failed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import datetime
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from litehouse.distributed.mail import MAX_BUSY, Key, Mail
from litehouse.engines.torch.ipc import card
from litehouse.engines.torch.values import Tensor
from litehouse.errors import EngineError, LitehouseError, RankError

SPIN = 0.002  # seconds that are waited for without a pause
PAUSE = 0.0005
LOOK = 0.02  # seconds between two looks at the mail
GRACE = 2.0  # seconds in which it becomes known who it was that failed, or until all have left
HALT = 0.5  # seconds in which what NCCL waits for on the GPU has ended
OPENING = "the connection of the ranks"
# How torch's watchdog is to behave, which reads this when a process group is made: failures are found out here, and
# must not end the process.
SETTINGS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
}
# To register memory of graphs, NCCL would need all ranks to capture at the same time. It reads this later, so it stays.
LASTING = {"NCCL_GRAPH_REGISTER": "0"}
_setting = threading.Lock()
_all: weakref.WeakSet[Lines] = weakref.WeakSet()


def backend_for(place: torch.device) -> str:
    """What connects tensors of a device.

    Raises:
        EngineError: This torch lacks it.
    """
    name = "nccl" if place.type == "cuda" else "gloo"
    distributed = torch.distributed
    is_there = distributed.is_available() and getattr(distributed, f"is_{name}_available")()
    if not is_there:
        raise EngineError(f"ranks that exchange tensors on {place} need a torch that is built with {name}")
    return name


def card_of(place: torch.device, machine: str) -> str:
    """What tells a GPU from all others; empty for the CPU."""
    found = card(place)
    return f"{machine}/{found}" if found else ""


def open_lines(mail: Mail, place: torch.device, address: str) -> Lines:
    """What connects the ranks of a mail; the same for all models."""
    known = mail.lines.get(str(place))
    if known is None or known.is_closed:
        known = mail.lines[str(place)] = Lines(mail, place, address)
    found: Lines = known
    return found


class Lines:
    """All lines of a rank on one device. They may only be used by who holds `mail.using`.

    Attributes:
        place: The device.
        is_closed: Whether they cannot be used any more.
        users: Have captured what uses them; `drop` is called when that cannot be used any more.
        check: Raises RankError where the run that is under way cannot end well; None between runs.
    """

    def __init__(self, mail: Mail, place: torch.device, address: str) -> None:
        """Begin without lines.

        Args:
            mail: What the ranks meet by.
            place: The device.
            address: Where rank 0 is found.
        """
        self.mail, self.place, self._address = mail, place, address
        self._backend = backend_for(place)
        self._store: Any = None
        self._lines: dict[tuple[int, ...], BackendLine] = {}
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.check: Callable[[], None] | None = None
        self.is_closed = False
        _all.add(self)

    def open(self, groups: Iterable[tuple[int, ...]], channel: int) -> dict[tuple[int, ...], BackendLine]:
        """The lines of groups of ranks; all of these do the same.

        Args:
            groups: The groups that this rank is in.
            channel: The number of the model in the mail.

        Raises:
            RankError: Another rank does not come.
        """
        new = sorted({group for group in groups if group not in self._lines})  # all ranks go by this order
        if self._store is None:
            self._store = self._met(channel)
        for group in new:
            self._lines[group] = self._in_time(lambda group=group: BackendLine(self, group, self._made(group)))  # type: ignore[misc]
            self._lines[group].all_gather(torch.zeros(1, dtype=torch.uint8, device=self.place))  # it is connected now
            self.finish(OPENING)
        return self._lines

    def _met(self, channel: int) -> Any:
        """The store of all ranks, which rank 0 has."""
        distributed, mail = torch.distributed, self.mail
        if mail.size == 1:
            return distributed.HashStore()
        limit, key = datetime.timedelta(seconds=mail.timeout), Key(channel, 0, "store")
        try:
            if mail.rank == 0:
                store = distributed.TCPStore(self._address, 0, None, True, limit, wait_for_workers=False)
                for other in range(1, mail.size):
                    mail.post(other, key, np.array([store.port]), OPENING)
                return store
            with mail.fetched(0, key, OPENING) as array:
                port = int(array[0])
            return distributed.TCPStore(self._address, port, None, False, limit, wait_for_workers=False)
        except RuntimeError as error:
            raise self.broken(error, OPENING) from error

    def _made(self, group: tuple[int, ...]) -> Any:
        """A process group."""
        distributed = torch.distributed
        store = distributed.PrefixStore("-".join(map(str, group)), self._store)
        place, size = group.index(self.mail.rank), len(group)
        limit = datetime.timedelta(seconds=MAX_BUSY * self.mail.timeout)  # mail knows earlier
        if self._backend == "nccl":
            torch.cuda.set_device(self.place)  # of this thread
            with _set():
                options: Any = distributed.ProcessGroupNCCL.Options()
                options._timeout = limit
                made = distributed.ProcessGroupNCCL(store, place, size, options)
                made.eager_connect_single_device(self.place)
            return made
        from litehouse.distributed.gloo import address_towards, process_group

        return process_group(store, place, size, address_towards(self._address, 1), limit)

    def _in_time(self, work: Callable[[], Any]) -> Any:
        """What some work gives that waits for other ranks, and could do so for ever."""
        found: list[Any] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                found.append(work())
            except (RuntimeError, OSError, EngineError) as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="litehouse-rank-opening", daemon=True)
        thread.start()
        self.until(lambda: not thread.is_alive(), OPENING)
        if errors:
            raise errors[0] if isinstance(errors[0], LitehouseError) else self.broken(errors[0], OPENING)
        return found[0]

    def until(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait for something that other ranks have a part in.

        Raises:
            RankError: One of them has failed, or does not come.
        """
        start = time.monotonic()
        looked = told = start
        while not is_done():
            now = time.monotonic()
            time.sleep(0 if now - start < SPIN else PAUSE)
            if now - looked > LOOK:
                looked = now
                try:
                    told = self.mail.watch(start, what, told)
                    if self.check is not None:
                        self.check()
                except RankError:
                    self.abort()
                    raise

    def finish(self, what: str, stream: Any = None) -> None:
        """Wait for what was begun on a stream of the device, or the current one; nothing on the CPU."""
        if self.place.type == "cuda":
            stream = torch.cuda.current_stream(self.place) if stream is None else stream
            try:
                self.until(stream.query, what)
            except RuntimeError as error:
                raise self.broken(error, what) from error

    def broken(self, error: BaseException, what: str) -> RankError:
        """The error for what torch says: whose fault it is, mail may know, or learn soon."""
        start = time.monotonic()
        try:
            while time.monotonic() - start < min(GRACE, self.mail.timeout):
                self.mail.watch(start, what, start)
                time.sleep(LOOK)
        except RankError as told:
            self.abort()
            return told
        line = str(error).strip().partition("\n")[0]
        failed = RankError(f"torch lost the other ranks in {what}: {line.rpartition('] ')[2][:300]}", op=what)
        self.mail.fail(failed, what)
        self.abort()
        return failed

    def abort(self) -> None:
        """End what is under way, and all lines."""
        if not self.is_closed:
            self.is_closed = True
            self._end(is_broken=True)

    def leave(self) -> None:
        """Close all lines, once the others leave, too, or soon: they may not have taken all that this rank sent."""
        if self.is_closed:
            return
        self.is_closed = True
        others = [other for other in range(self.mail.size) if other != self.mail.rank]
        with contextlib.suppress(LitehouseError, OSError), self.mail.using:
            for other in others:
                self.mail.post(other, LEAVING, np.zeros(0, np.uint8), "")
            for other in others:
                with self.mail.fetched(other, LEAVING, "", timeout=GRACE):
                    pass
        self._end(is_broken=False)

    def _end(self, *, is_broken: bool) -> None:
        """Close all lines, in the background: gloo waits for what is under way, and NCCL for captured graphs."""
        ended: list[Any] = [*self._lines.values(), self._store]
        self._lines, self._store = {}, None

        def end() -> None:
            for line in ended[:-1]:
                with contextlib.suppress(RuntimeError):
                    line.end(is_broken=is_broken)
            ended.clear()

        thread = threading.Thread(target=end, name="litehouse-rank-ending", daemon=True)
        is_gpu = self.place.type == "cuda"
        if is_gpu:  # never destroyed: that could wait forever, with the process
            ctypes.pythonapi.Py_IncRef(ctypes.py_object([ended[-1], *(line.group for line in ended[:-1])]))
        if is_gpu and is_broken:  # what hangs on the GPU ends first; only then can graphs be freed
            thread.start()
            thread.join(HALT)
        for user in list(self.users):
            user.drop()
        if not (is_gpu and is_broken):
            thread.start()
        if is_gpu or not is_broken:  # at the end of the process, nothing may be at work when Python is gone
            thread.join(GRACE)

    def abandon(self) -> None:
        """Never destroy in a forked process what belongs to threads of another one."""
        self.is_closed = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._store, [line.group for line in self._lines.values()])))


LEAVING = Key(0, 0, "leaving")


class BackendLine:
    """The line of one group: a process group of torch.

    Attributes:
        group: The process group.
    """

    def __init__(self, lines: Lines, ranks: tuple[int, ...], group: Any) -> None:
        """Wrap a process group of some ranks."""
        self._lines, self._size, self.group = lines, len(ranks), group
        self._what = f"an exchange of the ranks {', '.join(map(str, ranks))}"

    def all_gather(self, data: Tensor) -> Tensor:
        """The bytes of all ranks, as many from each, one behind the other."""
        out = data.new_empty(data.numel() * self._size)
        options = _options("AllgatherOptions")
        self._run(lambda: self.group._allgather_base(out, data, options), data.numel() * (self._size - 1))
        return out

    def all_to_all(self, data: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """What all ranks have for this one; `sent` and `received` are counts of bytes, for each rank."""
        out = data.new_empty(sum(received))
        options, counts = _options("AllToAllOptions"), (list(received), list(sent))
        self._run(lambda: self.group.alltoall_base(out, data, *counts, options), data.numel())
        return out

    def broadcast(self, data: Tensor, root: int) -> None:
        """Put the bytes of one rank into those of all."""
        options = _options("BroadcastOptions")
        options.rootRank, options.rootTensor = root, 0
        is_own = root == self.group.rank()
        self._run(lambda: self.group.broadcast([data], options), data.numel() * (self._size - 1) if is_own else 0)

    def _run(self, begin: Callable[[], Any], sent: int) -> None:
        """Let the process group do something: at the GPU's own time, or at once for tensors of the CPU."""
        lines = self._lines
        if lines.is_closed:
            raise RankError(f"the job has ended in {self._what}; load the model again, on all ranks", op=self._what)
        lines.mail.bytes_sent += sent
        try:
            work = begin()
            if lines.place.type != "cuda":
                lines.until(work.is_completed, self._what)
            if work is not None:
                work.wait()  # on a GPU, the stream does
        except RuntimeError as error:
            raise lines.broken(error, self._what) from error

    def end(self, *, is_broken: bool) -> None:
        """Close it."""
        if self._lines.place.type == "cuda":
            self.group.abort() if is_broken else self.group.shutdown()
        self.group = None


def _options(name: str) -> Any:
    """Options by which a GPU runs what is asked for on the current stream, as all else."""
    options = getattr(torch._C._distributed_c10d, name)()
    if hasattr(options, "asyncOp"):  # else a stream of the process group's own, which the current one waits for
        options.asyncOp = False
    return options


@contextlib.contextmanager
def _set() -> Iterator[None]:
    """With the environment that process groups read when they are made; what the program has set stays."""
    with _setting:
        for name, text in LASTING.items():
            os.environ.setdefault(name, text)
        added = {name: text for name, text in SETTINGS.items() if name not in os.environ}
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)


def _leave() -> None:
    for lines in list(_all):
        lines.leave()


def _forget() -> None:
    for lines in list(_all):
        lines.abandon()


atexit.register(_leave)
os.register_at_fork(after_in_child=_forget)

"""Worker processes of a pool: a model that kills its process takes one worker down, and the pool goes on."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from litehouse import errors
from litehouse.engines.base import Stoppable
from litehouse.engines.choice import Choice
from litehouse.errors import EngineError, LitehouseError, WorkerError
from litehouse.identity import Files, find, marks_at
from litehouse.options import Options
from litehouse.parallel.exchange import SERIAL, Line, SharedMemory

PROGRAM = ("-P", "-m", "litehouse.parallel.isolated")
START_SECONDS = 600.0  # to load a model, with a race where there is no cache
END_SECONDS = 5.0
STOP_SECONDS = 1.0  # for a run to stop between two ops, before its process is killed


@dataclass(frozen=True, slots=True)
class Source:
    """What the workers load.

    Attributes:
        model: A path, or the bytes of a file.
        options: How to run it.
        key: The key of an encrypted file.
        mode: How it is encrypted.
        marks: What tells that the file is still the one that it was; empty for bytes.
        files: The same for the data files beside it.
    """

    model: str | bytes
    options: Options
    key: bytes | None = field(default=None, repr=False)
    mode: str = "AES-GCM"
    marks: Sequence[Any] = ()
    files: Files = field(default_factory=dict)

    @classmethod
    def of(cls, source: str | os.PathLike[str] | bytes, options: Options, file: Mapping[str, Any]) -> Self:
        """What `litehouse.load` would load."""
        if isinstance(source, bytes):
            return cls(source, options, **file)
        path = os.path.abspath(os.fsdecode(find(source)))
        return cls(path, options, **file, marks=marks_at(path) or ())

    def message(self, descriptor: int | None) -> dict[str, Any]:
        """What a worker process is told; the bytes of a model are behind the descriptor."""
        return {
            "path": None if isinstance(self.model, bytes) else self.model,
            "descriptor": descriptor,
            "key": None if self.key is None else self.key.hex(),
            "mode": self.mode,
            "marks": list(self.marks),
            "files": {name: list(marks or ()) for name, marks in self.files.items()},
            "options": self.options.plain(),
        }


def start_all(sources: Sequence[Source], restarted: Callable[[], None]) -> list[ProcessWorker]:
    """A worker for each source. The first one fills the cache for the others, which then start side by side.

    Raises:
        LitehouseError: A process cannot load the model.
    """
    workers = [ProcessWorker(source, restarted) for source in sources]
    try:
        workers[0].start()
        with ThreadPoolExecutor(len(workers)) as starting:
            list(starting.map(ProcessWorker.start, workers[1:]))
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    return workers


class ProcessWorker:
    """A worker in a process of its own, which is started anew when it has died. Runs take turns."""

    def __init__(self, source: Source, restarted: Callable[[], None]) -> None:
        """Have no process yet.

        Args:
            source: What it loads.
            restarted: Called whenever a process was started in place of one that died.
        """
        self._source = source
        self._restarted = restarted
        self._changed = threading.Condition()
        self._child: _Child | None = None
        self._coming: _Child | None = None  # it is loading the model
        self._starter: threading.Thread | None = None
        self._failure: Exception | None = None  # of the last start
        self._is_starting = self._is_running = self._is_closed = False
        self._serials = itertools.count(1)

    @property
    def engine(self) -> Choice:
        """What the process runs the model on."""
        return self._engine

    @property
    def pid(self) -> int | None:
        """The id of the process; None where there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def run(self, inputs: Sequence[np.ndarray], stoppable: Stoppable | None = None) -> list[np.ndarray]:
        """The outputs for these inputs.

        Raises:
            WorkerError: The process died meanwhile, or another one cannot be started.
            EngineError: The run was stopped.
            LitehouseError: What the model's session raised there.
        """
        stoppable = stoppable or _unstoppable
        try:
            child, serial = self._ready(stoppable), next(self._serials)
            stop = _Stop(child, serial)
            stoppable(stop)
            try:
                return child.ask(inputs, serial)
            except (EOFError, OSError) as error:
                if stop.has_killed:
                    raise EngineError("the run did not stop, and its process was ended") from error
                raise WorkerError(f"{child.last_words()} while it ran the request") from error
            finally:
                stoppable(None)
                if stop.end():
                    self._end()  # it may seem alive for a moment: the next request must not meet it
        finally:
            stoppable(None)
            with self._changed:
                self._is_running = False

    def _ready(self, stoppable: Stoppable) -> _Child:
        """The process, when it has loaded the model; from then on it is this run's own."""
        is_stopped = False

        def stop() -> None:
            nonlocal is_stopped
            with self._changed:
                is_stopped = True
                self._changed.notify_all()

        stoppable(stop)
        is_own = False
        while not is_own:
            is_own = self.prepare()  # if not, one is starting already: why that fails may be gone by now
            with self._changed:
                while self._is_starting and not is_stopped:
                    self._changed.wait()
                if is_stopped:
                    raise EngineError("the request was stopped before a process was ready to run it")
                if self._failure is None:
                    break
        with self._changed:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            if self._child is None:
                raise WorkerError("the pool is closed; make another one")
            self._is_running = True
            return self._child

    def prepare(self) -> bool:
        """Begin to start another process where the last one died; if that fails, the next run tells.

        Returns:
            Whether that was needed.
        """
        with self._changed:
            is_alive = self._child is not None and self._child.process.poll() is None
            if is_alive or self._is_starting or self._is_closed:
                return False
            self._is_starting, self._failure = True, None
            self._starter = threading.Thread(target=self._restart, name="litehouse-start", daemon=True)
            self._starter.start()
        return True

    def _restart(self) -> None:
        failure = None
        try:
            self._end()
            self.start()
            self._restarted()
        except Exception as error:  # noqa: BLE001  (whoever runs next is told)
            failure = error
        with self._changed:
            self._is_starting, self._failure = False, failure
            self._changed.notify_all()

    def start(self) -> None:
        """Start the process and wait until it has loaded the model.

        Raises:
            LitehouseError: The process cannot load the model.
        """
        child = _Child(self._source.model)
        with self._changed:
            self._coming = None if self._is_closed else child
        try:
            if self._coming is None:
                raise WorkerError("the pool is closed; make another one")
            child.line.send(self._source.message(child.content))
            answer = child.line.receive(START_SECONDS)
            if "error" in answer:
                raise _error(*answer["error"])
        except (EOFError, OSError) as error:
            words = child.last_words()
            child.end()
            raise WorkerError(f"a worker process could not be started: {words}") from error
        except LitehouseError:
            child.end()
            raise
        with self._changed:
            self._coming, is_late = None, self._is_closed
            if not is_late:
                self._engine, self._child = Choice.of(answer["engine"]), child
        if is_late:
            child.end()
            raise WorkerError("the pool is closed; make another one")
        child.watch(self._died)

    def _died(self, child: _Child) -> None:
        """A process has ended: start another one, unless a run will find out."""
        with self._changed:
            if self._child is not child or self._is_running:
                return
        self.prepare()

    def close(self) -> None:
        """End the process, also one that is starting."""
        with self._changed:
            self._is_closed = True
            coming, starter = self._coming, self._starter
            self._changed.notify_all()
        if coming is not None:
            coming.process.kill()
        if starter is not None:
            starter.join(END_SECONDS)
        self._end()

    def _end(self) -> None:
        with self._changed:
            child, self._child = self._child, None
        if child is not None:
            child.end()


def _unstoppable(stop: Callable[[], None] | None) -> None:
    """Nobody stops a run."""


class _Stop:
    """Stops a run: the process is asked to, and killed if it does not.

    Attributes:
        has_killed: Whether it was killed.
    """

    def __init__(self, child: _Child, serial: int) -> None:
        """Stop this run of that process, when called."""
        self._child, self._serial = child, serial
        self._timer: threading.Timer | None = None
        self.has_killed = False

    def __call__(self) -> None:
        """Ask it to stop."""
        if self._timer is None:
            self._child.stop(self._serial)
            self._timer = threading.Timer(STOP_SECONDS, self._kill)
            self._timer.daemon = True
            self._timer.start()

    def _kill(self) -> None:
        self.has_killed = True
        self._child.process.kill()

    def end(self) -> bool:
        """The run is over; whether its process was killed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        return self.has_killed


class _Child:
    """A process, and what connects it with this one.

    Attributes:
        process: The process.
        line: Messages to and from it.
        memory: Where arrays are handed over.
        control: Where it is told which run to stop.
        content: The descriptor of the model's bytes in it; None where it reads a path.
    """

    def __init__(self, model: str | bytes) -> None:
        """Start the process."""
        self._watcher: threading.Thread | None = None
        with contextlib.ExitStack() as undo, _starting():
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            self.line = Line(ours)
            self.memory = SharedMemory.make()
            undo.callback(self.memory.close)
            told, self.control = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, self.control)
            with theirs, os.fdopen(told), _in_memory(model) as self.content:
                given = [theirs.fileno(), self.memory.descriptor, told]
                passed = [*given, *([] if self.content is None else [self.content])]
                paths = os.pathsep.join(path for path in sys.path if isinstance(path, str) and path)
                self.process = subprocess.Popen(
                    [sys.executable, *PROGRAM, *map(str, given)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=passed,
                    env={**os.environ, "PYTHONPATH": paths},
                )
            undo.pop_all()

    def ask(self, inputs: Sequence[np.ndarray], serial: int) -> list[np.ndarray]:
        """Let it run the model."""
        places, end = self.memory.write(inputs)
        self.line.send({"inputs": places, "end": end, "serial": serial})
        answer = self.line.receive()
        if "error" in answer:
            raise _error(*answer["error"])
        return self.memory.read(answer["outputs"], copy=True)

    def stop(self, serial: int) -> None:
        """Ask it to stop a run, if that is the one it is at."""
        with contextlib.suppress(OSError):  # it has just died
            os.write(self.control, SERIAL.pack(serial))

    def watch(self, died: Callable[[_Child], None]) -> None:
        """Call `died` when the process has ended."""
        try:
            watched = os.pidfd_open(self.process.pid)
        except OSError:  # the kernel is too old: the next run finds out
            return

        def wait() -> None:
            with os.fdopen(watched):
                ended = select.poll()
                ended.register(watched, select.POLLIN)
                ended.poll()
            died(self)

        self._watcher = threading.Thread(target=wait, name="litehouse-watch", daemon=True)
        self._watcher.start()

    def last_words(self) -> str:
        """How the process ended."""
        status = self._wait()
        how = f"exit status {status}" if status >= 0 else f"by {_signal(-status)}"
        return f"the worker process {self.process.pid} ended ({how})"

    def end(self) -> None:
        """Let the process end, and give back what connects it."""
        self.line.close()  # it ends when its parent is gone
        self.memory.close()
        os.close(self.control)
        self._wait()
        if self._watcher is not None:
            self._watcher.join()  # the process is gone, and so it ends

    def _wait(self) -> int:
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkerError(f"a worker process could not be started: {error}") from error


@contextlib.contextmanager
def _in_memory(model: str | bytes) -> Iterator[int | None]:
    """A descriptor of the bytes of a model; None where it is a path."""
    if isinstance(model, str):
        yield None
        return
    descriptor = os.memfd_create("litehouse-model", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(model)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _error(kind: str, text: str) -> LitehouseError:
    """The error that a worker tells of."""
    found = getattr(errors, kind, EngineError)
    try:
        return found(text)
    except TypeError:  # of a kind that takes more than a text
        return EngineError(text)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one without a name
        return f"signal {number}"

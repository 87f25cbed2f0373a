"""`Pool`: one model for many clients."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from litehouse.cores.affinity import cores_for, shares
from litehouse.cores.budget import share_threads
from litehouse.errors import EngineError, LitehouseError
from litehouse.loading import load, read
from litehouse.model import Model
from litehouse.options import MAX_THREADS, Options
from litehouse.parallel import batching as joining
from litehouse.parallel.batching import Batching
from litehouse.parallel.crew import Crew, Worker
from litehouse.parallel.requests import Request, Results, Waiting
from litehouse.parallel.shared import SessionWorker, Shortcut
from litehouse.parallel.statistics import Recorder, Statistics
from litehouse.session import Session
from litehouse.signature import accept

if TYPE_CHECKING:
    from litehouse.engines.choice import Choice

Inputs = Sequence[np.ndarray] | Mapping[str, np.ndarray]
FILE_FIELDS = ("key", "mode")
MOST = {"workers": MAX_THREADS, "processes": 256, "queue": 1 << 31}
AHEAD = 4  # requests of `map` that wait for each that runs
DEVICE_WORKERS = 2  # of a GPU, however many cores there are: one gets ready while one runs, and each takes memory there


class Pool:
    """Runs the requests of many clients on one model, which is in memory once.

    Requests wait in a bounded queue, in the order in which they came; a full queue refuses at once. Any thread may use
    a pool. Leaving a `with` block, or `close`, finishes what was taken.

    Attributes:
        model: The model.
        workers: How many requests run side by side.
        batching: How many requests run together, as `sizes`, and why, as `reason`.

    Example:
        >>> with Pool("model.mindir", workers=2) as pool:           # doctest: +SKIP
        ...     future = pool.submit([image], timeout=0.5)
        ...     (scores,) = future.result()
    """

    model: Model

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        *,
        workers: int = 0,
        processes: int = 0,
        queue: int = 1024,
        batching: Batching | None = None,
        retry: bool = False,
        any_size: bool = False,
        options: Options | None = None,
        **fields: Any,
    ) -> None:
        """Load a model and start the workers.

        Args:
            source: A path, or the bytes of a file.
            workers: How many requests run side by side; 0 fills the thread budget of the process, or takes 2 on a GPU.
            processes: Run them in so many child processes instead: a model that kills its process takes one of them
                down, and another one is started.
            queue: How many requests may wait.
            batching: Join requests of equal shapes, where the model allows it and gains; None to run each alone.
            retry: Run a request again, once, whose child process died.
            any_size: Take inputs of other sizes than the file's too; for each new one the model is built anew.
            options: How to run the model. With `threads` 0, the workers share the thread budget.
            **fields: Fields of `Options`, and `key` and `mode` of an encrypted file, as for `litehouse.load`.

        Raises:
            ValueError: A number is out of its range.
            LitehouseError: The model cannot be loaded.
        """
        for name, value, least in (("workers", workers, 0), ("processes", processes, 0), ("queue", queue, 1)):
            if type(value) is not int or not least <= value <= MOST[name]:
                raise ValueError(f"{name} must be an int from {least} to {MOST[name]}, not {value!r}")
        if workers and processes:
            raise ValueError("give either workers, in this process, or processes; not both")
        if batching is not None and not isinstance(batching, Batching):
            raise TypeError(f"batching must be litehouse.Batching, not {type(batching).__name__}")
        file = {name: fields.pop(name) for name in FILE_FIELDS if name in fields}
        chosen = replace(options or Options(), **fields)
        usual = 0 if chosen.device_kind == "cpu" else DEVICE_WORKERS
        count, threads = share_threads(workers or processes or usual, chosen.threads, len(cores_for(chosen.affinity)))
        cores = shares(chosen.affinity, count)
        chosen = replace(chosen, threads=threads)
        self._recorder, self._any_size, self._pid = Recorder(), any_size, os.getpid()
        session, made = None, list[Worker]()
        self._session: Session | None = None
        if processes and chosen.updatable:
            raise ValueError("worker processes have weights of their own, which are not updated; use workers=")
        if processes:
            made += self._isolated(source, cores, chosen, file)
        else:
            session = load(source, **file, options=replace(chosen, workers=count))
            if "ranks" in session.loaded.built.engine.capabilities:
                session.close()
                raise EngineError(
                    f"{session.model.path}: the model is one part of a job, and its ranks must run the same requests "
                    "in the same order, which a pool does not: use a session"
                )
            self.model, self._session = session.model, session
            made += [SessionWorker(session) for _ in range(count)]
        self.workers, self._first = count, made[0]
        try:
            self.batching = self._judged(batching, made[0], chosen.precision)
        except BaseException:
            for worker in made:
                worker.close()
            raise
        delay = batching.max_delay if batching is not None else 0.0
        self._waiting = Waiting(queue, max((1, *self.batching.sizes)), delay)
        kept = cores if session is not None else [frozenset[int]()] * count  # processes keep to theirs themselves
        self._crew = Crew(
            made, self._waiting, self._recorder, self.batching, threads=threads, cores=kept, is_retrying=retry
        )
        is_direct = session is not None and not self.batching.sizes
        self._shortcut = Shortcut(session, self._crew, self._recorder) if is_direct and session else None
        self._close = weakref.finalize(self, self._crew.close, 0.0)

    @property
    def engine(self) -> Choice:
        """The name of the engine in use, with why it was chosen, as in `Session`."""
        return self._first.engine

    def submit(self, inputs: Inputs, *, timeout: float | None = None) -> Future[Results]:
        """Let a request wait for a worker.

        Args:
            inputs: One array per input, in order or by name. Leave them unchanged until the request has ended.
            timeout: How many seconds the request may take, from now on; then it ends with `DeadlineError`: at once in
                the queue, and where it runs, as soon as the run can be stopped. Requests that run together are stopped
                when all of them are late.

        Returns:
            A future for the outputs. Its `cancel` ends the request where `timeout` would.

        Raises:
            ShapeError: The count, a dtype or a shape is wrong.
            Overloaded: The queue is full.
            EngineError: The pool is closed.
        """
        self._check_process()
        deadline = None if timeout is None or timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout
        request = Request(accept(inputs, self.model.inputs, any_size=self._any_size), deadline, self._drop)
        try:
            self._waiting.put(request)
        except LitehouseError:
            self._recorder.count("refused")
            raise
        if deadline is not None:
            self._crew.clock.watch(request)
        return request

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise EngineError("the pool belongs to the process that forked this one off; make another one here")

    def __call__(self, *arrays: np.ndarray, timeout: float | None = None) -> tuple[np.ndarray, ...]:
        """Run a request and wait for its outputs: `(scores,) = pool(image)`."""
        return tuple(self.ask(arrays, timeout=timeout))

    def ask(self, inputs: Inputs, *, timeout: float | None = None) -> Results:
        """Run a request and wait for its outputs; see `submit`."""
        if (shortcut := self._shortcut) is not None and timeout is None:
            self._check_process()
            inputs = accept(inputs, self.model.inputs, any_size=self._any_size)
            if (results := shortcut.run(inputs)) is not None:
                return results
        request = self.submit(inputs, timeout=timeout)
        try:
            return request.result()
        except BaseException:
            request.cancel()  # as the user may have interrupted: nobody waits for it
            raise

    async def run(self, inputs: Inputs, *, timeout: float | None = None) -> Results:
        """Run a request from asynchronous code; see `submit`."""
        import asyncio  # whoever awaits has it; others are spared

        return await asyncio.wrap_future(self.submit(inputs, timeout=timeout))

    def map(self, requests: Iterable[Inputs], *, timeout: float | None = None) -> Iterator[Results]:
        """The outputs of many requests, in their order. Not more of them wait at a time than the workers need.

        Args:
            requests: The inputs of each; they are taken as the workers proceed.
            timeout: How many seconds each of them may take.

        Raises:
            Overloaded: Others have filled the queue.
        """
        ahead: deque[Future[Results]] = deque()
        most = min(self._waiting.limit, AHEAD * self.workers * max((1, *self.batching.sizes)))
        try:
            for inputs in requests:
                if len(ahead) >= most:
                    yield ahead.popleft().result()
                ahead.append(self.submit(inputs, timeout=timeout))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:  # nobody will ask for them
                future.cancel()

    def update_weights(self, new: Mapping[str, np.ndarray], *, allow_nan: bool = False) -> None:
        """Give weights other values, for all workers at once; see `Session.update_weights`."""
        self._own_session().update_weights(new, allow_nan=allow_nan)

    def update_weights_from(self, path: str | os.PathLike[str], *, scale: float = 1.0, allow_nan: bool = False) -> None:
        """Give weights the values of a file, for all workers at once; see `Session.update_weights_from`."""
        self._own_session().update_weights_from(path, scale=scale, allow_nan=allow_nan)

    def remove_adapter(self, path: str | os.PathLike[str]) -> None:
        """Take an adapter out again, for all workers at once; see `Session.remove_adapter`."""
        self._own_session().remove_adapter(path)

    def _own_session(self) -> Session:
        self._check_process()
        if not self._close.alive:
            raise EngineError("the pool is closed; make another one")
        if self._session is None:
            raise EngineError("the workers are processes, each with weights of its own; use workers= to update them")
        return self._session

    @property
    def statistics(self) -> Statistics:
        """What the pool has done, and does now."""
        return self._recorder.read(len(self._waiting))

    def close(self, timeout: float | None = None) -> None:
        """Take no more requests, finish those that were taken, and free the model.

        Args:
            timeout: How many seconds to wait for them; those that still wait then end with an error, and those that
                run are stopped where the engine can.
        """
        self._close.detach()
        self._shortcut = None
        self._crew.close(timeout)

    def __repr__(self) -> str:
        """The model, and what runs it."""
        return f"<Pool {self.model.path}: {self.workers} workers>"

    def __enter__(self) -> Self:
        """The pool itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the requests that were taken, and close the pool."""
        self.close()

    def _isolated(
        self, source: Any, cores: Sequence[frozenset[int]], options: Options, file: Mapping[str, Any]
    ) -> Sequence[Worker]:
        """Workers in processes of their own."""
        from litehouse.parallel.processes import Source, start_all

        sources = [Source.of(source, replace(options, affinity=tuple(sorted(own))), file) for own in cores]
        self.model = read(source, limits=options.limits, cache=options.cache, **file)
        if self.model.states:
            raise EngineError(f"{self.model.path}: the network keeps state, and each process would have its own")
        return start_all([replace(each, files=self.model.files) for each in sources], self._recorder.restart)

    def _judged(self, batching: Batching | None, worker: Worker, precision: str) -> joining.Verdict:
        if batching is None:
            return joining.Verdict((), "it was not asked for")
        if self.model.states:
            return joining.Verdict((), "the network keeps state between runs")
        return joining.judge(batching, worker.run, self.model.inputs, self.model.outputs, precision)

    def _drop(self, request: Request) -> None:
        """A request was cancelled in the queue."""
        self._waiting.remove(request)
        self._recorder.count("cancelled")

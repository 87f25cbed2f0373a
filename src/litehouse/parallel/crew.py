"""The workers of a pool, and the threads in which they run what waits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from litehouse.cores.affinity import keep_on
from litehouse.cores.gate import Gate, core_places
from litehouse.engines.base import Stoppable
from litehouse.engines.choice import Choice
from litehouse.errors import EngineError, WorkerError
from litehouse.parallel import batching as joining
from litehouse.parallel.requests import Ballot, Clock, Ending, Request, Results, Waiting
from litehouse.parallel.statistics import Recorder

STOP_SECONDS = 5.0  # for a run to end that was told to


class Worker(Protocol):
    """What runs the requests of one thread."""

    @property
    def engine(self) -> Choice:
        """What it runs the model on."""
        ...

    def run(self, inputs: Sequence[np.ndarray], stoppable: Stoppable | None = None) -> Results:
        """The outputs for these inputs; `stoppable` is told how another thread stops the run, and None behind it."""

    def prepare(self) -> object:
        """Begin to get ready for the next request, where the last one did harm; if that fails, the next one tells."""

    def close(self) -> None:
        """Give back what it holds."""


class Crew:
    """Threads that serve what waits, each with a worker of its own.

    Attributes:
        waiting: The requests that wait.
        clock: What ends them when they are late.
        places: One for each worker; who runs a request is inside.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        waiting: Waiting,
        recorder: Recorder,
        verdict: joining.Verdict,
        *,
        threads: int,
        cores: Sequence[frozenset[int]],
        is_retrying: bool = False,
    ) -> None:
        """Start a thread for each worker.

        Args:
            workers: The workers.
            waiting: The requests.
            recorder: Told what is done.
            verdict: How many requests may run together.
            threads: How many threads a run takes.
            cores: The cores that each worker keeps to; an empty set for all.
            is_retrying: Run a request again, once, whose worker died.
        """
        self.waiting, self.clock, self.places = waiting, Clock(self._expire), Gate(len(workers))
        self._workers, self._recorder = workers, recorder
        self._sizes, self._rows, self._threads, self._is_retrying = verdict.sizes, verdict.rows, threads, is_retrying
        self._running: list[list[Request]] = [[] for _ in workers]
        self._members = [
            threading.Thread(target=self._work, args=(place, own), name=f"litehouse-worker-{place}", daemon=True)
            for place, own in enumerate(cores)
        ]
        for thread in self._members:
            thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Finish what waits, and end; what is not done after `timeout` seconds ends with an error."""
        end = None if timeout is None or timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout
        self.waiting.close()
        self._join(end)
        for request in self.waiting.drop():
            self._recorder.count(request.conclude(EngineError("the pool was closed before the request ran")))
            _publish(request)
        for request in [each for running in self._running for each in running]:
            request.stop()
        self.clock.close()
        self._join(end if end is None else end + STOP_SECONDS)
        for worker in self._workers:
            worker.close()

    def _join(self, end: float | None) -> None:
        for thread in self._members:
            if thread is not threading.current_thread():  # a callback of a request may close the pool
                thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _work(self, place: int, cores: frozenset[int]) -> None:
        keep_on(cores)
        worker, running = self._workers[place], self._running[place]
        while True:
            if not self.waiting.is_over:
                worker.prepare()
            promised = self.waiting.wait()
            if not promised:
                return
            try:
                self._serve(worker, running, promised)
            except BaseException as error:  # noqa: BLE001  (a thread that ends would leave requests without an answer)
                for request in running:
                    request.conclude(error)
                    _publish(request)
                running.clear()

    def _serve(self, worker: Worker, running: list[Request], promised: int) -> None:
        """Run the next requests, and tell what came of them when the cores are free again."""
        with self.places.inside(), core_places.inside(self._threads):
            running += self.waiting.take(promised)
            pieces, endings = joining.pieces(len(running), self._sizes), list[Ending]()
            for count in pieces:
                endings += self._timed(worker, running[len(endings) : len(endings) + count])
        for request, ending in zip(running, endings, strict=True):
            self._recorder.end(request.conclude(ending))
        for request in running:
            _publish(request)
        running.clear()

    def _timed(self, worker: Worker, requests: list[Request]) -> list[Ending]:
        begin = time.monotonic()
        self._recorder.begin([begin - request.since for request in requests])
        endings = self._run(worker, requests)
        self._recorder.ran(len(requests), time.monotonic() - begin)
        return endings

    def _run(self, worker: Worker, requests: list[Request]) -> list[Ending]:
        """What comes of requests that run together; an error that one of them may be to blame for is for it alone."""
        if len(requests) == 1:
            return [self._run_one(worker, requests[0])]
        try:
            joined = joining.join([request.inputs for request in requests])
            results = worker.run(joined, Ballot(requests).stoppable)
            return [*joining.split(results, len(requests), len(requests[0].inputs[0]), self._rows)]
        except WorkerError as error:
            if not self._is_retrying:
                return [error] * len(requests)
            for request in requests:
                request.is_retried = True
        except Exception:  # noqa: BLE001  (each of them tells, when it runs alone)
            pass
        return [self._run_one(worker, request) for request in requests]

    def _run_one(self, worker: Worker, request: Request) -> Ending:
        while True:
            if request.is_stopped():
                return EngineError("the request was stopped before it ran")
            try:
                return worker.run(request.inputs, request.stoppable)
            except WorkerError as error:
                if not self._is_retrying or request.is_retried or request.is_stopped():
                    return error
                request.is_retried = True
            except BaseException as error:  # noqa: BLE001  (whoever waits for the request must hear of it)
                return error

    def _expire(self, request: Request) -> None:
        if request.expire():
            self.waiting.remove(request)
            self._recorder.count("expired")


def _publish(request: Request) -> None:
    try:
        request.publish()
    except BaseException:  # what a callback raises, even to end the thread, is no reason to serve nobody else
        logging.getLogger(__name__).exception("a callback of a request failed")

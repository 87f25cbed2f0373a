"""Requests on their way to a worker: a bounded queue in the order of arrival, deadlines, cancellation."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from litehouse.errors import DeadlineError, EngineError, Overloaded

Results = list[np.ndarray]
Ending = Results | BaseException


class Phase(Enum):
    """How far a request is."""

    WAITING = 0
    RUNNING = 1
    OVER = 2


class Request(Future[Results]):
    """One request, and what becomes of it. Callers see a Future.

    Unlike a plain Future, it can be cancelled while it runs, where the engine can stop.
    """

    def __init__(
        self, inputs: list[np.ndarray], deadline: float | None, dropped: Callable[[Request], None] | None = None
    ) -> None:
        """Make a request that waits from now on.

        Args:
            inputs: One array per input, as the session takes them.
            deadline: When its time is up, by `time.monotonic`; None for never.
            dropped: Called when it was cancelled while it waited.
        """
        super().__init__()
        self.inputs = inputs
        self.shapes = tuple(array.shape for array in inputs)
        self.deadline = deadline
        self.since = time.monotonic()
        self.is_retried = False
        self._dropped = dropped
        self._lock = threading.Lock()
        self._phase = Phase.WAITING
        self._stop: Callable[[], None] | None = None  # while it runs, and can be stopped
        self._is_unwanted = self._is_halted = False
        self._ending: Ending = []

    def begin(self) -> bool:
        """Take the request out of everyone else's hands, to run it; False where it has ended meanwhile."""
        return self._leave_queue(Phase.RUNNING)

    def _leave_queue(self, phase: Phase) -> bool:
        with self._lock:
            if self._phase is not Phase.WAITING:
                return False
            self._phase = phase
        return self.set_running_or_notify_cancel()

    def expire(self) -> bool:
        """Its time is up: end it where it waits, or stop it where it runs. Returns whether it waited."""
        if self._leave_queue(Phase.OVER):
            self._dropped = None
            self.set_exception(DeadlineError(self._late("in the queue")))
            return True
        self.stop()
        return False

    def cancel(self) -> bool:
        """End it where it waits, or stop its run; False where it is over.

        A run that cannot be stopped goes on, and what it gives is dropped.
        """
        with self._lock:
            if self._phase is Phase.RUNNING:
                self._is_unwanted = True
                self._halt()
                return True
            was_waiting, self._phase = self._phase is Phase.WAITING, Phase.OVER
        if not was_waiting:
            return self.cancelled()
        super().cancel()
        self.set_running_or_notify_cancel()  # those who wait for several futures are told here
        dropped, self._dropped = self._dropped, None
        if dropped is not None:
            dropped(self)
        return True

    def stop(self) -> None:
        """Stop its run, now or when it begins."""
        with self._lock:  # what it stops must be the run of this request, not the next one
            self._is_halted = True
            self._halt()

    def _halt(self) -> None:
        if self._stop is not None:
            self._stop()

    def stoppable(self, stop: Callable[[], None] | None) -> None:
        """Say how to stop the run that begins, or, with None, that it has ended: then nothing stops it any more."""
        with self._lock:
            self._stop = stop
            if self.is_stopped():  # before it ran
                self._halt()

    @property
    def patience(self) -> float:
        """How long it may wait for others to run with: half of the time that it has."""
        return threading.TIMEOUT_MAX if self.deadline is None else (self.since + self.deadline) / 2

    def cancelled(self) -> bool:
        """Whether it was cancelled, in the queue or while it ran."""
        return super().cancelled() or (self.done() and isinstance(super().exception(), CancelledError))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that it ended with; what was cancelled raises."""
        error = super().exception(timeout)
        if isinstance(error, CancelledError):
            raise error
        return error

    def is_stopped(self) -> bool:
        """Whether somebody wanted its run to end: it is not run again."""
        return self._is_unwanted or self._is_halted or self.is_late()

    def is_late(self) -> bool:
        """Whether its time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def conclude(self, ending: Ending) -> str:
        """Say what came of it, which `publish` tells the caller. Returns how it ended, as in `statistics.OUTCOMES`."""
        with self._lock:
            self._phase = Phase.OVER
        self.inputs, self._dropped = [], None
        if self._is_unwanted:
            ending = CancelledError()
        elif isinstance(ending, EngineError) and self.is_late():
            ending = DeadlineError(self._late("before it was done"))
        self._ending = ending
        kinds: dict[type, str] = {list: "done", CancelledError: "cancelled", DeadlineError: "expired"}
        return kinds.get(type(ending), "failed")

    def publish(self) -> None:
        """Tell the caller what `conclude` was told."""
        ending, self._ending = self._ending, []
        if isinstance(ending, BaseException):
            self.set_exception(ending)
        else:
            self.set_result(ending)

    def _late(self, where: str) -> str:
        return f"the deadline passed {where}, {time.monotonic() - self.since:.3g} s after the request came"


class Ballot:
    """Stops a run of several requests when none of them is wanted any more."""

    def __init__(self, requests: Sequence[Request]) -> None:
        """Have a vote for each request."""
        self._requests = requests
        self._wanted = set(map(id, requests))
        self._lock = threading.Lock()

    def stoppable(self, stop: Callable[[], None] | None) -> None:
        """Say how to stop the run that begins, or, with None, that it has ended."""
        for request in self._requests:
            request.stoppable(None if stop is None else partial(self._vote, request, stop))

    def _vote(self, request: Request, stop: Callable[[], None]) -> None:
        with self._lock:
            self._wanted.discard(id(request))
            if not self._wanted:
                stop()


class Waiting:
    """Requests in the order in which they came, up to a limit.

    A worker first waits for some, then for cores, and then takes them out: until there is a core for them, they can be
    cancelled, and others can join them.
    """

    def __init__(self, limit: int, most: int = 1, delay: float = 0.0) -> None:
        """Take up to `limit` requests.

        Args:
            limit: How many may wait.
            most: How many of equal shapes are given out together, at most.
            delay: How many seconds the first of them waits for others, at most.
        """
        self.limit = limit
        self._most, self._delay = most, delay
        self._requests: deque[Request] = deque()
        lock = threading.RLock()  # what is freed meanwhile may close the pool
        self._arrived, self._turn = threading.Condition(lock), threading.Condition(lock)
        self._is_waited_on = self._is_closed = False
        self._idle = 0  # workers that wait for requests
        self._promised = 0  # requests that workers wait for cores to take
        self._wanted = 1  # how many more must be there for the worker that waits to be woken
        self._last = 1  # how many were given out together before

    def __len__(self) -> int:
        """How many wait."""
        return len(self._requests)

    @property
    def is_over(self) -> bool:
        """Whether none waits, and none will come."""
        return self._is_closed and not self._requests

    def put(self, request: Request) -> None:
        """Let a request wait. Those that idle workers will take at once count for nothing.

        Raises:
            Overloaded: The queue is full.
            EngineError: No more are taken.
        """
        with self._arrived:
            if self._is_closed:
                raise EngineError("the pool is closed; make another one")
            if len(self._requests) >= self.limit + self._idle:
                raise Overloaded(f"{self.limit} requests wait already; try later, or raise the pool's `queue`")
            self._requests.append(request)
            first = self._requests[min(self._promised, len(self._requests) - 1)]
            # Who waits for others like the first does not let one of another shape wait.
            if len(self._requests) - self._promised >= self._wanted or first.shapes != request.shapes:
                self._arrived.notify()

    def wait(self) -> int:
        """Wait for requests that are promised to nobody; how many `take` is then promised, 0 when no more will come."""
        with self._arrived:
            self._idle += 1
            while self._is_waited_on:
                self._turn.wait()
            self._is_waited_on = True
            try:
                while True:
                    self._wanted = 1
                    while len(self._requests) <= self._promised and not self._is_closed:
                        self._arrived.wait()
                    self._linger()
                    promised = max(0, min(self._most, len(self._requests) - self._promised))
                    self._promised += promised
                    if promised or self._is_closed:  # else what there was has been cancelled meanwhile
                        return promised
            finally:
                self._idle -= 1
                self._is_waited_on = False
                self._turn.notify()

    def _linger(self) -> None:
        """Wait for others like the first: as many as ran together before are likely to come again."""
        end, wanted = time.monotonic() + self._delay, min(self._last, self._most)
        while not self._is_closed:
            fresh = list(itertools.islice(self._requests, self._promised, None))
            left = min([end, *(request.patience for request in fresh)]) - time.monotonic()
            if not fresh or len(fresh) >= wanted or left <= 0 or fresh[0].shapes != fresh[-1].shapes:
                return
            self._wanted = wanted
            self._arrived.wait(left)

    def take(self, promised: int) -> list[Request]:
        """The next request, with others of its shapes, all of which have begun; none where they have ended meanwhile.

        Args:
            promised: What `wait` gave.
        """
        found: list[Request] = []
        with self._arrived:
            self._promised -= promised
            kept: list[Request] = []
            while self._requests and len(found) < self._most:
                request = self._requests.popleft()
                if found and request.shapes != found[0].shapes:
                    kept.append(request)
                elif request.begin():
                    found.append(request)
            self._requests.extendleft(reversed(kept))
            self._last = len(found) or self._last
            if len(self._requests) > self._promised:
                self._arrived.notify()
        return found

    def remove(self, request: Request) -> None:
        """Forget a request that has ended in the queue, so that its place is free."""
        with self._arrived, contextlib.suppress(ValueError):  # a worker has taken it out
            self._requests.remove(request)

    def close(self) -> None:
        """Take no more; what waits is still given out."""
        with self._arrived:
            self._is_closed = True
            self._arrived.notify_all()

    def drop(self) -> list[Request]:
        """All that waits, which is given out no more."""
        with self._arrived:
            left = [request for request in self._requests if request.begin()]
            self._requests.clear()
            return left


class Clock:
    """Ends requests when their time is up. Its thread starts with the first deadline."""

    def __init__(self, expired: Callable[[Request], Any]) -> None:
        """Call `expired` with each request whose deadline has passed."""
        self._expired = expired
        # Requests that end in time are not kept alive until then, nor are their arrays.
        self._heap: list[tuple[float, int, weakref.ref[Request]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._roomy = FEW

    def watch(self, request: Request) -> None:
        """Watch a request that has a deadline."""
        assert request.deadline is not None
        with self._changed:
            heapq.heappush(self._heap, (request.deadline, next(self._order), weakref.ref(request)))
            if len(self._heap) > self._roomy:
                self._heap = [item for item in self._heap if not _is_over(item[2]())]
                heapq.heapify(self._heap)
                self._roomy = max(FEW, 2 * len(self._heap))
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="litehouse-clock", daemon=True)
                self._thread.start()
            elif self._heap[0][2]() is request:
                self._changed.notify()

    def close(self) -> None:
        """Watch no longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _tick(self) -> None:
        while True:
            with self._changed:
                while self._heap and _is_over(self._heap[0][2]()):
                    heapq.heappop(self._heap)
                if self._is_closed:
                    return
                left = self._heap[0][0] - time.monotonic() if self._heap else threading.TIMEOUT_MAX
                if left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                request = heapq.heappop(self._heap)[2]()
            if request is not None and not request.done():
                self._expired(request)
            request = None  # nothing here keeps its arrays alive


FEW = 64  # deadlines that are kept without a look at whether their requests have ended


def _is_over(request: Request | None) -> bool:
    return request is None or request.done()

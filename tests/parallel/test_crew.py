"""What becomes of requests: order, deadlines, cancellation, joining and death. The workers do as they are told."""

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, wait
from typing import Any

import numpy as np
import pytest

from litehouse.cores.gate import Gate
from litehouse.engines.choice import Choice
from litehouse.errors import DeadlineError, EngineError, Overloaded, ShapeError, WorkerError
from litehouse.parallel.batching import Verdict
from litehouse.parallel.crew import Crew
from litehouse.parallel.requests import Request, Waiting
from litehouse.parallel.statistics import Recorder

SECONDS = 60  # for what must happen: who waits longer hangs


class Scripted:
    """A worker that doubles its input: it waits for `gate`, fails on negative numbers, and dies of NaN."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.can_stop = True
        self.seen: list[list[float]] = []
        self.deaths = self.prepared = self.closed = 0
        self._is_stopped = threading.Event()

    @property
    def engine(self) -> Choice:
        return Choice("scripted", "fp32", "")

    def run(self, inputs: Any, stoppable: Callable[..., None] | None = None) -> list[np.ndarray]:
        (array,) = inputs
        self.seen.append([float(value) for value in array.ravel()])
        self._is_stopped.clear()
        if stoppable is not None and self.can_stop:
            stoppable(self._is_stopped.set)
        try:
            while not self.gate.is_set():
                if self._is_stopped.wait(0.001):
                    raise EngineError("it was stopped")
        finally:
            if stoppable is not None:
                stoppable(None)
        if np.isnan(array).any():
            self.deaths += 1
            raise WorkerError("it died")
        if (array < 0).any():
            raise ShapeError("less than nothing")
        return [array * 2]

    def prepare(self) -> None:
        self.prepared += 1

    def close(self) -> None:
        self.closed += 1


class Serving:
    """A crew with one scripted worker, and what it notes."""

    def __init__(
        self, sizes: tuple[int, ...] = (), *, queue: int = 8, count: int = 1, delay: float = 0.0, **settings: Any
    ) -> None:
        self.workers = [Scripted() for _ in range(count)]
        self.recorder, self.waiting = Recorder(), Waiting(queue, max((1, *sizes)), delay)
        verdict = Verdict(sizes, "", ((1, 1),))
        self.crew = Crew(
            self.workers, self.waiting, self.recorder, verdict, threads=1, cores=[frozenset()] * count, **settings
        )

    @property
    def worker(self) -> Scripted:
        return self.workers[0]

    def give(self, value: float, timeout: float | None = None, size: int = 1) -> Request:
        deadline = None if timeout is None else time.monotonic() + timeout
        request = Request([np.full((size, 1), value, "f")], deadline)
        self.waiting.put(request)
        if deadline is not None:
            self.crew.clock.watch(request)
        return request

    def hold(self) -> Request:
        """Keep the worker busy; `worker.gate.set()` lets it go on."""
        for worker in self.workers:
            worker.gate.clear()
        request = self.give(0.0)
        wait_until(lambda: any(worker.seen for worker in self.workers))
        return request

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.recorder.read(0).requests.items() if count}


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litehouse.parallel.crew.core_places", Gate(8))
    monkeypatch.setattr("litehouse.parallel.crew.STOP_SECONDS", SECONDS)  # a slow machine does not make a run endless


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    made: list[Serving] = []

    def make(*args: Any, **kwargs: Any) -> Serving:
        made.append(Serving(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        for worker in each.workers:
            worker.gate.set()
        each.crew.close(SECONDS)


Make = Callable[..., Serving]


def test_requests_are_served_in_order(serving: Make) -> None:
    it = serving()
    it.hold()
    requests = [it.give(value) for value in range(1, 6)]
    it.worker.gate.set()
    assert [float(request.result(SECONDS)[0][0, 0]) for request in requests] == [2, 4, 6, 8, 10]
    assert it.worker.seen == [[0], [1], [2], [3], [4], [5]]
    wait_until(lambda: it.counts() == {"done": 6})


def test_a_full_queue_refuses_at_once(serving: Make) -> None:
    it = serving(queue=2)
    it.hold()
    it.give(1)
    it.give(2)
    with pytest.raises(Overloaded, match="2 requests wait already"):
        it.give(3)
    it.worker.gate.set()


def test_a_deadline_ends_a_request_in_the_queue_and_frees_its_place(serving: Make) -> None:
    it = serving(queue=1)
    it.hold()
    late = it.give(1, timeout=0.05)
    with pytest.raises(DeadlineError, match="in the queue"):
        late.result(SECONDS)
    wait_until(lambda: len(it.waiting) == 0)
    second = it.give(2)
    it.worker.gate.set()
    assert second.result(SECONDS)[0][0, 0] == 4
    assert [1.0] not in it.worker.seen
    wait_until(lambda: it.counts() == {"done": 2, "expired": 1})


def test_a_deadline_stops_a_run(serving: Make) -> None:
    it = serving()
    request = it.hold()
    request.deadline = time.monotonic() + 0.05  # not before it runs: else it may pass in the queue
    it.crew.clock.watch(request)
    with pytest.raises(DeadlineError, match="before it was done"):
        request.result(SECONDS)
    it.worker.gate.set()
    assert it.give(3).result(SECONDS)[0][0, 0] == 6  # the stop was not meant for this one
    wait_until(lambda: it.counts() == {"done": 1, "expired": 1})


def test_a_deadline_that_passed_before_the_run_stops_it(serving: Make) -> None:
    it = serving()
    request = Request([np.ones((1, 1), "f")], time.monotonic() - 1)  # no clock watches it
    it.worker.gate.clear()
    it.waiting.put(request)
    with pytest.raises(DeadlineError):
        request.result(SECONDS)


def test_a_request_in_the_queue_can_be_cancelled(serving: Make) -> None:
    it = serving()
    it.hold()
    request = it.give(1)
    assert request.cancel()
    it.worker.gate.set()
    assert it.give(2).result(SECONDS)[0][0, 0] == 4
    assert [1.0] not in it.worker.seen
    with pytest.raises(CancelledError):
        request.result(SECONDS)


def test_a_run_can_be_cancelled(serving: Make) -> None:
    it = serving()
    request = it.hold()
    assert request.cancel()
    with pytest.raises(CancelledError):
        request.result(SECONDS)
    wait_until(lambda: it.counts() == {"cancelled": 1})


def test_what_cannot_be_stopped_gives_no_result_after_a_cancel(serving: Make) -> None:
    it = serving()
    it.worker.can_stop = False
    request = it.hold()
    assert request.cancel()
    it.worker.gate.set()
    with pytest.raises(CancelledError):
        request.result(SECONDS)


def test_what_has_ended_cannot_be_cancelled(serving: Make) -> None:
    it = serving()
    request = it.give(1)
    request.result(SECONDS)
    assert not request.cancel()
    assert request.result()[0][0, 0] == 2


def test_an_error_goes_to_its_own_request_alone(serving: Make) -> None:
    it = serving()
    bad, good = it.give(-1), it.give(1)
    with pytest.raises(ShapeError, match="less than nothing"):
        bad.result(SECONDS)
    assert good.result(SECONDS)[0][0, 0] == 2
    wait_until(lambda: it.counts() == {"failed": 1, "done": 1})


def test_equal_shapes_run_together_and_others_keep_their_turn(serving: Make) -> None:
    it = serving((4, 2))
    it.hold()
    requests = [it.give(1), it.give(2, size=2), it.give(3), it.give(4), it.give(5)]
    it.worker.gate.set()
    assert [float(request.result(SECONDS)[0][0, 0]) for request in requests] == [2, 4, 6, 8, 10]
    assert it.worker.seen == [[0], [1, 3, 4, 5], [2, 2]]
    wait_until(lambda: it.recorder.read(0).batch_sizes["count"] == 3)
    sizes = it.recorder.read(0).batch_sizes
    assert (sizes["sum"], sizes["up_to"][1], sizes["up_to"][4]) == (6, 2, 3)


def test_what_is_left_over_runs_in_smaller_batches(serving: Make) -> None:
    it = serving((4, 2))
    it.hold()
    requests = [it.give(value) for value in range(1, 8)]
    it.worker.gate.set()
    assert [float(request.result(SECONDS)[0][0, 0]) for request in requests] == [2, 4, 6, 8, 10, 12, 14]
    assert it.worker.seen == [[0], [1, 2, 3, 4], [5, 6], [7]]


def test_one_bad_request_in_a_batch_fails_alone(serving: Make) -> None:
    it = serving((4, 2))
    it.hold()
    requests = [it.give(value) for value in (1, -1, 3, 4)]
    it.worker.gate.set()
    results = [request.exception(SECONDS) or float(request.result()[0][0, 0]) for request in requests]
    assert [results[0], *results[2:]] == [2, 6, 8]
    assert isinstance(results[1], ShapeError)
    wait_until(lambda: it.counts() == {"done": 4, "failed": 1})


def test_requests_that_run_together_are_stopped_when_nobody_wants_them(serving: Make) -> None:
    it = serving((2,))
    first = it.hold()
    one, two = it.give(1), it.give(2)
    first.cancel()
    wait_until(lambda: it.worker.seen[-1] == [1, 2])
    assert one.cancel()
    time.sleep(0.05)
    assert not one.done()
    assert not two.done()  # it is still wanted
    assert two.cancel()
    for request in (one, two):
        with pytest.raises(CancelledError):
            request.result(SECONDS)
    assert it.worker.seen[-1] == [1, 2]  # they were not run again


def test_one_that_is_no_longer_wanted_does_not_stop_the_others(serving: Make) -> None:
    it = serving((2,))
    first = it.hold()
    one, two = it.give(1), it.give(2)
    first.cancel()
    wait_until(lambda: it.worker.seen[-1] == [1, 2])
    assert one.cancel()
    it.worker.gate.set()
    assert two.result(SECONDS)[0][0, 0] == 4
    with pytest.raises(CancelledError):
        one.result(SECONDS)


def test_while_no_core_is_free_a_request_waits_in_the_queue(serving: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Gate(1)
    monkeypatch.setattr("litehouse.parallel.crew.core_places", places)
    it = serving()
    places.enter()  # by another pool
    late, unwanted, wanted = it.give(1, timeout=0.05), it.give(2), it.give(3)
    with pytest.raises(DeadlineError, match="in the queue"):
        late.result(SECONDS)
    assert unwanted.cancel()
    with pytest.raises(CancelledError):
        unwanted.result(SECONDS)
    places.leave()
    assert wanted.result(SECONDS)[0][0, 0] == 6
    assert it.worker.seen == [[3]]


def test_a_request_that_comes_after_another_worker_got_its_core_is_served(
    serving: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Gate(1)
    monkeypatch.setattr("litehouse.parallel.crew.core_places", places)
    it = serving(count=2)
    for value in range(1, 6):
        places.enter()
        first = it.give(value)  # it is promised to one worker, who waits for a core, while the other waits for more
        wait_until(lambda: it.waiting._promised == 1 and it.waiting._is_waited_on)
        places.leave()
        assert first.result(SECONDS)[0][0, 0] == 2 * value


def test_a_worker_goes_on_when_the_request_that_it_lets_others_join_is_cancelled(serving: Make) -> None:
    it = serving((4, 2), delay=600.0)
    _as_many_as(it, 4)
    request = Request([np.ones((1, 1), "f")], None, it.waiting.remove)
    it.waiting.put(request)
    wait_until(lambda: it.waiting._wanted == 4)  # it waits for others
    assert request.cancel()
    it.waiting._delay = 0.0
    with it.waiting._arrived:
        it.waiting._arrived.notify()  # as when the delay is over
    wait_until(lambda: it.waiting._wanted == 1)
    assert it.give(3).result(SECONDS)[0][0, 0] == 6


def test_others_hear_of_a_request_that_is_cancelled_in_the_queue(serving: Make) -> None:
    it = serving()
    it.hold()
    dropped: list[Request] = []
    request = Request([np.ones((1, 1), "f")], None, dropped.append)
    it.waiting.put(request)
    assert request.cancel()
    assert wait([request], timeout=SECONDS).done == {request}
    assert request.cancel()  # it is cancelled already
    assert dropped == [request]


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_worker_that_fails_in_odd_ways_serves_on(serving: Make, is_joined: bool) -> None:
    it = serving((2,) if is_joined else ())
    run, prepare = it.worker.run, it.worker.prepare

    def odd(*_: Any) -> list[np.ndarray]:
        raise RuntimeError("odd")

    it.hold()
    requests = [it.give(1), it.give(2)]
    it.worker.run = odd  # type: ignore[method-assign]
    it.worker.gate.set()
    for request in requests:
        with pytest.raises(RuntimeError, match="odd"):
            request.result(SECONDS)
    it.worker.run, it.worker.prepare = run, prepare  # type: ignore[method-assign]
    assert it.give(3).result(SECONDS)[0][0, 0] == 6


def test_a_callback_that_ends_its_thread_ends_nobody_else(serving: Make) -> None:
    it = serving()
    it.hold()
    request = it.give(1)
    request.add_done_callback(lambda _: sys.exit())
    it.worker.gate.set()
    assert request.result(SECONDS)[0][0, 0] == 2
    assert it.give(3).result(SECONDS)[0][0, 0] == 6


def test_callbacks_run_when_the_cores_are_free(serving: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Gate(1)
    monkeypatch.setattr("litehouse.parallel.crew.core_places", places)
    one, other = serving(), serving()
    answers = []
    request = one.give(1)
    request.add_done_callback(lambda _: answers.append(other.give(2).result(SECONDS)[0][0, 0]))
    request.result(SECONDS)
    wait_until(lambda: answers == [4])


def test_endless_timeouts(serving: Make) -> None:
    it = serving()
    assert it.give(1, timeout=float("inf")).result(SECONDS)[0][0, 0] == 2
    it.worker.gate.clear()
    with pytest.raises(DeadlineError):  # the clock goes on
        it.give(2, timeout=0.05).result(SECONDS)
    it.worker.gate.set()
    it.crew.close(float("inf"))


def test_deadlines_of_requests_that_ended_are_forgotten(serving: Make) -> None:
    it = serving()
    for _ in range(300):
        it.give(1, timeout=600).result(SECONDS)
    assert len(it.crew.clock._heap) < 200


def _as_many_as(it: Serving, count: int) -> None:
    """Let requests come together, so that as many are waited for the next time."""
    it.hold()
    requests = [it.give(0) for _ in range(count)]
    it.worker.gate.set()
    for request in requests:
        request.result(SECONDS)


def test_one_client_is_never_kept_waiting(serving: Make) -> None:
    it = serving((8, 4, 2), delay=600.0)
    for value in range(1, 6):
        assert it.give(value).result(SECONDS)[0][0, 0] == 2 * value


def test_as_many_as_before_are_waited_for(serving: Make) -> None:
    it = serving((8, 4, 2), delay=600.0)
    _as_many_as(it, 3)
    it.worker.seen.clear()
    requests = []
    for value in (1, 2, 3):
        requests.append(it.give(value))
        time.sleep(0.02)
    assert [float(request.result(SECONDS)[0][0, 0]) for request in requests] == [2, 4, 6]
    assert it.worker.seen == [[1, 2], [3]]  # three came together; they run in the sizes that there are


def test_a_request_waits_for_others_no_longer_than_it_may(serving: Make) -> None:
    it = serving((8, 4, 2), delay=0.2)
    _as_many_as(it, 4)
    begin = time.monotonic()
    assert it.give(1).result(SECONDS)[0][0, 0] == 2
    assert time.monotonic() - begin >= 0.19
    it.waiting._delay = 600.0
    assert it.give(2).result(SECONDS)[0][0, 0] == 4  # fewer came, so it is not waited for them again
    assert it.worker.seen[-2:] == [[1], [2]]


def test_nobody_waits_for_others_while_requests_of_another_shape_wait(serving: Make) -> None:
    it = serving((4, 2), delay=600.0)
    _as_many_as(it, 4)
    requests = [it.give(1)]
    wait_until(lambda: it.waiting._wanted == 4)  # it waits for others
    requests.append(it.give(2, size=2))
    assert [float(request.result(SECONDS)[0][0, 0]) for request in requests] == [2, 4]


def test_a_full_batch_does_not_wait(serving: Make) -> None:
    it = serving((2,), delay=600.0)
    _as_many_as(it, 2)
    one, two = it.give(1), it.give(2)
    assert (float(one.result(SECONDS)[0][0, 0]), float(two.result(SECONDS)[0][0, 0])) == (2, 4)


def test_closing_does_not_wait_for_others(serving: Make) -> None:
    it = serving((8, 4, 2), delay=600.0)
    _as_many_as(it, 4)
    request = it.give(1)
    it.crew.close(SECONDS)
    assert request.result(0)[0][0, 0] == 2


def test_a_worker_that_dies_is_prepared_and_its_request_told(serving: Make) -> None:
    it = serving()
    with pytest.raises(WorkerError, match="it died"):
        it.give(float("nan")).result(SECONDS)
    assert it.give(1).result(SECONDS)[0][0, 0] == 2
    assert it.worker.deaths == 1


@pytest.mark.parametrize(("is_retrying", "deaths"), [(False, 1), (True, 2)])
def test_a_worker_that_dies_of_a_batch(serving: Make, is_retrying: bool, deaths: int) -> None:
    it = serving((2,), is_retrying=is_retrying)
    it.hold()
    bad, good = it.give(float("nan")), it.give(1)
    it.worker.gate.set()
    with pytest.raises(WorkerError):
        bad.result(SECONDS)
    if is_retrying:
        assert good.result(SECONDS)[0][0, 0] == 2
    else:
        with pytest.raises(WorkerError):
            good.result(SECONDS)
    assert it.worker.deaths == deaths


def test_a_request_whose_worker_died_is_tried_once_more_if_asked(serving: Make) -> None:
    it = serving(is_retrying=True)
    with pytest.raises(WorkerError, match="it died"):
        it.give(float("nan")).result(SECONDS)
    assert it.worker.deaths == 2


def test_closing_finishes_what_waits(serving: Make) -> None:
    it = serving()
    it.hold()
    requests = [it.give(1), it.give(2)]
    threading.Timer(0.05, it.worker.gate.set).start()
    it.crew.close()
    assert [float(request.result(0)[0][0, 0]) for request in requests] == [2, 4]
    with pytest.raises(EngineError, match="the pool is closed"):
        it.give(3)
    assert it.worker.closed == 1


def test_closing_in_a_hurry_tells_those_that_wait_and_stops_the_rest(serving: Make) -> None:
    it = serving()
    running, waiting = it.hold(), None
    waiting = it.give(1)
    it.crew.close(0.05)
    with pytest.raises(EngineError, match="closed before the request ran"):
        waiting.result(0)
    with pytest.raises(EngineError, match="it was stopped"):
        running.result(0)
    assert not any(thread.is_alive() for thread in it.crew._members)


def test_several_workers_share_the_queue(serving: Make) -> None:
    it = serving(count=3, queue=100)
    it.hold()
    requests = [it.give(value) for value in range(2)]
    wait_until(lambda: sum(len(worker.seen) for worker in it.workers) == 3)  # all run at once
    for worker in it.workers:
        worker.gate.set()
    for value, request in enumerate(requests):
        assert request.result(SECONDS)[0][0, 0] == 2 * value


def test_arrays_are_not_kept_after_the_end(serving: Make) -> None:
    it = serving()
    request = it.give(1, timeout=60)
    request.result(SECONDS)
    ghost = weakref.ref(request)
    del request
    assert it.give(2).result(SECONDS)[0][0, 0] == 4  # the worker has gone on
    wait_until(lambda: ghost() is None)

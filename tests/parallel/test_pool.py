"""`Pool` on real models, in this process."""

import asyncio
import gc
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from litehouse import Batching, Overloaded, Pool
from litehouse.cores import budget
from litehouse.parallel.statistics import Recorder, prometheus
from onnx_models import mlp, mlp_result, model, node


def _x(seed: int = 0, rows: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype("f")


SECONDS = 60  # for what must happen: who waits longer hangs
LONG = np.eye(1500, dtype="f")  # `slow` takes some ten seconds for it, and a tenth of one for each of its ops
SHORT = np.eye(10, dtype="f")


def slow(rows: int | str = "n") -> bytes:
    """A network that multiplies matrices in many ops: with 400 rows, for some tenths of a second."""
    nodes, last = [], "x"
    for place in range(200):
        nodes.append(node("MatMul", f"{last} x", f"m{place}"))
        nodes.append(node("Tanh", f"m{place}", f"t{place}"))
        last = f"t{place}"
    nodes.append(node("Identity", last, "y"))
    return model(nodes, {"x": (rows, rows)}, {"y": (rows, rows)})


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@contextmanager
def held(pool: Pool) -> Iterator[list[BaseException]]:
    """Hold runs of a pool of one worker up, from when they can be stopped until the block ends; gives their errors."""
    worker, go_on, errors = pool._crew._workers[0], threading.Event(), list[BaseException]()
    run = worker.run

    def slowly(inputs: Any, stoppable: Any) -> Any:
        def tell(stop: Any) -> None:
            stoppable(stop)
            assert stop is None or go_on.wait(SECONDS)

        try:
            return run(inputs, tell)
        except BaseException as error:
            errors.append(error)
            raise

    worker.run = slowly  # type: ignore[method-assign]
    try:
        yield errors
    finally:
        go_on.set()


def test_requests_give_what_the_model_computes() -> None:
    with Pool(mlp(), workers=2) as pool:
        assert pool.workers == 2
        assert pool.engine == "onnxruntime"
        futures = [pool.submit([_x(seed)]) for seed in range(50)]
        for seed, future in enumerate(futures):
            assert_close(future.result(SECONDS)[0], mlp_result(_x(seed)))
        (y,) = pool(_x(7))
        assert_close(y, mlp_result(_x(7)))
        assert_close(pool.submit({"x": _x(8)}).result(SECONDS)[0], mlp_result(_x(8)))


def test_map_keeps_the_order_and_takes_no_more_than_it_needs() -> None:
    taken = []

    def requests():
        for seed in range(200):
            taken.append(seed)
            yield [_x(seed)]

    with Pool(mlp(), workers=2, queue=4) as pool:
        results = pool.map(requests())
        for seed, (y,) in enumerate(results):
            assert len(taken) <= seed + 6
            assert_close(y, mlp_result(_x(seed)))
        assert len(taken) == 200


def test_a_map_that_is_left_cancels_the_rest() -> None:
    with Pool(mlp(), workers=1) as pool:
        results = pool.map([_x(seed)] for seed in range(100))
        next(results)
        results.close()
        assert_close(pool.submit([_x(1)]).result(SECONDS)[0], mlp_result(_x(1)))
        assert pool.statistics.requests["done"] < 10


def test_asynchronous_code() -> None:
    async def main(pool: Pool) -> list[np.ndarray]:
        results = await asyncio.gather(*(pool.run([_x(seed)]) for seed in range(20)))
        with pytest.raises(litehouse.ShapeError):
            await pool.run([_x(0).astype("d")])
        return [y for (y,) in results]

    with Pool(mlp(), workers=2) as pool:
        for seed, y in enumerate(asyncio.run(main(pool))):
            assert_close(y, mlp_result(_x(seed)))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_task_that_is_cancelled_stops_its_run(engine: str) -> None:
    x = np.eye(400, dtype="f")

    async def main(pool: Pool) -> None:
        tasks = [asyncio.create_task(pool.run([x])) for _ in range(20)]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with Pool(slow(400), workers=1, threads=1, engine=engine) as pool:
        for _ in range(100):  # on a busy machine a run may end before it is cancelled
            before = pool.statistics
            asyncio.run(main(pool))
            assert pool(x)[0].shape == (400, 400)
            found = pool.statistics
            if found.requests["cancelled"] - before.requests["cancelled"] == 20:
                break
        else:
            pytest.fail("no run was stopped")
        # One that ran was stopped, and the others never began.
        assert found.run_seconds["count"] - before.run_seconds["count"] <= 2


def test_a_run_that_was_cancelled_before_it_began_stops_at_once() -> None:
    with Pool(slow(), workers=1, threads=1, engine="onnxruntime") as pool:
        with held(pool) as errors:
            running = pool.submit([LONG])
            wait_until(running.running)
            assert running.cancel()
        with pytest.raises(CancelledError):
            running.result(SECONDS)
        assert [type(error) for error in errors] == [litehouse.EngineError]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_deadline_ends_a_run_that_takes_too_long(engine: str) -> None:
    x = np.eye(400, dtype="f")
    with Pool(slow(400), workers=1, threads=1, engine=engine) as pool:

        def ask() -> None:
            for _ in range(100):  # on a busy machine a run may end before anybody sees that it is late
                pool(x, timeout=0.01)

        with pytest.raises(litehouse.DeadlineError):
            ask()
        (y,) = pool(x)
        (again,) = pool(x)
        np.testing.assert_array_equal(y, again)


@pytest.mark.openvino
def test_runs_behind_one_that_was_cancelled_have_their_own_sizes() -> None:
    """OpenVINO mixes them up where sizes are open and a run is stopped."""
    with Pool(slow(), workers=1, threads=1, engine="openvino") as pool:
        expected = pool(SHORT)[0]
        for _ in range(3):
            doomed = pool.submit([np.eye(300, dtype="f")])
            wait_until(lambda doomed=doomed: doomed.running())
            doomed.cancel()
            np.testing.assert_array_equal(pool(SHORT)[0], expected)


def test_wrong_inputs_never_reach_the_queue() -> None:
    with Pool(mlp(), workers=1) as pool:
        with pytest.raises(litehouse.ShapeError, match="must be float32, not float64"):
            pool.submit([_x().astype("d")])
        with pytest.raises(litehouse.ShapeError, match="must have the shape"):
            pool.submit([_x(rows=3)])
        with pytest.raises(litehouse.ShapeError, match="takes 1 inputs, not 2"):
            pool.submit([_x(), _x()])
        assert pool.statistics.requests["refused"] == 0


def test_a_dynamic_model_takes_all_its_sizes() -> None:
    dynamic = model([node("MatMul", "x x", "m"), node("Relu", "m", "y")], {"x": ("n", "n")}, {"y": ("n", "n")})
    with Pool(dynamic, workers=2) as pool:
        arrays = [np.random.default_rng(size).normal(size=(size, size)).astype("f") for size in range(1, 40)]
        for array, (y,) in zip(arrays, pool.map([array] for array in arrays), strict=True):
            assert_close(y, np.maximum(array @ array, 0))


def test_a_full_queue_refuses() -> None:
    with Pool(mlp(), workers=1, threads=1, queue=2) as pool:
        with held(pool):
            futures = [pool.submit([_x()])]
            wait_until(lambda: not pool.statistics.queued)
            futures += [pool.submit([_x()]), pool.submit([_x()])]
            with pytest.raises(Overloaded, match="2 requests wait already; try later, or raise the pool's `queue`"):
                pool.submit([_x()])
            assert pool.statistics.requests["refused"] == 1
        for future in futures:
            future.result(SECONDS)


def test_statistics_as_data_and_as_prometheus_text() -> None:
    with Pool(mlp(), workers=1) as pool:
        for seed in range(5):
            pool(_x(seed))
        while pool.statistics.in_flight:
            time.sleep(0.001)
        found = pool.statistics
        assert (found.queued, found.requests["done"]) == (0, 5)
        assert found.queue_seconds["count"] == found.run_seconds["count"] == 5
        assert found.run_seconds["sum"] > 0
        text = found.prometheus('my "pool"')
    assert 'litehouse_requests_total{pool="my \\"pool\\"",outcome="done"} 5' in text.splitlines()
    both = prometheus({"a": replace(found, queued=12345678), "b": found})
    assert both.count("# TYPE litehouse_queued_requests gauge") == 1
    assert 'litehouse_queued_requests{pool="a"} 12345678' in both.splitlines()
    assert 'litehouse_run_seconds_bucket{pool="my \\"pool\\"",le="+Inf"} 5' in text.splitlines()
    assert 'litehouse_batch_size_count{pool="my \\"pool\\""} 5' in text.splitlines()
    metric = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? [0-9.e+-]+')
    for line in text.splitlines():
        assert line.startswith("# ") or metric.fullmatch(line), line


def test_a_closed_pool_says_so() -> None:
    pool = Pool(mlp(), workers=1)
    pool.close()
    pool.close()
    with pytest.raises(litehouse.EngineError, match="the pool is closed; make another one"):
        pool(_x())


def test_a_pool_that_is_forgotten_ends_its_threads() -> None:
    before = set(threading.enumerate())
    pool = Pool(mlp(), workers=2)
    pool(_x(), timeout=SECONDS)
    own = set(threading.enumerate()) - before
    assert len(own) > 2
    del pool
    gc.collect()
    wait_until(lambda: not own & set(threading.enumerate()))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"workers": -1}, "workers must be an int from 0 to 4096, not -1"),
        ({"workers": "2"}, "workers must be an int from 0 to 4096, not '2'"),
        ({"workers": True}, "workers must be an int"),
        ({"processes": -1}, "processes must be an int from 0 to 256, not -1"),
        ({"processes": 10**6}, "processes must be an int from 0 to 256"),
        ({"queue": 0}, "queue must be an int from 1 to 2147483648, not 0"),
        ({"queue": 1.5}, "queue must be an int"),
        ({"workers": 1, "processes": 1}, "either workers, in this process, or processes"),
    ],
    ids=str,
)
def test_numbers_out_of_range(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Pool(mlp(), **wrong)


def test_batching_is_told_by_its_type() -> None:
    with pytest.raises(TypeError, match=r"batching must be litehouse\.Batching, not bool"):
        Pool(mlp(), batching=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_size must be an int from 2 to 1024"):
        Batching(max_size=10**9)
    with pytest.raises(ValueError, match="max_delay must be seconds"):
        Batching(max_delay="x")  # type: ignore[arg-type]


def test_idle_workers_take_what_a_small_queue_could_not() -> None:
    with Pool(mlp(), workers=2, queue=1) as pool:
        for _ in range(20):
            wait_until(lambda: pool._waiting._idle == 2)
            with pool._waiting._arrived:  # both are idle until all three are there
                requests = [pool.submit([_x()]) for _ in range(3)]
            for request in requests:
                request.result(SECONDS)


def test_an_interrupted_wait_withdraws_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    with Pool(mlp(), workers=1, threads=1) as pool:
        with held(pool), monkeypatch.context() as patch:
            patch.setattr("litehouse.parallel.requests.Request.result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.ask([_x()])
        wait_until(lambda: pool.statistics.requests["cancelled"])


def test_a_pool_shows_what_it_is() -> None:
    with Pool(mlp(), workers=2) as pool:
        assert repr(pool) == "<Pool <bytes>: 2 workers>"


def test_the_thread_budget_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "thread_budget", lambda: 8)
    assert budget.share_threads() == (8, 1)
    assert budget.share_threads(workers=2) == (2, 4)
    assert budget.share_threads(threads=4) == (2, 4)
    assert budget.share_threads(workers=3, threads=2) == (3, 2)
    assert budget.share_threads(workers=20) == (20, 1)
    assert budget.share_threads(threads=20) == (1, 20)


def test_a_gpu_has_few_workers_on_many_cores(rehearsed_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has captured graphs of its own there."""
    monkeypatch.setattr(budget, "thread_budget", lambda: 64)
    with Pool(mlp(), device="gpu") as pool:
        assert pool.workers == 2
    with Pool(mlp(), device="gpu", workers=3) as pool:
        assert pool.workers == 3


def test_a_network_with_state_is_served_one_after_the_other() -> None:
    with Pool(FIXTURES / "mindir" / "networks" / "counter.mindir", workers=2) as pool:
        shapes = [tuple(size or 1 for size in info.shape) for info in pool.model.inputs]
        inputs = [np.ones(shape, info.dtype) for shape, info in zip(shapes, pool.model.inputs, strict=True)]
        totals = sorted(float(np.sum(results[0])) for results in pool.map([inputs] * 20))
        assert len(set(totals)) == 20  # each run saw what the one before it left


def test_many_threads_and_two_models_never_swap_an_answer() -> None:
    """Each answer can only be right for its own question, and for its own model."""
    with (
        Pool(mlp(seed=1), workers=2) as one,
        Pool(mlp(seed=2), workers=2, batching=Batching(max_size=4, force=True)) as two,
    ):

        def client(number: int) -> int:
            random = np.random.default_rng(number)
            for _ in range(250):
                x = random.normal(size=(2, 4)).astype("f")
                pool, seed = ((one, 1), (two, 2))[int(random.integers(2))]
                (y,) = pool.submit([x]).result(SECONDS)
                np.testing.assert_allclose(y, mlp_result(x, seed=seed), rtol=1e-3, atol=1e-3)
            return number

        with ThreadPoolExecutor(8) as clients:
            assert list(clients.map(client, range(8))) == list(range(8))
        with two._waiting._arrived:  # no worker takes one before all are there
            together = [two.submit([_x(seed)]) for seed in range(8)]
        for seed, future in enumerate(together):
            assert_close(future.result(SECONDS)[0], mlp_result(_x(seed), seed=2))
        assert two.statistics.batch_sizes["count"] < two.statistics.batch_sizes["sum"]


def test_a_process_that_was_forked_off_is_told() -> None:
    with Pool(mlp(), workers=1) as pool:
        pool(_x())
        pid = os.fork()
        if pid == 0:
            try:
                pool.submit([_x()])
            except litehouse.EngineError as error:
                os._exit(7 if "make another one here" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_other_sizes_are_built_on_the_cores_that_were_asked_for() -> None:
    cores = tuple(sorted(os.sched_getaffinity(0))[:1])
    with Pool(mlp(), workers=2, threads=1, affinity=cores, any_size=True) as pool:
        for rows in (2, 3, 4):
            assert_close(pool.submit([_x(rows, rows)]).result(SECONDS)[0], mlp_result(_x(rows, rows)))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_workers_keep_to_the_cores_that_were_asked_for() -> None:
    core = min(os.sched_getaffinity(0))
    with Pool(mlp(), workers=2, affinity=(core,)) as pool:
        wait_until(lambda: pool._waiting._idle == 2)  # all of them have begun
        members = [thread for thread in threading.enumerate() if thread.name.startswith("litehouse-worker")]
        assert len(members) >= 2
        for thread in pool._crew._members:
            assert os.sched_getaffinity(thread.native_id) == {core}
    assert core in os.sched_getaffinity(0)


def test_the_file_can_be_encrypted() -> None:
    path = FIXTURES / "mindir" / "containers" / "aes_gcm_128.mindir"
    with Pool(Path(path), workers=1, key=b"litehouse-key-16") as pool:
        plain = litehouse.load(path, key=b"litehouse-key-16")
        inputs = [np.ones(info.shape, info.dtype) for info in plain.inputs]
        assert_close(pool(*inputs)[0], plain.run(inputs)[0])


def test_a_cancelled_future_is_counted() -> None:
    with Pool(mlp(), workers=1, threads=1) as pool:
        with held(pool):
            running, waiting = pool.submit([_x()]), pool.submit([_x()])
            assert waiting.cancel()
            assert pool.statistics.requests["cancelled"] == 1
            with pytest.raises(CancelledError):
                waiting.result(0)
        running.result(SECONDS)


def test_other_sizes_are_taken_if_asked_for() -> None:
    with Pool(mlp(), workers=2, any_size=True) as pool:
        for rows in (2, 1, 7, 2, 1):
            assert_close(pool(_x(rows, rows))[0], mlp_result(_x(rows, rows)))
        with pytest.raises(litehouse.ShapeError):
            pool(np.ones((2, 4, 1), "f"))
        with pytest.raises(litehouse.ShapeError):
            pool(np.ones((2, 5), "f"))
        assert_close(pool(_x(3))[0], mlp_result(_x(3)))


def test_who_waits_for_a_tiny_model_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread is woken for a run of microseconds, but all is counted, and checked."""
    with Pool(mlp()) as pool:
        assert pool._shortcut.run([_x(1)]) is None  # nobody knows how long it takes
        (y,) = pool(_x(1))
        assert_close(y, mlp_result(_x(1)))
        while pool.statistics.in_flight:
            time.sleep(0.001)
        pool._recorder.recent_seconds = 1e-6
        monkeypatch.setattr(pool, "submit", None)
        (y,) = pool(_x(1))
        assert_close(y, mlp_result(_x(1)))
        monkeypatch.undo()
        (y,) = pool(_x(2), timeout=SECONDS)  # a deadline needs the queue
        assert_close(y, mlp_result(_x(2)))
        with pytest.raises(litehouse.ShapeError):
            pool(_x(rows=3))
        while pool.statistics.in_flight:
            time.sleep(0.001)
        assert (pool.statistics.requests["done"], pool.statistics.run_seconds["count"]) == (3, 3)


def test_recent_times_follow_what_happens() -> None:
    recorder = Recorder()
    assert recorder.recent_seconds == float("inf")
    for seconds in (1.0, 2.0):
        recorder.ran(1, seconds)
    assert recorder.recent_seconds == pytest.approx(1.2)
    recorder.ran(2, 50.0)  # joined ones do not count
    assert recorder.recent_seconds == pytest.approx(1.2)

"""`Pool(processes=...)`: workers that can be killed, and a pool that goes on."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parallel.test_pool import LONG, SHORT, slow

import litehouse
from conftest import FIXTURES, assert_close
from litehouse import Batching, Options, Pool, WorkerError
from litehouse.parallel import crew, isolated, processes
from litehouse.parallel.exchange import FIRST_BYTES, Line, SharedMemory
from onnx_models import mlp, mlp_result


def _x(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 4)).astype("f")


def _pids(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool._crew._workers]


SECONDS = 600  # for what must happen: a machine may take long to start a process, and who waits longer hangs


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(mlp(), processes=2, threads=1) as made:
        yield made


def test_requests_give_what_the_model_computes(pool: Pool) -> None:
    assert len(set(_pids(pool)) - {os.getpid()}) == 2
    assert pool.engine == "onnxruntime"
    for seed, (y,) in enumerate(pool.map([_x(seed)] for seed in range(100))):
        assert_close(y, mlp_result(_x(seed)))


def test_every_option_survives_the_way_to_the_process(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(mlp())
    options = Options(
        engine="onnxruntime",
        threads=1,
        cache=tmp_path / "cache",
        limits=litehouse.Limits(max_nodes=1000),
        job=litehouse.Job(rank=1, size=2, timeout=5),
    )
    told = json.loads(json.dumps(processes.Source.of(path, options, {}).message(None)))
    with isolated._load(told) as session:
        assert session.options == options


def test_a_path_an_encrypted_file_and_options_reach_the_process(tmp_path: Path) -> None:
    path = FIXTURES / "mindir" / "containers" / "aes_gcm_128.mindir"
    plain = litehouse.load(path, key=b"litehouse-key-16")
    inputs = [np.ones(info.shape, info.dtype) for info in plain.inputs]
    options = Options(engine="onnxruntime", threads=1, cache=tmp_path, limits=litehouse.Limits(max_nodes=1000))
    with Pool(path, processes=1, key=b"litehouse-key-16", options=options) as pool:
        assert_close(pool(*inputs)[0], plain.run(inputs)[0])
    with pytest.raises(litehouse.LimitError):
        Pool(path, processes=1, key=b"litehouse-key-16", limits=litehouse.Limits(max_nodes=1))


def test_a_model_that_cannot_be_loaded_is_an_error_of_its_kind(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x0a" * 50)
    with pytest.raises(litehouse.ModelFormatError):
        Pool(tmp_path / "broken.onnx", processes=1)


def test_large_arrays_make_the_memory_grow() -> None:
    from onnx_models import model, node

    double = model([node("Add", "x x", "y")], {"x": ["n", 1000]}, {"y": ["n", 1000]})
    with Pool(double, processes=1, threads=1) as pool:
        for rows in (1, 100, 3, 1000, 2):
            x = np.random.default_rng(rows).normal(size=(rows, 1000)).astype("f")
            assert x.nbytes > FIRST_BYTES or rows < 100
            np.testing.assert_array_equal(pool(x)[0], x + x)


def test_errors_come_back() -> None:
    """Another size is taken here, and refused there."""
    with Pool(mlp(), processes=1, threads=1, any_size=True) as pool:
        with pytest.raises(litehouse.ShapeError, match="the network cannot take the shapes"):
            pool(np.ones((2, 5), "f"))
        assert_close(pool(_x())[0], mlp_result(_x()))


def test_a_network_with_state_is_refused() -> None:
    with pytest.raises(litehouse.EngineError, match="each process would have its own"):
        Pool(FIXTURES / "mindir" / "networks" / "counter.mindir", processes=2)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_processes_keep_to_their_share_of_the_cores_also_after_a_restart() -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    with Pool(mlp(), processes=2, threads=1, affinity=tuple(cores[:1])) as pool:
        os.kill(_pids(pool)[0], signal.SIGKILL)
        for seed in range(4):
            pool.submit([_x(seed)]).exception(SECONDS)
        _wait_until(lambda: pool.statistics.restarts == 1)
        assert_close(pool(_x())[0], mlp_result(_x()))
        assert os.sched_getaffinity(0) >= set(cores)


def _fail_without_workers(pool: Pool) -> None:
    """Kill all workers, where no other can be started: each request must be told."""
    for pid in _pids(pool):
        os.kill(pid, signal.SIGKILL)
    for _ in range(4):
        with pytest.raises(WorkerError):
            pool(_x())


def test_a_machine_without_descriptors_is_told(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", none)
        _fail_without_workers(pool)
    assert_close(pool(_x())[0], mlp_result(_x()))


def test_a_worker_that_is_killed_fails_its_request_alone_and_is_replaced() -> None:
    with Pool(slow(400), processes=2, threads=1) as pool:
        x = np.eye(400, dtype="f")
        expected = pool(x)[0]
        before = _pids(pool)
        futures = [pool.submit([x]) for _ in range(6)]
        time.sleep(0.05)
        os.kill(before[0], signal.SIGKILL)
        outcomes = [future.exception(SECONDS) for future in futures]
        failed = [error for error in outcomes if error is not None]
        assert len(failed) <= 1
        assert all(isinstance(error, WorkerError) and "SIGKILL" in str(error) for error in failed)
        for future, error in zip(futures, outcomes, strict=True):
            if error is None:
                np.testing.assert_array_equal(future.result()[0], expected)
        _wait_until(lambda: pool.statistics.restarts >= 1)
        assert before[0] not in _pids(pool)
        assert before[1] in _pids(pool)


def test_a_retry_hides_the_death() -> None:
    with Pool(slow(400), processes=1, threads=1, retry=True) as pool:
        x = np.eye(400, dtype="f")
        expected = pool(x)[0]
        future = pool.submit([x])
        time.sleep(0.05)
        os.kill(_pids(pool)[0], signal.SIGKILL)
        np.testing.assert_array_equal(future.result(SECONDS)[0], expected)
        _wait_until(lambda: pool.statistics.restarts == 1)  # on a busy machine the run may have ended before


@pytest.mark.slow
def test_fifty_kills_at_random_lose_no_request_without_an_error() -> None:
    """Clients never stop; every request that was taken ends, with the right numbers or with a `WorkerError`."""
    chance, ends, kills = random.Random(0), list[str](), 50
    with Pool(mlp(), processes=2, threads=1, queue=64) as pool:
        is_over = threading.Event()

        def client(number: int) -> None:
            seed = number
            while not is_over.is_set():
                seed += 8
                try:
                    (y,) = pool.submit([_x(seed)]).result(SECONDS)
                except WorkerError:
                    ends.append("error")
                else:
                    np.testing.assert_allclose(y, mlp_result(_x(seed)), rtol=1e-3, atol=1e-3)
                    ends.append("right")

        failures: list[BaseException] = []

        def guarded(number: int) -> None:
            try:
                client(number)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        clients = [threading.Thread(target=guarded, args=(number,)) for number in range(4)]
        for thread in clients:
            thread.start()
        killed: set[int] = set()
        while len(killed) < kills:
            time.sleep(chance.uniform(0.0, 0.05))
            pid = chance.choice(_pids(pool))
            if pid is not None and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        _wait_until(lambda: "right" in ends or bool(failures))  # where requests take longer than processes live
        is_over.set()
        for thread in clients:
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert failures == []
        assert_close(pool(_x(1))[0], mlp_result(_x(1)))
        found = pool.statistics.requests
        assert found["done"] == ends.count("right") + 1
        assert found["failed"] == ends.count("error")
        assert ends.count("right") > 0


def _submit_late(pool: Pool) -> Any:
    """A long run whose time is up when it has begun."""
    late: Any = pool.submit([LONG])
    _wait_until(late.running)
    late.deadline = time.monotonic()
    pool._crew.clock.watch(late)
    return late


def test_a_deadline_stops_a_run_and_its_process_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", SECONDS)  # on a busy machine an op may take long to end
    with Pool(slow(), processes=1, threads=1, engine="onnxruntime") as pool:
        pids = _pids(pool)
        for _ in range(3):
            with pytest.raises(litehouse.DeadlineError, match="before it was done"):
                _submit_late(pool).result(SECONDS)
            late = pool.submit([LONG])
            _wait_until(lambda late=late: late.running())
            assert late.cancel()
            with pytest.raises(CancelledError):
                late.result(SECONDS)
            assert late.cancelled()
        assert pool(SHORT)[0].shape == (10, 10)
        assert _pids(pool) == pids
        assert pool.statistics.restarts == 0


def test_a_run_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.0)
    monkeypatch.setattr(processes._Child, "stop", lambda *_: None)  # it does not hear
    with Pool(slow(), processes=1, threads=1, engine="onnxruntime") as pool:
        pool(SHORT)
        with pytest.raises(litehouse.DeadlineError, match="before it was done"):
            _submit_late(pool).result(SECONDS)
        assert pool(SHORT)[0].shape == (10, 10)
        assert pool.statistics.restarts == 1


def test_a_process_that_dies_idle_is_replaced_before_it_is_needed(pool: Pool) -> None:
    before = _pids(pool)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    _wait_until(lambda: pool.statistics.restarts == 2)
    assert not set(before) & set(_pids(pool))
    assert_close(pool(_x())[0], mlp_result(_x()))


def test_deadlines_hold_while_a_process_starts(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(processes.ProcessWorker, "start", lambda _: started.wait(SECONDS))
        for pid in _pids(pool):
            os.kill(pid, signal.SIGKILL)
        _wait_until(lambda: all(worker._is_starting for worker in pool._crew._workers))
        with pytest.raises(litehouse.DeadlineError):
            pool(_x(), timeout=0.1)
        unwanted = pool.submit([_x()])
        time.sleep(0.05)
        unwanted.cancel()
        with pytest.raises(CancelledError):
            unwanted.result(SECONDS)
        assert all(worker._is_starting for worker in pool._crew._workers)
        started.set()
        _wait_until(lambda: not any(worker._is_starting for worker in pool._crew._workers))
    assert_close(pool(_x())[0], mlp_result(_x()))


def test_closing_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (crew, processes):  # on a busy machine an op may take long to end
        monkeypatch.setattr(module, "STOP_SECONDS", SECONDS)
    pool = Pool(slow(), processes=1, threads=1, engine="onnxruntime")
    running = [pool.submit([LONG]) for _ in range(3)]
    _wait_until(lambda: running[0].running())
    monkeypatch.setattr(processes.ProcessWorker, "start", lambda _: pytest.fail("a process was started"))
    pool.close(0)
    for request in running:
        with pytest.raises(litehouse.EngineError, match=r"stopped|closed before|terminate"):
            request.result(SECONDS)
    assert pool.statistics.restarts == 0


@pytest.mark.parametrize("retry", [False, True])
def test_a_file_that_was_replaced_is_not_mixed_with_the_one_before(tmp_path: Path, retry: bool) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp())
    with Pool(path, processes=2, threads=1, retry=retry) as pool:
        other = tmp_path / "other.onnx"
        other.write_bytes(mlp(seed=1))
        other.replace(path)
        os.kill(_pids(pool)[0], signal.SIGKILL)
        found = [pool.submit([_x()]) for _ in range(40)]
        for request in found:
            error = request.exception(SECONDS)
            if error is None:
                assert_close(request.result()[0], mlp_result(_x()))
            else:
                assert "the file has changed since the pool was made" in str(error) or isinstance(error, WorkerError)


def test_joined_requests_run_in_processes_too() -> None:
    with Pool(mlp(), processes=1, threads=1, batching=Batching(max_size=4, force=True)) as pool:
        assert pool.batching.sizes == (4, 2)
        with pool._waiting._arrived:  # none is taken before all are there
            requests = [pool.submit([_x(seed)]) for seed in range(50)]
        for seed, request in enumerate(requests):
            assert_close(request.result(SECONDS)[0], mlp_result(_x(seed)))
        sizes = pool.statistics.batch_sizes
        assert sizes["count"] < sizes["sum"]


def test_nothing_is_left_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Pool(mlp(), processes=1, threads=1) as pool:
        pool(_x())
    before = descriptors()
    pool = Pool(mlp(), processes=2, threads=1)
    pids = _pids(pool)
    pool(_x())
    os.kill(pids[0], signal.SIGKILL)
    _wait_until(lambda: pool.submit([_x()]).exception(SECONDS) is None and pool.statistics.restarts >= 1)
    pids += _pids(pool)
    pool.close()
    assert not any(map(_is_alive, pids))
    assert descriptors() == before


ORPHANS = """
import sys, time
import numpy as np
from litehouse import Pool
pool = Pool({path!r}, processes=2, threads=1)
print(*[worker.pid for worker in pool._crew._workers], flush=True)
time.sleep(600)
"""


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(mlp())
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS.format(path=str(path))], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait(SECONDS)
    _wait_until(lambda: not any(map(_is_alive, pids)))


def test_a_program_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROGRAM", ("-c", "raise SystemExit(3)"))
    with pytest.raises(WorkerError, match=r"could not be started: the worker process \d+ ended \(exit status 3\)"):
        Pool(mlp(), processes=1)


def test_a_worker_that_cannot_be_replaced_fails_requests_until_it_can(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(processes, "PROGRAM", ("-c", "raise SystemExit(3)"))
        _fail_without_workers(pool)
    assert_close(pool(_x())[0], mlp_result(_x()))


# The exchange ---------------------------------------------------------------------------------------------------------


def test_arrays_of_all_kinds_pass_through_shared_memory() -> None:
    memory = SharedMemory.make()
    arrays = [
        np.arange(7, dtype=kind).reshape(shape)
        for kind in ("f2", "f4", "f8", "i1", "i8", "u2")
        for shape in ((7,), (7, 1, 1))
    ]
    arrays += [np.array(True), np.zeros((0, 3), "f"), np.float32(5).reshape(())]
    places, end = memory.write(arrays)
    assert all(start % 64 == 0 for *_, start in places)
    for found, expected in zip(memory.read(places, copy=True), arrays, strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    more, _ = memory.write([np.full(FIRST_BYTES, 3, "f")], end)
    other = SharedMemory(os.dup(memory.descriptor))
    np.testing.assert_array_equal(other.read(more, copy=True)[0], 3)
    np.testing.assert_array_equal(other.read(places, copy=True)[0], arrays[0])
    with pytest.raises(litehouse.ShapeError, match="text cannot be handed to a process"):
        memory.write([np.array(["a"], object)])
    memory.close()
    other.close()


def test_lines_come_whole() -> None:
    ours, theirs = socket.socketpair()
    one, two = Line(ours), Line(theirs)
    big = {"text": "x" * 300_000}
    sender = threading.Thread(target=lambda: [one.send(1), one.send(big), one.send([2])])
    sender.start()
    assert (two.receive(), two.receive(), two.receive()) == (1, big, [2])
    sender.join()
    ours.close()
    with pytest.raises(EOFError):
        two.receive()
    theirs.close()


def test_a_request_that_is_cancelled_harms_no_other() -> None:
    """A child that was just killed may seem alive for a moment; the next request must not meet it."""
    with Pool(mlp(), processes=1, threads=1) as pool:
        for seed in range(12):
            doomed = pool.submit([_x()])
            time.sleep(0.0005 * (seed % 4))
            doomed.cancel()
            (y,) = pool.submit([_x(seed)]).result(SECONDS)
            assert_close(y, mlp_result(_x(seed)))


def test_a_process_that_never_gets_ready_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.5)
    monkeypatch.setattr(processes, "END_SECONDS", 0.5)
    monkeypatch.setattr(processes, "PROGRAM", ("-c", "import time; time.sleep(600)"))
    with pytest.raises(WorkerError, match="could not be started"):
        Pool(mlp(), processes=1)

"""Updates that meet twins, closings, other threads, failures and forks, at the moments at which that could go wrong."""

import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import litehouse
from conftest import assert_close
from litehouse import Session, WeightError
from litehouse import session as session_module
from litehouse import sharing as sharing_module
from litehouse.engines import build as build_module
from litehouse.weights import handover
from onnx_models import mlp, mlp_result, mlp_weights

X = np.random.default_rng(1).normal(size=(2, 4)).astype("f")
MODES = ("in_place", "swap")
SECONDS = 300  # for what must happen: who waits longer hangs


def _settle(handle: int) -> None:
    """Wait until the thread that hands weights over has closed what it sent: it hears one after the other."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(handover._address(handle))
        connection.sendall(bytes(handover.ASKED.size))
        assert connection.recv(1) == b""  # it was told off


def _descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(mlp())
    return tmp_path / "m.onnx"


def _load(path: Path, mode: str, threads: int = 1) -> Session:
    return litehouse.load(path, updatable="all", updatable_mode=mode, engine="onnxruntime", threads=threads)


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Holds each update by swap up while it builds: the first event says that it does, the second lets it go on."""
    reached, go_on = threading.Event(), threading.Event()
    rebuild = build_module.rebuild

    def slow(*arguments: Any) -> Any:
        reached.set()
        assert go_on.wait(SECONDS)
        return rebuild(*arguments)

    monkeypatch.setattr(build_module, "rebuild", slow)
    yield reached, go_on
    go_on.set()


# Twins ----------------------------------------------------------------------------------------------------------------


def test_a_twin_that_is_made_while_the_model_is_swapped_has_one_or_the_other(path: Path, held_up: Any) -> None:
    reached, go_on = held_up
    twins: list[Session] = []
    with _load(path, "swap") as session:
        updating = threading.Thread(target=session.update_weights, args=(mlp_weights(5),))
        updating.start()
        assert reached.wait(SECONDS)
        making = threading.Thread(target=lambda: twins.append(session.twin()))
        making.start()
        go_on.set()
        for thread in (updating, making):
            thread.join(SECONDS)
        assert_close(session(X)[0], mlp_result(X, seed=5))
        assert_close(twins[0](X)[0], mlp_result(X, seed=5))
        twins[0].update_weights({"w1": mlp_weights(0)["w1"]})
        assert_close(twins[0](X)[0], np.maximum(X @ mlp_weights(0)["w1"], 0) @ mlp_weights(5)["w2"])


def test_an_offer_ends_with_the_last_of_the_twins(path: Path) -> None:
    session = _load(path, "in_place")
    twin = session.twin()
    handle = session.share([])
    twin.close()
    assert session.share([]) == handle
    twin = session.twin()
    session.close()
    with litehouse.attach(handle) as attached:
        twin.update_weights(mlp_weights(3))
        assert_close(attached(X)[0], mlp_result(X, seed=3))
    twin.close()
    with pytest.raises(WeightError, match="nobody offers"):
        litehouse.attach(handle)


def test_a_twin_of_what_was_attached_goes_on_alone(path: Path) -> None:
    with _load(path, "in_place") as session:
        attached = litehouse.attach(session.share([]))
        twin = attached.twin()
        attached.close()
        session.update_weights(mlp_weights(3))
        assert_close(twin(X)[0], mlp_result(X, seed=3))
        twin.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_thread_that_was_held_up_takes_nobody_back(path: Path, mode: str) -> None:
    """It was told of an update before another one came, which its session and a twin have already."""
    with _load(path, mode) as session, litehouse.attach(session.share([])) as attached:
        twin, own = attached.twin(), attached._attached
        assert own is not None
        session.update_weights(mlp_weights(2))
        old = own.latest()
        session.update_weights(mlp_weights(3))
        assert_close(attached(X)[0], mlp_result(X, seed=3))
        assert_close(twin(X)[0], mlp_result(X, seed=3))
        latest, told = own.latest, iter([old, None, old])
        own.latest = lambda: next(told, None) or latest()  # type: ignore[method-assign]
        for one in (attached, twin):
            assert_close(one(X)[0], mlp_result(X, seed=3))
        own.latest = latest  # type: ignore[method-assign]
        twin.close()


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_shared", [False, True])
def test_an_interrupt_behind_the_switch_leaves_one_update_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with _load(path, "swap") as session:
        if is_shared:
            session.share([])
        with monkeypatch.context() as patch:
            patch.setattr(session_module, "give_back_memory", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.update_weights(mlp_weights(5))
        assert_close(session(X)[0], mlp_result(X, seed=5))
        session.update_weights({"w2": mlp_weights(5)["w2"]})  # what it has already
        assert_close(session(X)[0], mlp_result(X, seed=5))


@pytest.mark.parametrize("what", ["thaw", "freeze"])
def test_an_update_that_fails_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def fail(*_: object) -> None:
        raise litehouse.EngineError("no")

    with _load(path, "swap") as session, litehouse.attach(session.share([])) as attached:
        _settle(session.share([]))
        before = _descriptors()
        with monkeypatch.context() as patch:
            patch.setattr(sharing_module, what, fail)
            for _ in range(3):
                with pytest.raises(litehouse.EngineError, match=r"^no$"):
                    session.update_weights(mlp_weights(5))
        assert _descriptors() == before
        for one in (session, attached):
            assert_close(one(X)[0], mlp_result(X))
        session.update_weights(mlp_weights(6))
        assert_close(attached(X)[0], mlp_result(X, seed=6))


def test_what_cannot_be_handed_over_once_can_be_the_next_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no descriptors left, for a moment."""
    with _load(path, "in_place") as session:
        handle, before, copy, calls = session.share([]), _descriptors(), os.dup, iter(range(100))

        def fail(descriptor: int) -> int:
            if next(calls) % 3 == 2:
                raise OSError(24, "Too many open files")
            return copy(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", fail)
            for _ in range(3):
                with pytest.raises(WeightError, match="does not answer"):
                    litehouse.attach(handle)
        assert _descriptors() == before
        with litehouse.attach(handle) as attached:
            assert_close(attached(X)[0], mlp_result(X))


def test_what_was_updated_is_in_memory_once(path: Path) -> None:
    def mapped() -> int:
        """Bytes of shared memory that this process has mapped, however often."""
        gc.collect()
        with open("/proc/self/maps") as lines:
            ranges = [line.split()[0].split("-") for line in lines if "memfd:litehouse" in line]
        return sum(int(end, 16) - int(start, 16) for start, end in ranges)

    big = {"w1": np.ones((4, 300000), "f"), "w2": np.ones((300000, 3), "f")}
    proto = onnx.ModelProto.FromString(mlp())
    for place, (name, array) in enumerate(big.items()):
        proto.graph.initializer[place].CopyFrom(onnx.numpy_helper.from_array(array, name))
    path.write_bytes(proto.SerializeToString())
    with _load(path, "in_place") as session, litehouse.attach(session.share([])) as attached:
        attached(X)
        before = mapped()
        for number in range(3):
            session.update_weights({name: array * number for name, array in big.items()})
            attached(X)
            assert mapped() - before < 1 << 20


# Forks ----------------------------------------------------------------------------------------------------------------


def _forked(work: Callable[[], None]) -> int:
    """Do something in a process that is forked off, and give its exit code; 99 where it raises."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            signal.alarm(SECONDS)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_process_that_is_forked_off_beside_an_update_can_update(path: Path, held_up: Any) -> None:
    reached, go_on = held_up
    with _load(path, "swap") as session:
        updating = threading.Thread(target=session.update_weights, args=(mlp_weights(5),))
        updating.start()
        assert reached.wait(SECONDS)

        def work() -> None:
            go_on.set()
            session.update_weights(mlp_weights(6))
            assert_close(session(X)[0], mlp_result(X, seed=6))
            with session.twin() as twin:
                twin.resize([(1, 4)])

        assert _forked(work) == 0
        go_on.set()
        updating.join(SECONDS)
        assert_close(session(X)[0], mlp_result(X, seed=5))


@pytest.mark.parametrize("mode", MODES)
def test_a_process_without_the_threads_says_so(path: Path, mode: str) -> None:
    with _load(path, mode, threads=2) as session:
        for rows in (1, 3, 2):  # built for several sizes
            session.resize([(rows, 4)])
            session(X[:1].repeat(rows, axis=0))

        def work() -> None:
            for action in (
                lambda: session.update_weights(mlp_weights(6)),
                lambda: session.share([]),
                lambda: session(X),
            ):
                with pytest.raises(litehouse.EngineError, match="this process was forked off after"):
                    action()
            session.close()

        assert _forked(work) == 0
        session.update_weights(mlp_weights(5))
        assert_close(session(X)[0], mlp_result(X, seed=5))

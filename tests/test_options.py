"""`Options`: checks, and that each field takes effect."""

import contextlib
import os
import threading
import time

import numpy as np
import pytest

import litehouse
from onnx_models import mlp, model, node


def test_the_variable_that_sets_the_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_TUNE", "full")
    assert litehouse.Options().tune == "full"
    monkeypatch.setenv("LITEHOUSE_TUNE", "quick")
    with pytest.raises(ValueError, match="LITEHOUSE_TUNE must be one of"):
        litehouse.Options()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device": "tpu"}, "device must be one of"),
        ({"device": "gpu:x"}, "device must be one of"),
        ({"device": 0}, "device must be one of .* not 0"),
        ({"engine": "caffe"}, "engine must be one of"),
        ({"threads": -1}, "threads must be"),
        ({"threads": 1.5}, "threads must be"),
        ({"inter_op": -1}, "inter_op must be"),
        ({"workers": 0}, "workers must be"),
        ({"precision": "int8"}, "precision must be one of"),
        ({"device": "gpu", "provider": "rocm"}, r"provider must be one of \('', 'cuda', 'tensorrt'\), not 'rocm'"),
        ({"provider": "tensorrt"}, "provider 'tensorrt' is for the device 'gpu', not for 'cpu'"),
        ({"device": "ascend:1", "provider": "cuda"}, "provider 'cuda' is for the device 'gpu', not for 'ascend:1'"),
        ({"device": "gpu", "provider": "cuda", "engine": "torch"}, "is ONNX Runtime's, and engine='torch' is not"),
        ({"tune": "slow"}, "tune must be one of"),
        ({"build_seconds": -1}, "build_seconds must be a count of seconds from 0 on, not -1"),
        ({"build_seconds": float("inf")}, "build_seconds must be"),
        ({"build_seconds": True}, "build_seconds must be"),
        ({"build_seconds": "60"}, "build_seconds must be"),
        ({"cache": "somewhere"}, "cache must be a pathlib.Path"),
        ({"affinity": "little"}, "affinity must be"),
        ({"affinity": (-1,)}, "affinity must be"),
    ],
)
def test_wrong_fields_are_refused_where_they_are_made(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        litehouse.Options(**fields)


@pytest.mark.openvino
def test_fields_win_over_options() -> None:
    session = litehouse.load(mlp(), options=litehouse.Options(threads=2, engine="openvino"), threads=1)
    assert session.options.threads == 1
    assert session.engine == "openvino"


@pytest.fixture(scope="module", autouse=True)
def _engine_is_loaded() -> None:
    """ONNX Runtime starts a thread of its own when it is first used, which is not one of a session."""
    litehouse.load(mlp(), engine="onnxruntime", threads=1).close()


def _threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_of_onnxruntime(threads: int) -> None:
    before = _threads()
    session = litehouse.load(mlp(), engine="onnxruntime", threads=threads)
    # The calling thread is one of them.
    assert len(_threads() - before) == threads - 1
    session.close()


@pytest.mark.openvino
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes no more threads than there are cores")
def test_threads_of_openvino() -> None:
    session = litehouse.load(mlp(), engine="openvino", threads=2)
    assert session._open().current.program.compiled.get_property("INFERENCE_NUM_THREADS") == 2


def test_inter_op_runs_ops_side_by_side() -> None:
    before = _threads()
    session = litehouse.load(mlp(), threads=1, inter_op=3)
    assert session.engine == "onnxruntime"
    assert len(_threads() - before) == 2
    with pytest.raises(litehouse.EngineError, match="openvino: it does not offer inter_op"):
        litehouse.load(mlp(), engine="openvino", inter_op=2)


def _allowed(task: int) -> set[int]:
    return os.sched_getaffinity(task)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to tell one from the other")
def test_affinity_binds_the_pool_and_the_caller() -> None:
    everything = os.sched_getaffinity(0)
    core = max(everything)
    before = _threads()
    session = litehouse.load(_slow_model(), threads=2, affinity=(core,))
    pool = _threads() - before
    assert pool
    assert all(_allowed(task) == {core} for task in pool)
    assert os.sched_getaffinity(0) == everything, "the caller's own affinity is restored after the build"

    is_seen = threading.Event()

    def run() -> None:
        end = time.monotonic() + 60
        while not is_seen.is_set() and time.monotonic() < end:
            session.run([np.ones((400, 400), "f")])

    caller = threading.Thread(target=run)
    caller.start()
    while caller.is_alive() and not is_seen.is_set():
        with contextlib.suppress(ProcessLookupError):
            if _allowed(caller.native_id) == {core}:
                is_seen.set()
        time.sleep(0.0005)
    caller.join()
    assert is_seen.is_set(), "the calling thread runs on the core while it works"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is of one class")
@pytest.mark.parametrize("affinity", ["big", "mid"])
def test_classes_of_cores_bind_the_pool(monkeypatch: pytest.MonkeyPatch, affinity: str) -> None:
    """On a machine where one core is faster than the others, as sysfs would tell."""
    everything = os.sched_getaffinity(0)
    fast = min(everything)
    monkeypatch.setattr("litehouse.cores.affinity._speed", lambda cpu: int(cpu.name == f"cpu{fast}"))
    before = _threads()
    session = litehouse.load(mlp(), threads=2, affinity=affinity)
    pool = _threads() - before
    assert pool
    assert all(_allowed(task) == ({fast} if affinity == "big" else everything - {fast}) for task in pool)
    session.close()


def _slow_model() -> bytes:
    names = [f"h{index}" for index in range(40)]
    nodes = [node("MatMul", f"{a} {a}", b) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
    return model(nodes, {"x": [400, 400]}, {"y": [400, 400]})


def test_affinity_of_a_core_that_is_not_ours() -> None:
    with pytest.raises(litehouse.EngineError, match=r"cores \[4095\] are not among those"):
        litehouse.load(mlp(), affinity=(4095,))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core leaves nothing to choose")
def test_affinity_is_refused_by_an_engine_that_cannot() -> None:
    with pytest.raises(litehouse.EngineError, match="openvino: it does not offer affinity"):
        litehouse.load(mlp(), engine="openvino", affinity=(0,))


def test_precision_is_fp32_unless_lower_is_allowed(engine: str) -> None:
    assert litehouse.load(mlp(), engine=engine).precision == "fp32"


@pytest.mark.parametrize(
    ("device", "missing"), [("gpu", "onnxruntime-gpu"), ("gpu:1", "onnxruntime-gpu"), ("ascend", "onnxruntime-cann")]
)
def test_a_device_that_is_missing(device: str, missing: str) -> None:
    with pytest.raises(litehouse.EngineError, match=missing):
        litehouse.load(mlp(), device=device)


@pytest.mark.openvino
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it has no more streams than there are cores")
def test_workers_are_streams_of_openvino() -> None:
    for workers, streams in ((1, 1), (2, 2)):
        session = litehouse.load(mlp(), engine="openvino", threads=1, workers=workers)
        assert session.loaded.built.program.compiled.get_property("NUM_STREAMS") == streams

"""In which order a run on tensors takes its place among streams, with stand-ins for the streams of a GPU."""

import contextlib

import numpy as np
import pytest

import litehouse
from litehouse.engines.torch import program, shortcut
from onnx_models import mlp

torch = pytest.importorskip("torch")


class Stream:
    """Notes what is asked of it."""

    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def wait_stream(self, other):
        self.notes.append(f"{self.name} waits for {other.name}")

    def record_event(self):
        self.notes.append(f"{self.name} records")
        return self

    def synchronize(self):
        self.notes.append(f"host waits for {self.name}")

    device = None


@pytest.fixture
def notes(monkeypatch):
    found = []
    caller = Stream("caller", found)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _=None: caller)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: found.append(f"{stream.name} uses an output"))
    return found


@pytest.fixture
def runner(notes, monkeypatch):
    session = litehouse.load(mlp(), engine="torch", cache=False)
    made = session._builds.current.take()
    made._stream = Stream("runner", notes)
    run = made._filled
    monkeypatch.setattr(made, "_filled", lambda given: notes.append("run") or run(given))
    monkeypatch.setattr(made, "_find_shortcut", lambda _: None)
    info = session.inputs[0]
    made.example = torch.zeros([size if isinstance(size, int) else 1 for size in info.shape])
    return made


ON_HOST = ["runner waits for caller", "run", "runner records", "caller uses an output", "caller waits for runner"]
ON_DEVICE = ["runner waits for caller", "run", "caller uses an output", "caller waits for runner"]


def test_the_run_is_in_line(runner, notes, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    for _ in range(2):
        notes.clear()
        runner.run_tensors([runner.example])
        assert notes == ON_DEVICE


def test_memory_of_the_host_is_read_before_it_is_written_again(runner, notes):
    runner.run_tensors([runner.example])
    assert notes == ON_HOST
    notes.clear()
    runner.run_tensors([runner.example])
    assert notes == ["host waits for runner", *ON_HOST]
    notes.clear()
    runner.run([np.asarray(runner.example)])
    assert notes[0] == "host waits for runner"
    notes.clear()
    runner.run([np.asarray(runner.example)])
    assert notes[0] == "run"


def test_after_an_error_the_caller_waits_too(runner, notes, monkeypatch):
    def fail(_):
        raise RuntimeError("no")

    monkeypatch.setattr(runner, "_filled", fail)
    with pytest.raises(RuntimeError, match="no"):
        runner.run_tensors([runner.example])
    assert notes == ["runner waits for caller", "caller waits for runner"]


def test_the_shorter_way_is_in_line(runner, notes, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(shortcut, "_pinned", torch.empty_like)
    (first,) = runner.run_tensors([runner.example])
    type(runner)._find_shortcut(runner, [runner.example])
    notes.clear()
    for expected in (["caller waits for runner"], []):
        (found,) = runner.run_tensors([runner.example])
        assert notes == expected
        torch.testing.assert_close(found, first)
        notes.clear()
    other = Stream("other", notes)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _=None: other)
    runner.run_tensors([runner.example])
    assert notes == ["other waits for caller"]


def test_other_sizes_wait_for_the_shorter_way(runner, notes, monkeypatch):
    """What was captured for several sizes shares its memory."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(shortcut, "_pinned", torch.empty_like)
    runner.run_tensors([runner.example])
    type(runner)._find_shortcut(runner, [runner.example])
    larger = torch.zeros(5, *runner.example.shape[1:])
    for run in (runner.run_tensors, lambda inputs: runner.run([each.numpy() for each in inputs])):
        runner.run_tensors([runner.example])
        monkeypatch.setattr(runner, "_downloaded", lambda results: [each.numpy() for each in results])
        other = Stream("other", notes)
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "current_stream", lambda _=None, other=other: other)
            notes.clear()
            run([larger])
        assert notes.index("runner waits for caller") < notes.index("run")


def test_runners_that_got_one_stream_take_turns():
    class Given:
        def __init__(self, cuda_stream):
            self.cuda_stream = cuda_stream

    assert program._lock_of(Given(-5)) is program._lock_of(Given(-5))
    assert program._lock_of(Given(-5)) is not program._lock_of(Given(-6))

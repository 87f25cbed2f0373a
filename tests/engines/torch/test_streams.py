"""In which order a run on tensors takes its place among streams, with stand-ins for the streams of a GPU."""

import contextlib
import gc
import itertools
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import litehouse
from litehouse import EngineError
from onnx_models import mlp

torch = pytest.importorskip("torch")

from litehouse.engines.torch import driver, program, streams  # noqa: E402
from litehouse.engines.torch.graphs import recording  # noqa: E402


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
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: found.append(f"{stream.name} uses memory"))
    return found


@pytest.fixture
def runner(notes, monkeypatch):
    session = litehouse.load(mlp(), engine="torch", cache=False)
    made = session._builds.current.take()
    made._stream = made._last = Stream("runner", notes)
    run = made._filled
    monkeypatch.setattr(made, "_filled", lambda given: notes.append("run") or run(given))
    monkeypatch.setattr(made, "_find_shortcut", lambda _: None)
    info = session.inputs[0]
    made.example = torch.zeros([size if isinstance(size, int) else 1 for size in info.shape])
    return made


BEFORE, AFTER = ["runner waits for caller"], ["caller uses memory", "caller waits for runner"]


def test_outputs_are_memory_of_the_caller_s_stream(runner, notes, monkeypatch):
    """Nothing but its own order keeps that from others while the caller uses it."""
    place = ["caller"]

    @contextlib.contextmanager
    def on(stream):
        place.append(stream.name)
        yield
        place.pop()

    monkeypatch.setattr(torch.cuda, "stream", on)
    copy = program.unless_wrong
    monkeypatch.setattr(program, "unless_wrong", lambda *given: notes.append(f"copy on {place[-1]}") or copy(*given))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    runner.run_tensors([runner.example])
    assert notes == [*BEFORE, "run", *AFTER, "copy on caller"]


def test_what_tells_of_errors_is_read_on_the_caller_s_stream(runner, notes, monkeypatch):
    """Its memory is not given back before, either."""
    filled = runner._filled

    def doubtful(given):
        frame = filled(given)
        frame.wrong.append((torch.ones(1, dtype=torch.bool), ["out of range"]))
        return frame

    monkeypatch.setattr(runner, "_filled", doubtful)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    (output,) = runner.run_tensors([runner.example])
    assert output.isnan().all()
    assert notes == [*BEFORE, "run", AFTER[0], *AFTER]


def test_the_run_is_in_line(runner, notes, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    for _ in range(2):  # the second time the caller's stream was used last, and is waited for once
        notes.clear()
        runner.run_tensors([runner.example])
        assert notes == [*BEFORE, "run", *AFTER]


def test_streams_of_all_callers_are_waited_for(runner, notes, monkeypatch):
    """What is captured shares memory: nothing may begin on it while a run on any stream is under way."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    runner.run_tensors([runner.example])
    notes.clear()
    other = Stream("other", notes)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _=None: other)
    runner.run_tensors([runner.example])
    assert notes[:3] == ["runner waits for caller", "runner waits for other", "run"]
    notes.clear()
    monkeypatch.setattr(torch.Tensor, "is_cuda", False)
    runner.run([np.asarray(runner.example)])
    assert notes[:2] == ["runner waits for other", "run"]


def test_memory_of_the_host_is_read_before_it_is_written_again(runner, notes):
    runner.run_tensors([runner.example])
    assert notes == [*BEFORE, "run", "runner records", *AFTER]
    notes.clear()
    runner.run_tensors([runner.example])
    assert notes == ["host waits for runner", *BEFORE, "run", "runner records", *AFTER]
    notes.clear()
    runner.run([np.asarray(runner.example)])
    assert notes[:3] == ["host waits for runner", *BEFORE, "run"]
    notes.clear()
    runner.run([np.asarray(runner.example)])
    assert notes[0] == "run"


def test_after_an_error_the_caller_waits_too(runner, notes, monkeypatch):
    def fail(_):
        raise RuntimeError("no")

    monkeypatch.setattr(runner, "_filled", fail)
    with pytest.raises(EngineError, match="torch failed while running: no"):
        runner.run_tensors([runner.example])
    assert notes == ["runner waits for caller", "caller waits for runner"]


def test_pieces_share_no_memory(monkeypatch):
    """One that is captured for new sizes, behind those that run after it, would give what these overwrite."""
    from litehouse.engines.torch.pieces import Piece, cut

    handles = itertools.count()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    block = litehouse.load(mlp(), engine="torch", cache=False).loaded.built.program.lowered.block
    parts = cut(block.steps, {block.steps[1]}, block.outputs, frozenset(), Stream("runner", []))
    pools = [part.work.pool for part in parts if isinstance(part, Piece)]
    assert len(pools) == len(set(pools)) == 2


def test_the_shorter_way_is_in_line(runner, notes, monkeypatch):
    with monkeypatch.context() as on_gpu:
        on_gpu.setattr(torch.Tensor, "is_cuda", True)
        (first,) = runner.run_tensors([runner.example])
    type(runner)._find_shortcut(runner, [runner.example])
    notes.clear()
    runner.run_tensors([runner.example])
    assert notes == ["caller uses memory"]  # that for the input
    notes.clear()
    for _ in range(4):  # the last ones read the input where it is
        (found,) = runner.run_tensors([runner.example])
        assert notes == []
        torch.testing.assert_close(found, first)
    other = Stream("other", notes)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _=None: other)
    runner.run_tensors([runner.example])
    assert notes == ["other waits for caller", "other uses memory"]
    notes.clear()
    current = ["the caller's GPU"]
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: [notes.append(f"on {stream.name}"), current.append(0)])

    @contextlib.contextmanager
    def on(_):
        before = current[-1]
        yield
        current.append(before)

    monkeypatch.setattr(torch.cuda, "device", on)
    np.testing.assert_allclose(runner.run([np.asarray(runner.example)])[0], first)
    assert notes == ["runner waits for other", "on runner", "on other", "host waits for runner"]
    assert current[-1] == "the caller's GPU"  # as torch.cuda.set_stream does not leave it


def test_a_stream_belongs_to_one_owner_at_a_time(monkeypatch):
    class Owner:
        pass

    handles, notes = itertools.count(), []
    monkeypatch.setattr(streams, "_free", {})
    monkeypatch.setattr(streams, "_made", lambda _: next(handles))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda place: notes.append((place, recording.locked())))
    gpu, other = torch.device("cuda", 0), torch.device("cuda", 1)
    first, second = Owner(), Owner()
    assert [streams.stream_for(each, gpu) for each in (first, second)] == [(0, gpu), (1, gpu)]
    del first
    gc.collect()
    assert notes == []
    third, fourth, fifth = Owner(), Owner(), Owner()
    assert streams.stream_for(third, other) == (2, other)
    assert streams.stream_for(fourth, gpu) == (0, gpu)
    assert notes == [(gpu, True)]  # what the first one began is over, and nobody captures while that is waited for
    assert streams.stream_for(fifth, gpu) == (3, gpu)


def test_a_stream_for_captures_stays_one(monkeypatch):
    """Else it had scratch memory that torch may let others have."""

    class Owner:
        pass

    handles = itertools.count()
    monkeypatch.setattr(streams, "_free", {})
    monkeypatch.setattr(streams, "_made", lambda _: next(handles))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    gpu = torch.device("cuda", 0)
    first, second, third = Owner(), Owner(), Owner()
    assert [streams.stream_for(first, gpu), streams.stream_for(first, gpu, captures=True)] == [(0, gpu), (1, gpu)]
    del first
    gc.collect()
    assert [streams.stream_for(second, gpu, captures=True), streams.stream_for(second, gpu)] == [(1, gpu), (0, gpu)]
    assert streams.stream_for(third, gpu, captures=True) == (2, gpu)


def test_a_stream_is_free_when_all_that_was_captured_there_is_gone(monkeypatch):
    """Torch clears the scratch memory of its stream with each graph: the next owner may be capturing there."""
    free, notes = [], []
    monkeypatch.setattr(streams, "_free", {(0, True): free})
    monkeypatch.setattr(streams, "_made", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: "a stream")
    session = litehouse.load(mlp(2), engine="torch", cache=False)
    runner, x = session._builds.current.take(), np.ones((2, 4), "f")
    for _ in range(2):  # by what is captured first, then by arrays
        runner.run([x])
    (piece,) = runner._parts
    graphs = [piece.latest.own.graph, runner._shortcuts[(2, 4),]._arrays.recording.graph]
    for graph in graphs:
        weakref.finalize(graph, lambda: notes.append(list(free)))
    assert streams.stream_for(runner, torch.device("cuda", 0), captures=True) == "a stream"
    del piece, graphs, graph, runner
    assert notes == [[], []]
    assert free == ["a stream"]


def test_a_stream_is_free_again_where_its_new_owner_gives_up(monkeypatch):
    class Owner:
        pass

    def interrupted(_):
        raise KeyboardInterrupt

    owner, gpu, free = Owner(), torch.device("cuda", 0), ["a stream"]
    monkeypatch.setattr(streams, "_free", {(0, False): free})
    monkeypatch.setattr(torch.cuda, "synchronize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        streams.stream_for(owner, gpu)
    assert free == []
    del owner
    gc.collect()
    assert free == ["a stream"]


@pytest.mark.parametrize("error", [0, 2])
def test_the_driver_makes_it(monkeypatch, error):
    class Driver:
        def cuStreamCreate(self, stream, flags):
            stream._obj.value, made[:] = 0x7F0012345678, [flags]
            return error

    made = []
    monkeypatch.setattr(streams, "driver", Driver)
    monkeypatch.setattr(streams, "on", lambda _: contextlib.nullcontext())
    if error:
        with pytest.raises(EngineError, match=r"the GPU's driver cannot make a stream \(error 2 of CUDA\)"):
            streams._made(torch.device("cuda", 0))
    else:
        assert streams._made(torch.device("cuda", 0)) == 0x7F0012345678
    assert made == [1]


@pytest.mark.parametrize("error", [0, 900])
def test_the_driver_captures(monkeypatch, error):
    """So that what other threads do is no matter, as where torch captures."""

    class Driver:
        def cuStreamBeginCapture_v2(self, stream, mode):
            begun.append((stream.value, mode))
            return error

    begun = []
    monkeypatch.setattr(driver, "driver", Driver)
    stream = SimpleNamespace(cuda_stream=0x7F0012345678)
    with pytest.raises(EngineError, match=r"capture \(error 900 of CUDA\)") if error else contextlib.nullcontext():
        driver.begin_capture(stream)
    assert begun == [(0x7F0012345678, 1)]


def test_without_the_driver(monkeypatch):
    monkeypatch.setattr(driver, "LIBRARY", "libnot_there.so.1")
    with pytest.raises(EngineError, match=r"libnot_there\.so\.1.*; litehouse needs the one of NVIDIA"):
        driver.driver.__wrapped__()

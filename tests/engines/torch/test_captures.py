"""How graphs of a GPU come about, with a stand-in for torch's: what is captured runs at once."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engines.torch.test_shortcut import SQUARE, numbers, runner_of

torch = pytest.importorskip("torch")

from litehouse.engines.torch import captures, graphs, pieces  # noqa: E402  (it needs torch)
from litehouse.engines.torch.captures import Capture  # noqa: E402
from litehouse.engines.torch.frame import Block, Frame, Step  # noqa: E402
from litehouse.engines.torch.graphs import CaptureError, recording  # noqa: E402
from litehouse.errors import RankError  # noqa: E402

RUN, SYNCHRONIZE, BEGIN, END = "run", "wait for the GPU", "begin", "end"
ASIDE, SCRATCH, BACK = "its stream waits for the caller's", "scratch memory", "the caller's stream waits for its"


class Stream:
    """Notes what it waits for."""

    def __init__(self, note: Callable[[str], None], text: str) -> None:
        self._note, self._text = note, text

    def wait_stream(self, _: "Stream") -> None:
        self._note(self._text)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, bool]]:
    """What happens, whether garbage is collected then, and whether others may wait for the whole GPU."""
    found: list[tuple[str, bool, bool]] = []

    def note(what: str) -> None:
        found.append((what, gc.isenabled(), not recording.locked()))

    @contextlib.contextmanager
    def graph(*_: Any, **__: Any) -> Iterator[None]:
        note(BEGIN)
        yield
        note(END)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: note(SYNCHRONIZE))
    current = [Stream(note, BACK)]

    class On:
        def __init__(self, other: Stream) -> None:
            self._other = other

        def __enter__(self) -> None:
            self._before, current[0] = current[0], self._other

        def __exit__(self, *_: object) -> None:
            current[0] = self._before

    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current[0])
    monkeypatch.setattr(torch.cuda, "stream", On)
    monkeypatch.setattr(graphs, "take_scratch", lambda _: note(SCRATCH))
    return found


@pytest.fixture
def capture(notes: list[tuple[str, bool, bool]], monkeypatch: pytest.MonkeyPatch) -> Capture:
    """One that takes itself for one on a GPU."""
    runner = runner_of(SQUARE)
    np.testing.assert_array_equal(runner.run([numbers(0)])[0], np.maximum(numbers(0), 0) - numbers(0))
    made: Capture = runner._parts[0].latest
    run = made._run

    def noted(*given: Any, **options: Any) -> Any:
        notes.append((RUN, gc.isenabled(), not recording.locked()))
        return run(*given, **options)

    own = Stream(lambda what: notes.append((what, gc.isenabled(), not recording.locked())), ASIDE)
    monkeypatch.setattr(made, "_run", noted)
    monkeypatch.setattr(made, "_place", torch.device("cuda"))
    monkeypatch.setattr(made, "_work", replace(made._work, stream=own))
    return made


def test_each_thread_has_run_what_it_captures(notes: list[tuple[str, bool, bool]], capture: Capture) -> None:
    """Else it would make handles of torch's libraries, and try kernels, while it captures: both end that."""
    for _ in range(2):
        notes.clear()
        thread = threading.Thread(target=lambda: [capture.record() for _ in range(2)])
        thread.start()
        thread.join()
        captured = [SYNCHRONIZE, ASIDE, SCRATCH, BEGIN, RUN, END, BACK]
        assert [what for what, *_ in notes] == [RUN, *captured, *captured]


def test_what_other_ranks_owe_is_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """To capture waits for the whole GPU: nobody would notice meanwhile that a rank is missing."""
    runner, happens = runner_of(SQUARE), list[str]()
    (piece,), frame = runner._parts, runner._program.frame([torch.from_numpy(numbers(0))])
    run = Frame.run_noted

    def noted(self: Frame, steps: Any) -> None:
        happens.append(RUN)
        run(self, steps)

    monkeypatch.setattr(Frame, "run_noted", noted)
    frame.finish = lambda: happens.append(SYNCHRONIZE)
    Capture(piece.work, frame, ())
    assert (happens[0], happens[1:].count(SYNCHRONIZE)) == (SYNCHRONIZE, 0)
    assert RUN in happens


def test_nothing_is_freed_and_nobody_waits_from_end_to_end(
    notes: list[tuple[str, bool, bool]], capture: Capture
) -> None:
    """Memory that is freed between the beginning and the first kernel would end it just as well."""
    capture.record()
    assert notes[0] == (RUN, True, True)
    assert all(note[1:] == (False, False) for note in notes[1:])
    assert gc.isenabled()
    assert not recording.locked()


def test_streams_are_in_line_after_an_error(
    notes: list[tuple[str, bool, bool]], capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun for the capture may still read memory that is dropped then."""

    before = torch.cuda.current_stream(None)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    @contextlib.contextmanager
    def never_ended(*given: Any, **__: Any) -> Iterator[None]:
        torch.cuda.stream(given[2]).__enter__()
        with contextlib.suppress(RuntimeError):
            yield
        raise RuntimeError("not ended")

    with pytest.raises(CaptureError, match="no"):
        capture.record(before=fail)
    assert [what for what, *_ in notes] == [RUN, SYNCHRONIZE, ASIDE, SCRATCH, BEGIN, BACK]
    monkeypatch.setattr(torch.cuda, "graph", never_ended)
    with pytest.raises(CaptureError, match=r"^no$"):  # which is why, and not the end
        capture.record(before=fail)
    assert torch.cuda.current_stream(None) is before
    notes.clear()
    monkeypatch.setattr(graphs, "take_scratch", fail)
    with pytest.raises(CaptureError, match="no"):
        capture.record()
    assert [what for what, *_ in notes] == [SYNCHRONIZE, ASIDE, BACK]
    assert gc.isenabled()
    assert not recording.locked()


class Torch:
    """Stands in for what torch keeps of a capture, and for CUDA, which ends one before torch does."""

    def __init__(self, how: str) -> None:
        self.how, self.uses, self.told = how, {"GPU": 0, "CPU": 0}, list[str]()
        self.under_way: set[str] = set()
        self.is_drawing = self.is_capturing = False

    def begin(self, *kinds: str) -> None:
        for kind in kinds:
            assert kind not in self.under_way
            self.under_way.add(kind)
            self.uses[kind] += 1

    def end(self, *kinds: str) -> None:
        for kind in kinds:
            if kind not in self.under_way:
                raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
            self.under_way.remove(kind)

    def release(self, *kinds: str) -> None:
        for kind in kinds:
            self.uses[kind] -= 1

    def capture(self, stream: Any) -> None:
        self.told.append(stream)
        self.is_capturing = True

    @contextlib.contextmanager
    def graph(self, made: Any, *_: Any, **__: Any) -> Iterator[None]:
        self.begin("GPU", "CPU")
        self.is_drawing, self.is_capturing = True, self.how == "not ended by CUDA"
        try:
            yield
        finally:
            made.capture_end()

    def made(self) -> "Graph":
        return Graph(self)


class Graph:
    """Ends in the order of torch 2.11, or in that of the versions that end all of it in any case."""

    def __init__(self, torch: Torch) -> None:
        self._torch, self._is_ended = torch, False

    def capture_end(self) -> None:
        torch, was_capturing = self._torch, self._torch.is_capturing
        torch.is_capturing = False
        if not was_capturing and torch.how != "later torch":
            raise RuntimeError("CUDA error: invalidated\nmore of it")
        torch.end("GPU", "CPU")
        torch.is_drawing, self._is_ended = False, True
        if not was_capturing:
            raise RuntimeError("CUDA error: invalidated\nmore of it")

    def __del__(self) -> None:
        if self._is_ended:
            self._torch.release("GPU", "CPU")


@pytest.fixture
def of_torch(
    request: pytest.FixtureRequest,
    notes: list[tuple[str, bool, bool]],
    capture: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> Torch:
    """What torch keeps."""
    kept = Torch(request.param)
    monkeypatch.setattr(graphs, "begin_capture", kept.capture)
    monkeypatch.setattr(torch.cuda, "graph", kept.graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", kept.made)
    return kept


@pytest.mark.parametrize("of_torch", ["ended by CUDA", "later torch"], indirect=True)
def test_torch_is_told_of_the_end_of_what_it_could_not_end(
    of_torch: Torch, notes: list[tuple[str, bool, bool]], capture: Capture
) -> None:
    """Of all of it: it would take nothing more from the pool, on the GPU or the CPU, and give nothing back."""
    for _ in range(2):
        with pytest.raises(CaptureError, match="invalidated") as caught:
            capture.record()
        assert str(caught.value) == "CUDA error: invalidated"  # without torch's long advice
        del caught
        assert not of_torch.under_way
        assert not of_torch.is_drawing
        assert not of_torch.is_capturing
        assert of_torch.uses == {"GPU": 0, "CPU": 0}
    assert of_torch.told == [capture._work.stream] * 2
    assert [what for what, *_ in notes][-1] == BACK
    assert not recording.locked()


@pytest.mark.parametrize("of_torch", ["ended by CUDA", "not ended by CUDA"], indirect=True)
@pytest.mark.parametrize("error", [RankError("rank 1 is missing"), KeyboardInterrupt()])
def test_what_ends_a_capture_is_not_hidden_by_its_end(error: BaseException, of_torch: Torch, capture: Capture) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        capture.record(before=fail)
    assert caught.value is error
    assert not of_torch.under_way


def test_only_scratch_memory_is_taken_on_the_stream_of_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a product behind somebody who clears it would take it from anywhere, and what is captured would keep it."""
    found, place = [], ["the caller's stream"]

    @contextlib.contextmanager
    def aside(*_: Any, text: str = "the stream of captures", **__: Any) -> Iterator[None]:
        place.append(text)
        yield
        place.pop()

    def noted(what: str, run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **options: (found.append((what, place[-1])), run(*given, **options))[1]

    for each in (captures, graphs):
        monkeypatch.setattr(each, "aside", aside)
    monkeypatch.setattr(captures, "_like", noted("memory for inputs", captures._like))
    monkeypatch.setattr(graphs, "take_scratch", noted(SCRATCH, lambda _: None))
    monkeypatch.setattr(captures._Steps, "_done", noted(RUN, captures._Steps._done))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: aside(text="a graph"))
    runner = runner_of(SQUARE)
    runner.run([numbers(0)])
    capture = runner._parts[0].latest
    monkeypatch.setattr(capture, "_place", torch.device("cuda"))
    capture.record()
    assert {note for note in found if note[0] != RUN} == {
        ("memory for inputs", "the stream of captures"),
        (SCRATCH, "the stream of captures"),
    }
    assert {note for note in found if note[0] == RUN} == {(RUN, "the caller's stream"), (RUN, "a graph")}


def _step(op: str, *inner: Step) -> Step:
    return Step(op, "", None, (), (), (), None, blocks={"body": Block(list(inner), (), ())})


@pytest.mark.parametrize(
    ("steps", "device", "told", "is_alone"),
    [
        ([_step("Relu"), _step("Conv")], "cuda", None, True),
        ([_step("Loop", _step("If", _step("QLinearConv")))], "cuda", None, True),
        ([_step("Relu"), _step("MatMul")], "cuda", None, False),
        ([_step("Relu"), replace(_step("CDist (node from Conv_1)"), is_lacking=True)], "cuda", None, False),
        ([_step("Conv")], "cpu", None, False),
        ([_step("Conv")], "cuda", SimpleNamespace(key="by other ranks"), False),
    ],
)
@pytest.mark.parametrize("is_piece", [True, False])
def test_nobody_captures_while_convolutions_try_kernels(
    steps: list[Step], device: str, told: Any, is_alone: bool, is_piece: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch waits for the whole GPU then, which ends what others capture; ranks that wait for each other would hang."""
    found: list[bool] = []
    frame: Any = SimpleNamespace(place=torch.device(device), told=told, waits=set())
    frame.run_noted = lambda given: found.append(recording.locked())
    runner = runner_of(SQUARE)
    monkeypatch.setattr(pieces, "ON_CPU", False)  # nothing is captured
    runner._parts = [pieces.Piece(steps, frozenset(), set(), None, None)] if is_piece else steps[-1:]
    runner._program.frame = lambda _: frame
    runner._filled([])
    assert found == [is_alone]
    assert not recording.locked()

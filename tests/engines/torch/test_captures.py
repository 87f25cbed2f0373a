"""How graphs of a GPU come about, with a stand-in for torch's: what is captured runs at once."""

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engines.torch.test_shortcut import SQUARE, numbers, runner_of

torch = pytest.importorskip("torch")

from litehouse.engines.torch.captures import Capture, recording  # noqa: E402  (it needs torch)

RUN, SYNCHRONIZE, BEGIN, END = "run", "wait for the GPU", "begin", "end"


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

    monkeypatch.setattr(made, "_run", noted)
    monkeypatch.setattr(made, "_place", torch.device("cuda"))
    return made


def test_each_thread_has_run_what_it_captures(notes: list[tuple[str, bool, bool]], capture: Capture) -> None:
    """Else it would make handles of torch's libraries, and try kernels, while it captures: both end that."""
    for _ in range(2):
        notes.clear()
        thread = threading.Thread(target=lambda: [capture.record() for _ in range(2)])
        thread.start()
        thread.join()
        assert [what for what, *_ in notes] == [SYNCHRONIZE, RUN, BEGIN, RUN, END, BEGIN, RUN, END]


def test_nothing_is_freed_and_nobody_waits_from_end_to_end(
    notes: list[tuple[str, bool, bool]], capture: Capture
) -> None:
    """Memory that is freed between the beginning and the first kernel would end it just as well."""
    capture.record()
    assert notes == [
        (SYNCHRONIZE, True, False),
        (RUN, True, True),
        *((what, False, False) for what in (BEGIN, RUN, END)),
    ]
    assert gc.isenabled()
    assert not recording.locked()

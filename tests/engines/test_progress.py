"""What people see of a build: one line on a terminal, nothing elsewhere."""

import io
import sys

import pytest

import litehouse
from litehouse.engines import progress, select
from onnx_models import mlp


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """For a test to call: pytest puts its own stream there when the test begins."""
    terminal = _Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_the_steps_are_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SOON", 600.0)  # even on a slow machine
    with progress.shown("net.mindir") as shown:
        shown.step("compiling")  # nobody needs to see what takes no time
        shown.step("timing", is_long=True)
        shown.share(0.5)
        shown.step("keeping")
    text = terminal.getvalue()
    assert "compiling" not in text
    assert "net.mindir: timing" in text


def test_a_race_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(select.RACE_SECONDS, "fast", 0.05)
    monkeypatch.setattr(select, "TINY_SECONDS", 0.0)
    terminal = on_terminal(monkeypatch)
    litehouse.load(mlp(), threads=1, tune="fast", cache=False)
    assert "<bytes>: timing the engines" in terminal.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), None, object()], ids=["a file", "none", "something else"])
def test_elsewhere_nothing_is_shown(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.shown("net.mindir") as shown:
        shown.step("timing", is_long=True)
        shown.share(0.5)
    assert not isinstance(stream, io.StringIO) or stream.getvalue() == ""

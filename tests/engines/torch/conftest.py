"""Without torch there is nothing to test here."""

import importlib.util
from typing import Any

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*.py"]


@pytest.fixture(autouse=True)
def _captured_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps on the CPU run as they do on a GPU: captured for their sizes, and replayed."""
    from litehouse.engines.torch import pieces

    monkeypatch.setattr(pieces, "ON_CPU", True)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops of each piece that is captured, in the order in which they are."""
    from litehouse.engines.torch import pieces

    made: list[str] = []

    class Counted(pieces.Capture):
        def __init__(self, work: Any, *rest: Any) -> None:
            super().__init__(work, *rest)
            made.append(" ".join(step.op for step in work.steps))

    monkeypatch.setattr(pieces, "Capture", Counted)
    return made

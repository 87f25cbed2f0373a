"""Fixtures of the tests of verdicts and of providers."""

from pathlib import Path

import pytest
from engines.provider_support import Build
from engines.support import Trials, know_nothing


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that knows nothing of its engines."""
    know_nothing(monkeypatch, tmp_path / "cache")


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trials:
    """Trials that run a given program instead."""
    return Trials(monkeypatch, tmp_path / "log")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    """A build of ONNX Runtime with all providers of GPUs, and no torch."""
    return Build(monkeypatch)

"""Without torch there is nothing to test here."""

import importlib.util

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*.py"]


@pytest.fixture(autouse=True)
def _captured_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps on the CPU run as they do on a GPU: captured for their sizes, and replayed."""
    from litehouse.engines.torch import pieces

    monkeypatch.setattr(pieces, "ON_CPU", True)

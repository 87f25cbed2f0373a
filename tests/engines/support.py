"""Trials that run a given program, for the tests of verdicts."""

import time
from pathlib import Path

import pytest

from litehouse.engines import safety
from litehouse.engines.safety import CAP, Verdict
from litehouse.engines.trials import children

ALL = [(engine, precision) for engine, precisions in safety.PRECISIONS.items() for precision in precisions]
PASS = "print('passed')"
ILLEGAL = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
ENDLESS = "import time; time.sleep(600)"


def verdict(engine: str, precision: str, *, cache: bool | Path = True) -> Verdict:
    """The verdict on one engine and precision."""
    return safety.verdicts([(engine, precision)], cache=cache)[0]


def know_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Be a process that knows nothing yet, with a cache of its own, on a CPU without a lower instruction set."""
    for name in ("_known", "_applied", "_replaced"):
        monkeypatch.setattr(safety, name, {})
    monkeypatch.setattr(safety, "cpu_flags", frozenset)
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(cache))
    for name in (safety.REHEARSAL, *safety.OWN_CAPS):
        monkeypatch.delenv(name, raising=False)


class Trials:
    """Trials that run a given program instead, and how they were started. The time for an endless one is up at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
        self._monkeypatch, self._log, self._is_endless = monkeypatch, log, False
        outcome = children._Child.outcome

        def hastened(child: children._Child, deadline: float) -> children.Outcome:
            while self._is_endless and not self.caps and time.monotonic() < deadline:
                time.sleep(0.01)  # until it has begun
            return outcome(child, 0.0 if self._is_endless else deadline)

        monkeypatch.setattr(children._Child, "outcome", hastened)

    def program(self, code: str) -> None:
        self._is_endless = code.endswith(ENDLESS)
        note = f"import os, sys; open({str(self._log)!r}, 'a').write((os.environ.get({CAP!r}, '-') or 'none') + '\\n')"
        self._monkeypatch.setattr(children, "PROGRAM", ("-c", f"{note}\n{code}"))

    @property
    def caps(self) -> list[str]:
        """The instruction set that each trial was held to."""
        return self._log.read_text().split() if self._log.exists() else []

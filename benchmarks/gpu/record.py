"""What is asked for, what was found, and the time that is left for more."""

import json
import math
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.gpu.models import Models
from benchmarks.gpu.place import Place

WIDTH = 200  # of tables that go to a file
SHOWN = 20  # names of what was left out


class Record:
    """A run of the benchmark.

    Attributes:
        given: The command line.
        place: Where it runs.
        models: The networks.
        results: What was found, by part.
        left_out: What no longer fitted into the time.
        cache: A cache for this run alone: what one part has chosen and made kernels for, the next one finds.
    """

    def __init__(self, given: Namespace, cache: Path) -> None:
        self.given, self.cache, self.place = given, cache, Place(given.device)
        self.models = Models(is_tiny=not self.place.is_gpu)
        self.results: dict[str, Any] = {}
        self.left_out: list[str] = []
        self._start = time.perf_counter()
        self._longest: dict[str, float] = {}
        console = Console()
        self._console = console if console.is_terminal else Console(width=WIDTH)

    @property
    def brief_tune(self) -> str:
        """How the engine is tuned where many sessions are made."""
        return "off" if self.given.tune == "off" else "fast"

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.given.seconds + self._start - time.perf_counter() if self.given.seconds else math.inf

    def step(self, kind: str, what: str, work: Callable[[], dict[str, Any]], guess: float = 1.0) -> dict[str, Any]:
        """What a piece of work finds: `skipped` where it no longer fits, `failed` with the text where it fails.

        Args:
            kind: Steps of a kind take about the same time: the longest so far tells whether one more fits.
            what: What it is, in words.
            work: The work.
            guess: How many seconds the first of its kind may take.
        """
        if self.left < self._longest.get(kind, guess if self.place.is_gpu else 0.0):
            self.left_out.append(what)
            return {"skipped": f"{self.left:.0f} s were left"}
        start = time.perf_counter()
        try:
            found = work()
        except Exception as error:  # noqa: BLE001  (whatever it is, the others are measured)
            found = {"failed": told(error), "trace": traceback.format_exc()[-4000:]}
        found["seconds"] = time.perf_counter() - start
        self._longest[kind] = max(self._longest.get(kind, 0.0), found["seconds"])
        return found

    def say(self, text: str) -> None:
        """A line on what goes on."""
        self._print(f"[{time.perf_counter() - self._start:.0f} s] {text}")

    def show(self, table: Table) -> None:
        """Print a table, and write all that was found so far."""
        table.caption = f"{self.place.title}, torch {torch.__version__}; median [10 %, 90 %] over rounds"
        self._print(table)
        self.save()

    def _print(self, shown: Table | str) -> None:
        self._console.print(shown, markup=False, highlight=False, soft_wrap=isinstance(shown, str))
        self._console.file.flush()  # a run that is stopped has said what it knew

    def save(self) -> None:
        """Write what was found so far."""
        facts = {
            "device": self.place.title,
            "torch": torch.__version__,
            "arguments": {name: _plain(value) for name, value in vars(self.given).items()},
            "seconds": time.perf_counter() - self._start,
            "left_out": self.left_out,
            "results": self.results,
        }
        harness.write("gpu", **facts)
        if self.given.json is not None:
            document = {"title": "gpu", "machine": harness.machine(), **facts}
            self.given.json.write_text(json.dumps(document, indent=2) + "\n")

    def finish(self) -> None:
        """Say what was left out, and write everything."""
        if self.left_out:
            names = ", ".join(self.left_out[:SHOWN]) + (", …" if len(self.left_out) > SHOWN else "")
            bound = f"it no longer fitted into {self.given.seconds:.0f} s"
            self.say(f"{len(self.left_out)} left out, since {bound}: {names}")
        self.save()


def told(error: BaseException) -> str:
    """An error in words."""
    return f"{type(error).__name__}: {error}".strip()


def trouble(found: dict[str, Any]) -> str | None:
    """Why a step has found nothing; None where it has."""
    if "skipped" in found:
        return f"left out: {found['skipped']}"
    return f"failed: {found['failed'].splitlines()[0][:160]}" if "failed" in found else None


def measured(made: Table, rows: Sequence[dict[str, Any]], *names: str) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The rows that were measured, each with what it is called by; the table tells why others were not."""
    for row in rows:
        head = [str(row[name]) for name in names]
        if (reason := trouble(row)) is not None:
            made.add_row(*head, reason)
        else:
            yield head, row


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)

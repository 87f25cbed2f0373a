"""Runs contenders in turn and compares them.

Machines are noisy, so only ratios within a round mean anything: every round times each contender once, right after one
another, and a ratio is taken per round.
"""

import gc
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from litehouse.machine import cpu_name

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Result:
    """One contender against the baseline. A ratio over 1 means slower."""

    name: str
    microseconds: float
    ratio: float
    ratio_low: float
    ratio_high: float


class Remote:
    """A contender in a process of its own, which reads a count of calls and answers with the seconds of one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Take a process that was started with text pipes."""
        self._process = process

    def time(self, calls: int) -> float:
        """The seconds of one call, by the process's own clock."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


Contender = Callable[[], object] | Remote


def race(contenders: Mapping[str, Contender], *, rounds: int = 15, seconds: float = 0.1) -> list[Result]:
    """Time the contenders in turn; the first is the baseline."""
    calls = {name: _calls_within(run, seconds) for name, run in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in contenders.items():
                times[name].append(_time(run, calls[name]))
    finally:
        gc.enable()
    baseline = next(iter(times.values()))
    results = []
    for name, own in times.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(own, baseline, strict=True))
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        results.append(Result(name, statistics.median(own) * 1e6, statistics.median(ratios), low, high))
    return results


def _calls_within(run: Contender, seconds: float) -> int:
    _time(run, 1)
    calls = 1
    while (taken := _time(run, calls) * calls) < seconds / 4:
        calls = max(calls * 2, int(calls * seconds / 4 / max(taken, 1e-9)))
    return calls


def _time(run: Contender, calls: int) -> float:
    if isinstance(run, Remote):
        return run.time(calls)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def machine() -> dict[str, str]:
    """The machine, for the record."""
    return {"cpu": cpu_name(), "cores": str(len(os.sched_getaffinity(0))), "python": platform.python_version()}


def report(title: str, results: list[Result], **facts: object) -> None:
    """Print a table, and write the same as JSON into `benchmarks/results`."""
    here = machine()
    table = Table(title=title, caption=f"{here['cpu']}, {here['cores']} cores; ratio: median [10 %, 90 %] over rounds")
    for column in ("contender", "µs per call", "ratio to the first"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    for result in results:
        spread = f"{result.ratio:.2f} [{result.ratio_low:.2f}, {result.ratio_high:.2f}]"
        table.add_row(result.name, f"{result.microseconds:.1f}", spread)
    Console().print(table)
    write(title, **facts, results=[asdict(result) for result in results])


def write(title: str, **facts: object) -> None:
    """Write what was found as JSON into `benchmarks/results`."""
    RESULTS.mkdir(exist_ok=True)
    document = {"title": title, "machine": machine(), **facts}
    (RESULTS / f"{title.replace(' ', '_')}.json").write_text(json.dumps(document, indent=2) + "\n")

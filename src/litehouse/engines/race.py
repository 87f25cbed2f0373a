"""Times programs against each other, in turns: on a busy machine only ratios within a round mean anything."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from litehouse.engines.base import Runner

BURST_SECONDS = 0.02
MIN_ROUNDS = 3
CLEAR_ROUNDS = 5
CLEAR_LEAD = 1.25  # nobody needs the second digit of a ratio that every round says is larger
LONGEST = 4.0  # times the wanted seconds: large models get their least count of rounds

Show = Callable[[float], None]


def race(runners: Sequence[Runner], inputs: Sequence[np.ndarray], seconds: float, show: Show) -> list[list[float]]:
    """The seconds of a run of each, one figure per round.

    Args:
        runners: What to time; none of them is used by anyone else.
        inputs: What they all take.
        seconds: How long it may take, about.
        show: Told the share that is done, from 0 to 1.
    """
    start = time.perf_counter()
    calls = [_calls(runner, inputs) for runner in runners]
    times: list[list[float]] = [[] for _ in runners]
    while not _is_over(times, time.perf_counter() - start, seconds):
        for runner, count, own in zip(runners, calls, times, strict=True):
            if count > 1:
                runner.run(inputs)  # the other's data fills the caches, and its threads still spin
            own.append(_time(runner, inputs, count))
        show(min(1.0, (time.perf_counter() - start) / seconds))
    return times


def brief(runner: Runner, inputs: Sequence[np.ndarray]) -> float:
    """The seconds of a run, as good as five runs can tell."""
    runner.run(inputs)
    return min(_time(runner, inputs, 1) for _ in range(5))


def lead(times: Sequence[float], reference: Sequence[float]) -> float:
    """How many times as fast as the reference a contender is: the mean of what the median and the best round say.

    What else the machine does can move the one or the other, hardly both.
    """
    median = statistics.median(theirs / own for own, theirs in zip(times, reference, strict=True))
    return math.sqrt(median * min(reference) / min(times))


def silent(share: float) -> None:
    """Progress that nobody sees."""


@contextmanager
def shown(text: str) -> Iterator[Show]:
    """A progress bar on a terminal; silence elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(text, markup=False), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _calls(runner: Runner, inputs: Sequence[np.ndarray]) -> int:
    """How many runs make a burst; the first run of all is not counted."""
    runner.run(inputs)
    return max(1, int(BURST_SECONDS / max(_time(runner, inputs, 1), 1e-7)))


def _time(runner: Runner, inputs: Sequence[np.ndarray], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        runner.run(inputs)
    return (time.perf_counter() - start) / calls


def _is_over(times: Sequence[Sequence[float]], taken: float, seconds: float) -> bool:
    rounds = len(times[0])
    if rounds < MIN_ROUNDS:
        return rounds > 0 and taken > seconds * LONGEST
    return taken > seconds or (rounds >= CLEAR_ROUNDS and all(_is_clear(own, times[0]) for own in times[1:]))


def _is_clear(own: Sequence[float], reference: Sequence[float]) -> bool:
    ratios = [theirs / mine for mine, theirs in zip(own, reference, strict=True)]
    return min(ratios) > CLEAR_LEAD or max(ratios) < 1 / CLEAR_LEAD

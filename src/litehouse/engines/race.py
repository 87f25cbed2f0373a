"""Times programs against each other, in turns: on a busy machine only ratios within a round mean anything."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from litehouse.engines.base import Runner
from litehouse.engines.progress import SILENT, Progress

BURST_SECONDS = 0.02
LONG_SECONDS = 0.1  # a first run of this length needs no second one to tell that a burst is one run
BRIEF_SECONDS = 0.002
MIN_ROUNDS = 5
TRAILING_ROUNDS = 3
TRAILING_LEAD = 1.1  # nobody needs the second digit of a ratio that every round says is larger
LONGEST = 4.0  # times the wanted seconds: large models get their least count of rounds


def race(
    runners: Sequence[Timed],
    inputs: Sequence[np.ndarray],
    seconds: float,
    progress: Progress = SILENT,
    *,
    is_thorough: bool = False,
) -> list[list[float]]:
    """The seconds of a run of each, one figure per round; those that trail clearly give up early.

    Args:
        runners: What to time; none of them is used by anyone else. The first takes part to the end.
        inputs: What they all take.
        seconds: How long it may take, about.
        progress: Told the share that is done.
        is_thorough: Let nobody give up, and take all of the time.
    """
    start = time.perf_counter()
    calls = [_calls(runner, inputs) for runner in runners]
    times: list[list[float]] = [[] for _ in runners]
    running = list(range(len(runners)))
    while not _is_over(times, time.perf_counter() - start, seconds, is_thorough=is_thorough):
        for place in running:
            if calls[place] > 1:
                runners[place].run(inputs)  # the other's data fills the caches, and its threads still spin
            times[place].append(_time(runners[place], inputs, calls[place]))
        if not is_thorough:
            running = [place for place in running if place == 0 or not _trails(times[place], times)]
        taken = time.perf_counter() - start
        progress.share(min(1.0, taken / seconds) if seconds else 1.0)
    return times


def brief(runner: Timed, inputs: Sequence[np.ndarray]) -> float:
    """The seconds of a run, as good as a few runs can tell; one where it is long."""
    shortest, end = _time(runner, inputs, 1), time.perf_counter() + BRIEF_SECONDS
    while time.perf_counter() < end and shortest < BRIEF_SECONDS:
        shortest = min(shortest, _time(runner, inputs, 1))
    return shortest


def lead(times: Sequence[float], reference: Sequence[float]) -> float:
    """How many times as fast as the reference a contender is: the mean of what the median and the best round say.

    What else the machine does can move the one or the other, hardly both.
    """
    rounds = list(zip(times, reference, strict=False))  # it may have given up
    median = statistics.median(theirs / own for own, theirs in rounds)
    return math.sqrt(median * min(reference[: len(rounds)]) / min(times))


class Timed(Protocol):
    """What can be timed."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        ...


class Crowd:
    """Runners that run side by side, as the workers of a pool do; timed as one."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        """Start a thread for each."""
        self._runners = runners
        self._threads = ThreadPoolExecutor(len(runners), "litehouse-race")

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What one of them gives, when all of them have run."""
        results: list[list[np.ndarray]] = list(self._threads.map(lambda one: one.run(inputs), self._runners))
        return results[0]


def _calls(runner: Timed, inputs: Sequence[np.ndarray]) -> int:
    """How many runs make a burst; the first run of all does not tell, unless it is long."""
    if _time(runner, inputs, 1) > LONG_SECONDS:
        return 1
    return max(1, int(BURST_SECONDS / max(_time(runner, inputs, 1), 1e-7)))


def _time(runner: Timed, inputs: Sequence[np.ndarray], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        runner.run(inputs)
    return (time.perf_counter() - start) / calls


def _is_over(times: Sequence[Sequence[float]], taken: float, seconds: float, *, is_thorough: bool) -> bool:
    rounds = len(times[0])
    if rounds < MIN_ROUNDS:
        return rounds > 0 and taken > seconds * LONGEST
    return taken > seconds or (not is_thorough and sum(not _trails(own, times) for own in times) == 1)


def _trails(own: Sequence[float], times: Sequence[Sequence[float]]) -> bool:
    """Whether another was clearly faster in every round."""
    return any(
        min(len(own), len(other)) >= TRAILING_ROUNDS
        and all(mine > theirs * TRAILING_LEAD for mine, theirs in zip(own, other, strict=False))
        for other in times
    )

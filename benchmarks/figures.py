"""The arithmetic of a race: which rounds a contender takes part in, ratios within rounds, means over networks."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS, BARE, OTHER = "Litehouse", "ONNX Runtime", "OpenVINO"
FEWEST = 3


@dataclass
class Lane:
    """One contender of a race: what it said of itself, and its time in every round that it took part in."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    wall: dict[int, float] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    best: float | None = None

    def take(self, number: int, wall: float, cpu: float, best: float) -> None:
        """Write down a round."""
        self.wall[number], self.cpu[number] = wall, cpu
        self.best = best if self.best is None else min(self.best, best)


@dataclass
class Race:
    """All contenders on one file, batch and count of threads."""

    network: str
    format: str
    batch: int
    threads: int
    flops: int
    clock: str
    lanes: dict[str, Lane] = field(default_factory=dict)

    def times(self, name: str) -> dict[int, float]:
        """The times of a contender by the clock of the race; none where it failed or is left out."""
        lane = self.lanes.get(name)
        return {} if lane is None else lane.cpu if self.clock == "cpu" else lane.wall

    def better(self) -> str | None:
        """The faster one of the bare engines, by its median."""
        return self.fastest((BARE, OTHER))

    def fastest(self, names: Iterable[str]) -> str | None:
        """The fastest of these, by its median; None where none of them was timed."""
        timed = [name for name in names if self.times(name)]
        return min(timed, key=lambda name: statistics.median(self.times(name).values()), default=None)


@dataclass(frozen=True)
class Spread:
    """A median with the range of the middle 80 %."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """How a contender takes part: calls before the clock starts, calls that are timed, and in which rounds."""

    warm: int
    calls: int
    rounds: frozenset[int]


def share(seconds: float, rounds: int, burst: float, budget: float, least: int = 1) -> Share:
    """Bursts of about `burst` seconds in as many rounds as fit into the budget, and never fewer than three.

    The rounds of a slow contender are among those of any faster one, so that there are always rounds to compare. A
    burst has `least` calls, however long they take.
    """
    calls = max(least, int(burst / seconds))
    warm = 1 if seconds < burst / 2 else 0
    count = min(rounds, max(FEWEST, int(budget / (seconds * (calls + warm)))))
    return Share(warm, calls, frozenset(_scattered(rounds)[:count]))


def _scattered(count: int) -> list[int]:
    """All rounds in an order whose every beginning is spread over the whole: 0, the middle, the quarters…"""
    width = max(1, (count - 1).bit_length())
    turned = (int(f"{k:0{width}b}"[::-1], 2) for k in range(1 << width))
    return [k for k in turned if k < count]


def spread(values: Iterable[float]) -> Spread:
    """The median and the range of the middle 80 %."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    return Spread(statistics.median(ordered), ordered[cut], ordered[-1 - cut])


def speed(race: Race, name: str) -> Spread | None:
    """How many times as fast as a contender we are, by the rounds that both took part in."""
    return relative(race, OURS, name)


def relative(race: Race, name: str, base: str) -> Spread | None:
    """How many times as fast as another a contender is, by the rounds that both took part in."""
    own, others = race.times(name), race.times(base)
    common = own.keys() & others.keys()
    return spread(others[k] / own[k] for k in common) if common else None


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))

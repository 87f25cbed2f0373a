"""Lets contenders take turns on a device, and compares them by ratios within rounds."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.figures import Spread, spread
from benchmarks.gpu.place import Place

Run = Callable[[], object]


def take_turns(runs: Mapping[str, Run], place: Place, rounds: int, burst: float) -> dict[str, list[float]]:
    """The seconds of a call of each, one figure per round."""
    calls = {name: _calls(run, place, burst) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in runs.items():
                run()  # what the one before has left in the caches is not its fault
                times[name].append(place.seconds(run, calls[name]))
    finally:
        gc.enable()
    return times


def _calls(run: Run, place: Place, burst: float) -> int:
    place.seconds(run, 2)
    return max(1, int(burst / max(place.seconds(run, 3), 1e-7)))


def ratio(own: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """How many times as long as another one takes; over 1 is slower."""
    return asdict(spread(mine / its for mine, its in zip(own, other, strict=True)))


def scaled(times: Sequence[float], factor: float) -> dict[str, float]:
    """Seconds in another unit."""
    return asdict(spread(factor * seconds for seconds in times))


def cell(found: Mapping[str, Any] | None, digits: int = 2) -> str:
    """A median and its range."""
    if found is None:
        return "–"
    made = Spread(**found)
    return f"{made.median:.{digits}f} [{made.low:.{digits}f}, {made.high:.{digits}f}]"

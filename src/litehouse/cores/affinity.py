"""Which cores a model's threads may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litehouse.errors import EngineError

CPUS = Path("/sys/devices/system/cpu")


def cores_for(affinity: tuple[int, ...] | str, cpus: Path = CPUS) -> frozenset[int]:
    """The cores that an `Options.affinity` stands for; empty when it leaves all cores of the process.

    `"big"` stands for the fastest class of cores; `"mid"` for the class below it, or for the only class there is.

    Raises:
        EngineError: A core id is not one that this process may use.
    """
    # A thread of ours may keep to some cores itself; those of the process are those of its first thread.
    allowed = frozenset(os.sched_getaffinity(0)) | frozenset(os.sched_getaffinity(os.getpid()))
    if isinstance(affinity, str):
        classes = _core_classes(allowed, cpus)
        chosen = classes[min(1, len(classes) - 1)] if affinity == "mid" else classes[0]
    else:
        chosen = frozenset(affinity)
        strangers = sorted(chosen - allowed)
        if strangers:
            raise EngineError(f"cores {strangers} are not among those that this process may use: {sorted(allowed)}")
    return frozenset() if chosen == allowed else chosen


def _core_classes(allowed: frozenset[int], cpus: Path) -> list[frozenset[int]]:
    """The cores grouped by speed, fastest first."""
    groups: dict[int, set[int]] = {}
    for core in allowed:
        groups.setdefault(_speed(cpus / f"cpu{core}"), set()).add(core)
    return [frozenset(groups[speed]) for speed in sorted(groups, reverse=True)]


def _speed(cpu: Path) -> int:
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        try:
            return int((cpu / name).read_text())
        except (OSError, ValueError):
            continue
    return 0


def shares(affinity: tuple[int, ...] | str, workers: int) -> list[frozenset[int]]:
    """The cores of each of so many workers: equal shares of those that `affinity` stands for, dealt out in turn."""
    cores = sorted(cores_for(affinity) or (() if isinstance(affinity, str) else affinity))
    return [frozenset(cores[place % min(workers, len(cores) or 1) :: workers]) for place in range(workers)]


def keep_on(cores: frozenset[int]) -> None:
    """Keep the calling thread on these cores from now on; empty changes nothing."""
    if cores:
        os.sched_setaffinity(0, cores)


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Keep the calling thread, and the threads that it starts meanwhile, on these cores; empty changes nothing."""
    before = os.sched_getaffinity(0) if cores else set()
    if before <= cores:  # a worker keeps to its share of them
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

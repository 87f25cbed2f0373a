"""Tells whether other processes took the cores that a measurement needed."""

from __future__ import annotations

import os
import time
from pathlib import Path

CORES = Path("/proc/stat")
BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, interrupts of both kinds, and what the host took for others
SLACK = 0.2  # cores; what a machine does that is at rest


class Crowding:
    """What others do on the cores of this process, from now on."""

    def __init__(self, threads: int, cores: Path = CORES) -> None:
        """Begin to watch.

        Args:
            threads: How many cores the measurement takes.
            cores: What the kernel tells of the cores.
        """
        self._allowed = os.sched_getaffinity(0)
        self._threads = min(threads, len(self._allowed))
        self._cores = cores
        self._begin = self._times()

    def is_felt(self) -> bool:
        """Whether others left fewer cores than the measurement takes; False where that cannot be told."""
        now, begin = self._times(), self._begin
        if begin is None or now is None:
            return False
        others, elapsed = (now[place] - begin[place] for place in range(2))
        return elapsed > 0 and len(self._allowed) - others / elapsed < self._threads - SLACK

    def _times(self) -> tuple[float, float] | None:
        """The seconds that others have run on the cores, and the time."""
        try:
            lines = [line.split() for line in self._cores.read_text().splitlines()]
            found = {line[0]: [int(word) for word in line[1:9]] for line in lines if line[0].startswith("cpu")}
            busy = sum(found[f"cpu{core}"][place] for core in self._allowed for place in BUSY)
        except (OSError, ValueError, IndexError, KeyError):
            return None
        return busy / os.sysconf("SC_CLK_TCK") - time.process_time(), time.perf_counter()

"""How many threads this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def thread_budget(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Cores of the CPU affinity, cut to the CPU quota of the cgroup and of those around it; at least 1.

    `os.cpu_count()` knows neither, and in a container it starts many threads for few cores.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min([cores, *_quotas(cgroups, own)])))


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    """The CPU quotas that hold for this process, in cores: cgroup version 2 from the inside out, and version 1."""
    try:
        inside = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        inside = "/"
    folder = cgroups / inside.lstrip("/")
    for place in (folder, *(parent for parent in folder.parents if parent.is_relative_to(cgroups))):
        try:
            limit, _, period = (place / "cpu.max").read_text().partition(" ")
            if limit != "max":
                yield int(limit) / int(period)
        except (OSError, ValueError):
            continue
    try:
        allowed = int((cgroups / "cpu" / "cpu.cfs_quota_us").read_text())
        if allowed > 0:
            yield allowed / int((cgroups / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return

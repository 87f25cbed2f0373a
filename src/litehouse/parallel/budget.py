"""How many threads this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def thread_budget(cgroups: Path = CGROUPS) -> int:
    """Cores of the CPU affinity, cut to the cgroup's CPU quota; at least 1.

    `os.cpu_count()` knows neither, and in a container it starts many threads for few cores.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroups)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """The CPU quota of the cgroup (version 2, else version 1) in cores; None without one."""
    try:
        limit, _, period = (cgroups / "cpu.max").read_text().partition(" ")
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        allowed = int((cgroups / "cpu" / "cpu.cfs_quota_us").read_text())
        return None if allowed <= 0 else allowed / int((cgroups / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None

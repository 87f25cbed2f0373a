"""How many threads and how much memory this process may use."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")


def thread_budget(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Cores of the CPU affinity, cut to the CPU quota of the cgroup and of those around it; at least 1.

    `os.cpu_count()` knows neither, and in a container it starts many threads for few cores.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min([cores, *_quotas(cgroups, own)])))


def share_threads(workers: int = 0, threads: int = 0, cores: int = 0) -> tuple[int, int]:
    """How many workers there are, and how many threads each has; 0 shares the thread budget among them.

    Args:
        workers: How many workers there are to be.
        threads: How many threads each is to have.
        cores: How many cores they keep to; 0 for all.
    """
    budget = min(thread_budget(), cores or thread_budget())
    threads = threads or max(1, budget // (workers or budget))
    return workers or max(1, budget // threads), threads


def spare_memory(info: Path = MEMORY, cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Bytes that this process may still take: what the machine has left, cut to what its cgroups allow."""
    return min([_available(info), *_allowances(cgroups, own)])


def give_back_memory() -> None:
    """Let the system have what was freed: the C library keeps it otherwise, hundreds of megabytes after a race."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _available(info: Path) -> int:
    try:
        lines = info.read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def _allowances(cgroups: Path, own: Path) -> Iterator[int]:
    """What the cgroups of this process leave of their memory, of versions 2 and 1."""
    inside = _own_cgroups(own)
    version2 = _outwards(cgroups, inside.get("", "/"))
    version1 = _outwards(cgroups / "memory", inside.get("memory", "/"))
    for places, limit, used in (
        (version2, "memory.max", "memory.current"),
        (version1, "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for place in places:
            try:
                yield max(0, int((place / limit).read_text()) - int((place / used).read_text()))
            except (OSError, ValueError):  # there is none, or it says "max"
                continue


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    """The CPU quotas that hold for this process, in cores: from its cgroup out to the root, of versions 2 and 1."""
    inside = _own_cgroups(own)
    for place in _outwards(cgroups, inside.get("", "/")):
        try:
            limit, _, period = (place / "cpu.max").read_text().partition(" ")
            if limit != "max":
                yield int(limit) / int(period)
        except (OSError, ValueError):
            continue
    for place in _outwards(cgroups / "cpu", inside.get("cpu", "/")):
        try:
            allowed = int((place / "cpu.cfs_quota_us").read_text())
            if allowed > 0:
                yield allowed / int((place / "cpu.cfs_period_us").read_text())
        except (OSError, ValueError):
            continue


def _own_cgroups(own: Path) -> dict[str, str]:
    """The cgroup of this process by controller; that of version 2, which has one for all, by the empty name."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return {}
    return {name: line[2] for line in lines if len(line) == 3 for name in line[1].split(",")}


def _outwards(root: Path, inside: str) -> Iterator[Path]:
    """A folder and those around it, up to the root."""
    folder = root / inside.lstrip("/")
    yield folder
    yield from (parent for parent in folder.parents if parent.is_relative_to(root))

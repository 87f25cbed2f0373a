"""Whether a process stays up: mixed load for a quarter of an hour, with memory, threads and descriptors watched.

Clients of all kinds (see `benchmarks.mixed_load`) ask a pool that joins requests, a pool with a worker process and a
ModelParallelRunner, with arrays of many sizes. Every answer is checked. The levels after warm-up are those of the tenth
of the time after its first fifth, the levels at the end those of its last tenth. What is leaked is what there is more
of when everything is closed than there was before, after a short run of the same.

    python -m benchmarks soak --minutes 15 --clients 6
"""

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import machine, write
from benchmarks.mixed_load import Load, PoolSubject, subjects
from benchmarks.progress import progress

FIRST_SECONDS = 2.0  # what is made once per process is made meanwhile
TITLES = {
    "memory": "memory, MB",
    "child_memory": "memory of the worker process, MB",
    "threads": "threads",
    "descriptors": "descriptors",
}


@dataclass(frozen=True)
class Sample:
    """What the process holds at a moment."""

    second: float
    memory: float
    child_memory: float
    threads: int
    descriptors: int


@dataclass(frozen=True)
class Level:
    """A figure after warm-up and at the end."""

    first: float
    last: float

    @property
    def growth(self) -> float:
        """By which part of it the first has grown."""
        return self.last / self.first - 1 if self.first else 0.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--every", type=float, default=2, metavar="SECONDS", help="between two looks at the process")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Put it under load, print a table, and write the same as JSON."""
    given = parse(arguments)
    seconds = given.minutes * 60
    soak(min(FIRST_SECONDS, seconds), given.clients, given.every)
    before = sample()
    samples, tallies, restarts = soak(seconds, given.clients, given.every)
    after = sample()
    leaked = {"threads": after.threads - before.threads, "descriptors": after.descriptors - before.descriptors}
    found = levels(samples)
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores; {given.minutes:g} minutes, {given.clients} clients"
    table = Table("", "after warm-up", "at the end", "growth", "leaked", caption=caption)
    for name, title in TITLES.items():
        one = found[name]
        table.add_row(title, f"{one.first:.1f}", f"{one.last:.1f}", f"{one.growth:+.1%}", str(leaked.get(name, "")))
    Console().print(table)
    ways = sorted({way for tally in tallies.values() for way in tally})
    table = Table("requests", *ways, caption=f"the worker process was started anew {restarts} times")
    for name, tally in tallies.items():
        table.add_row(name, *(f"{tally[way]:,}" for way in ways))
    Console().print(table)
    results = {name: asdict(one) | {"growth": one.growth} for name, one in found.items()}
    facts = {"minutes": given.minutes, "clients": given.clients, "restarts": restarts, "leaked": leaked}
    write("soak", **facts, results=results, requests=tallies, samples=[asdict(one) for one in samples])


def soak(seconds: float, clients: int, every: float) -> tuple[list[Sample], dict[str, Counter[str]], int]:
    """Put everything under load for so long: what the process held meanwhile, how requests ended, and restarts."""
    samples = []
    with tempfile.TemporaryDirectory() as folder, subjects(Path(folder)) as served, progress() as bar:
        task = bar.add_task("soaking", total=int(seconds))
        with Load(served, clients) as load:
            start = time.monotonic()  # to start all of it may take longer than that
            while (spent := time.monotonic() - start) < seconds:
                time.sleep(min(every, seconds - spent))
                load.check()
                samples.append(sample(start))
                bar.update(task, completed=int(spent))
        pools = [one.pool for one in served if isinstance(one, PoolSubject)]
        restarts = sum(pool.statistics.restarts for pool in pools)
    return samples, load.tallies, restarts


def sample(start: float = 0.0) -> Sample:
    """What the process holds now, without what is about to be freed."""
    gc.collect()
    children = sum(_resident(path) for path in Path("/proc").glob("[0-9]*") if _parent(path) == os.getpid())
    counts = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
    return Sample(time.monotonic() - start, _resident(Path("/proc/self")), children, *counts)


def _resident(process: Path) -> float:
    """The resident memory of a process in megabytes; 0 where it has ended."""
    try:
        return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError):
        return 0.0


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def levels(samples: Sequence[Sample]) -> dict[str, Level]:
    """The medians of the tenth of the samples that follows their first fifth, and of their last tenth."""
    tenth = max(1, len(samples) // 10)
    first, last = samples[len(samples) // 5 :][:tenth], samples[-tenth:]
    return {
        name: Level(*(statistics.median(getattr(one, name) for one in part) for part in (first, last)))
        for name in TITLES
    }


if __name__ == "__main__":
    main()

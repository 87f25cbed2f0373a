"""How much memory several processes or workers of one model hold together, and what sharing costs in speed: BERT-base.

Memory is proportional set size: what processes share counts for each of them in parts, so the sum over processes is
what they hold together. Every process has run the model, on ONNX Runtime. `one` loads the model; `by handle` is a
process that shares its memory and others that attach to it; `by cache` are processes that load it and map the same
compiled model; the workers are those of one Pool, on each engine.

Speed: a process that loaded the model as usual, on the engine that is faster, one that loaded it on ONNX Runtime, one
that shares its memory and one that is attached run in turn.

    python -m benchmarks shared_memory --processes 4 --rounds 3
"""

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.asked import Asked
from benchmarks.figures import Spread, spread
from benchmarks.harness import machine, write
from benchmarks.networks import NAMES, TITLES, WRITTEN, file
from benchmarks.networks.build import available
from benchmarks.progress import progress
from benchmarks.tables import cell

PROGRAM = Path(__file__).parent / "workers" / "sharing_worker.py"
ENGINES = ("onnxruntime", "openvino")
TIMED = 15  # times that the contenders run in turn in a round


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks shared_memory", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--network", choices=(*NAMES, WRITTEN), default="bert")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print a table, and write the same as JSON."""
    given = parse(arguments)
    (network,) = available([given.network])
    paths = file(network, 1, ".mindir"), file(network, 1, ".npz")
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as cache, progress() as bar:
        os.environ["LITEHOUSE_CACHE_DIR"] = cache
        for number in bar.track(range(given.rounds + 1), description="rounds"):
            found = one_round(paths, given.processes, given.threads)
            if number:  # the first one fills the cache
                rounds.append(found)
    figures = {name: spread(one[name] for one in rounds) for name in rounds[0]}
    Console().print(table(figures, given.processes, TITLES.get(network, network)))
    write("shared memory", network=network, threads=given.threads, rounds=rounds, results=_facts(figures))


def one_round(paths: tuple[Path, Path], count: int, threads: int) -> dict[str, float]:
    """Memory in megabytes, and times relative to a process that loads the model as usual."""
    with ExitStack() as stack:
        alone = Asked(stack, PROGRAM, *paths, threads)
        alone.ask("load", {"engine": ENGINES[0]})
        alone.ask("run", 2)
        one = alone.ask("memory")
    with ExitStack() as stack:
        plain = [Asked(stack, PROGRAM, *paths, threads) for _ in range(count)]
        by_cache = _together(plain, lambda process: process.ask("load", {"engine": ENGINES[0]}))
    with ExitStack() as stack:
        owner, *others = (Asked(stack, PROGRAM, *paths, threads) for _ in range(count))
        owner.ask("load", {})
        handle = owner.ask("share", [process.pid for process in others])
        by_handle = _together([owner, *others], lambda process: process is owner or process.ask("attach", handle))
        usual, same = (Asked(stack, PROGRAM, *paths, threads) for _ in range(2))
        usual.ask("load", {})
        same.ask("load", {"engine": ENGINES[0]})
        ratios = _ratios({"usual": usual, "same": same, "owner": owner, "attached": others[0]})
    found = {
        "one": one,
        "by_handle": by_handle,
        "by_cache": by_cache,
        "by_handle_ratio": by_handle / one,
        "by_cache_ratio": by_cache / one,
        **ratios,
    }
    for engine in ENGINES:
        single, several = (_pool(paths, workers, threads, engine) for workers in (1, count))
        found |= {f"{engine}_one": single, engine: several, f"{engine}_ratio": several / single}
    return found


def _pool(paths: tuple[Path, Path], workers: int, threads: int, engine: str) -> float:
    """The memory of a process with a pool."""
    with ExitStack() as stack:
        process = Asked(stack, PROGRAM, *paths, threads)
        process.ask("pool", workers, engine)
        return float(process.ask("memory"))


def _together(processes: Sequence[Asked], begin: Any) -> float:
    """The memory of all of them, when each has run."""
    for process in processes:
        begin(process)
    for process in processes:
        process.ask("run", 2)
    return float(sum(process.ask("memory") for process in processes))


def _ratios(contenders: Mapping[str, Asked]) -> dict[str, float]:
    times = {name: [] for name in contenders}  # type: dict[str, list[float]]
    for _ in range(TIMED):
        for name, process in contenders.items():
            times[name].append(process.ask("run", 1))
    return {
        f"{name}_to_{other}": spread(mine / its for mine, its in zip(times[name], times[other], strict=True)).median
        for name in ("owner", "attached")
        for other in ("usual", "same")
    }


def table(figures: Mapping[str, Spread], count: int, title: str) -> Table:
    """All of it in words."""
    here = machine()
    made = Table(
        "", "MB", "relative", title=title, caption=f"{here['cpu']}, {here['cores']} cores; medians over rounds"
    )
    made.add_row("one process", f"{figures['one'].median:.0f}", "1")
    for name, words in (("by_handle", f"{count} processes by handle"), ("by_cache", f"{count} processes by cache")):
        made.add_row(words, f"{figures[name].median:.0f}", cell(figures[f"{name}_ratio"]))
    for engine in ENGINES:
        made.add_row(f"a pool with one worker, {engine}", f"{figures[f'{engine}_one'].median:.0f}", "1")
        several = f"{figures[engine].median:.0f}", cell(figures[f"{engine}_ratio"])
        made.add_row(f"a pool with {count} workers, {engine}", *several)
    for name, words in (("owner", "memory is shared"), ("attached", "it is attached")):
        made.add_row(f"time of a run where {words}, to one process", "", cell(figures[f"{name}_to_usual"]))
        made.add_row(f"the same, to one process on {ENGINES[0]}", "", cell(figures[f"{name}_to_same"]))
    return made


def _facts(figures: Mapping[str, Spread]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in figures.items()}


if __name__ == "__main__":
    main()

"""What a further worker costs in memory: Pool and ModelParallelRunner of ResNet-50 with 1 to 8 workers.

Every measurement is a fresh process, in which all workers have run; what is counted is its resident memory. The first
round fills the cache and is not counted. A worker's share is how much the process grows per worker within a round.

    python -m benchmarks worker_memory --workers 1,2,4,8 --rounds 3
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Spread, spread
from benchmarks.harness import machine, write
from benchmarks.networks import NAMES, TITLES, WRITTEN, file
from benchmarks.networks.build import available
from benchmarks.options import numbers, some
from benchmarks.progress import progress
from benchmarks.tables import cell

ENGINES = {"": {}, "-onnxruntime": {"engine": "onnxruntime", "tune": "off"}, "-openvino": {"engine": "openvino"}}
KINDS = {f"{what}{engine}": options for what in ("pool", "runner") for engine, options in ENGINES.items()}
PROGRAM = Path(__file__).parent / "workers" / "memory_worker.py"

Found = Mapping[int, Mapping[str, float]]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks worker_memory", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--network", choices=(*NAMES, WRITTEN), default="resnet50")
    parser.add_argument("--kinds", type=some(tuple(KINDS)), default=tuple(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--workers", type=numbers, default=(1, 2, 4, 8), help="counts, the smallest first")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print a table, and write the same as JSON."""
    given = parse(arguments)
    (network,) = available([given.network])
    paths = file(network, 1, ".mindir"), file(network, 1, ".npz")
    rounds: dict[str, list[Found]] = {kind: [] for kind in given.kinds}
    with tempfile.TemporaryDirectory() as cache, progress() as bar:
        for number in bar.track(range(given.rounds + 1), description="rounds"):
            for kind, own in rounds.items():
                found = {count: measure(kind, count, *paths, Path(cache)) for count in given.workers}
                if number:
                    own.append(found)
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores; medians of {given.rounds} rounds of fresh processes"
    made = Table("", "engine", *(f"{count} workers, MB" for count in given.workers), "per further worker, MB")
    made.title, made.caption = TITLES.get(network, network), caption
    for kind, own in rounds.items():
        levels = [spread(one[count]["resident"] for one in own).median / 1e6 for count in given.workers]
        made.add_row(kind, _engines(own), *(f"{level:.0f}" for level in levels), cell(share(own)))
    Console().print(made)
    results = {kind: {"share_mb": asdict(share(own)), "rounds": own} for kind, own in rounds.items()}
    write("worker memory", network=network, results=results)


def measure(kind: str, workers: int, model: Path, arrays: Path, cache: Path) -> dict[str, float]:
    """The memory of a fresh process with so many workers."""
    command = [sys.executable, str(PROGRAM), kind.partition("-")[0], str(workers), str(model), str(arrays)]
    command.append(json.dumps(KINDS[kind]))
    environment = os.environ | {"LITEHOUSE_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} with {workers} workers fails: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def share(rounds: Sequence[Found]) -> Spread:
    """By how many megabytes a process grows with each further worker, from the fewest to the most."""
    few, most = min(rounds[0]), max(rounds[0])
    steps = max(1, most - few)
    return spread((one[most]["resident"] - one[few]["resident"]) / steps / 1e6 for one in rounds)


def _engines(rounds: Sequence[Found]) -> str:
    return ", ".join(sorted({str(one["engine"]) for found in rounds for one in found.values()}))


if __name__ == "__main__":
    main()

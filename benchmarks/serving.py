"""Requests per second with many clients: Litehouse's Pool and ModelParallelRunner against serial and real ones.

Every contender is a process of its own that stays alive and has all cores. In its turn, client threads of that process
make calls, arrays in, arrays out: each client makes the next one when it has its answer, until the burst is used up.
The baseline is bare ONNX Runtime with a thread per core and one client, who gains nothing from others. The real
ModelParallelRunner of MindSpore Lite runs with the counts of workers and threads that serve it best. For a tiny network
the baseline is a Pool that does not join requests, and each client has several of them under way. Outputs are compared
before any time is taken.

    python -m benchmarks serving --networks mobilenet_v2 --clients 4,8 --rounds 11 --burst 1.5
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contenders import Contender
from benchmarks.figures import Race, relative
from benchmarks.harness import machine, write
from benchmarks.networks import TITLES, file
from benchmarks.networks.build import available
from benchmarks.options import numbers, some
from benchmarks.progress import progress
from benchmarks.races import hold
from benchmarks.tables import cell
from litehouse.cores.budget import thread_budget

LARGE, TINY = ("mobilenet_v2", "bert"), ("mlp",)
CLIENTS, TINY_CLIENTS = (4, 8), (8,)
JOINED = (8, 16, 32)
AHEAD = 16  # requests that a client of a tiny network has under way
ENDLESS = 1e6  # the slow ones take part in every round too
CALLS = 3  # of each client in a burst, at least: at its end, some have nothing to do

SERIAL, POOL, RUNNER, REAL = "ONNX Runtime, serial", "Litehouse Pool", "Litehouse runner", "MindSpore Lite runner"
PEER = "mindspore_lite"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks serving", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", type=some((*LARGE, *TINY)), default=(*LARGE, *TINY))
    parser.add_argument("--clients", type=numbers, help="4,8 unless told, and 8 on a tiny network")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--burst", type=float, default=1.5, metavar="SECONDS", help="how long a turn is, about")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Race them all, and print a table for each race."""
    given = parse(arguments)
    wanted = [
        (network, clients)
        for network in available(given.networks)
        for clients in given.clients or (TINY_CLIENTS if network in TINY else CLIENTS)
    ]
    races: list[tuple[int, Race]] = []
    with tempfile.TemporaryDirectory() as scratch, progress() as bar:
        task = bar.add_task("", total=len(wanted) * given.rounds)
        for network, clients in wanted:
            bar.update(task, description=f"{network}, {clients} clients")
            race = Race(network, "mindir", 1, thread_budget(), 0, "wall")
            hold(
                race,
                takers(network, clients),
                Path(scratch),
                rounds=given.rounds,
                burst=given.burst,
                budget=ENDLESS,
                step=lambda: bar.advance(task),
                least=CALLS * clients,
            )
            races.append((clients, race))
            Console().print(table(race, clients))
            write("serving", races=[{"clients": own, **asdict(one)} for own, one in races])


def takers(network: str, clients: int) -> list[Contender]:
    """Who is there and has a file to run; the first is the baseline."""
    makers = _tiny if network in TINY else _large
    return [item for item in makers(clients) if not item.missing and file(network, 1, item.suffix).exists()]


def _large(clients: int) -> list[Contender]:
    cores = thread_budget()
    counts = dict.fromkeys([(1, cores), (cores, 1), (2 * cores, 1)])
    return [
        _serial(),
        Contender(POOL, "pool_worker.py", ".mindir", clients=clients),
        Contender(RUNNER, "runner_worker.py", ".mindir", option="0x0", clients=clients),
        *(
            Contender(f"{REAL} {workers} × {threads}", "runner_worker.py", ".lite.mindir", PEER, option, clients)
            for workers, threads in counts
            for option in [f"{workers}x{threads}"]
        ),
    ]


def _tiny(clients: int) -> list[Contender]:
    """Clients that have several requests under way each, who can be joined; and such that wait for every answer."""
    ahead = {"": 0} | {f", {size} joined": size for size in JOINED}
    return [
        *(
            Contender(f"{POOL}{name}", "pool_worker.py", ".mindir", option=f"{size},{AHEAD}", clients=clients)
            for name, size in ahead.items()
        ),
        Contender(f"{POOL}, waited for", "pool_worker.py", ".mindir", clients=clients),
        _serial(),
    ]


def _serial() -> Contender:
    return Contender(SERIAL, "onnxruntime_worker.py", ".onnx")


def table(race: Race, clients: int) -> Table:
    """The requests per second of each, relative to the baseline, and to the best of the real ones."""
    base, here = next(iter(race.lanes)), machine()
    real = race.fastest(name for name in race.lanes if name.startswith(REAL))
    bases = {base: f"to {base}", **({real: f"to {real}"} if real else {})}
    title = f"{TITLES.get(race.network, race.network)}, {clients} clients"
    caption = f"{here['cpu']}, {here['cores']} cores; ratios of requests per second: median [10 %, 90 %] over rounds"
    made = Table("contender", "engine", "requests/s", *bases.values(), title=title, caption=caption)
    for lane in race.lanes.values():
        figures = [f"{1 / statistics.median(lane.wall.values()):,.1f}"] if lane.wall else [f"failed: {lane.failed}"]
        ratios = [cell(relative(race, lane.name, one)) for one in bases]
        made.add_row(lane.name, str(lane.facts.get("engine", "")), *figures, *ratios)
    return made


if __name__ == "__main__":
    main()

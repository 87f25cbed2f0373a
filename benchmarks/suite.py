"""Races Litehouse against bare ONNX Runtime, bare OpenVINO, MindSpore, MindSpore Lite and megenginelite.

Every contender of a race is a process of its own that stays alive; they run the same network on the same input in turn,
arrays in, arrays out. Bare ONNX Runtime and bare OpenVINO run the plain translation of the same MindIR file, which is
what `litehouse convert` writes. Litehouse starts with an empty cache. Outputs are compared before any time is taken.
Peers need Pythons of their own, named by the variables in `benchmarks.networks.PEERS`; one that is not there is left
out, and the tables say so.

    python -m benchmarks suite --networks mobilenet_v2,bert --batches 1 --threads 1 --rounds 20

Writes suite.md, suite.json and suite.svg into `benchmarks/results`, anew after each race.
"""

import argparse
import datetime
import itertools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import litehouse
from benchmarks import flops, tables
from benchmarks.contenders import CONTENDERS, Contender, absent
from benchmarks.figures import OURS, Lane, Race
from benchmarks.harness import RESULTS, machine
from benchmarks.networks import NAMES, WRITTEN, file
from benchmarks.networks.build import build
from benchmarks.options import numbers, some
from benchmarks.peak import measure
from benchmarks.progress import progress
from benchmarks.races import hold

SHORT = {"networks": ("mobilenet_v2", "lstm", "mlp"), "batches": (1,), "threads": (2,), "rounds": 7}
EVERYONE = tuple(item.name for contenders in CONTENDERS.values() for item in contenders)

Key = tuple[str, str, int, int]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks suite", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", type=some(NAMES), default=NAMES, help=f"some of {','.join(NAMES)}")
    parser.add_argument("--formats", type=some(tuple(CONTENDERS)), default=tuple(CONTENDERS), help="mindir,mge")
    parser.add_argument("--batches", type=numbers, default=(1, 8))
    parser.add_argument("--threads", type=numbers, default=(1, 2))
    parser.add_argument("--without", type=some(EVERYONE), default=(), help=f"some of {','.join(EVERYONE)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--burst", type=float, default=0.25, metavar="SECONDS", help="how long a turn is, about")
    parser.add_argument("--budget", type=float, default=20, metavar="SECONDS", help="for one contender of a race")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a busy machine, one thread")
    parser.add_argument("--short", action="store_true", help="few networks, batch 1, 2 threads, few rounds")
    parser.add_argument("--resume", action="store_true", help="keep the races that suite.json has")
    if "--short" in arguments:
        parser.set_defaults(**SHORT)
    given = parser.parse_args(arguments)
    if given.clock == "cpu" and given.threads != (1,):
        parser.error("--clock cpu tells nothing about several threads; add --threads 1")
    return given


def main(arguments: Sequence[str] = ()) -> None:
    """Race them all, and print the tables."""
    given = parse(arguments)
    build(given.networks, given.batches)
    wanted = planned(given, given.networks)
    if not wanted:
        print("There is no framework to build networks with: a part of BERT is written, and run instead.")
        print("`python -m benchmarks peers` makes environments with the frameworks (3 GB).")
        build((WRITTEN,), given.batches)
        wanted = planned(given, (WRITTEN,))
    races, peaks = read() if given.resume else ([], {})
    done = {(race.network, race.format, race.batch, race.threads) for race in races}
    with tempfile.TemporaryDirectory() as scratch, progress() as bar:
        task = bar.add_task("", total=len(wanted) * given.rounds)
        for key in wanted:
            bar.update(task, description="{}.{}, batch {}, {} threads".format(*key))
            if key in done:
                bar.advance(task, given.rounds)
                continue
            if key[3] not in peaks:
                peaks[key[3]] = measure(key[3], Path(scratch))
            race = Race(*key, flops=_flops(key), clock=given.clock)
            settings = {"rounds": given.rounds, "burst": given.burst, "budget": given.budget}
            hold(race, takers(key, given.without), Path(scratch), step=lambda: bar.advance(task), **settings)
            races.append(race)
            write(races, peaks)
    print(write(races, peaks))


def planned(given: argparse.Namespace, networks: Sequence[str]) -> list[Key]:
    """The races in which Litehouse has someone to race."""
    keys = itertools.product(networks, given.formats, given.batches, given.threads)
    return [key for key in keys if (found := takers(key, given.without)) and found[0].name == OURS and len(found) > 1]


def takers(key: Key, without: Sequence[str]) -> list[Contender]:
    """Who is there, is wanted, and has a file to run."""
    network, format, batch, _ = key  # noqa: A001 - the word for it
    wanted = [item for item in CONTENDERS[format] if not item.missing and item.name not in without]
    return [item for item in wanted if file(network, batch, item.suffix).exists()]


def _flops(key: Key) -> int:
    return flops.count(litehouse.read(file(key[0], key[2], f".{key[1]}")).graph)


def write(races: Sequence[Race], peaks: dict[int, float]) -> str:
    """Write the results, and return the tables."""
    here = machine() | {"date": datetime.date.today().isoformat()}
    text = tables.document(races, peaks, absent(), here)
    document = {"title": "suite", "machine": here, "peaks": peaks, "races": [asdict(race) for race in races]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "suite.json").write_text(json.dumps(document, indent=1) + "\n")
    (RESULTS / "suite.md").write_text(text)
    if any(race.format == "mindir" for race in races):
        (RESULTS / "suite.svg").write_text(tables.chart(races))
    return text


def read() -> tuple[list[Race], dict[int, float]]:
    """The results of a run that was cut off."""
    path = RESULTS / "suite.json"
    if not path.exists():
        return [], {}
    document = json.loads(path.read_text())
    races = []
    for race in document["races"]:
        lanes = {name: _lane(lane) for name, lane in race.pop("lanes").items()}
        races.append(Race(**race, lanes=lanes))
    return races, {int(threads): peak for threads, peak in document["peaks"].items()}


def _lane(lane: dict[str, object]) -> Lane:
    for clock in ("wall", "cpu"):
        lane[clock] = {int(number): seconds for number, seconds in lane[clock].items()}  # type: ignore[attr-defined]
    return Lane(**lane)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()

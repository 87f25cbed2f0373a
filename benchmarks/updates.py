"""What updatable weights cost: the time of an update, and of each run.

For every network a session as usual, one whose weights are given to each run (`in_place`), and one that is built anew
at each update (`swap`) run in turn. Updated is one weight: the largest matrix of the network, for BERT-base one of
768 x 3072. An update is visible when the call returns: the run behind it must give another result, and the old result
again when the old weight is back.

    python -m benchmarks updates --networks bert,resnet50 --rounds 11
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import litehouse
from benchmarks.figures import Spread, spread
from benchmarks.harness import machine, write
from benchmarks.networks import NAMES, TITLES, WRITTEN, file
from benchmarks.networks.build import available
from benchmarks.options import some
from benchmarks.progress import progress
from benchmarks.tables import cell

USUAL = ("mlp", "mobilenet_v2", "resnet50", "bert")
FIGURES = ("in_place_run", "swap_run", "in_place_update_ms", "swap_update_ms")
ROUND_SECONDS, TURNS = 0.4, 4  # how long each runs in a round, and how often they take turns in it


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks updates", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", type=some((*NAMES, WRITTEN)), default=USUAL)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print a table, and write the same as JSON."""
    given = parse(arguments)
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores, {given.threads} thread(s); median [10 %, 90 %] over rounds"
    made = Table("", "weight", "run, in place", "run, swap", "update in place, ms", "update by swap, ms")
    made.title, made.caption = "Time of a run relative to a model without updatable weights, and of an update", caption
    results: dict[str, Any] = {}
    with progress() as bar:
        for network in bar.track(available(list(given.networks)), description="networks"):
            shape, figures = measure(network, given.threads, given.rounds)
            results[network] = {"shape": shape, **{name: asdict(figures[name]) for name in FIGURES}}
            size = " x ".join(map(str, shape))
            made.add_row(TITLES.get(network, network), size, *(cell(figures[name]) for name in FIGURES))
    Console().print(made)
    write("updates", threads=given.threads, results=results)


def measure(network: str, threads: int, rounds: int) -> tuple[tuple[int, ...], dict[str, Spread]]:
    """The shape of the weight that is updated, and the figures."""
    path = file(network, 1, ".mindir")
    with np.load(file(network, 1, ".npz")) as stored:
        inputs = [stored[key] for key in stored.files if key.startswith("input_")]
    fields: dict[str, Any] = {"threads": threads, "tune": "off"}
    sessions = {"plain": litehouse.load(path, **fields)}
    for mode in ("in_place", "swap"):
        sessions[mode] = litehouse.load(path, updatable="all", updatable_mode=mode, **fields)
    name, old = largest(sessions["in_place"])
    first = {kind: session.run(inputs) for kind, session in sessions.items()}
    runs = max(1, int(ROUND_SECONDS / TURNS / timed(lambda: sessions["plain"].run(inputs), 3)))
    times: list[dict[str, float]] = []
    for _ in range(rounds):
        turns = [
            {kind: timed(lambda own=session: own.run(inputs), runs) for kind, session in sessions.items()}
            for _ in range(TURNS)
        ]
        found = {kind: min(turn[kind] for turn in turns) for kind in sessions}
        for mode in ("in_place", "swap"):
            found[f"{mode}_update"] = update(sessions[mode], name, old, inputs, first[mode])
        times.append(found)
    return old.shape, {
        "in_place_run": spread(one["in_place"] / one["plain"] for one in times),
        "swap_run": spread(one["swap"] / one["plain"] for one in times),
        "in_place_update_ms": spread(one["in_place_update"] * 1e3 for one in times),
        "swap_update_ms": spread(one["swap_update"] * 1e3 for one in times),
    }


def largest(session: litehouse.Session) -> tuple[str, np.ndarray]:
    """The largest weight that is used in a product, and what it holds; not a table of which runs read some rows."""
    weights = {
        name: np.array(session.model.weights[name]) for name, info in session.weights.items() if info.is_updatable
    }
    fit = {name: array for name, array in weights.items() if array.ndim > 1 and array.shape[0] <= 4096}
    return max(fit.items(), key=lambda item: item[1].size)


def timed(run: Any, times: int) -> float:
    """The seconds of a call."""
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def update(
    session: litehouse.Session, name: str, old: np.ndarray, inputs: list[np.ndarray], first: list[np.ndarray]
) -> float:
    """The seconds of an update, after which the next run must see it."""
    new = old * np.float32(1.5)
    start = time.perf_counter()
    session.update_weights({name: new})
    taken = time.perf_counter() - start
    if all(np.allclose(one, two) for one, two in zip(first, session.run(inputs), strict=True)):
        raise SystemExit(f"an update of {name} is not visible")
    session.update_weights({name: old})
    if not all(
        np.allclose(one, two, rtol=1e-3, atol=1e-4) for one, two in zip(first, session.run(inputs), strict=True)
    ):
        raise SystemExit(f"an update of {name} cannot be taken back")
    return taken


if __name__ == "__main__":
    main()

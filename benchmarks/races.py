"""One race: start everyone, compare what they compute, let them take turns."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.contenders import Contender, inputs
from benchmarks.figures import Lane, Race
from benchmarks.turns import Worker, WorkerError, take_turns

TOLERANCE = 1e-4  # of the range of the output
PATIENCE = 600.0


def hold(
    race: Race,
    contenders: Sequence[Contender],
    scratch: Path,
    *,
    rounds: int,
    burst: float,
    budget: float,
    step: Callable[[], object],
    least: int = 1,
) -> None:
    """Fill the race's lanes. A peer that cannot run the network is left out; a wrong output ends the program."""
    workers: dict[str, Worker] = {}
    expected = _stored(inputs(race.network, race.batch, contenders[0].suffix))
    try:
        for item in contenders:
            outputs = scratch / f"{item.name}.npz"
            lane = race.lanes[item.name] = Lane(item.name)
            try:
                workers[item.name] = _start(item, race, outputs, scratch)
                lane.facts = workers[item.name].ready()
            except WorkerError as error:
                workers.pop(item.name).close()
                if not item.peer:
                    raise SystemExit(f"{item.name} cannot run {race.network}.{race.format}: {error}") from error
                lane.failed = str(error)
                continue
            expected = expected or _stored(outputs)
            check(f"{item.name} on {race.network}.{race.format}, batch {race.batch}", _stored(outputs), expected)
        take_turns(workers, race.lanes, rounds=rounds, burst=burst, budget=budget, least=least, step=step)
    finally:
        for worker in workers.values():
            worker.close()


def _start(item: Contender, race: Race, outputs: Path, scratch: Path) -> Worker:
    environment = {"LITEHOUSE_CACHE_DIR": str(scratch / "cache")}
    if item.peer:
        # Its Python must not find Litehouse's modules of the same names.
        environment = {"OMP_NUM_THREADS": str(race.threads), "GLOG_v": "3", "PYTHONPATH": ""}
    command = item.command(race.network, race.batch, race.threads, outputs)
    return Worker(command, scratch / f"{item.name}.log", patience=PATIENCE, clients=item.clients, **environment)


def _stored(path: Path) -> list[np.ndarray]:
    with np.load(path) as stored:
        return [stored[key] for key in stored.files if key.startswith("output_")]


def check(who: str, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """End the program where outputs differ by more than is allowed."""
    if len(found) != len(expected):
        raise SystemExit(f"{who}: {len(found)} outputs, not {len(expected)}")
    for actual, wanted in zip(found, expected, strict=True):
        if actual.shape != wanted.shape:
            raise SystemExit(f"{who}: the output has shape {actual.shape}, not {wanted.shape}")
        error = np.abs(actual.astype(np.float64) - wanted).max() / max(np.ptp(wanted), 1e-9)
        if not error <= TOLERANCE:
            raise SystemExit(f"{who}: the output is off by {error:.1e} of its range; {TOLERANCE:.0e} is allowed")

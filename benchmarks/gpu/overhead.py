"""What a call costs beyond the device's own time: at batch 1, with tensors of the device and with numpy arrays."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.table import Table

import litehouse
from benchmarks.figures import spread
from benchmarks.gpu.networks import described, load
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import Record, measured
from benchmarks.gpu.turns import cell, scaled

NETWORKS = ("mlp", "mobilenet_v2")
SECONDS = 40.0
CALLS = 100  # of each kind in a round
WARM_UP = 10
KINDS = ("device", "tensors", "numpy")


def measure(record: Record) -> None:
    """Measure both networks in the precisions that are asked for."""
    rows: list[dict[str, Any]] = []
    record.results["overhead"] = rows
    for network in NETWORKS:
        for precision in record.given.precisions:
            what = f"overhead of {network} in {precision}"
            found = record.step(f"overhead {network}", what, partial(one, record, network, precision), SECONDS)
            rows.append({"network": network, "precision": precision, **found})
            record.place.clear()
    record.show(table(rows))


def one(record: Record, network: str, precision: str) -> dict[str, Any]:
    """The seconds of the device alone, and of calls that wait for the result."""
    place, made = record.place, record.models.made(network)
    arrays = [tensor.numpy() for tensor in made.inputs]
    with place.exact():
        on_device, session, facts = load(record, made, precision, record.given.tune)
        replay = replays(session)
        runs = {"tensors": on_device, "numpy": lambda: session.run(arrays)}
        times: dict[str, list[float]] = {name: [] for name in KINDS}
        for run in runs.values():
            for _ in range(WARM_UP):
                run()
        for _ in range(record.given.rounds):
            if replay is not None:
                times["device"].append(place.seconds_on_device(replay, CALLS))
            for name, run in runs.items():
                times[name].append(alone(run, place))
        session.close()
    return facts | summed(times)


def alone(run: Callable[[], object], place: Place) -> float:
    """The seconds of a call that waits for its result, before the next one begins."""

    def whole() -> None:
        run()
        place.synchronize()

    return place.seconds(whole, CALLS)


def replays(session: litehouse.Session) -> Callable[[], None] | None:
    """What replays the graphs of the session's last run, alone; None where there is more to it than graphs."""
    runners = getattr(getattr(getattr(session, "_builds", None), "current", None), "runners", None) or [None]
    parts = getattr(runners[-1], "_parts", ())
    captures = [getattr(part, "latest", None) for part in parts]
    if not captures or None in captures:
        return None
    graphs = [capture.own.graph for capture in captures]

    def replay() -> None:
        for graph in graphs:
            graph.replay()

    return replay


def summed(times: dict[str, list[float]]) -> dict[str, Any]:
    """Microseconds, and those beyond the device's own time, within each round."""
    found: dict[str, Any] = {"us": {name: scaled(own, 1e6) for name, own in times.items() if own}}
    if times["device"]:
        for name in ("tensors", "numpy"):
            pairs = zip(times[name], times["device"], strict=True)
            found[f"{name}_overhead_us"] = asdict(spread(1e6 * (whole - own) for whole, own in pairs))
    return found | {"times": times}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    made = Table(title="A call at batch 1, µs: until the result is there, and beyond the device's own time")
    for name in ("network", "precision", "the device alone", "tensors", "beyond", "numpy", "beyond it", "ours"):
        made.add_column(name, justify="left" if name == "network" else "right")
    for head, row in measured(made, rows, "network", "precision"):
        us = row["us"]
        cells = [cell(us.get("device"), 1)]
        for name in ("tensors", "numpy"):
            cells += [cell(us[name], 1), cell(row.get(f"{name}_overhead_us"), 1)]
        made.add_row(*head, *cells, described(row["chosen"]))
    return made

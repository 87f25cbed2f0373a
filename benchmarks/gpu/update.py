"""The time of an update of one weight, from numpy and from the device, and whether the next run uses it."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.table import Table

import litehouse
from benchmarks.gpu.models import Made, as_tuple, moved
from benchmarks.gpu.networks import LIMITS, described, error, load, quiet
from benchmarks.gpu.record import Record, measured, told, trouble
from benchmarks.gpu.turns import cell, scaled

NETWORK = "bert"
FACTOR = -3.0  # of the new values to the old ones: the outputs must change by far more than rounding does
SECONDS = 60.0
WARM_UP = 3  # updates, in which memory is taken that those behind them use again; the time of the first is told, too
SOURCES = ("numpy", "tensor")


def measure(record: Record) -> None:
    """Measure it in the precisions that are asked for."""
    rows: list[dict[str, Any]] = []
    record.results["update"] = rows
    for precision in record.given.precisions:
        found = record.step("update", f"update in {precision}", partial(one, record, precision), SECONDS)
        rows.append({"network": NETWORK, "precision": precision, **found})
        record.place.clear()
    record.show(table(rows))


def one(record: Record, precision: str) -> dict[str, Any]:
    """Update the weight to and fro, by each kind of source."""
    place, made = record.place, record.models.made(NETWORK)
    name, old = weight(made)
    new = old * old.dtype.type(FACTOR)
    with place.exact(), quiet():
        before, after = wanted(record, made, old)
        run, session, facts = load(record, made, precision, record.brief_tune, updatable=[name])
        facts |= {"weight": name, "shape": list(old.shape), "change": error(after, before), "sources": {}}
        for source in SOURCES:
            values = [new, old] if source == "numpy" else place.put([torch.from_numpy(each) for each in (new, old)])
            try:
                times = _times(record, session, name, values)
                session.update_weights({name: values[0]})
                errors = {"new": error(as_tuple(run()), after)}
                session.update_weights({name: values[1]})
                errors["old"] = error(as_tuple(run()), before)
                is_right = max(errors.values()) <= LIMITS[precision] < facts["change"] / 2
                facts["sources"][source] = times | {"errors": errors, "is_right": is_right}
            except Exception as problem:  # noqa: BLE001  (it need not take both)
                facts["sources"][source] = {"failed": told(problem)}
        session.close()
    return facts


def _times(record: Record, session: litehouse.Session, name: str, values: Sequence[Any]) -> dict[str, Any]:
    """How long updates take: until the call returns, and until the device is done."""
    returned, done = list[float](), list[float]()
    for place in range(record.given.rounds + WARM_UP):
        record.place.synchronize()
        start = time.perf_counter()
        session.update_weights({name: values[place % 2]})
        returned.append(time.perf_counter() - start)
        record.place.synchronize()
        done.append(time.perf_counter() - start)
    steady = {"returned_ms": scaled(returned[WARM_UP:], 1e3), "done_ms": scaled(done[WARM_UP:], 1e3)}
    return {**steady, "first_ms": 1e3 * done[0]}


def weight(made: Made) -> tuple[str, np.ndarray]:
    """The first weight of the file that has the shape, either way round, and what it holds."""
    model = litehouse.read(made.onnx)
    shapes = made.network.updated, made.network.updated[::-1]
    for name, (_, shape) in model.weight_shapes.items():
        if tuple(shape) in shapes:
            return name, np.array(model.weights[name])
    raise LookupError(f"the file has no weight of the shape {list(shapes[0])}")


def wanted(record: Record, made: Made, old: np.ndarray) -> tuple[Any, Any]:
    """What torch computes with the old values, and with the new ones."""
    module = moved(made.module, record.place.torch, "fp32")
    given = record.place.put(made.inputs)
    before = as_tuple(module(*given))
    for own in module.parameters():
        array = own.detach().cpu().numpy()
        if any(array.shape == each.shape and np.array_equal(array, each) for each in (old, old.T)):
            own.data.mul_(FACTOR)
            return before, as_tuple(module(*given))
    raise LookupError("the network has no parameter with the values of the weight in the file")


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    made = Table(title="An update of one weight, ms")
    for name in (
        "network",
        "precision",
        "weight",
        "from",
        "call returns",
        "device is done",
        "the first",
        "next run",
        "ours",
    ):
        made.add_column(name, justify="left" if name in ("network", "weight") else "right")
    for head, row in measured(made, rows, "network", "precision"):
        size = " x ".join(map(str, row["shape"]))
        for source, found in row["sources"].items():
            if (reason := trouble(found)) is not None:
                made.add_row(*head, size, source, reason)
                continue
            times = cell(found["returned_ms"], 3), cell(found["done_ms"], 3), f"{found['first_ms']:.1f}"
            seen = "uses it" if found["is_right"] else f"WRONG: {found['errors']}"
            made.add_row(*head, size, source, *times, seen, described(row["chosen"]))
    return made

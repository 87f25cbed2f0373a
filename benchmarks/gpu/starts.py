"""The first start of a network and the second: each in a process of its own, with the same cache, empty at first."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.asked import Asked
from benchmarks.gpu.models import as_tuple
from benchmarks.gpu.networks import LIMITS, described, error
from benchmarks.gpu.processes import PART, PROGRAM, ask
from benchmarks.gpu.record import Record, measured

SECONDS = 90.0
STARTS = ("first", "second")


def measure(record: Record) -> None:
    """Start all networks twice, at batch 1, in the last precision that is asked for."""
    precision, rows = record.given.precisions[-1], list[dict[str, Any]]()
    record.results["starts"] = rows
    for network in record.given.networks:
        found = record.step("starts", f"starts of {network}", partial(one, record, network, precision), SECONDS)
        rows.append({"network": network, "precision": precision, **found})
    record.show(table(rows))


def one(record: Record, network: str, precision: str) -> dict[str, Any]:
    """Both starts, with the error of what each of them computes."""
    made, place = record.models.made(network), record.place
    with place.exact():
        wanted = [tensor.ravel()[:PART] for tensor in as_tuple(made.module(*made.inputs))]
    starts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, arrays, cache = (Path(folder) / name for name in ("model.onnx", "inputs.npz", "cache"))
        file.write_bytes(made.onnx)
        np.savez(arrays, **{f"input_{number}": tensor.numpy() for number, tensor in enumerate(made.inputs)})
        options = {"precision": precision, "tune": record.given.tune, **place.options}
        for name in STARTS:
            with ExitStack() as stack:
                worker = Asked(stack, PROGRAM, file, arrays, place.device)
                ask(worker, "begin")
                starts[name] = ask(worker, "start", options, str(cache))
                starts[name]["error"] = error([np.array(each) for each in ask(worker, "results")], wanted)
    errors = [each["error"] for each in starts.values()]
    return {"starts": starts, "is_right": max(errors) <= LIMITS[precision]}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    made = Table(title="Seconds until the first result, in a new process with a context on the card")
    for name in ("network", "precision", *STARTS, "ours", "error / range"):
        made.add_column(name, justify="left" if name == "network" else "right")
    for head, row in measured(made, rows, "network", "precision"):
        starts = [row["starts"][name] for name in STARTS]
        forms = dict.fromkeys(described(each["chosen"]) for each in starts)  # the second has that of the first
        worst = f"{max(each['error'] for each in starts):.1e}{'' if row['is_right'] else ' WRONG'}"
        made.add_row(*head, *(f"{each['seconds']:.1f}" for each in starts), " then ".join(forms), worst)
    return made

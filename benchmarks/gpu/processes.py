"""The memory on the card of three processes with one model: each with a copy of its own, and sharing one."""

import itertools
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import litehouse
from benchmarks.asked import Asked
from benchmarks.gpu.models import as_tuple
from benchmarks.gpu.networks import LIMITS, error
from benchmarks.gpu.place import used_by_process
from benchmarks.gpu.record import Record, measured

PROGRAM = Path(__file__).parents[1] / "workers" / "gpu_worker.py"
NETWORK, COUNT = "bert", 3
PART = 1000  # numbers of an output that a process tells
SECONDS = 120.0
WAYS = ("each its own", "shared")


class ProcessError(Exception):
    """A process could not do what it was told."""


def measure(record: Record) -> None:
    """Count it both ways, in the first precision that is asked for."""
    precision, rows = record.given.precisions[0], list[dict[str, Any]]()
    record.results["processes"] = rows
    for way in WAYS:
        found = record.step("processes", f"processes, {way}", partial(one, record, way, precision), SECONDS)
        rows.append({"network": NETWORK, "precision": precision, "way": way, **found})
    record.show(table(rows))


def one(record: Record, way: str, precision: str) -> dict[str, Any]:
    """The growth of what is taken on the card, process by process."""
    made, place = record.models.made(NETWORK), record.place
    place.clear()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file, arrays = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        file.write_bytes(made.onnx)
        np.savez(arrays, **{f"input_{number}": tensor.numpy() for number, tensor in enumerate(made.inputs)})
        workers = [Asked(stack, PROGRAM, file, arrays, place.device) for _ in range(COUNT)]
        for worker in workers:
            ask(worker, "begin")
        levels = [place.used()]
        engine = {} if place.is_gpu else {"engine": "onnxruntime"}  # which alone shares memory of the CPU
        options = {"precision": precision, "tune": "off", "cache": False, "device": place.device, **engine}
        handle = None
        for worker in workers:
            if handle is not None:
                ask(worker, "attach", handle, {"device": place.device})
            else:
                ask(worker, "load", options)
                if way == WAYS[1]:
                    handle = ask(worker, "share", [other.pid for other in workers[1:]])
            ask(worker, "run", 2)
            levels.append(place.used())
        results = [[np.array(output) for output in ask(worker, "results")] for worker in workers]
        with place.exact():
            wanted = [tensor.ravel()[:PART] for tensor in as_tuple(made.module(*made.inputs))]
        errors = [error(each, wanted) for each in results]
        told = used_by_process()
        return {
            "weights_mb": weights_mb(file),
            "growth_mb": [(now - before) / 1e6 for before, now in itertools.pairwise(levels)],
            "own_mb": [ask(worker, "memory") for worker in workers],
            "nvidia_smi_mb": [told.get(worker.pid) for worker in workers],
            "engines": [ask(worker, "engine") for worker in workers],
            "ms": [1e3 * ask(worker, "run", 20) for worker in workers],
            "errors": errors,
            "is_right": max(errors) <= LIMITS[precision],
        }


def weights_mb(file: Path) -> float:
    """Megabytes of a model's weights."""
    found = litehouse.read(file).weight_shapes.values()
    return sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in found) / 1e6


def ask(worker: Asked, *command: Any) -> Any:
    """The answer of a process."""
    try:
        found = worker.ask(*command)
    except (SystemExit, OSError) as error:
        raise ProcessError(str(error)) from error
    if "failed" in found:
        raise ProcessError(f"{command[0]}: {found['failed']}")
    return found["answer"]


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    made = Table(title=f"{COUNT} processes with one model: growth of what is taken on the card, MB, beyond a context")
    for name in ("way", "weights", "first", "second", "third", "a run, ms", "error / range", "engines"):
        made.add_column(name, justify="left" if name == "way" else "right")
    for head, row in measured(made, rows, "way"):
        growth = [f"{size:.0f}" for size in row["growth_mb"]]
        times = ", ".join(f"{each:.2f}" for each in row["ms"])
        engines = ", ".join(row["engines"])
        off = f"{max(row['errors']):.1e}{'' if row['is_right'] else ' WRONG'}"
        made.add_row(*head, f"{row['weights_mb']:.0f}", *growth, times, off, engines)
    return made

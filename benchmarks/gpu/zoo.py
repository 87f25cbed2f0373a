"""Every model of the zoo against the outputs that are stored for it, in both precisions.

What a detector finds comes in the order of the scores. In 16 bits, two that are nearly equal may change places: there,
finds are compared whatever their order is, and that is told.
"""

import contextlib
import functools
import importlib.util
import itertools
import multiprocessing
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import litehouse
from benchmarks.gpu.networks import LIMITS, lacking, quiet
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import Record, trouble
from benchmarks.gpu.zoo_cases import FOLDERS, Arrays, Case, cases

SECONDS = 3.0  # that a model may take, before the first one tells
COLUMNS = (
    *("folder", "models", "right", "wrong", "failed", "left out"),
    *("computed in", "worst", "of", "with ops on the CPU"),
)
DETECTS = "NonMaxSuppression"
SHOWN = 60  # lines of trouble that are printed; the JSON has all
Checked = Callable[[int, str], dict[str, Any]]


def measure(record: Record) -> None:
    """Run all of them, print a table per precision, and whatever is not as it should be."""
    rows: list[dict[str, Any]] = []
    record.results["zoo"] = rows
    found = list(cases(record.given.zoo))
    record.say(f"{len(found)} models in {record.given.zoo}")
    if not found:
        record.say(f"left out: --zoo names a folder that has some of {', '.join(FOLDERS)}")
        return
    with _checker(record, found) as checked, ThreadPoolExecutor(record.given.processes) as threads:
        for precision in record.given.precisions:
            results = threads.map(partial(_step, record, checked, precision), found, itertools.count())
            for case, result in zip(found, results, strict=True):
                if rows and rows[-1]["folder"] != case.folder:
                    record.save()
                rows.append({"folder": case.folder, "name": case.name, "asked": precision, **result})
            record.show(table([row for row in rows if row["asked"] == precision], precision))
    if rows:
        _tell(record, rows)


def _step(record: Record, checked: Checked, precision: str, case: Case, number: int) -> dict[str, Any]:
    what = f"{case.folder}/{case.name} in {precision}"
    return record.step("zoo", what, partial(checked, number, precision), SECONDS)


@contextlib.contextmanager
def _checker(record: Record, found: Sequence[Case]) -> Iterator[Checked]:
    """What checks the model of a number: here, or in one of several processes."""
    given = record.given
    if given.processes == 1:
        yield lambda number, precision: check(record.place, found[number], precision)
        return
    with contextlib.ExitStack() as pools:
        idle = queue.SimpleQueue[ProcessPoolExecutor]()

        def started() -> ProcessPoolExecutor:
            """One process, which a model may end: others go on."""
            return pools.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), follow))

        def checked(*asked: Any) -> dict[str, Any]:
            pool = idle.get()
            try:
                return pool.submit(_check_there, given.zoo, given.device, *asked).result()
            except BrokenProcessPool:
                pool = started()
                raise
            finally:
                idle.put(pool)

        for _ in range(given.processes):
            idle.put(started())
        yield checked


def follow() -> None:
    """Let this process end with the one that started it: nobody else ends it then, and it has memory of the GPU."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _check_there(zoo: Path, device: str, number: int, precision: str) -> dict[str, Any]:
    found, place = _at_hand(zoo, device)
    return check(place, found[number], precision)


@functools.cache
def _at_hand(zoo: Path, device: str) -> tuple[list[Case], Place]:
    """The models and the place, once for each process: what reads a model cannot be sent."""
    return list(cases(zoo)), Place(device)


def check(place: Place, case: Case, precision: str) -> dict[str, Any]:
    """The error of a model, as a part of the range of its outputs."""
    if case.key is not None and importlib.util.find_spec("cryptography") is None:
        return {"skipped": "it is encrypted, and the package cryptography is not installed"}
    inputs, wanted = case.stored()
    if wanted is None:
        with load(case, inputs, {"device": "cpu", "engine": "onnxruntime"}) as other:
            wanted = other.run(inputs)
    options = {"device": place.device, "engine": "torch", "precision": precision}
    with place.exact(), quiet(), load(case, inputs, options) as session:
        found = session.run(inputs)
        error, limit = worst(found, wanted, is_exact=precision == "fp32"), max(case.limit, LIMITS[precision])
        ordered = error
        if precision == "fp16" and any(node.op_type == DETECTS for node in session.model.graph.graph.all_nodes()):
            error = worst(in_order(found, wanted), wanted, is_exact=False)
        return {
            "error": error,
            "ordered_error": ordered,
            "is_right": error <= limit,
            "precision": session.precision,
            "lacking": lacking(session),
        }


def load(case: Case, inputs: Any, options: dict[str, Any]) -> litehouse.Session:
    """A session of a model, for the sizes of the inputs."""
    session = litehouse.load(case.path, key=case.key, mode=case.mode, tune="off", cache=False, **options)
    if case.is_resized:
        session.resize([array.shape for array in inputs])
    return session


def worst(found: Arrays, wanted: Arrays, *, is_exact: bool) -> float:
    """The largest error of all outputs, as a part of the range.

    Whole numbers and truth values have none or, where `is_exact`, an infinite one; else the part of them that differs.
    """
    if len(found) != len(wanted):
        raise ValueError(f"{len(found)} outputs, not {len(wanted)}")
    return max((_error(*pair, is_exact=is_exact) for pair in zip(found, wanted, strict=True)), default=0.0)


def _error(own: np.ndarray, right: np.ndarray, *, is_exact: bool) -> float:
    if own.shape != right.shape or own.dtype != right.dtype:
        raise ValueError(f"an output of {own.dtype} {own.shape}, not {right.dtype} {right.shape}")
    if not right.size:
        return 0.0
    if right.dtype.kind != "f":
        part = float(np.mean(own != right))
        return float("inf") if part and is_exact else part
    finite = np.isfinite(right)
    if not np.array_equal(own[~finite], right[~finite], equal_nan=True):
        return float("inf")
    exact = right[finite].astype(np.float64)
    if not exact.size:
        return 0.0
    scale = max(float(np.ptp(exact)), float(np.abs(exact).max()), 1e-6)
    off = float(np.abs(own[finite].astype(np.float64) - exact).max()) / scale
    return off if off == off else float("inf")


def in_order(found: Arrays, wanted: Arrays) -> Arrays:
    """The rows of all outputs, each where the row is that it is next to.

    The nearest two come first: a find that is nowhere else would take the place of another one, and that the next.
    """
    counts = {array.shape[:1] for array in (*found, *wanted)}
    if len(found) != len(wanted) or len(counts) != 1 or counts & {(), (0,)}:
        return found
    far = sum(_distances(own, right) for own, right in zip(found, wanted, strict=True))
    pairs, left = dict[int, int](), set(range(len(far)))
    for place in np.argsort(far, axis=None, kind="stable").tolist():
        row, own = divmod(place, len(far))
        if row not in pairs and own in left:
            pairs[row] = own
            left.remove(own)
    return [array[[pairs[row] for row in range(len(far))]] for array in found]


def _distances(own: np.ndarray, right: np.ndarray) -> np.ndarray:
    """How far each row of what is right is from each row of our own."""
    ours, theirs = (array.reshape(len(array), -1).astype(np.float64) for array in (own, right))
    return np.abs(theirs[:, None] - ours[None]).max(2) / max(float(np.ptp(theirs)), 1e-6)


def table(rows: Sequence[dict[str, Any]], precision: str) -> Table:
    """A line per folder."""
    made = Table(title=f"The zoo in {precision}: error as a part of the range of the output")
    for name in COLUMNS:
        made.add_column(name, justify="left" if name in ("folder", "of", "computed in") else "right")
    for folder, group in itertools.groupby(rows, key=lambda row: row["folder"]):
        own = list(group)
        run = [row for row in own if "error" in row]
        kinds = Counter(row["precision"] for row in run)
        largest = max(run, key=lambda row: row["error"], default={"error": 0.0, "name": "–"})
        made.add_row(
            folder,
            str(len(own)),
            str(sum(row["is_right"] for row in run)),
            str(sum(not row["is_right"] for row in run)),
            str(sum("failed" in row for row in own)),
            str(sum("skipped" in row for row in own)),
            ", ".join(f"{name} {count}" for name, count in sorted(kinds.items())),
            f"{largest['error']:.1e}",
            largest["name"],
            "unknown" if any(row["lacking"] is None for row in run) else str(sum(bool(row["lacking"]) for row in run)),
        )
    return made


def _tell(record: Record, rows: Sequence[dict[str, Any]]) -> None:
    """Name what is wrong or failed, why models were left out, and the ops that the CPU has computed."""
    wrong = [row for row in rows if "failed" in row or not row.get("is_right", True)]
    for row in wrong[:SHOWN]:
        reason = trouble(row) or f"error {row['error']:.1e}"
        record.say(f"{row['folder']}/{row['name']} in {row['asked']}: {reason}")
    for row in rows:
        if row.get("is_right") and row["ordered_error"] > row["error"]:
            off = f"error {row['error']:.1e}, its finds in another order (else {row['ordered_error']:.1e})"
            record.say(f"{row['folder']}/{row['name']} in {row['asked']}: {off}")
        if row.get("is_right") and row["error"] > LIMITS[row["asked"]]:
            off = f"error {row['error']:.1e}, right by the bound of its own file alone"
            record.say(f"{row['folder']}/{row['name']} in {row['asked']}: {off}")
    if len(wrong) > SHOWN:
        record.say(f"and {len(wrong) - SHOWN} more, in the JSON")
    for reason, count in Counter(row["skipped"] for row in rows if "skipped" in row).most_common(5):
        record.say(f"{count} left out: {reason}")
    ops = Counter(op for row in rows for op in _ops(row.get("lacking") or ()))
    record.say(f"ops on the CPU, by how many models and precisions have them: {dict(ops.most_common()) or 'none'}")


def _ops(lacking: Iterable[str]) -> set[str]:
    """The ops alone, without their nodes."""
    return {text.partition(" ")[0] for text in lacking}

"""Networks of the usual kinds against torch: as it is, compiled, and each of both captured as a CUDA graph.

All take the same tensors, that are on the device, and multiply without TF32. Torch's ways run the network as it is
written, with channels first. Errors are those to torch in 32 bits; beside ours is that of torch as it is, in the same
precision.
"""

import contextlib
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from rich.table import Table

import litehouse
from benchmarks.gpu import PEERS
from benchmarks.gpu.models import Made, as_tuple, in_precision, moved
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import Record, measured, told, trouble
from benchmarks.gpu.turns import Run, cell, ratio, scaled, take_turns

OURS = "Litehouse"
EAGER, CAPTURED, COMPILED, BOTH = PEERS
BASE = {CAPTURED: EAGER, BOTH: COMPILED}  # what is captured
LIMITS = {"fp32": 1e-3, "fp16": 2e-2}  # the error of an output, as a part of its range
SECONDS = 90.0  # that a race may take, before the first one tells


def measure(record: Record) -> None:
    """Race all of them, a network, batch and precision at a time."""
    given, rows = record.given, list[dict[str, Any]]()
    record.results["networks"] = rows
    for network in given.networks:
        for batch in given.batches:
            for precision in given.precisions:
                what = f"{network}, batch {batch}, {precision}"
                found = record.step("networks", what, partial(race, record, network, batch, precision), SECONDS)
                rows.append({"network": network, "batch": batch, "precision": precision, **found})
                record.say(f"{what}: {trouble(found) or _line(found)}")
                record.save()
                record.place.clear()
    record.show(table(rows))


def race(record: Record, network: str, batch: int, precision: str) -> dict[str, Any]:
    """Time ours and torch's ways in turn, and hold what ours computes against torch."""
    place, given = record.place, record.given
    made = record.models.made(network, batch)
    with place.exact():
        wanted = as_tuple(moved(made.module, place.torch, "fp32")(*place.put(made.inputs)))
        ours, session, facts = load(record, made, precision, given.tune)
        runs, failed, peers = prepare(made, place, precision, given.peers)
        facts["error"] = error(as_tuple(ours()), wanted)
        facts["eager_error"] = error(as_tuple(runs[EAGER]()), wanted) if EAGER in runs else None
        times = take_turns({OURS: ours, **runs}, place, given.rounds, given.burst)
        session.close()
    return facts | peers | compared(times) | {"failures": failed, "is_right": facts["error"] <= LIMITS[precision]}


def load(
    record: Record, made: Made, precision: str, tune: str, **more: Any
) -> tuple[Run, litehouse.Session, dict[str, Any]]:
    """Ours, on tensors of the device; with the session, and what it says of itself."""
    place, start = record.place, time.perf_counter()
    whole = made.onnx
    exported = time.perf_counter()
    with quiet():
        session = litehouse.load(whole, precision=precision, tune=tune, cache=record.cache, **place.options, **more)
        built = time.perf_counter()
        given = place.put(made.inputs)
        session.run(given)
        place.synchronize()
    facts = {
        "exporter": made.exporter,
        "export_s": exported - start,
        "build_s": built - exported,
        "first_run_s": time.perf_counter() - built,
        "chosen": session.engine.facts(),
        "lacking": lacking(session),
    }
    return lambda: session.run(given), session, facts


def prepare(
    made: Made, place: Place, precision: str, peers: Sequence[str]
) -> tuple[dict[str, Run], dict[str, str], dict[str, Any]]:
    """Torch's ways to run a network, those that fail with the error, and how long it took to compile."""
    module = moved(made.module, place.torch, precision)
    given = in_precision(place.put(made.inputs), precision)
    runs: dict[str, Run] = {}
    failed: dict[str, str] = {}
    facts: dict[str, Any] = {}
    for name in [name for name in PEERS if name in {*peers, *(BASE[peer] for peer in peers if peer in BASE)}]:
        try:
            with quiet():
                if name == EAGER:
                    runs[name] = lambda: module(*given)
                elif name == COMPILED:
                    runs[name], facts["compile_s"] = _compiled(module, given, place)
                else:
                    runs[name] = place.captured(runs[BASE[name]])
                runs[name]()
                place.synchronize()
        except Exception as problem:  # noqa: BLE001  (the others take part)
            runs.pop(name, None)
            failed[name] = told(problem)[:500]
    return {name: run for name, run in runs.items() if name in peers}, failed, facts


def _compiled(module: torch.nn.Module, given: Sequence[torch.Tensor], place: Place) -> tuple[Run, float]:
    torch._dynamo.reset()
    made = torch.compile(module)
    start = time.perf_counter()
    made(*given)
    place.synchronize()
    return lambda: made(*given), time.perf_counter() - start


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without torch's advice on what could be faster in fewer bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def described(chosen: Mapping[str, Any]) -> str:
    """An engine with its precision and form."""
    return f"{chosen['engine']} {chosen['precision']}{', ' * bool(chosen['form'])}{chosen['form']}"


def lacking(session: litehouse.Session) -> list[str] | None:
    """The ops that are left to the CPU; None where the engine does not tell."""
    found: Any = session
    for name in ("_builds", "current", "program", "lacking"):
        found = getattr(found, name, None)
    return None if found is None else sorted(set(found))


def error(found: Sequence[Any], wanted: Sequence[torch.Tensor]) -> float:
    """The largest error of an output, as a part of its range."""
    errors = [float("inf")] if len(found) != len(wanted) else []
    for own, right in zip(found, wanted, strict=False):
        exact = right.double()
        scale = max(float(exact.abs().max()), float(exact.max() - exact.min()), 1e-6)
        worst = float((torch.as_tensor(own).to(exact.device).double() - exact).abs().max()) / scale
        errors.append(worst if worst == worst else float("inf"))
    return max(errors)


def compared(times: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and the ratios of ours to each of torch's ways and to the best of them."""
    peers = [name for name in times if name != OURS]
    best = min(peers, key=lambda name: statistics.median(times[name]), default=None)
    return {
        "ms": {name: scaled(own, 1e3) for name, own in times.items()},
        "ratios": {name: ratio(times[OURS], times[name]) for name in peers},
        "best": best,
        "ratio": None if best is None else ratio(times[OURS], times[best]),
        "times": times,
    }


def _line(found: dict[str, Any]) -> str:
    medians = ", ".join(f"{name} {own['median']:.3f} ms" for name, own in found["ms"].items())
    failed = "".join(f"; {name} failed: {text[:160]}" for name, text in found["failures"].items())
    return (
        f"{medians}; ratio {cell(found['ratio'])} to {found['best']}; ours is {described(found['chosen'])}, "
        f"built in {found['build_s']:.1f} s; error {found['error']:.1e}"
        f"{'' if found['is_right'] else ' WRONG'}, eager's {_eager_error(found)}{failed}"
    )


def _eager_error(found: Mapping[str, Any]) -> str:
    return "–" if found.get("eager_error") is None else f"{found['eager_error']:.1e}"


def _median(row: Mapping[str, Any], name: str) -> str:
    if name in row["ms"]:
        return f"{row['ms'][name]['median']:.3f}"
    return "failed" if name in row["failures"] else "–"


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    made = Table("network", "batch", "asked", title="Time of a run, ms; inputs and outputs on the device")
    for name in ("Litehouse", *PEERS, "ours / best peer", "ours", "build, s", "error / range", "eager's"):
        made.add_column(name, justify="right")
    for head, row in measured(made, rows, "network", "batch", "precision"):
        medians = [_median(row, name) for name in (OURS, *PEERS)]
        form, wrong = described(row["chosen"]), "" if row["is_right"] else " WRONG"
        errors = f"{row['error']:.1e}{wrong}", _eager_error(row)
        made.add_row(*head, *medians, cell(row["ratio"]), form, f"{row['build_s']:.1f}", *errors)
    return made

"""Requests per second of a pool with many clients, alone and joined, against torch in one thread."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.table import Table

from benchmarks.figures import spread
from benchmarks.gpu.models import Made, as_tuple, in_precision, moved
from benchmarks.gpu.networks import EAGER, LIMITS, described, error, quiet
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import Record, measured, trouble
from benchmarks.gpu.turns import cell
from litehouse import Batching, Pool

NETWORK = "mobilenet_v2"
WORKERS, CLIENTS, JOINED = (1, 2, 4), 16, 16
ROUND_SECONDS, ROUNDS = 0.7, 5  # how long each is asked in a round, and the most rounds
SECONDS, POOL_SECONDS = 90.0, 60.0

Arrays = list[np.ndarray]
Serve = Callable[[Arrays], Arrays]


def measure(record: Record) -> None:
    """Measure it in the precisions that are asked for."""
    rows: list[dict[str, Any]] = []
    record.results["runner"] = rows
    for precision in record.given.precisions:
        found = record.step("runner", f"runner in {precision}", partial(one, record, precision), SECONDS)
        rows.append({"network": NETWORK, "precision": precision, **found})
        record.place.clear()
    record.show(table(rows))


def one(record: Record, precision: str) -> dict[str, Any]:
    """Let torch and all pools take turns."""
    made, place = record.models.made(NETWORK), record.place
    inputs = [tensor.numpy() for tensor in made.inputs]
    lanes: dict[str, dict[str, Any]] = {}
    with place.exact(), quiet(), ExitStack() as stack:
        served: dict[str, tuple[Serve, int]] = {EAGER: (eager(made, place, precision), 1)}
        for workers, is_joined in itertools.product(WORKERS, (False, True)):
            name = f"{workers} worker(s){', joined' if is_joined else ''}"
            build = partial(pool, stack, record, made, precision, workers, is_joined)
            lanes[name] = record.step("pool", f"{name} in {precision}", build, POOL_SECONDS)
            if "serve" in lanes[name]:
                served[name] = lanes[name].pop("serve"), CLIENTS
        wanted = as_tuple(made.module(*made.inputs))
        for name, (serve, _) in served.items():
            off = error(serve(inputs), wanted)
            lanes.setdefault(name, {}).update(error=off, is_right=off <= LIMITS[precision])
        rates: dict[str, list[float]] = {name: [] for name in served}
        for number in range(min(ROUNDS, record.given.rounds) + 1):
            for name, (serve, clients) in served.items():
                rate = asked(serve, inputs, clients, ROUND_SECONDS)
                rates[name] += [rate] if number else []  # in the first, each worker captures what it runs
    for name, own in rates.items():
        ratios = (mine / its for mine, its in zip(own, rates[EAGER], strict=True))
        lanes[name] |= {"per_second": asdict(spread(own)), "to_eager": asdict(spread(ratios)), "rates": own}
    return {"lanes": {EAGER: lanes.pop(EAGER), **lanes}}


def eager(made: Made, place: Place, precision: str) -> Serve:
    """Torch as it is: arrays come and go."""
    module = moved(made.module, place.torch, precision)

    def serve(arrays: Arrays) -> Arrays:
        with torch.no_grad():
            given = in_precision(place.put([torch.from_numpy(array) for array in arrays]), precision)
            return [tensor.float().cpu().numpy() for tensor in as_tuple(module(*given))]

    return serve


def pool(stack: ExitStack, record: Record, made: Made, precision: str, workers: int, is_joined: bool) -> dict[str, Any]:
    """A pool, as what `serve`s a request, and what it says of itself."""
    own = stack.enter_context(
        Pool(
            made.onnx,
            workers=workers,
            batching=Batching(max_size=JOINED) if is_joined else None,
            precision=precision,
            tune=record.brief_tune,
            cache=record.cache,
            **record.place.options,
        )
    )
    return {
        "serve": lambda arrays: own.submit(arrays).result(),
        "chosen": own.engine.facts(),
        "batching": own.batching.reason,
        "sizes": list(own.batching.sizes),
    }


def asked(serve: Serve, inputs: Arrays, clients: int, seconds: float) -> float:
    """Requests per second of so many clients, each of which waits for its answer before it asks again."""
    end = threading.Event()

    def client() -> int:
        count = 0
        while not end.is_set():
            serve(inputs)
            count += 1
        return count

    with ThreadPoolExecutor(clients) as threads:
        start = time.perf_counter()
        counts = [threads.submit(client) for _ in range(clients)]
        try:
            time.sleep(seconds)
        finally:
            end.set()
        total = sum(count.result() for count in counts)
        return total / (time.perf_counter() - start)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    made = Table(title=f"Requests per second at batch 1, arrays in and out; {CLIENTS} clients of a pool, one of torch")
    for name in ("network", "precision", "who", "requests/s", "to eager", "ours", "joined", "error / range"):
        made.add_column(name, justify="left" if name in ("network", "who", "joined") else "right")
    for head, row in measured(made, rows, "network", "precision"):
        for name, lane in row["lanes"].items():
            if (reason := trouble(lane)) is not None:
                made.add_row(*head, name, reason)
                continue
            form = described(lane["chosen"]) if "chosen" in lane else ""
            off = f"{lane['error']:.1e}{'' if lane['is_right'] else ' WRONG'}"
            joined = lane.get("batching", "") if "joined" in name else ""
            made.add_row(*head, name, cell(lane["per_second"], 0), cell(lane["to_eager"]), form, joined, off)
    return made

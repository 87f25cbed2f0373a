"""How long requests take at 70 % load, and how soon a full queue says no: a Pool of MobileNetV2.

A round measures on one pool: requests one at a time, each on an idle pool, which is the service time; how many are done
in a second where there are twice as many clients as workers, which is the capacity; eight clients that wait for each
answer and then pause at random, so that together they ask for 70 % of the capacity; then as many requests a second that
come at random, with exponential gaps, whether or not those before are done. There the time of a request counts from the
moment it was due, and the slowest of a hundred would take perfect workers 3.9 times the service time. Then a pool with
a short queue is kept full, and the submits that it refuses are timed.

    python -m benchmarks latency --rounds 5 --seconds 10
"""

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Spread, spread
from benchmarks.harness import machine, write
from benchmarks.networks import NAMES, TITLES, WRITTEN, file
from benchmarks.networks.build import available
from benchmarks.progress import progress
from litehouse import Overloaded, Pool

LOAD = 0.7
CLIENTS = 8
TRIES, SHORT_QUEUE, LONG_QUEUE, GAP = 1000, 4, 1 << 20, 0.0005
TITLES_OF_FIGURES = {
    "service_ms": "one at a time, median, ms",
    "run_ms": "run time under load, median by statistics, ms",
    "capacity": "capacity, requests/s",
    "clients_load": f"{CLIENTS} clients with pauses: share of the capacity",
    "clients_p50_ms": "their p50, ms",
    "clients_p99_ms": "their p99, ms",
    "clients_p99_over_service": "their p99 / one at a time",
    "p50_ms": "arrivals at random: p50, ms",
    "p99_ms": "their p99, ms",
    "p99_over_service": "their p99 / one at a time",
    "p99_over_run": "their p99 / run time under load",
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks latency", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", choices=(*NAMES, WRITTEN), default="mobilenet_v2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of random arrivals in a round; the rest takes half")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print a table, and write the same as JSON."""
    given = parse(arguments)
    (network,) = available([given.network])
    with np.load(file(network, 1, ".npz")) as stored:
        inputs = [stored[key] for key in stored.files if key.startswith("input_")]
    path = file(network, 1, ".mindir")
    with Pool(path, queue=LONG_QUEUE) as pool, progress() as bar:  # what comes too late waits, and is timed
        one_round(pool, inputs, min(1.0, given.seconds), seed=0)  # for everything to be loaded
        numbers = bar.track(range(given.rounds), description="rounds")
        rounds = [one_round(pool, inputs, given.seconds, seed) for seed in numbers]
        engine, workers = str(pool.engine), pool.workers
    with Pool(path, queue=SHORT_QUEUE) as pool:
        refusals = refused(pool, inputs, TRIES)
    figures = {name: spread(one[name] for one in rounds) for name in TITLES_OF_FIGURES}
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores; {given.rounds} rounds: median [10 %, 90 %]"
    title = f"{TITLES.get(network, network)} on {engine}, {workers} workers"
    Console().print(table(figures, refusals, title, caption))
    results = {name: asdict(one) for name, one in figures.items()}
    facts: dict[str, Any] = {"network": network, "engine": engine, "workers": workers}
    facts["refused_ms"] = {"count": len(refusals), "median": statistics.median(refusals), "longest": max(refusals)}
    write("latency", **facts, results=results, rounds=rounds)


def one_round(pool: Pool, inputs: Sequence[np.ndarray], seconds: float, seed: int) -> dict[str, float]:
    """The figures of a round."""
    service = alone(pool, inputs, seconds / 5)
    most = capacity(pool, inputs, seconds / 3)
    clients, rate = paused(pool, inputs, LOAD * most, seconds, seed)
    before = pool.statistics.run_seconds
    due = list(arrivals(LOAD * most, seconds, seed)) or [0.0]  # at least one, however slow the machine is
    times = sorted(open_loop(pool, inputs, due))
    run = median_between(before, pool.statistics.run_seconds)
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {
        "service_ms": service * 1e3,
        "run_ms": run * 1e3,
        "capacity": most,
        "clients_load": rate / most,
        "clients_p50_ms": percentile(clients, 50) * 1e3,
        "clients_p99_ms": percentile(clients, 99) * 1e3,
        "clients_p99_over_service": percentile(clients, 99) / service,
        "p50_ms": p50 * 1e3,
        "p99_ms": p99 * 1e3,
        "p99_over_service": p99 / service,
        "p99_over_run": p99 / run,
    }


def alone(pool: Pool, inputs: Sequence[np.ndarray], seconds: float) -> float:
    """The median seconds of a request on an idle pool."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        pool.submit(inputs).result()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def capacity(pool: Pool, inputs: Sequence[np.ndarray], seconds: float) -> float:
    """Requests per second with twice as many clients as workers, each of which waits for its answers."""
    start = time.perf_counter()

    def client(_: int) -> int:
        done = 0
        while not done or time.perf_counter() < start + seconds:
            pool.submit(inputs).result()
            done += 1
        return done

    with ThreadPoolExecutor(2 * pool.workers) as clients:
        done = sum(clients.map(client, range(2 * pool.workers)))
    return done / (time.perf_counter() - start)


def paused(
    pool: Pool, inputs: Sequence[np.ndarray], rate: float, seconds: float, seed: int
) -> tuple[list[float], float]:
    """The seconds of each request of clients that pause so as to ask `rate` times a second, and how often they did."""
    pause, times = CLIENTS / rate, list[float]()
    for share in (0.1, 0.1, 1.0):  # what the answers take off the pauses shows first
        times = with_pauses(pool, inputs, pause, share * seconds, seed)
        done, taken = len(times), statistics.fmean(times)
        pause = max(0.0, CLIENTS / rate - taken)
    return sorted(times), done / seconds


def with_pauses(pool: Pool, inputs: Sequence[np.ndarray], pause: float, seconds: float, seed: int) -> list[float]:
    """The seconds of each request of clients that pause for so long on average between an answer and the next."""
    end = time.perf_counter() + seconds

    def client(number: int) -> list[float]:
        random, times = np.random.default_rng((seed, number)), list[float]()
        time.sleep(random.uniform(0, pause))
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            pool.submit(inputs).result()
            times.append(time.perf_counter() - start)
            time.sleep(random.exponential(pause))
        return times

    with ThreadPoolExecutor(CLIENTS) as clients:
        return [one for times in clients.map(client, range(CLIENTS)) for one in times]


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """When requests are due, from 0 on: `rate` a second, with exponential gaps."""
    random, due = np.random.default_rng(seed), 0.0
    while (due := due + random.exponential(1 / rate)) < seconds:
        yield due


def open_loop(pool: Pool, inputs: Sequence[np.ndarray], due: Sequence[float]) -> list[float]:
    """The seconds of each request from the moment it is due."""
    ended = [0.0] * len(due)
    futures = []

    def note(place: int) -> Any:
        def end(_: Future[list[np.ndarray]]) -> None:
            ended[place] = time.perf_counter()

        return end

    start = time.perf_counter()
    for place, moment in enumerate(due):
        left = start + moment - time.perf_counter()
        if left > 0:
            time.sleep(left)
        future = pool.submit(inputs)
        future.add_done_callback(note(place))
        futures.append(future)
    wait(futures)
    for future in futures:
        future.result()  # an error ends the program
    return [end - start - moment for end, moment in zip(ended, due, strict=True)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """The median of what was added to a histogram of `Pool.statistics`, with values spread evenly within a bound."""
    half, last, below = (after["count"] - before["count"]) / 2, 0.0, 0
    for bound, count in after["up_to"].items():
        up_to = count - before["up_to"][bound]
        if up_to >= half and up_to > below:
            return float(last + (bound - last) * (half - below) / (up_to - below))
        last, below = bound, up_to
    return last


def refused(pool: Pool, inputs: Sequence[np.ndarray], tries: int) -> list[float]:
    """How many milliseconds a full queue took to refuse, each of so many times, while the workers are at work."""
    times: list[float] = []
    while len(times) < tries:
        start = time.perf_counter()
        try:
            pool.submit(inputs)
        except Overloaded:
            times.append((time.perf_counter() - start) * 1e3)
            time.sleep(GAP)
    return times


def table(figures: Mapping[str, Spread], refusals: Sequence[float], title: str, caption: str) -> Table:
    """All of it in words."""
    made = Table("", "", title=title, caption=caption)
    for name, words in TITLES_OF_FIGURES.items():
        one = figures[name]
        made.add_row(words, f"{one.median:.2f} [{one.low:.2f}, {one.high:.2f}]")
    made.add_row(f"refusal by a full queue, median of {len(refusals)}, ms", f"{statistics.median(refusals):.3f}")
    made.add_row("the longest of them, ms", f"{max(refusals):.3f}")
    return made


if __name__ == "__main__":
    main()

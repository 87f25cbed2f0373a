"""What a pool has done: counts and histograms, as plain data and as Prometheus text."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SECONDS = tuple(base * 10.0**power for power in range(-5, 2) for base in (1.0, 2.5, 5.0))
SIZES = tuple(1 << power for power in range(11))

RECENT = 0.2  # how much the last run counts
UNKNOWN = float("inf")

OUTCOMES = ("done", "failed", "cancelled", "expired", "refused")
"""How requests end: answered, with an error, cancelled by the caller, past their deadline, or never taken."""


class Histogram:
    """Counts values by size. The caller holds a lock."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Count up to each of these bounds, and beyond."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def data(self) -> dict[str, Any]:
        """Bounds with the count of values up to each of them, the count of all, and their sum."""
        running, up_to = 0, {}
        for bound, count in zip(self.bounds, self.counts, strict=False):
            running += count
            up_to[bound] = running
        return {"up_to": up_to, "count": sum(self.counts), "sum": self.total}


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a pool has done since it was made, and what it does now.

    Attributes:
        queued: Requests that wait.
        in_flight: Requests that run.
        requests: Counts of ended requests by how they ended, see `OUTCOMES`.
        restarts: How many worker processes were started anew.
        queue_seconds: How long requests waited: `up_to` maps bounds to counts, `count` and `sum` are of all.
        run_seconds: How long runs took.
        batch_sizes: How many requests ran together.
    """

    queued: int
    in_flight: int
    requests: Mapping[str, int]
    restarts: int
    queue_seconds: Mapping[str, Any]
    run_seconds: Mapping[str, Any]
    batch_sizes: Mapping[str, Any]

    def prometheus(self, pool: str = "") -> str:
        """The same as Prometheus reads it; `pool` is put on every line as a label."""
        return prometheus({pool: self})


def prometheus(pools: Mapping[str, Statistics]) -> str:
    """The statistics of several pools, by their names, as one text that Prometheus reads."""
    labelled = [(f'pool="{_escaped(name)}"' if name else "", found) for name, found in pools.items()]
    lines = [
        *_family("queued_requests", "gauge", "Requests that wait.", [(label, own.queued) for label, own in labelled]),
        *_family("in_flight_requests", "gauge", "Requests that run.", [(lab, own.in_flight) for lab, own in labelled]),
        *_family(
            "requests_total",
            "counter",
            "Requests by how they ended.",
            [
                (_joined(label, f'outcome="{name}"'), count)
                for label, own in labelled
                for name, count in own.requests.items()
            ],
        ),
        *_family(
            "worker_restarts_total",
            "counter",
            "Worker processes started anew.",
            [(label, own.restarts) for label, own in labelled],
        ),
        *_histogram("queue_seconds", "How long requests waited.", [(lab, own.queue_seconds) for lab, own in labelled]),
        *_histogram("run_seconds", "How long runs took.", [(label, own.run_seconds) for label, own in labelled]),
        *_histogram("batch_size", "How many requests ran together.", [(lab, own.batch_sizes) for lab, own in labelled]),
    ]
    return "\n".join(lines) + "\n"


class Recorder:
    """Takes note of what a pool does; any thread may.

    Attributes:
        recent_seconds: How long runs of single requests took lately, about.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._in_flight = 0
        self._restarts = 0
        self.recent_seconds = UNKNOWN
        self._requests = dict.fromkeys(OUTCOMES, 0)
        self._queue, self._run, self._sizes = Histogram(SECONDS), Histogram(SECONDS), Histogram(SIZES)

    def begin(self, waited: Sequence[float]) -> None:
        """Requests begin to run together, after they waited so long."""
        with self._lock:
            self._in_flight += len(waited)
            self._sizes.add(len(waited))
            for seconds in waited:
                self._queue.add(seconds)

    def ran(self, count: int, seconds: float) -> None:
        """As many requests have run together for so long."""
        with self._lock:
            self._run.add(seconds)
            if count == 1:
                last = self.recent_seconds
                self.recent_seconds = seconds if last == UNKNOWN else last + RECENT * (seconds - last)

    def end(self, outcome: str) -> None:
        """A request that began has ended this way."""
        with self._lock:
            self._in_flight -= 1
            self._requests[outcome] += 1

    def count(self, outcome: str) -> None:
        """A request has ended this way, and never ran."""
        with self._lock:
            self._requests[outcome] += 1

    def restart(self) -> None:
        """A worker process was started anew."""
        with self._lock:
            self._restarts += 1

    def read(self, queued: int) -> Statistics:
        """All of it as it is now."""
        with self._lock:
            return Statistics(
                queued,
                self._in_flight,
                dict(self._requests),
                self._restarts,
                self._queue.data(),
                self._run.data(),
                self._sizes.data(),
            )


def _family(name: str, kind: str, text: str, values: Sequence[tuple[str, int]]) -> Iterator[str]:
    yield f"# HELP litehouse_{name} {text}"
    yield f"# TYPE litehouse_{name} {kind}"
    for labels, value in values:
        yield f"litehouse_{name}{{{labels}}} {value}" if labels else f"litehouse_{name} {value}"


def _histogram(name: str, text: str, histograms: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield f"# HELP litehouse_{name} {text}"
    yield f"# TYPE litehouse_{name} histogram"
    for label, data in histograms:
        for bound, count in (*data["up_to"].items(), ("+Inf", data["count"])):
            edge = 'le="{}"'.format(bound if isinstance(bound, str) else f"{bound:g}")
            yield f"litehouse_{name}_bucket{{{_joined(label, edge)}}} {count}"
        plain = f"{{{label}}}" if label else ""
        yield f"litehouse_{name}_sum{plain} {data['sum']:.9g}"
        yield f"litehouse_{name}_count{plain} {data['count']}"


def _joined(*labels: str) -> str:
    return ",".join(label for label in labels if label)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

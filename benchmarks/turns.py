"""Workers: processes that stay alive and run a network when it is their turn."""

import json
import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import Lane, share

ERROR = re.compile(r"\w*(Error|Exception)\b")
PAUSE = 0.12  # idle threads of ONNX Runtime keep their cores busy for tens of milliseconds


class Burst(NamedTuple):
    """The seconds of one call by the wall clock and by the CPU clock, and those of the fastest."""

    wall: float
    cpu: float
    best: float


class WorkerError(Exception):
    """A worker ended, or did not answer in time."""


class Worker:
    """A process that speaks as `benchmarks.workers.loop` does."""

    def __init__(
        self, command: Sequence[str], log: Path, *, patience: float, clients: int = 1, **environment: str
    ) -> None:
        """Start it; it loads while others do.

        Args:
            command: How.
            log: Takes what it prints.
            patience: The longest wait for an answer, in seconds.
            clients: How many threads share the calls of a burst.
            **environment: Variables.
        """
        self._log, self._patience = log, patience
        self._clients = f" {clients}" if clients > 1 else ""
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env=os.environ | environment,
            )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def ready(self) -> dict[str, Any]:
        """Wait until it is loaded; what it says of itself."""
        facts: dict[str, Any] = json.loads(self._answer())
        return facts

    def burst(self, warm: int, calls: int) -> Burst:
        """Let it run."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{warm} {calls}{self._clients}\n".encode())
        except BrokenPipeError:
            raise WorkerError(self._end()) from None
        return Burst(*map(float, self._answer().split()))

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._selector.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not self._selector.select(self._patience):
            self._process.kill()
            raise WorkerError(f"no answer within {self._patience:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._end())
        return line.decode()

    def _end(self) -> str:
        code = self._process.wait()
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        raised = [line for line in lines if ERROR.match(line)] or lines or [""]
        return f"exit {code}: {raised[-1][:200]}"


def take_turns(
    workers: Mapping[str, Worker],
    lanes: Mapping[str, Lane],
    *,
    rounds: int,
    burst: float,
    budget: float,
    least: int = 1,
    step: Callable[[], object] = lambda: None,
) -> None:
    """Let the workers run in turn, in every other round in the opposite order, and write their times into the lanes."""
    shares = {name: share(_seconds(worker, burst), rounds, burst, budget, least) for name, worker in workers.items()}
    for number in range(rounds):
        for name in list(workers) if number % 2 == 0 else list(workers)[::-1]:
            if number in shares[name].rounds:
                time.sleep(PAUSE)
                took = workers[name].burst(shares[name].warm, shares[name].calls)
                lanes[name].take(number, *took)
        step()


def _seconds(worker: Worker, burst: float) -> float:
    """About the seconds of one call."""
    calls = 1
    while (wall := worker.burst(0, calls).wall) * calls < burst / 10:
        calls *= 4
    return wall

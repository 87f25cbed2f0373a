"""Steps of a part: each is made ready, and then measured.

To make ready takes most of the time, for the kernels that are made. With `--processes` each step has a process of its
own: so many are made ready at a time, and then one after another is measured while all others wait. What is chosen by
time is then chosen on a machine that is busy: ours by its race, and by all of them the kernels of convolutions, and
those that torch's compiler tries.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.record import Record

Found = dict[str, Any]
Measure = Callable[[], Found]

SECONDS = 15.0  # that the first step of a kind may take that is ready

_ready: list[Measure] = []  # in the process of a step


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        kind: Steps of a kind take about the same time.
        facts: What it is about.
        ready: Makes it ready: a function of a module.
        seconds: How long the first of its kind may take, to be made ready and measured.
    """

    kind: str
    facts: Found
    ready: Callable[..., Measure]
    seconds: float

    def __str__(self) -> str:
        """It in words."""
        return f"{self.kind}: {', '.join(map(str, self.facts.values()))}"


def results(record: Record, steps: Sequence[Step]) -> Iterator[Found]:
    """What each of them finds, with its facts, in their order."""
    is_aside = record.given.processes > 1 and record.left >= max(step.seconds for step in steps)
    with contextlib.ExitStack() as stack:
        measures = _aside(record, steps, stack) if is_aside else _here(record, steps)
        for step, measure in zip(steps, measures, strict=True):
            found = record.step(step.kind, str(step), measure, SECONDS if is_aside else step.seconds)
            yield {**step.facts, **found}


def _here(record: Record, steps: Sequence[Step]) -> list[Measure]:
    return [lambda step=step: step.ready(record, **step.facts)() for step in steps]  # type: ignore[misc]


def _aside(record: Record, steps: Sequence[Step], stack: contextlib.ExitStack) -> list[Measure]:
    """All of them ready, each in a process of its own."""
    count = record.given.processes
    begin = partial(_begin, threads=max(1, len(os.sched_getaffinity(0)) // count))
    started = partial(ProcessPoolExecutor, 1, multiprocessing.get_context("spawn"), begin)
    made = [stack.enter_context(started()) for _ in steps]
    at_a_time = stack.enter_context(ThreadPoolExecutor(count))
    pids: dict[ProcessPoolExecutor, int] = {}

    def prepared(pool: ProcessPoolExecutor, step: Step) -> None:
        pids[pool] = pool.submit(os.getpid).result()
        pool.submit(_make_ready, record.given, record.cache, step).result()

    futures = [at_a_time.submit(prepared, *pair) for pair in zip(made, steps, strict=True)]

    def end() -> set[Future[None]]:
        """End what is not ready: it would disturb the others, and go on for any time."""
        late = {future for future in futures if not future.done()}
        for pool, future in zip(made, futures, strict=True):
            if future in late and not future.cancel():
                pool.shutdown(wait=False, cancel_futures=True)  # nothing more begins there
                with contextlib.suppress(KeyError, ProcessLookupError):  # not begun, or gone
                    os.kill(pids[pool], signal.SIGKILL)
        wait(late)
        return late

    stack.callback(end)
    waiting = set(futures)
    # What is left behind it is for the measuring of those that are ready.
    while waiting and (spare := record.left - SECONDS * (1 + len(steps) - len(waiting))) > 0:
        waiting = wait(waiting, None if spare == math.inf else spare, FIRST_COMPLETED).not_done
    late = end()
    record.say(f"{len(steps) - len(late)} of {len(steps)} made ready")

    def measure(pool: ProcessPoolExecutor, future: Future[None]) -> Found:
        if future in late:
            raise TimeoutError("it was not made ready in time")
        with pool:  # then its process ends, and its memory is free
            future.result()
            return pool.submit(_measure_there).result()

    return [lambda pair=pair: measure(*pair) for pair in zip(made, futures, strict=True)]  # type: ignore[misc]


def _begin(threads: int) -> None:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)  # else each process starts as many as there are cores
    follow()


def follow() -> None:
    """Let this process end with the one that started it: nobody else ends it then, and it has memory of the GPU."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _make_ready(given: Namespace, cache: Path, step: Step) -> None:
    _ready.append(step.ready(Record(given, cache), **step.facts))


def _measure_there() -> Found:
    return _ready.pop()()

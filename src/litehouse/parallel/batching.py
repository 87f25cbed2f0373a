"""Joins requests of equal shapes along their first axis, where a model allows it and gains from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from litehouse.engines.samples import is_close
from litehouse.errors import LitehouseError
from litehouse.model import TensorInfo

Arrays = list[np.ndarray]
Run = Callable[[Sequence[np.ndarray]], Arrays]

# Of the range of an output: kernels for other sizes round differently, where 16 bits are allowed by more.
AGREEMENT = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2}
MAX_SIZE = 1024
MIN_GAIN = 1.1  # below, a batch only makes the first request wait for the last
TIMED_SECONDS = 0.2
SPREAD = (1.0, 3.0)  # of the numbers drawn for one request and the next, so that what leaks between them shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How requests are joined.

    Attributes:
        max_size: How many requests run together at most.
        max_delay: How many seconds the first of them waits for others, where no more are in the queue.
        force: Join them even where a single run is measured to be as fast.

    Example:
        >>> Batching(max_size=8, max_delay=0.001).max_size
        8
    """

    max_size: int = 8
    max_delay: float = 0.001
    force: bool = False

    def __post_init__(self) -> None:
        """Check every field, so that a slip shows where it was made."""
        if not isinstance(self.max_size, int) or not 2 <= self.max_size <= MAX_SIZE:
            raise ValueError(f"max_size must be an int from 2 to {MAX_SIZE}, not {self.max_size!r}")
        if not isinstance(self.max_delay, int | float) or not 0 <= self.max_delay <= 60:
            raise ValueError(f"max_delay must be seconds from 0 to 60, not {self.max_delay!r}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether requests of a model are joined, and why.

    Attributes:
        sizes: How many requests may run together, largest first; empty where they run alone.
        reason: Why, in a sentence.
        rows: For each output, how many rows it has for how many rows of the first input.
    """

    sizes: tuple[int, ...]
    reason: str
    rows: tuple[tuple[int, int], ...] = ()


def judge(
    batching: Batching,
    run: Run,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo] = (),
    precision: str = "fp32",
) -> Verdict:
    """Try joined requests against single ones: whether they give the same numbers, and are faster.

    Args:
        batching: How requests are to be joined.
        run: Runs the model on arrays of any size of the first axis that it takes.
        inputs: What it takes.
        outputs: What it gives, as far as that is known.
        precision: What it may compute in.
    """
    allowed = AGREEMENT[precision]
    if any(not info.shape for info in inputs):
        return Verdict((), "an input has no axis to join along")
    if any(not isinstance(size, int) for info in inputs for size in info.shape[1:]):
        return Verdict((), "sizes beyond the first axis are not fixed, so nothing could be tried")
    if all(info.is_static for info in inputs) and not all(info.is_static for info in outputs):
        return Verdict((), "the sizes of its outputs depend on the data")
    try:
        singles = [_draw(inputs, seed, SPREAD[seed % 2]) for seed in range(batching.max_size)]
        alone = [run(arrays) for arrays in singles]
    except (LitehouseError, MemoryError) as error:
        return Verdict((), f"it does not run on made-up inputs ({error})")
    if any(not array.size for results in alone for array in results):
        return Verdict((), "an output is empty for some inputs, so rows cannot be told apart")
    rows = tuple((len(array) if array.ndim else 0, len(singles[0][0])) for array in alone[0])
    largest, *others = _sizes(batching.max_size)
    if (reason := _objection(run, singles, alone, largest, rows, allowed)) is not None:
        return Verdict((), reason)
    gain = _gain(run, singles, largest)
    if gain < MIN_GAIN and not batching.force:
        return Verdict((), f"{largest} requests at once are only {gain:.3f} times as fast as alone")
    for size in others:  # a model of a fixed size is built for each
        if (reason := _objection(run, singles, alone, size, rows, allowed)) is not None:
            return Verdict((), reason)
    return Verdict((largest, *others), f"{largest} requests at once are {gain:.2f} times as fast as alone", rows)


def _objection(
    run: Run,
    singles: Sequence[Arrays],
    alone: Sequence[Arrays],
    size: int,
    rows: Sequence[tuple[int, int]],
    allowed: float,
) -> str | None:
    """Why so many requests cannot be joined; None where they can."""
    try:
        found = split(run(join(singles[:size])), size, len(singles[0][0]), rows)
    except (LitehouseError, MemoryError, ValueError) as error:
        return f"it takes no {size} requests at once ({error})"
    is_same = all(
        is_close(a, b, allowed)
        for own, other in zip(alone, found, strict=False)
        for a, b in zip(own, other, strict=True)
    )
    return None if is_same else f"{size} requests at once do not give what they give alone"


def join(requests: Sequence[Sequence[np.ndarray]]) -> Arrays:
    """The inputs of several requests as those of one."""
    return [np.concatenate(arrays) for arrays in zip(*requests, strict=True)]


def split(results: Sequence[np.ndarray], count: int, given: int, rows: Sequence[tuple[int, int]]) -> list[Arrays]:
    """The outputs of several requests that ran as one.

    Args:
        results: What the run gave.
        count: How many requests ran.
        given: How many rows the first input of each has.
        rows: What `Verdict.rows` says.

    Raises:
        ValueError: An output has other rows than these requests give, so they depend on the data.
    """
    sizes = [out * given // own for out, own in rows]
    for array, size in zip(results, sizes, strict=True):
        if not size or not array.ndim or len(array) != size * count:
            raise ValueError(f"an output of shape {list(array.shape)} has no {count} parts of {size} rows")
    return [
        [array[place * size : place * size + size].copy() for array, size in zip(results, sizes, strict=True)]
        for place in range(count)
    ]


def pieces(count: int, sizes: Sequence[int]) -> list[int]:
    """How many requests run together, one run after the other, to make `count`; `sizes` are largest first."""
    found = []
    for size in (*sizes, 1):
        while count >= size:
            found.append(size)
            count -= size
    return found


def _sizes(largest: int) -> list[int]:
    """The largest size, and the powers of 2 below it: a program is built for each, unless the axis is dynamic."""
    powers = [1 << bit for bit in range(1, largest.bit_length()) if 1 << bit < largest]
    return [largest, *reversed(powers)]


def _draw(inputs: Sequence[TensorInfo], seed: int, spread: float) -> Arrays:
    random = np.random.default_rng(seed)
    arrays = []
    for info in inputs:
        shape = tuple(size if isinstance(size, int) else 1 for size in info.shape)
        if info.dtype.kind == "f":
            arrays.append((random.standard_normal(shape) * spread).astype(info.dtype))
        else:
            arrays.append(random.integers(0, 2, shape).astype(info.dtype))
    return arrays


def _gain(run: Run, singles: Sequence[Arrays], size: int) -> float:
    """How many times as fast a run of several requests is as a run of each; the best of turns taken."""
    joined, best = join(singles[:size]), [float("inf"), float("inf")]
    end = time.perf_counter() + TIMED_SECONDS
    while True:
        for place, arrays in enumerate((singles[0], joined)):
            start = time.perf_counter()
            run(arrays)
            best[place] = min(best[place], time.perf_counter() - start)
        if time.perf_counter() > end:
            return best[0] * size / best[1]

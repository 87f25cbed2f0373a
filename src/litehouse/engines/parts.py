"""Runs a batch in parts: side by side on as many threads, which then need not wait for each other at every op."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from litehouse.cores.affinity import cores_for
from litehouse.cores.budget import thread_budget
from litehouse.engines.base import Engine, Names, Program, Runner, Stoppable
from litehouse.errors import EngineError
from litehouse.model import Model
from litehouse.options import Options

MAX_PARTS = 64


def counts(model: Model, options: Options) -> list[int]:
    """Into how many parts a model's batch may be split: one for each thread, or one for each image."""
    sizes = {info.shape[0] if info.shape else None for info in (*model.inputs, *model.outputs)}
    batch = sizes.pop() if len(sizes) == 1 else None
    is_usual = options.device_kind == "cpu" and options.inter_op <= 1 and not cores_for(options.affinity)
    if not isinstance(batch, int) or batch < 2 or model.states or model.live or not is_usual or options.workers > 1:
        return []
    threads = options.threads or thread_budget()
    found = [threads] if threads > 1 and batch % threads == 0 else []
    return [*found, *([batch] if batch <= MAX_PARTS and batch not in found else [])]


def compile_parts(
    engine: Engine, model: Model, options: Options, precision: str, parts: int, *, is_plain: bool
) -> Program:
    """A program that runs the batch in so many parts.

    Raises:
        EngineError: The engine cannot run the model, or the images of a batch may depend on each other.
    """
    settings = _settings(options, parts)
    program = engine.compile(model, settings, precision=precision, is_plain=is_plain, parts=parts)
    return PartsProgram(program, parts, settings.workers)


def restore(engine: Engine, folder: Path, names: Names, options: Options, precision: str, parts: int) -> Program:
    """The program that was saved, of a part or of the whole; see `Engine.restore`."""
    if parts == 1:
        return engine.restore(folder, names, options, precision)
    settings = _settings(options, parts)
    return PartsProgram(engine.restore(folder, names, settings, precision), parts, settings.workers)


def _settings(options: Options, parts: int) -> Options:
    return replace(options, threads=1, workers=min(parts, options.threads or thread_budget()))


class PartsProgram:
    """A program for a part of the batch, run for every part."""

    is_rewritten = True

    def __init__(self, program: Program, parts: int, workers: int) -> None:
        """Run `parts` parts, `workers` at a time."""
        self.precision = program.precision
        self._program, self._parts, self._workers = program, parts, workers
        self._helpers = ThreadPoolExecutor(workers - 1, "litehouse-part") if workers > 1 else None

    def bind(self) -> PartsRunner:
        """A runner for one thread at a time."""
        return PartsRunner([self._program.bind() for _ in range(self._workers)], self._parts, self._helpers)

    def save(self, folder: Path) -> None:
        """Write the program for a part."""
        self._program.save(folder)


class PartsRunner:
    """Runs all parts of a batch."""

    def __init__(self, runners: Sequence[Runner], parts: int, helpers: ThreadPoolExecutor | None) -> None:
        """Use these runners side by side, the first in the thread that calls."""
        self._runners, self._parts, self._helpers = runners, parts, helpers

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        return self._run(inputs, threading.Event())

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs, unless the run is stopped: between two parts."""
        stop = threading.Event()
        stoppable(stop.set)
        try:
            return self._run(inputs, stop)
        finally:
            stoppable(None)

    def _run(self, inputs: Sequence[np.ndarray], stop: threading.Event) -> list[np.ndarray]:
        pieces = list(zip(*(np.split(array, self._parts) for array in inputs), strict=True))
        results: list[list[np.ndarray]] = [[] for _ in pieces]
        places = itertools.count()  # taken by whoever is free

        def work(runner: Runner) -> None:
            while (place := next(places)) < len(pieces) and not stop.is_set():
                results[place] = runner.run(pieces[place])

        first, *others = self._runners
        helping = [self._helpers.submit(work, runner) for runner in others] if self._helpers is not None else []
        try:
            work(first)
        finally:
            for future in helping:
                future.result()
        if stop.is_set():
            raise EngineError("the run was stopped")
        return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]

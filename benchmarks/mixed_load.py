"""Clients of all kinds on pools and a runner: patient and hasty ones, some that cancel, some that send too much.

Models take arrays of any size, and requests have many. Every answer is checked, and so is that a request ends only in a
way that its client asked for.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

import mindspore_lite as mslite
from benchmarks.small_models import WIDTH, convolution, perceptron, results
from litehouse import Batching, DeadlineError, Overloaded, Pool, ShapeError

TOLERANCE = 1e-4  # of the range of an answer
PATIENCE = 120.0
QUEUE, FLOOD = 32, 48
SIZES = 48  # how many different ones

ODDS = {"plain": 80, "patient": 5, "awaited": 1, "hasty": 4, "cancelled": 4, "flood": 1, "misshapen": 2}
# What stops a run in a process kills the process, and another one takes a second to start.
GENTLE = {"plain": 95, "patient": 3, "awaited": 1, "hasty": 0.02, "cancelled": 0.02, "flood": 0.1, "misshapen": 1}


class WrongAnswerError(Exception):
    """An answer is not what it must be, or a request ended in a way that nobody asked for."""


@dataclass(frozen=True)
class Question:
    """A request, and the answer to it."""

    x: np.ndarray
    wanted: np.ndarray

    def check(self, found: np.ndarray) -> str:
        """Hold an answer against the right one."""
        if found.shape != self.wanted.shape:
            raise WrongAnswerError(f"the answer to {self.x.shape} has shape {found.shape}, not {self.wanted.shape}")
        error = np.abs(found - self.wanted).max() / max(np.ptp(self.wanted), 1e-9)
        if not error <= TOLERANCE:
            raise WrongAnswerError(f"the answer to {self.x.shape} is off by {error:.1e} of its range")
        return "answered"


class Subject(Protocol):
    """What is put under load."""

    name: str

    def ask(self, luck: random.Random) -> list[str]:
        """Do something with it; how its requests ended."""


class PoolSubject:
    """A pool, and what is asked of it."""

    def __init__(self, name: str, pool: Pool, questions: Sequence[Question], odds: Mapping[str, float]) -> None:
        """Ask so often for each kind of thing."""
        self.name, self.pool = name, pool
        self._questions, self._kinds, self._odds = questions, list(odds), list(odds.values())

    def ask(self, luck: random.Random) -> list[str]:
        """One thing, of any kind."""
        (kind,) = luck.choices(self._kinds, self._odds)
        return ACTIONS[kind](self.pool, luck.choice(self._questions), luck)


class RunnerSubject:
    """A ModelParallelRunner, and what is asked of it."""

    def __init__(self, name: str, runner: mslite.ModelParallelRunner, questions: Sequence[Question]) -> None:
        """Ask these."""
        self.name = name
        self._runner, self._questions = runner, questions

    def ask(self, luck: random.Random) -> list[str]:
        """A prediction, at times of something that the model cannot take."""
        question = luck.choice(self._questions)
        if luck.random() < 0.02:
            try:
                self._runner.predict([mslite.Tensor(np.zeros((2, 2), np.float32))])
            except RuntimeError:
                return ["misshapen"]
            raise WrongAnswerError("a tensor of the wrong rank was taken")
        outputs = self._runner.predict([mslite.Tensor(question.x)])
        return [question.check(outputs[0].get_data_to_numpy())]


def _plain(pool: Pool, question: Question, _: random.Random) -> list[str]:
    return [_end(question, lambda: pool.submit([question.x]))]


def _patient(pool: Pool, question: Question, _: random.Random) -> list[str]:
    return [_end(question, lambda: pool.submit([question.x], timeout=PATIENCE))]


def _awaited(pool: Pool, question: Question, _: random.Random) -> list[str]:
    try:
        return [question.check(asyncio.run(pool.run([question.x]))[0])]
    except Overloaded:
        return ["refused"]


def _hasty(pool: Pool, question: Question, luck: random.Random) -> list[str]:
    seconds = luck.uniform(0, 0.002)
    return [_end(question, lambda: pool.submit([question.x], timeout=seconds), may="late")]


def _cancelled(pool: Pool, question: Question, luck: random.Random) -> list[str]:
    def submit() -> Future[list[np.ndarray]]:
        future = pool.submit([question.x])
        time.sleep(luck.choice((0, 0.0001, 0.001)))
        future.cancel()
        return future

    return [_end(question, submit, may="cancelled")]


def _flood(pool: Pool, question: Question, __: random.Random) -> list[str]:
    ends, futures = [], []
    for _ in range(FLOOD):
        try:
            futures.append(pool.submit([question.x]))
        except Overloaded:
            ends.append("refused")
    return ends + [_end(question, lambda future=future: future) for future in futures]  # type: ignore[misc]


def _misshapen(pool: Pool, _: Question, __: random.Random) -> list[str]:
    try:
        pool.submit([np.zeros((2, WIDTH + 1), np.float32)])
    except ShapeError:
        return ["misshapen"]
    raise WrongAnswerError("an array of the wrong shape was taken")


ACTIONS = {
    "plain": _plain,
    "patient": _patient,
    "awaited": _awaited,
    "hasty": _hasty,
    "cancelled": _cancelled,
    "flood": _flood,
    "misshapen": _misshapen,
}


def _end(question: Question, submit: Callable[[], Future[list[np.ndarray]]], may: str = "") -> str:
    """How a request ended; besides an answer and a refusal, only as it `may`."""
    try:
        return question.check(submit().result(PATIENCE)[0])
    except Overloaded:
        return "refused"
    except (DeadlineError, CancelledError) as error:
        how = "late" if isinstance(error, DeadlineError) else "cancelled"
        if how != may:
            raise WrongAnswerError(f"a request ended {how}, which nobody asked for") from error
        return how


class Load:
    """Client threads that ask everyone in turn until they are stopped.

    Attributes:
        tallies: By the name of a subject, how its requests ended; complete when the load is stopped.
    """

    def __init__(self, subjects: Sequence[Subject], clients: int, seed: int = 0) -> None:
        """Prepare so many clients."""
        self.tallies: dict[str, Counter[str]] = {subject.name: Counter() for subject in subjects}
        self._subjects = subjects
        self._errors: list[BaseException] = []
        self._is_over = threading.Event()
        self._adding = threading.Lock()
        self._clients = [threading.Thread(target=self._client, args=(seed, number)) for number in range(clients)]

    def __enter__(self) -> Self:
        """Start."""
        for thread in self._clients:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and raise what a client met."""
        self._is_over.set()
        for thread in self._clients:
            thread.join()
        self.check()

    def check(self) -> None:
        """Raise what a client met."""
        if self._errors:
            raise self._errors[0]

    def _client(self, seed: int, number: int) -> None:
        luck = random.Random(f"{seed} {number}")
        own: dict[str, Counter[str]] = {name: Counter() for name in self.tallies}
        try:
            while not self._is_over.is_set():
                subject = luck.choice(self._subjects)
                own[subject.name].update(subject.ask(luck))
        except BaseException as error:  # noqa: BLE001  (the main thread raises it)
            self._errors.append(error)
            self._is_over.set()
        with self._adding:
            for name, tally in own.items():
                self.tallies[name].update(tally)


@contextmanager
def subjects(folder: Path) -> Iterator[list[Subject]]:
    """A pool that joins requests, a pool with a process, and a runner."""
    joined, isolated, images = perceptron(0), perceptron(1), convolution(2)
    rows = [(1 + place % 16, WIDTH) for place in range(SIZES)]
    sizes = [(1, 3, 8 + place % 7, 8 + place) for place in range(SIZES)]
    path = folder / "images.onnx"
    path.write_bytes(images)
    runner = mslite.ModelParallelRunner()
    runner.build_from_file(str(path))
    batching = Batching(max_size=8, max_delay=0.0005, force=True)
    with (
        Pool(joined, queue=QUEUE, batching=batching) as first,
        Pool(isolated, queue=QUEUE, processes=1) as second,
    ):
        yield [
            PoolSubject("Pool with batching", first, questions(joined, rows), ODDS),
            PoolSubject("Pool with a process", second, questions(isolated, rows), GENTLE),
            RunnerSubject("ModelParallelRunner", runner, questions(images, sizes)),
        ]


def questions(model: bytes, shapes: Sequence[tuple[int, ...]]) -> list[Question]:
    """A question for each shape, answered by bare ONNX Runtime."""
    numbers = np.random.default_rng(0)
    arrays = [numbers.standard_normal(shape, np.float32) for shape in shapes]
    return [Question(x, wanted) for x, wanted in zip(arrays, results(model, arrays), strict=True)]

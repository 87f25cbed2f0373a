"""All ranks of a job in one process, each in a thread: to check a slicing, and for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from litehouse.distributed.local import LocalMail
from litehouse.distributed.ranked import build_ranked
from litehouse.engines.base import Program
from litehouse.errors import RankError
from litehouse.model import Model
from litehouse.options import Options

Result = TypeVar("Result")


class Together:
    """The models of all ranks, ready to run in threads of this process.

    Attributes:
        mails: What connects them, by rank.
    """

    def __init__(self, models: Sequence[Model], options: Options | None = None) -> None:
        """Build them; they agree with each other as ranks in processes do.

        Raises:
            RankError: They do not belong together.
        """
        options = options or Options()
        self.mails = LocalMail.world(len(models), options.job.timeout)
        self._threads = ThreadPoolExecutor(len(models), "litehouse-rank")

        def build(rank: int) -> Program:
            return build_ranked(models[rank], options, mail=self.mails[rank]).program

        self._programs = self._all(build)

    def run(self, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """The outputs of all ranks, for the inputs of all ranks.

        Raises:
            RankError: One of them failed.
        """
        return self._all(lambda rank: self._programs[rank].bind().run([*inputs[rank]]))

    def _all(self, work: Callable[[int], Result]) -> list[Result]:
        waiting = [self._threads.submit(work, rank) for rank in range(len(self.mails))]
        errors = [error for each in waiting if (error := each.exception()) is not None]
        if errors:  # the first cause, not what others made of it
            raise next((error for error in errors if not isinstance(error, RankError)), errors[0])
        return [each.result() for each in waiting]

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def run_together(
    models: Sequence[Model], inputs: Sequence[np.ndarray], options: Options | None = None
) -> list[list[np.ndarray]]:
    """The outputs of all ranks, all of which take the same inputs.

    Raises:
        RankError: They do not belong together, or one of them failed.
    """
    together = Together(models, options)
    try:
        return together.run([inputs] * len(models))
    finally:
        together.close()

"""Workers in this process, which share one session, and the shortest way to it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from litehouse.cores.gate import core_places
from litehouse.engines.base import Stoppable
from litehouse.engines.choice import Choice
from litehouse.parallel.crew import Crew
from litehouse.parallel.statistics import Recorder
from litehouse.session import Session

TINY_SECONDS = 400e-6  # of a run: threads take longer to hand it to each other


class SessionWorker:
    """Runs the requests of a pool on a session that it shares with other workers."""

    def __init__(self, session: Session) -> None:
        """Use a session."""
        self._session = session

    @property
    def engine(self) -> Choice:
        """What the session runs the model on."""
        return self._session.engine

    def run(self, inputs: Sequence[np.ndarray], stoppable: Stoppable | None = None) -> list[np.ndarray]:
        """The outputs for these inputs."""
        return self._session.run_any(inputs, stoppable)

    def prepare(self) -> None:
        """Nothing does harm to a session."""

    def close(self) -> None:
        """Free the session; the first worker to close does it for all."""
        self._session.close()


class Shortcut:
    """Runs a request in the thread that brings it, in place of an idle worker: for runs that are over at once."""

    def __init__(self, session: Session, crew: Crew, recorder: Recorder) -> None:
        """Use a session in the place of one of the crew's workers, and tell the recorder."""
        self._session, self._crew, self._recorder = session, crew, recorder
        self._shapes = tuple(info.shape for info in session.model.inputs)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """The outputs for these inputs; None where runs are long, of another size, or somebody else was first."""
        if self._recorder.recent_seconds > TINY_SECONDS or tuple(array.shape for array in inputs) != self._shapes:
            return None
        if len(self._crew.waiting) or not self._crew.places.try_enter():
            return None
        try:
            return self._run(inputs) if core_places.try_enter() else None
        finally:
            self._crew.places.leave()

    def _run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        begin, outcome = time.monotonic(), "failed"
        self._recorder.begin([0.0])
        try:
            results = self._session.run_any(inputs)
            outcome = "done"
            return results
        finally:
            core_places.leave()
            self._recorder.ran(1, time.monotonic() - begin)
            self._recorder.end(outcome)

"""Ranks that are threads of one process: to try a sliced model, and for tests."""

from __future__ import annotations

import contextlib
import queue

import numpy as np

from litehouse.distributed.mail import Key, Letter, Mail, next_of


class LocalMail(Mail):
    """The letters of a rank that is a thread."""

    def __init__(self, rank: int, boxes: list[queue.SimpleQueue[Letter]], timeout: float) -> None:
        """Take part; `boxes` has one queue per rank, the same ones for all."""
        super().__init__(rank, len(boxes), timeout)
        self._boxes = boxes

    @classmethod
    def world(cls, size: int, timeout: float = 30.0) -> list[LocalMail]:
        """The mail of all ranks of a new job."""
        boxes: list[queue.SimpleQueue[Letter]] = [queue.SimpleQueue() for _ in range(size)]
        return [cls(rank, boxes, timeout) for rank in range(size)]

    def _send(self, to: int, kind: int, key: Key, array: np.ndarray, what: str) -> None:  # noqa: ARG002
        self._boxes[to].put(Letter(self.rank, kind, key, array.copy()))

    def _pump(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._take(next_of(self._boxes[self.rank], seconds))

    def _close(self) -> None:
        """There is nothing to close: the queues belong to all."""

    def _abandon(self) -> None:
        """Nor is there here."""

"""Bounds how much runs at a time, in about the order in which it came."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from litehouse.cores.budget import thread_budget

PATIENCE = 0.05  # seconds; a thread that is woken may wait for a core that is busy, while another one idles


class _Turn:
    """Somebody who waits."""

    def __init__(self, count: int) -> None:
        self.count, self.since = count, time.monotonic()
        self.is_awake = self.is_inside = False
        self.wake = threading.Lock()
        self.wake.acquire()

    def is_late(self) -> bool:
        return time.monotonic() - self.since > PATIENCE


class Gate:
    """Lets so many in at a time. Who has waited for long goes before all who came later."""

    def __init__(self, places: int) -> None:
        """Have so many places."""
        self.places = places
        self._free = places
        self._lock = threading.Lock()
        self._turns: deque[_Turn] = deque()

    def enter(self, count: int = 1) -> None:
        """Take so many places, or all where there are fewer; `leave` gives them back."""
        count = min(count, self.places)
        with self._lock:
            if self._free >= count and not (self._turns and self._turns[0].is_late()):
                self._free -= count
                return
            turn = _Turn(count)
            self._turns.append(turn)
            self._wake_first()
        try:
            self._wait(turn)
        except BaseException:  # the wait was interrupted
            self._give_up(turn)
            raise

    def try_enter(self, count: int = 1) -> bool:
        """The same, if there are places and nobody waits for them; False where there are not."""
        count = min(count, self.places)
        with self._lock:
            if self._free < count or self._turns:
                return False
            self._free -= count
            return True

    def leave(self, count: int = 1) -> None:
        """Give back what `enter` took with this count."""
        with self._lock:
            self._free += min(count, self.places)
            self._wake_first()

    @contextmanager
    def inside(self, count: int = 1) -> Iterator[None]:
        """Be inside for a while."""
        self.enter(count)
        try:
            yield
        finally:
            self.leave(count)

    def _wait(self, turn: _Turn) -> None:
        while True:
            turn.wake.acquire()
            with self._lock:
                if not turn.is_inside and turn is self._turns[0] and self._free >= turn.count:
                    self._let_in()
                turn.is_awake = False
                if turn.is_inside:
                    self._wake_first()
                    return

    def _wake_first(self) -> None:
        """Wake the first that waits, if it fits; its place is kept for it only if it has waited for long."""
        if self._turns and self._turns[0].count <= self._free and not self._turns[0].is_awake:
            first = self._turns[0]
            if first.is_late():
                self._let_in()
            first.is_awake = True
            first.wake.release()

    def _let_in(self) -> None:
        first = self._turns.popleft()
        self._free -= first.count
        first.is_inside = True

    def _give_up(self, turn: _Turn) -> None:
        with self._lock:
            if turn.is_inside:
                self._free += turn.count
            else:
                self._turns.remove(turn)
            self._wake_first()


core_places = Gate(thread_budget())
"""The cores of this process. What is inside takes one place for each of its threads, so that models share them."""


def _empty() -> None:
    """Be empty in a process that was forked off: the threads that were inside, or waited, are not in it."""
    core_places.__init__(core_places.places)  # type: ignore[misc]


os.register_at_fork(after_in_child=_empty)

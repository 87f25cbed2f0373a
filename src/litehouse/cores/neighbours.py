"""Which sessions live in this process: threads that wait for more work take cores from those of other sessions."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

_living: weakref.WeakSet[object] = weakref.WeakSet()


def join(session: object) -> None:
    """Note a session that has threads of its own, until it is gone."""
    _living.add(session)


def leave(session: object) -> None:
    """Forget a session that was closed."""
    _living.discard(session)


@contextmanager
def aside(session: object) -> Iterator[None]:
    """Do not count a session, which is no neighbour of its own."""
    was_there = session in _living
    _living.discard(session)
    try:
        yield
    finally:
        if was_there:
            _living.add(session)


def are_there() -> bool:
    """Whether there is a session already."""
    return len(_living) > 0

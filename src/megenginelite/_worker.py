"""A thread that runs a network beside the caller's."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from megenginelite._errors import logger


class Worker:
    """Runs one thing after another in a thread of its own. An error is logged, and kept until somebody joins."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "megenginelite")
        self._last: Future[None] | None = None
        self._thread = 0

    def start(self, work: Callable[[], None]) -> None:
        """Run something, after what was started before."""
        self._last = self._pool.submit(self._do, work)

    def _do(self, work: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        try:
            work()
        except Exception:
            logger.exception("an asynchronous forward failed")
            raise

    def join(self) -> None:
        """Wait until all is done, and raise the error that there was. A call from the worker itself returns at once."""
        if threading.get_ident() == self._thread:
            return
        last, self._last = self._last, None
        if last is not None:
            last.result()

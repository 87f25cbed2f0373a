"""Tells people how far a build is: one line on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Line

SOON = 0.2  # seconds; what is done within them needs no line


class Progress:
    """Progress that nobody sees."""

    def step(self, text: str, *, is_long: bool = False) -> None:
        """What is done now."""

    def share(self, share: float) -> None:
        """How much of the step is done, from 0 to 1."""


SILENT = Progress()


@contextmanager
def shown(path: str) -> Iterator[Progress]:
    """Progress of the build of a model, on a terminal where that takes long."""
    if not getattr(sys.stderr, "isatty", bool)():
        yield SILENT
        return
    with ExitStack() as stack:
        yield _Shown(path, stack)


class _Shown(Progress):
    def __init__(self, path: str, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._begin = time.monotonic()
        self._line: Line | None = None

    def step(self, text: str, *, is_long: bool = False) -> None:
        if self._line is None and not is_long and time.monotonic() - self._begin < SOON:
            return
        line = self._line = self._line or self._started()
        for task in line.task_ids:
            line.remove_task(task)
        line.add_task(f"{self._path}: {text}", total=None)

    def share(self, share: float) -> None:
        if self._line is not None:
            self._line.update(self._line.task_ids[-1], total=1.0, completed=share)

    def _started(self) -> Line:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Line

        columns = (TextColumn("{task.description}", markup=False), BarColumn())
        console = Console(stderr=True)
        # Rich would take over what other threads print.
        line = Line(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        return self._stack.enter_context(line)

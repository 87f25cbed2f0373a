"""Steps of a benchmark that take some time, where another process finds them."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def nap(_: object, seconds: float) -> Callable[[], dict[str, Any]]:
    """Take some seconds to be made ready."""
    time.sleep(seconds)
    return lambda: {"napped": seconds}


def lock(_: object, file: Path) -> Callable[[], dict[str, Any]]:
    """Hold a file for long: as long as the process lives."""
    fcntl.flock(os.open(file, os.O_RDWR), fcntl.LOCK_EX)
    return nap(_, 600.0)


def lock_aside(file: Path) -> None:
    """Let a step do so, in a process of its own."""
    from benchmarks import gpu
    from benchmarks.gpu.record import Record
    from benchmarks.gpu.steps import Step, results

    given = gpu.parse(["--device", "cpu", "--processes", "2"])
    list(results(Record(given, file.parent), [Step("lock", {"file": file}, lock, 1.0)]))

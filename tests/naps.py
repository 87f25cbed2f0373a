"""Work of a benchmark's process that takes long, where that process finds it."""

import fcntl
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def lock(file: Path) -> None:
    """Hold a file for long: as long as the process lives."""
    fcntl.flock(os.open(file, os.O_RDWR), fcntl.LOCK_EX)
    time.sleep(600)


def lock_aside(file: Path) -> None:
    """Let a process of the zoo do so."""
    from benchmarks.gpu.zoo import follow

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), follow) as pool:
        pool.submit(lock, file).result()

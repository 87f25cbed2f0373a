"""What products of 32 bits are computed in: 32 bits, and not the TF32 that torch allows convolutions by itself."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

LIMIT = 10  # kernels of a convolution that are tried at most

_lock = threading.Lock()
_inside = 0
_before = contextlib.ExitStack()


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Compute in 32 bits, and let convolutions try which kernel is the fastest.

    Torch has one setting for all threads: it holds from the first that comes in until the last has gone.
    """
    global _inside
    with _lock:
        if not _inside:
            _before.enter_context(_set())
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _before.close()


@contextlib.contextmanager
def _set() -> Iterator[None]:
    products = torch.backends.cuda.matmul.allow_tf32
    settings = {"enabled": True, "benchmark": True, "benchmark_limit": LIMIT, "deterministic": False}
    with torch.backends.cudnn.flags(**settings, allow_tf32=False):
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = products


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)

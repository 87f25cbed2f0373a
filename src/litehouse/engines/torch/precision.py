"""What products of 32 bits are computed in: torch allows TF32 for convolutions by itself."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

LIMIT = 10  # kernels of a convolution that are tried at most


class _Setting:
    """Torch's setting, which is one for all threads: it is put back when the last of them has gone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._is_short = 0, False
        self._before = contextlib.ExitStack()

    def enter(self, is_short: bool) -> None:
        """Set it, or join those who have; who wants another waits."""
        with self._changed:
            while self._inside and self._is_short != is_short:
                self._changed.wait()
            if not self._inside:
                self._before.enter_context(_set(is_short))
            self._inside, self._is_short = self._inside + 1, is_short

    def leave(self) -> None:
        """Put it back, if nobody else needs it."""
        with self._changed:
            self._inside -= 1
            if not self._inside:
                self._before.close()
                self._changed.notify_all()


@contextlib.contextmanager
def computing(precision: str) -> Iterator[None]:
    """Compute in 32 bits, but for "tf32", and let convolutions try which kernel is the fastest."""
    setting = _setting
    setting.enter(precision == "tf32")
    try:
        yield
    finally:
        setting.leave()


@contextlib.contextmanager
def _set(is_short: bool) -> Iterator[None]:
    products = torch.backends.cuda.matmul.allow_tf32
    settings = {"enabled": True, "benchmark": True, "benchmark_limit": LIMIT, "deterministic": False}
    with torch.backends.cudnn.flags(**settings, allow_tf32=is_short):
        torch.backends.cuda.matmul.allow_tf32 = is_short
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = products


def _renew() -> None:
    """This process was forked off: whoever was inside is not there."""
    global _setting
    _setting = _Setting()


_setting = _Setting()
os.register_at_fork(after_in_child=_renew)

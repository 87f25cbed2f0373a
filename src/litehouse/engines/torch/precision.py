"""What products of 32 bits are computed in: torch allows TF32 for convolutions by itself."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

LIMIT = 10  # kernels of a convolution that are tried at most
FLAGS = {"enabled": True, "benchmark": True, "benchmark_limit": LIMIT, "deterministic": False}


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
    """Torch has these settings twice, and does not read the older ones where both contradict each other.

    So both are set, and put back as far as they could be read. A newer one may have been left to the one above it.
    """
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    kinds = ((torch.backends.cuda.matmul, cudnn), (cudnn.conv, cudnn), (cudnn.rnn, cudnn), (mkldnn.matmul, mkldnn))
    words = [(kind, _inherited(kind.fp32_precision, above.fp32_precision)) for kind, above in kinds]
    products, convolutions = _older(torch.get_float32_matmul_precision), _older(lambda: cudnn.allow_tf32)
    flags = {name: getattr(cudnn, name) for name in FLAGS if getattr(cudnn, name) is not None}  # one needs a GPU
    try:
        torch.set_float32_matmul_precision("high" if is_short else "highest")
        cudnn.allow_tf32 = is_short
        for kind, _ in kinds[:3]:
            kind.fp32_precision = "tf32" if is_short else "ieee"
        for name in flags:
            setattr(cudnn, name, FLAGS[name])
        yield
    finally:
        for name, value in flags.items():
            setattr(cudnn, name, value)
        if convolutions is not None:
            cudnn.allow_tf32 = convolutions
        if products is not None:
            torch.set_float32_matmul_precision(products)
        for kind, word in words:
            kind.fp32_precision = word


def _inherited(word: str, above: str) -> str:
    """A setting as it was made: a word that is the one above it is not its own."""
    return "none" if word == above else word


def _older(read: Callable[[], Any]) -> Any:
    """An older setting; None where a newer one contradicts it."""
    try:
        return read()
    except RuntimeError:
        return None


def _renew() -> None:
    """This process was forked off: whoever was inside is not there."""
    global _setting
    _setting = _Setting()


_setting = _Setting()
os.register_at_fork(after_in_child=_renew)

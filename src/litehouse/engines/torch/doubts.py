"""What a GPU finds wrong while it computes. Nobody waits for it there: it is noted, and looked at behind the run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from litehouse.device import is_rehearsed
from litehouse.engines.torch.values import Tensor
from litehouse.errors import EngineError

_here = threading.local()
Wrong = list[tuple[Any, list[str]]]
"""Flags that tell whether something is so, as a tensor or an array of them, and what each of them means."""


class Doubts:
    """What may be wrong with a run.

    Attributes:
        flags: For each doubt, a tensor on the device that tells whether it is so.
        texts: What it means.
        place: The step that is at work.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.flags: list[Tensor] = []
        self.texts: list[str] = []
        self.place = ""

    def joined(self) -> Tensor | None:
        """All flags as one tensor; None where there are none."""
        return torch.stack(self.flags) if self.flags else None


@contextmanager
def noted() -> Iterator[Doubts]:
    """Take what is noted while steps run in this thread."""
    doubts = Doubts()
    with _taken_by(doubts):
        yield doubts


def told_at_once() -> AbstractContextManager[None]:
    """While a step computes with numbers of the CPU, what is wrong is an error there and then."""
    return _taken_by(None)


@contextmanager
def _taken_by(doubts: Doubts | None) -> Iterator[None]:
    before, _here.doubts = getattr(_here, "doubts", None), doubts
    try:
        yield
    finally:
        _here.doubts = before


def at(place: str) -> None:
    """Say which step is at work."""
    doubts = getattr(_here, "doubts", None)
    if doubts is not None:
        doubts.place = place


def note(flag: Tensor, text: str) -> None:
    """Note that something is wrong if a tensor on the device says so."""
    doubts = getattr(_here, "doubts", None)
    if doubts is not None:
        doubts.flags.append(flag)
        doubts.texts.append(f"{doubts.place}: {text}" if doubts.place else text)


def must_not_wait(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor are on a GPU, or on what rehearses one."""
    is_noted = getattr(_here, "doubts", None) is not None
    return tensor.device.type != "cpu" or (is_rehearsed() and is_noted)


def check(wrong: Wrong, where: str = "") -> None:
    """Raise EngineError with the text of the first doubt that was right; the device has finished the run.

    Args:
        wrong: What the run has noted.
        where: What the text begins with.
    """
    for flags, texts in wrong:
        for flag, text in zip(flags.tolist(), texts, strict=True):
            if flag:
                raise EngineError(f"{where}{text}")

"""The driver of NVIDIA's GPUs, for what torch has no call for."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import torch

from litehouse.errors import EngineError

LIBRARY = "libcuda.so.1"
THREAD_LOCAL = 1  # what other threads do does not end a capture


@functools.cache
def driver() -> Any:
    """Its library.

    Raises:
        EngineError: There is none.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise EngineError(f"the GPU's driver cannot be used: {error}; litehouse needs the one of NVIDIA") from error


@contextlib.contextmanager
def on(place: torch.device) -> Iterator[None]:
    """With the context of a GPU that torch uses as the one of this thread."""
    with torch.cuda.device(place):
        torch.zeros(1, device=place)  # makes it, if there is none yet
        yield


def begin_capture(stream: Any) -> None:
    """Capture on one of torch's streams, without torch.

    Raises:
        EngineError: The driver does not.
    """
    error = driver().cuStreamBeginCapture_v2(ctypes.c_void_p(stream.cuda_stream), THREAD_LOCAL)
    if error:
        raise EngineError(f"the GPU's driver cannot capture (error {error} of CUDA)")

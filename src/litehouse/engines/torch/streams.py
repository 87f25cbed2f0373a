"""Streams of a GPU that are ours alone.

Torch has few streams, and gives each of them to many who ask. What somebody else begins on a stream while we capture
there would be captured, or fail; and graphs that were captured on one stream share memory for products of matrices. So
ours are made by the driver. None is ever destroyed, as torch may still know it: the next owner takes it, for the same
kind of use, as what is captured needs scratch memory of its own.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import torch

from litehouse.engines.torch.driver import driver, on
from litehouse.engines.torch.graphs import recording
from litehouse.errors import EngineError

NON_BLOCKING = 1  # it need not wait for the default stream, nor that for it

_free: dict[tuple[int, bool], list[Any]] = {}


def stream_for(owner: object, place: torch.device, *, captures: bool = False) -> Any:
    """A stream on a GPU that nobody else has as long as its owner lives.

    Args:
        owner: Whose it is.
        place: The GPU.
        captures: Whether it is one that things are captured on, and nothing else runs on.
    """
    free = _free.setdefault((place.index, captures), [])
    try:
        stream, is_new = free.pop(), False
    except IndexError:
        stream, is_new = torch.cuda.ExternalStream(_made(place), device=place), True
    weakref.finalize(owner, free.append, stream).atexit = False
    if not is_new:
        with recording:
            torch.cuda.synchronize(place)  # what the last owner began may go on, on streams of its callers
    return stream


def _made(place: torch.device) -> int:
    """The address of a new stream."""
    stream = ctypes.c_void_p()
    with on(place):
        error = driver().cuStreamCreate(ctypes.byref(stream), NON_BLOCKING)
    if error:
        raise EngineError(f"the GPU's driver cannot make a stream (error {error} of CUDA)")
    return int(stream.value or 0)

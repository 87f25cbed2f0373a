"""Scratch memory of products, for those that are captured.

Torch takes it when a thread first multiplies on a stream, and keeps it for the next time. A program may clear all of
it, as `torch.compile(mode="reduce-overhead")` does, though graphs that were captured still write there. What is taken
from a pool of our own is given to nobody else then.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch

SIZE = 16  # of what is multiplied

_pools: dict[int, torch.cuda.MemPool] = {}  # by the number of the GPU; never let go of


def take_scratch(place: torch.device) -> None:
    """Let this thread have it for the current stream, from our pool, unless it has some. One thread at a time."""
    bias, found = torch.zeros(SIZE, device=place), torch.zeros(SIZE, SIZE, device=place)
    factor = torch.zeros(SIZE, SIZE, device=place)
    with _pooled(place):
        torch.cuda.current_blas_handle()  # has cuBLAS's, also where a program does not let it multiply
        torch.addmm(bias, factor, factor, out=found)  # by cuBLASLt, which has its own


@contextlib.contextmanager
def _pooled(place: torch.device) -> Iterator[None]:
    """With all that is taken from our pool; some of torch's allocators have none."""
    if torch.cuda.get_allocator_backend() != "native":
        yield
        return
    if place.index not in _pools:
        _pools[place.index] = torch.cuda.MemPool()
        # Not destroyed with the interpreter either: where that fails, as beside a capture, it ends the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_pools[place.index]))
    torch.cuda.empty_cache()  # torch lets go of nothing for memory of a pool; a capture that begins does it in any case
    with torch.cuda.use_mem_pool(_pools[place.index], place):
        yield

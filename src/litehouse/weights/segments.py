"""Arrays in memory that processes share: written once and then sealed, so that nobody can change them."""

from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from litehouse.errors import WeightError
from litehouse.weights.store import ALIGNMENT, dtype_named

NAME = "litehouse"
HEAD = struct.Struct("<4sQ")  # what it is, and the length of the description behind it
MAGIC = b"LHS1"
CHUNK = 1 << 30  # bytes that one call writes, at most
MAX_HEAD = 1 << 28
F_SEAL_FUTURE_WRITE = 0x10  # the mapping that the owner has stays writable (not in Python's module yet)
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)
# A mapping keeps a descriptor of its own, where Python cannot be told to leave that.
UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
SEALED = SEALS | fcntl.F_SEAL_WRITE


class Segment:
    """Arrays in sealed memory.

    Attributes:
        descriptor: What another process opens it by.
        facts: What is written beside the arrays.
        arrays: The arrays, read-only. They stay when the segment is closed.
    """

    def __init__(self, descriptor: int) -> None:
        """Open sealed memory; the descriptor is closed with the segment, or if this fails.

        Raises:
            WeightError: It is not sealed, or holds something else.
        """
        try:
            self._open(descriptor)
        except (OSError, *MALFORMED) as error:
            os.close(descriptor)
            raise WeightError(f"the shared memory does not hold weights as Litehouse writes them: {error}") from error

    def _open(self, descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALED != SEALED:
            raise ValueError("it is not sealed")
        memory = _map(descriptor, os.fstat(descriptor).st_size, mmap.PROT_READ)
        magic, length = HEAD.unpack_from(memory)
        if magic != MAGIC or length > min(MAX_HEAD, len(memory) - HEAD.size):
            raise ValueError("its head is not known")
        head = json.loads(memory[HEAD.size : HEAD.size + length])
        self.facts: dict[str, Any] = dict(head["facts"])
        start = _aligned(HEAD.size + length)
        self.arrays: dict[str, np.ndarray] = {}
        for name, (offset, dtype, shape) in head["places"].items():
            found = dtype_named(dtype)
            if found.hasobject or min(offset, *shape, 0) < 0:
                raise ValueError(f"{name!r} is no array")
            self.arrays[name] = np.ndarray(tuple(shape), found, memory, start + offset)
        self.descriptor = descriptor

    @classmethod
    def make(cls, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Segment:
        """Copy arrays into new memory, and seal it.

        Raises:
            WeightError: There is not enough memory.
        """
        places, size = {}, 0
        for name, array in arrays.items():
            places[name] = (size, array.dtype.name, array.shape)
            size += _aligned(array.nbytes)
        head = json.dumps({"facts": facts, "places": places}).encode()
        start = _aligned(HEAD.size + len(head))
        descriptor = _memory()
        try:
            os.truncate(descriptor, start + size)
            _write(descriptor, HEAD.pack(MAGIC, len(head)) + head, 0)
            for name, array in arrays.items():
                _write(descriptor, np.ascontiguousarray(array).reshape(-1).view(np.uint8), start + places[name][0])
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALED)
        except OSError as error:
            os.close(descriptor)
            raise WeightError(f"no memory to share {size} bytes of weights: {error}") from error
        return cls(descriptor)

    def close(self) -> None:
        """Close the descriptor, once."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Counter:
    """A number that its owner changes and that others read.

    Attributes:
        descriptor: What another process opens it by.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """Make one, or read that of another process; the descriptor is then closed if this fails."""
        self.descriptor = _memory() if descriptor is None else descriptor
        try:
            if descriptor is None:
                os.truncate(self.descriptor, mmap.PAGESIZE)
            elif fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS != SEALS:
                raise ValueError("it is not sealed")
            access = mmap.PROT_READ | (mmap.PROT_WRITE if descriptor is None else 0)
            self._number = memoryview(_map(self.descriptor, mmap.PAGESIZE, access)).cast("Q")
            if descriptor is None:
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, SEALS | F_SEAL_FUTURE_WRITE)
        except (OSError, ValueError) as error:
            os.close(self.descriptor)
            raise WeightError(f"the counter of updates cannot be shared: {error}") from error

    @property
    def number(self) -> int:
        """The number now."""
        return self._number[0]

    @number.setter
    def number(self, value: int) -> None:
        self._number[0] = value

    def close(self) -> None:
        """Close the descriptor, once; who has the number open can go on reading it."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _map(descriptor: int, size: int, access: int) -> mmap.mmap:
    return mmap.mmap(descriptor, size, mmap.MAP_SHARED, access, **UNTRACKED)


def _memory() -> int:
    return os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _write(descriptor: int, content: Any, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view[:CHUNK], offset)
        view, offset = view[written:], offset + written


def _aligned(size: int) -> int:
    return math.ceil(size / ALIGNMENT) * ALIGNMENT

"""Arrays and messages between a pool and its worker processes: shared memory, and lines of JSON over a socket."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from litehouse.errors import ShapeError

ALIGNMENT = 64
FIRST_BYTES = 1 << 16
LONGEST_LINE = 1 << 24
SERIAL = struct.Struct("<Q")  # the number of a run

Place = tuple[str, tuple[int, ...], int]  # dtype, shape, and where the array begins


class SharedMemory:
    """Memory that two processes see. It grows as either of them needs it."""

    def __init__(self, descriptor: int) -> None:
        """Map what a descriptor stands for."""
        self.descriptor = descriptor
        if os.fstat(descriptor).st_size < FIRST_BYTES:
            os.ftruncate(descriptor, FIRST_BYTES)
        self._map = mmap.mmap(descriptor, 0)

    @classmethod
    def make(cls) -> SharedMemory:
        """New memory, without a name that others could open."""
        return cls(os.memfd_create("litehouse-worker", os.MFD_CLOEXEC))

    def write(self, arrays: Sequence[np.ndarray], begin: int = 0) -> tuple[list[Place], int]:
        """Copy arrays into it, one behind the other.

        Returns:
            Their places, and where the last one ends.
        """
        places: list[Place] = []
        end = begin
        for array in arrays:
            if array.dtype.hasobject:
                raise ShapeError("text cannot be handed to a process; use workers in this process")
            start = -(-end // ALIGNMENT) * ALIGNMENT
            places.append((array.dtype.str, array.shape, start))
            end = start + array.nbytes
        self._reach(end)
        for array, (_, shape, start) in zip(arrays, places, strict=True):
            np.ndarray(shape, array.dtype, self._map, start)[...] = array
        return places, end

    def read(self, places: Sequence[Sequence[Any]], *, copy: bool) -> list[np.ndarray]:
        """The arrays at these places, over the memory or as copies."""
        views = []
        for dtype, shape, start in places:
            kind = np.dtype(dtype)
            self._reach(start + kind.itemsize * int(np.prod(shape, dtype=np.int64)))
            views.append(np.ndarray(tuple(shape), kind, self._map, start))
        return [view.copy() for view in views] if copy else views

    def close(self) -> None:
        """Give it back; where views of it are left, the memory goes with the last of them."""
        with contextlib.suppress(BufferError):
            self._map.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def _reach(self, nbytes: int) -> None:
        """Let the map reach so far; the other process may have made the memory larger, or this one has to."""
        if nbytes <= len(self._map):
            return
        if os.fstat(self.descriptor).st_size < nbytes:
            os.ftruncate(self.descriptor, 2 * nbytes)
        self._map = mmap.mmap(self.descriptor, 0)  # the old one goes when its last view does


class Line:
    """Messages over a socket, one JSON value a line."""

    def __init__(self, end: socket.socket) -> None:
        """Use one end of a pair."""
        self._socket = end
        self._rest = b""

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            OSError: The other end is gone.
        """
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> Any:
        """The next message.

        Args:
            seconds: How long to wait for each piece of it at most; None for ever.

        Raises:
            EOFError: The other end is gone, or says nothing.
        """
        self._socket.settimeout(seconds)
        while b"\n" not in self._rest:
            if len(self._rest) > LONGEST_LINE:
                raise EOFError("a message without an end")
            try:
                piece = self._socket.recv(1 << 16)
            except OSError as error:
                raise EOFError(str(error)) from error
            if not piece:
                raise EOFError("the other end is gone")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

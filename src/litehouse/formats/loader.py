"""Reads the weights of a model into one arena, from the model file and from data files beside it.

All that a file declares about its tensors is checked here, against the bytes that are there, before any are allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.source import Source, open_beside
from litehouse.options import Limits
from litehouse.weights import Weights, WeightsBuilder

MAX_RANK = 64  # numpy's own limit
MAX_ELEMENTS = 1 << 58  # times 16 bytes, the largest element, this still fits numpy's signed 64-bit sizes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's bytes lie.

    Attributes:
        offset: Of the first byte.
        length: Count of bytes; None for as many as the shape takes.
        location: The data file beside the model; None for the model file itself.
    """

    offset: int
    length: int | None = None
    location: str | None = None


def check_shape(name: str, shape: Sequence[int], path: str) -> tuple[int, ...]:
    """The shape of a tensor with data: of a sane rank, without negative sizes, and countable."""
    if len(shape) > MAX_RANK or any(size < 0 for size in shape) or math.prod(max(1, n) for n in shape) > MAX_ELEMENTS:
        more = ", ..." if len(shape) > 8 else ""
        raise ModelFormatError(
            f"tensor {name!r} has the impossible shape [{', '.join(map(str, shape[:8]))}{more}]; the file is damaged",
            path=path,
        )
    return tuple(shape)


class WeightLoader:
    """Collects the weights of a model, then loads them all at once."""

    def __init__(self, source: Source, limits: Limits, unlock: Callable[[Source], Source] | None = None) -> None:
        """Start with no weights.

        Args:
            source: The model file.
            limits: What the file may ask for.
            unlock: Decrypts a data file.
        """
        self._source = source
        self._limits = limits
        self._unlock = unlock
        self._builder = WeightsBuilder()
        self._names: set[str] = set()
        self._jobs: dict[str | None, list[tuple[str, int]]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._sizes: dict[str, int] = {}
        self._placed: dict[tuple[str, int, int], str] = {}
        self._present = 0  # bytes of the data files
        self._taken = 0  # bytes that the tensors take of them

    def add(self, name: str, dtype: np.dtype, shape: Sequence[int], place: Place | np.ndarray) -> None:
        """Take in one weight, from a place or an array.

        Weights at the same place of a data file share their memory, so that no file can ask for more than its bytes.
        """
        self._check_name(name)
        if isinstance(place, np.ndarray):
            self._builder.reserve(name, dtype, tuple(shape))
            self._arrays[name] = place
            return
        size = self._check(name, dtype.itemsize * 8, shape, place)
        if place.location is not None:
            first = self._placed.setdefault((place.location, place.offset, size), name)
            if first != name:
                self._builder.share(name, dtype, tuple(shape), first)
                return
            self._take(size)
        self._builder.reserve(name, dtype, tuple(shape))
        self._jobs.setdefault(place.location, []).append((name, place.offset))

    def fetch(self, name: str, bits: int, shape: Sequence[int], place: Place) -> bytes:
        """The bytes of a tensor that stays in the graph; `bits` is the size of an element."""
        size = self._check(name, bits, shape, place)
        if place.location is None:
            return self._source.read(place.offset, size)
        self._take(size)
        with self._open(place.location) as data:
            return data.read(place.offset, size)

    def load(self) -> Weights:
        """Allocate the arena and fill it, without another copy on the way."""
        weights = self._builder.build()
        for name, array in self._arrays.items():
            weights[name][...] = array
        for location, jobs in self._jobs.items():
            if location is None:
                _fill(weights, self._source, jobs)
                continue
            # One data file at a time: a model may have more of them than a process may have open.
            with self._open(location) as data:
                _fill(weights, data, jobs)
        return weights

    def _check_name(self, name: str) -> None:
        if not name:
            raise ModelFormatError("a weight has no name; the file is damaged", path=self._source.path)
        if name in self._names:
            raise ModelFormatError(f"weight {name!r} occurs twice; the file is damaged", path=self._source.path)
        self._names.add(name)

    def _check(self, name: str, bits: int, shape: Sequence[int], place: Place) -> int:
        """The bytes of a tensor, checked against the limits and the file."""
        path = self._source.path
        size = -(-bits * math.prod(check_shape(name, shape, path)) // 8)
        if size > self._limits.max_tensor_bytes:
            raise LimitError(
                f"tensor {name!r} declares {size} bytes, more than max_tensor_bytes={self._limits.max_tensor_bytes}; "
                "raise the limit if you trust the file",
                path=path,
            )
        if place.length is not None and place.length != size:
            raise ModelFormatError(
                f"tensor {name!r} of shape {list(shape)} has {place.length} bytes, not {size}; the file is damaged",
                path=path,
            )
        available = self._source.size if place.location is None else self._size(place.location)
        if place.offset < 0 or place.offset + size > available:
            where = f"data file {place.location!r}" if place.location is not None else "file"
            raise ModelFormatError(
                f"tensor {name!r} lies at bytes {place.offset} to {place.offset + size} of a {where} "
                f"of {available} bytes; the file is cut off or damaged",
                path=path,
            )
        return size

    def _size(self, location: str) -> int:
        if location not in self._sizes:
            with open_beside(self._source.path, location) as data:
                self._sizes[location] = data.size
                self._source.note(location, data)
            self._present += self._sizes[location]
            total = self._source.size + self._present
            if total > self._limits.max_model_bytes:
                raise LimitError(
                    f"the model and its data files have {total} bytes, more than "
                    f"max_model_bytes={self._limits.max_model_bytes}; raise the limit if you trust them",
                    path=self._source.path,
                )
        return self._sizes[location]

    def _take(self, size: int) -> None:
        self._taken += size
        if self._taken > self._present:
            raise ModelFormatError(
                "the tensors overlap: together they declare more bytes than their data files have; the file is damaged",
                path=self._source.path,
            )

    def _open(self, location: str) -> Source:
        data = open_beside(self._source.path, location)
        self._source.note(location, data)
        if self._unlock is None:
            return data
        with data:
            return self._unlock(data)


def _fill(weights: Weights, data: Source, jobs: list[tuple[str, int]]) -> None:
    for name, offset in jobs:
        data.read_into(offset, weights[name])

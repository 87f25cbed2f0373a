"""One arena that holds all weights of a model, each at an aligned offset."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from litehouse.errors import WeightError

ALIGNMENT = 64  # a cache line, and what every engine's widest loads want


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one weight lies in the arena."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


class Weights(Mapping[str, np.ndarray]):
    """The weights of a model by name, as arrays over one arena. Nothing is copied on access."""

    def __init__(self, arena: mmap.mmap | None, entries: dict[str, Entry]) -> None:
        """Wrap an arena that `WeightsBuilder` filled."""
        self._arrays: dict[str, np.ndarray] = {}
        for name, entry in entries.items():
            if arena is None:
                self._arrays[name] = np.empty(entry.shape, entry.dtype)
            else:
                self._arrays[name] = np.ndarray(entry.shape, entry.dtype, buffer=arena, offset=entry.offset)

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Weights:
        """Arrays that lie somewhere."""
        made = cls(None, {})
        made._arrays = dict(arrays)
        return made

    def __getitem__(self, name: str) -> np.ndarray:
        """The weight of that name, over the arena's memory."""
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in file order."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Count of weights."""
        return len(self._arrays)

    def like(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """The names that are among the patterns, or that one of them fits: `*`, `?` and `[...]` as in file names.

        What is not named outright must hold real numbers, and more than a single one.
        """
        return tuple(
            name
            for name, array in self._arrays.items()
            if name in patterns
            or (is_real(array) and array.size > 1 and any(fnmatchcase(name, pattern) for pattern in patterns))
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all weights together."""
        return sum(array.nbytes for array in self._arrays.values())


def dtype_named(name: str) -> np.dtype:
    """The dtype of a name, also of one that numpy does not have itself.

    Raises:
        TypeError: There is none.
    """
    if name == "bfloat16" or name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2")):
        import ml_dtypes

        special: np.dtype = np.dtype(getattr(ml_dtypes, name))
        return special
    return np.dtype(name)


def has_nan(array: np.ndarray) -> bool:
    """Whether a value is not a number."""
    if not is_real(array) and array.dtype.kind != "c":
        return False
    with np.errstate(invalid="ignore"):
        return bool(array.size) and bool(np.isnan(array.max()))


def is_real(array: np.ndarray) -> bool:
    """Whether it holds real numbers, of whatever width."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


class WeightsBuilder:
    """Lays out an arena: first `reserve` every weight, then `build` and fill the arrays."""

    def __init__(self) -> None:
        """Start with an empty arena."""
        self._entries: dict[str, Entry] = {}
        self._size = 0

    def reserve(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Make room for one weight."""
        entry = self._add(name, Entry(self._size, np.dtype(dtype), shape))
        self._size += -(-entry.nbytes // ALIGNMENT) * ALIGNMENT

    def share(self, name: str, dtype: np.dtype, shape: tuple[int, ...], other: str) -> None:
        """Put a weight where another one of the same size lies, so that both are one memory."""
        first = self._entries[other]
        if self._add(name, Entry(first.offset, np.dtype(dtype), shape)).nbytes != first.nbytes:
            raise WeightError(f"weights {name!r} and {other!r} differ in size, so they cannot share memory")

    def build(self) -> Weights:
        """Allocate the arena. Its pages cost nothing until they are filled.

        Raises:
            WeightError: There is not enough memory.
        """
        if not self._size:
            return Weights(None, self._entries)
        try:
            # Private: a process that forks must not see its child's updates.
            arena = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise WeightError(
                f"no memory for {self._size} bytes of weights ({error}); free some, or raise the process's limit"
            ) from error
        return Weights(arena, self._entries)

    def _add(self, name: str, entry: Entry) -> Entry:
        if name in self._entries:
            raise WeightError(f"weight {name!r} occurs twice; weight names must differ")
        if entry.dtype.hasobject:
            # numpy would take the arena's bytes for pointers to Python objects.
            raise WeightError(
                f"weight {name!r} has the dtype {entry.dtype}, which no arena can hold; use a numeric one"
            )
        self._entries[name] = entry
        return entry

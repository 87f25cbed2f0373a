"""Memory that several models share: what is equal in them is there once."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

Content = tuple[str, tuple[int, ...], bytes]


class Arena:
    """Arrays by their content, as long as a session uses them; see `Session.use_arena`.

    Attributes:
        shelf: What engines have instead on devices, by the device.
        placing: Held by whoever puts something there.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.shelf: dict[str, Any] = {}
        self.placing = threading.Lock()
        self._arrays: weakref.WeakValueDictionary[Content, np.ndarray] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def intern(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The same arrays: copies, or what was there before, under whatever name."""
        with self._lock:
            return {name: self._one(array) for name, array in arrays.items()}

    def _one(self, array: np.ndarray) -> np.ndarray:
        content = _content(array)
        found = self._arrays.get(content)
        if found is None:
            self._arrays[content] = found = np.array(array, order="C")
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(array.nbytes for array in list(self._arrays.values()))


def _content(array: np.ndarray) -> Content:
    digest = hashlib.blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, digest_size=32).digest()
    return array.dtype.name, array.shape, digest

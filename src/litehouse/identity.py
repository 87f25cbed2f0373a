"""What a model file is, whatever its name: the key under which the cache keeps what was made of it."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from litehouse.cache import Cache

Marks = tuple[str, int, int, int, int, int]
YOUNG_SECONDS = 2.0  # a file system may give two writes within this time the same time stamp


def find(source: str | os.PathLike[str] | bytes) -> str | os.PathLike[str] | bytes:
    """The file itself; for `x.mindir` of a network that was exported in parts, its graph `x_graph.mindir`."""
    if isinstance(source, str | os.PathLike) and not os.path.exists(path := os.fspath(source)):
        graph = path.removesuffix(".mindir") + "_graph.mindir"
        return graph if os.path.exists(graph) else source
    return source


class Origin:
    """What a model was read from. Make it before the reading begins, so that a change meanwhile is noticed.

    Attributes:
        path: The file as the caller named it, or `"<bytes>"`.
        seconds: How long the reading took.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        """Note what the file looks like now."""
        self.seconds = 0.0
        self._digest = ""
        if isinstance(source, bytes | bytearray | memoryview):
            self.path = "<bytes>"
            self._digest = hashlib.sha256(source).hexdigest()
        else:
            self.path = os.fsdecode(source)
            self._file = os.path.abspath(self.path)
            self._marks = _marks(self._file)

    def recall(self, cache: Cache, files: Iterable[str] = ()) -> str | None:
        """What `identify` gave before for the same files; None where that is not noted. No file is read."""
        return self._identity(cache, files, _noted)

    def identify(self, cache: Cache, files: Iterable[str] = ()) -> str | None:
        """A digest of the content, and of data files beside it; None where a file cannot be read or has changed."""
        return self._identity(cache, files, _content)

    def _identity(self, cache: Cache, files: Iterable[str], find: Callable[[str, Cache], str | None]) -> str | None:
        if self._digest:
            return self._digest
        folder = os.path.dirname(self._file)
        digests = [find(path, cache) for path in (self._file, *(os.path.join(folder, name) for name in files))]
        if None in digests or _marks(self._file) != self._marks:
            return None
        return hashlib.sha256(" ".join(map(str, digests)).encode()).hexdigest()


def _noted(path: str, cache: Cache) -> str | None:
    """The digest of a file that is noted; None for a file that has changed since, or just now."""
    marks = _marks(path)
    noted = cache.record("files", _key(marks)) if _is_still(marks) else None
    return None if noted is None else str(noted["content"])


def _content(path: str, cache: Cache) -> str | None:
    """A digest of a file. Where the file lay still it is noted, so that it is read for this only once."""
    if (noted := _noted(path, cache)) is not None:
        return noted
    marks = _marks(path)
    if marks is None:
        return None
    try:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
    if _is_still(marks) and _marks(path) == marks:
        cache.put_record("files", _key(marks), {"content": content})
    return content


def _key(marks: Marks | None) -> str:
    return hashlib.sha256(repr(marks).encode(errors="surrogateescape")).hexdigest()


def _is_still(marks: Marks | None) -> bool:
    return marks is not None and time.time() - max(marks[-2:]) / 1e9 > YOUNG_SECONDS


@functools.cache
def own_identity() -> str:
    """A digest of Litehouse itself: what another version made is made anew."""
    marks = sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in _own_files())
    return hashlib.sha256(repr(marks).encode()).hexdigest()


def _own_files() -> list[Path]:
    return [path for path in Path(__file__).parent.rglob("*.py") if path.is_file()]


def _marks(path: str) -> Marks | None:
    """What changes whenever a file is written: the change time cannot be set by a program. None for no regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    real = os.path.realpath(path)
    return real, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

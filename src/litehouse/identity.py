"""What a model file is, whatever its name: the key under which the cache keeps what was made of it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from litehouse._version import __version__
from litehouse.cache import Cache

Marks = tuple[str, int, int, int, int, int]
Files = Mapping[str, Marks | None]
"""Data files beside a model by name, and what they looked like when they were read; None where that changed."""
NO_FILES: Files = MappingProxyType({})
LIBRARIES = ("onnx", "onnx_ir")
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
        file: Its full path; empty for bytes.
        seconds: How long the reading took.
        content: What `identify` found for the file alone.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        """Note what the file looks like now."""
        self.seconds = 0.0
        self.file = ""
        self.content: str | None = None
        self._identity: str | None = None
        self._is_known = False
        self._digest = ""
        self._marks: Marks | None = None
        if isinstance(source, bytes | bytearray | memoryview):
            self.path = "<bytes>"
            self._digest = hashlib.sha256(source).hexdigest()
        else:
            self.path = os.fsdecode(source)
            self.file = _absolute(self.path)
            self._marks = marks_at(self.file)

    def beside(self, names: Iterable[str]) -> dict[str, Marks | None]:
        """What data files beside it look like now."""
        return {name: marks_at(self._place(name)) for name in names}

    def recall(self, cache: Cache, files: Files = NO_FILES) -> str | None:
        """What `identify` gave before for the same files; None where that is not noted. No file is read."""
        if self._digest:
            return self._digest
        return _joined([_noted(marks, cache) for marks in (self._marks, *files.values())])

    def identify(self, cache: Cache, files: Files = NO_FILES) -> str | None:
        """A digest of the content, and of data files beside it; None where a file has changed since it was read.

        It is found by the first call, which belongs right after the reading. Later ones give what that one found: they
        are about the files that were read, whatever lies there now.

        Args:
            cache: Where digests are noted, so that a file that lay still is read for this only once.
            files: The data files, and what they looked like when they were read.
        """
        if not self._is_known:
            places = [(self.file, self._marks), *((self._place(name), marks) for name, marks in files.items())]
            digests = [] if self._digest else [_content(*place, cache) for place in places]
            self.content = self._digest or _joined(digests[:1])
            self.settle(self._digest or _joined(digests))
        return self._identity

    def settle(self, identity: str | None) -> None:
        """Say what `identify` is to give."""
        self._identity, self._is_known = identity, True

    def has_changed(self) -> bool:
        """Whether the file is no longer the one that it was."""
        return bool(self.file) and (self._marks is None or marks_at(self.file) != self._marks)

    def _place(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.file), name)


def content_of(path: str, files: Iterable[str] = ()) -> str:
    """A digest of a file, and of data files beside it; empty where one cannot be read."""
    digest = hashlib.sha256()
    try:
        for place in (path, *(os.path.join(os.path.dirname(path), name) for name in files)):
            with open(place, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()


def _joined(digests: list[str | None]) -> str | None:
    return None if None in digests else hashlib.sha256(" ".join(map(str, digests)).encode()).hexdigest()


def _noted(marks: Marks | None, cache: Cache) -> str | None:
    """The digest that is noted for a file with these marks; None for one that was changed just now."""
    noted = cache.record("files", _key(marks)) if is_still(marks) else None
    return None if noted is None else noted.get("content")


def _content(path: str, marks: Marks | None, cache: Cache) -> str | None:
    """A digest of a file that has these marks before and after. Where it lay still, it is noted."""
    if marks is None or marks_at(path) != marks:
        return None
    if (noted := _noted(marks, cache)) is not None:
        return noted
    try:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
    if marks_at(path) != marks:
        return None
    if is_still(marks):
        cache.put_record("files", _key(marks), {"content": content})
    return content


def _key(marks: Marks | None) -> str:
    return hashlib.sha256(repr(marks).encode(errors="surrogateescape")).hexdigest()


def is_still(marks: Marks | None) -> bool:
    """Whether a file was not changed just now, so that its marks tell it from what it becomes next."""
    return marks is not None and time.time() - max(marks[-2:]) / 1e9 > YOUNG_SECONDS


@functools.cache
def own_identity() -> str:
    """A digest of Litehouse, and of what it translates with: what other versions made is made anew."""
    versions = [__version__, *(_version(name) for name in LIBRARIES)]
    digest = hashlib.sha256(repr(versions).encode())
    for path in _own_files():
        with contextlib.suppress(OSError):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _own_files() -> list[Path]:
    """The sources, or what was compiled of them where there are none."""
    found: list[Path] = []
    for folder, inner, names in os.walk(os.path.dirname(__file__)):
        inner[:] = [name for name in inner if name != "__pycache__"]
        found += [Path(folder, name) for name in names if name.endswith((".py", ".pyc"))]
    return sorted(found)


def _version(package: str) -> str | None:
    """The version of a package, which is not imported for it."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def marks_of(path: str, status: os.stat_result) -> Marks:
    """What changes whenever a file is written: the change time cannot be set by a program."""
    return path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def marks_at(path: str) -> Marks | None:
    """The marks of a file under its real path; None for no regular file."""
    try:
        status, real = os.stat(path), os.path.realpath(path)
    except (OSError, ValueError):
        return None
    return marks_of(real, status) if stat.S_ISREG(status.st_mode) else None


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:  # the current folder is gone
        return path

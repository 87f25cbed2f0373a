"""`Source`: the bytes of a model file, read piece by piece, and the one gate to files beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Self

import numpy as np

from litehouse.errors import LimitError, ModelFormatError
from litehouse.identity import Marks, marks_of
from litehouse.options import Limits

BYTES_NAME = "<bytes>"


class Source:
    """Bytes at offsets, from a file or from memory.

    A file is read with `pread`, never mapped, so that a file that shrinks meanwhile is an error and not a dead process.

    Attributes:
        path: The file, or `"<bytes>"`.
        size: Count of bytes.
        marks: What its file looked like when it was opened; None for bytes in memory.
        beside: The marks of the data files that were opened for it.
        is_secret: Whether any of it was encrypted.
    """

    def __init__(
        self,
        *,
        path: str,
        size: int,
        data: bytes | bytearray | memoryview | None = None,
        descriptor: int | None = None,
        marks: Marks | None = None,
    ) -> None:
        """Use `open_source` or `Source.over` instead."""
        self.path = path
        self.size = size
        self.marks = marks
        self.beside: dict[str, Marks | None] = {}
        self.is_secret = False
        self._data = None if data is None else memoryview(data).cast("B")
        self._descriptor = descriptor

    @classmethod
    def over(cls, data: bytes | bytearray | memoryview, path: str = BYTES_NAME) -> Source:
        """A source over bytes in memory, which must not change meanwhile."""
        return cls(path=path, size=memoryview(data).nbytes, data=data)

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at `offset`; fewer than `length` only at the end."""
        length = max(0, min(length, self.size - offset))
        if self._data is not None:
            return bytes(self._data[offset : offset + length])
        pieces = []
        while length:
            piece = os.pread(self._open_descriptor(), length, offset)
            if not piece:
                raise self._shrank()
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_into(self, offset: int, array: np.ndarray) -> None:
        """Fill a C-contiguous array with the bytes at `offset`, without another copy of them."""
        if array.nbytes == 0:
            return
        view = array.reshape(-1).view(np.uint8).data
        self._check("a tensor", offset, len(view))
        if self._data is not None:
            view[:] = self._data[offset : offset + len(view)]
            return
        while view:
            count = os.preadv(self._open_descriptor(), [view], offset)
            if not count:
                raise self._shrank()
            offset += count
            view = view[count:]

    def window(self, offset: int, size: int) -> Source:
        """A part of the source as a source of its own, without a copy. It can be read until this one is closed."""
        self._check("a part", offset, size)
        return _Window(self, offset, size)

    def note(self, location: str, data: Source) -> None:
        """Remember a data file. One that changes between two openings is given no marks: it is not one content."""
        if self.beside.setdefault(location, data.marks) != data.marks:
            self.beside[location] = None

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """The source itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def _check(self, what: str, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self.size:
            raise ModelFormatError(
                f"{what}'s {size} bytes at {offset} end behind the file's {self.size} bytes; "
                "the file is cut off or damaged",
                path=self.path,
            )

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise ModelFormatError("the file is closed", path=self.path)
        return self._descriptor

    def _shrank(self) -> ModelFormatError:
        return ModelFormatError("the file shrank while it was read; load it again", path=self.path)


class _Window(Source):
    """A part of another source."""

    def __init__(self, whole: Source, start: int, size: int) -> None:
        super().__init__(path=whole.path, size=size)
        self._whole = whole
        self._start = start

    def read(self, offset: int, length: int) -> bytes:
        return self._whole.read(self._start + offset, min(length, self.size - offset))

    def read_into(self, offset: int, array: np.ndarray) -> None:
        if array.nbytes:
            self._check("a tensor", offset, array.nbytes)
            self._whole.read_into(self._start + offset, array)


def open_source(source: str | os.PathLike[str] | bytes, limits: Limits) -> Source:
    """Open a model file, or wrap bytes.

    Raises:
        ModelFormatError: There is no such file, or it is not a regular, readable, non-empty one.
        LimitError: It is larger than the limits allow.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        opened = Source.over(bytes(source))
    else:
        opened = _open_file(os.fsdecode(source))
    if opened.size == 0:
        opened.close()
        raise ModelFormatError("the file is empty; export or download it again", path=opened.path)
    if opened.size > limits.max_model_bytes:
        opened.close()
        raise LimitError(
            f"{opened.size} bytes are more than max_model_bytes={limits.max_model_bytes}; "
            "raise the limit if you trust the file",
            path=opened.path,
        )
    return opened


def _open_file(path: str, flags: int = 0) -> Source:
    if "\0" in path:
        raise ModelFormatError("the path contains a NUL character; check the file name", path=path.replace("\0", "\\0"))
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name cannot be encoded"
        raise ModelFormatError(
            f"cannot open the file ({reason}); check the path and its permissions", path=path
        ) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ModelFormatError(f"this is {kind}; give the path of a model file", path=path)
    return Source(path=path, size=status.st_size, descriptor=descriptor, marks=marks_of(path, status))


def open_beside(model_path: str, location: str) -> Source:
    """Open a data file that a model names. The one way to any file but the model itself.

    The file must lie in the folder of the model, as named or as resolved: caches keep both as links to another one.

    Raises:
        ModelFormatError: The location leaves the folder, or there is no such regular file.
    """
    if model_path == BYTES_NAME:
        raise ModelFormatError(f"the model keeps weights in {location!r}, but it came as bytes; load it by its path")
    relative = Path(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise ModelFormatError(
            f"the data file {location!r} is not inside the model's folder; "
            "refused, since a model may use its own folder only",
            path=model_path,
        )
    named = os.path.dirname(os.path.abspath(model_path))
    try:
        actual = os.path.realpath(os.path.join(named, location), strict=True)
    except OSError as error:
        raise ModelFormatError(
            f"the data file {location!r} is missing ({error.strerror}); put it beside the model", path=model_path
        ) from error
    folders = {os.path.realpath(named), os.path.dirname(os.path.realpath(model_path))}
    if not any(Path(actual).is_relative_to(folder) for folder in folders):
        raise ModelFormatError(
            f"the data file {location!r} is a link that leaves the model's folder; "
            "refused, copy the file there instead",
            path=model_path,
        )
    return _open_file(actual, os.O_NOFOLLOW)

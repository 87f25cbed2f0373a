"""Where torch's compiler has its files while it makes kernels: in our cache for the next start, else nowhere for long.

The compiler believes what it finds in its folder, and unpickles it. So each model has a folder of its own in the
cache, which only this user can look into; the compiler sees it only while it makes kernels of that model, and the
folder that is usual for it is never used. A library that was cut short ends the process that loads it, so the folder
has a list of its files, with what is in them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from litehouse.cache import Cache, open_cache
from litehouse.engines.safety import engine_version
from litehouse.folders import UnsafeError, is_writable, names, unlink
from litehouse.options import Options

if TYPE_CHECKING:
    from litehouse.model import Model

Made = TypeVar("Made")
Digests = dict[str, tuple[int, int, str]]
FOLDER_VARIABLE, TRITON_VARIABLE = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
MARK, NEW, LIST = ".making", ".new-", ".files"
_using = threading.RLock()  # the variables are those of the whole process

log = logging.getLogger(__name__)


class Workplace:
    """Where kernels of a model are made."""

    def __init__(self, cache: Cache | None = None, key: str = "", path: str = "") -> None:
        """Use `workplace_of` instead.

        Args:
            cache: Has the folder; None for a temporary one.
            key: What the folder is found by.
            path: The model's file.
        """
        self._cache, self._key, self._path = cache, key, path
        self._digests: Digests = {}

    def make(self, make: Callable[[], Made]) -> Made:
        """What `make` gives, called with the compiler's files in their folder. One call at a time in the process."""
        with _using:
            folder = self._folder()
            if folder is None or self._cache is None:
                return _beside(make)
            had_files, is_there = bool(names(folder)), False
            try:
                with _marked(folder) as mark, used(folder):
                    try:
                        made = make()
                    finally:
                        is_there = mark.exists()
                        if not is_there:
                            self._cache.drop_opened(self._key)
                    self._note(folder)  # before the mark goes: who finds none expects that the list is right
            except Exception:
                if is_there and not had_files:
                    raise
                made = _beside(make)  # it was removed meanwhile, or what lies there is damaged
                if is_there:
                    self._drop()
                return made
            self._cache.settle(self._key)
            return made

    def _folder(self) -> Path | None:
        """The folder in the cache; None where there is none that can be used."""
        if self._cache is None:
            return None
        try:
            folder = self._cache.workplace(self._key, self._path)
            if folder is not None and self._is_suspect(folder):
                self._drop()
                folder = self._cache.workplace(self._key, self._path)
            if folder is None or not is_writable(folder) or (not self._digests and _is_changed(folder)):
                return None
        except UnsafeError as error:
            _warn(str(error))
            return None
        except OSError:
            return None
        return folder

    def _drop(self) -> None:
        assert self._cache is not None
        self._digests = {}
        self._cache.drop_workplace(self._key)

    def _is_suspect(self, folder: Path) -> bool:
        """Whether files may be cut short or damaged: they are not those of the list, or a process died among them."""
        while not (marks := _marks(folder)):
            if self._digests or not names(folder):
                return False  # it was looked at before, or there is nothing
            listed, found = _listed(folder), _digests(folder, {})
            if listed == _shown(found):
                self._digests = found
                return False
            if not _marks(folder) and _listed(folder) == listed:
                return True  # and no other process has begun or ended meanwhile
        return any(_is_left(mark) for mark in marks)  # where others are at work, the list is not what it will be

    def _note(self, folder: Path) -> None:
        """List the files; again where there are others by then, as another process may have listed them meanwhile."""
        with contextlib.suppress(OSError):  # without a list, they are made anew
            while (found := _digests(folder, self._digests)) != self._digests:
                self._digests = found
                _list(folder, _shown(found))


def workplace_of(model: Model, options: Options) -> Workplace:
    """Where kernels of a model are made; nothing is left of one that is secret, or that nothing is kept of."""
    cache = None if model.is_secret else open_cache(options.cache)
    identity = model.origin.identify(cache, model.files) if cache is not None and model.origin is not None else None
    if cache is None or model.origin is None or identity is None:
        return Workplace()
    key = hashlib.sha256(repr(("kernels", identity, engine_version("torch"))).encode()).hexdigest()
    return Workplace(cache, key, model.origin.file or model.path)


@contextlib.contextmanager
def used(folder: Path) -> Iterator[None]:
    """Let torch's compiler, and Triton below it, have their files in a folder; the processes that they start, too."""
    with _using:
        wanted = {FOLDER_VARIABLE: str(folder), TRITON_VARIABLE: str(folder / "triton")}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            _forget()
            yield
        finally:
            _forget()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _forget() -> None:
    """Let the compiler forget what it has in memory: where its files are, and which of them it need not write."""
    from torch._inductor import utils  # sets the variables where they are not set

    for known in utils._registered_caches:
        if not hasattr(known, "_disk_cache"):  # torch's own `clear_caches` removes such files from its usual folder
            known.cache_clear()


@contextlib.contextmanager
def _marked(folder: Path) -> Iterator[Path]:
    """Leave a mark in the folder, which it gives; it stays if this process, which holds its lock, dies meanwhile."""
    descriptor, new = tempfile.mkstemp(dir=folder, prefix=NEW)
    mark = folder / f"{MARK}{os.path.basename(new)}"
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, mark)
        yield mark
    finally:
        unlink(mark)
        os.close(descriptor)


def _marks(folder: Path) -> list[Path]:
    return [folder / name for name in names(folder) if name.startswith(MARK)]


def _is_left(mark: Path) -> bool:
    """Whether the process of a mark has died."""
    try:
        with mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # any number of processes may ask at a time
            return mark.exists()  # else it has ended since the mark was opened
    except OSError:
        return False  # it lives, or has just ended


def _digests(folder: Path, known: Digests) -> Digests:
    """The files of a folder, each with when it changed, its size, and a digest; what is known is not read again."""
    found: Digests = {}
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place, name)
            if path.parent == folder and name.startswith((MARK, NEW, LIST)):
                continue
            short = str(path.relative_to(folder))
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                status = path.lstat()
                before = known.get(short)
                if not stat.S_ISREG(status.st_mode):
                    continue  # a link need not lead to anything
                if before is None or before[:2] != (status.st_mtime_ns, status.st_size):
                    with path.open("rb") as file:
                        before = status.st_mtime_ns, status.st_size, hashlib.file_digest(file, "sha256").hexdigest()
                found[short] = before
    return found


def _shown(digests: Digests) -> dict[str, str]:
    return {name: digest for name, (_, _, digest) in digests.items()}


def _list(folder: Path, shown: dict[str, str]) -> None:
    descriptor, new = tempfile.mkstemp(dir=folder, prefix=NEW)
    try:
        with open(descriptor, "w") as file:
            json.dump(shown, file)
        os.replace(new, folder / LIST)
    except OSError:
        unlink(new)
        raise


def _listed(folder: Path) -> object:
    """The list of a folder; None where there is none."""
    try:
        return json.loads((folder / LIST).read_bytes())
    except (OSError, ValueError):
        return None


def _is_changed(folder: Path) -> bool:
    """Whether a file is not what the list has of it; there may be others, which processes make that are at work."""
    listed = _listed(folder)
    if not isinstance(listed, dict):
        return False
    found = _shown(_digests(folder, {}))
    return any(found.get(name) != digest for name, digest in listed.items())


def _beside(make: Callable[[], Made]) -> Made:
    """What `make` gives, with nothing left on the disk."""
    with (
        tempfile.TemporaryDirectory(prefix="litehouse-kernels-", ignore_cleanup_errors=True) as folder,
        used(Path(folder)),
    ):
        return make()


@functools.cache
def _warn(reason: str) -> None:
    log.warning("no kernels are kept for the next start: %s", reason)

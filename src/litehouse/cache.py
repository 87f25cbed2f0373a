"""What Litehouse keeps on disk between processes: models that were built, and small records of what was measured.

All of it can be deleted at any time. Whatever is missing, damaged or of another kind counts as not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litehouse.folders import UnsafeError, changed, check, is_writable, names, nearest, size_of, unlink

LAYOUT = "litehouse-1"  # a name that nobody else gives, with the number of this kind of files
REMOVED = f".{LAYOUT}-old-"
DEFAULT_BYTES = 16_000_000_000
FOLDER_VARIABLE = "LITEHOUSE_CACHE_DIR"
BYTES_VARIABLE = "LITEHOUSE_CACHE_BYTES"
UNITS = "kmgt"
MAX_RECORDS = 4096
BLOCK = 1 << 20
WAIT_STEP = 0.02  # seconds
STALE_SECONDS = 3600.0  # a process that stores takes seconds: what is older was left by one that died
FACTS = "entry.json"
KERNELS = "kernels"  # the kind of entry, and of the record beside it
KERNELS_SHARE = 4  # kernels may take one part of so many of the limit
KEEP_SECONDS = 0.2  # what is made in less time is made again as fast as it would be found
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what reading damaged notes raises


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder of files that belong together.

    Attributes:
        key: What it is found by.
        folder: Where its files lie.
        facts: What was noted when it was stored.
        nbytes: The size of its files.
        sums: What `checksum` gives for each file that is sound.
        used: When it was last found, in seconds since the epoch.
    """

    key: str
    folder: Path
    facts: dict[str, Any]
    nbytes: int
    sums: dict[str, str]
    used: float


class Cache:
    """A bounded folder of entries and records. Any number of processes may use one at the same time.

    A writer prepares everything under a name of its own and then renames it, so that no reader ever sees a half.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES) -> None:
        """Use `open_cache` instead.

        Args:
            folder: Where to keep things.
            limit: The bytes that the entries may take together.
        """
        self.folder = folder.absolute()  # a program may change its current folder
        self.limit = limit
        self._own = self.folder / LAYOUT
        self._entries = self._own / "entries"
        self._records = self._own / "records"
        self._locks = self._own / "locks"
        self._kernels = self._own / KERNELS

    def has_room_for(self, nbytes: int) -> bool:
        """Whether so many bytes can be kept: the limit allows it, the folder can be written, and the disk has room."""
        if nbytes > self.limit or not self.limit or not is_writable(self._entries):
            return False
        try:
            return shutil.disk_usage(nearest(self._entries)).free > nbytes
        except OSError:
            return False

    def record(self, kind: str, key: str) -> dict[str, Any] | None:
        """The record of this kind under this key; None where there is no sound one."""
        try:
            check(self._records / kind)
            return _read_facts(self._records / kind / f"{key}.json")
        except (OSError, ValueError):
            return None

    def put_record(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Keep a record; where that cannot be done, it is not kept."""
        folder, text = self._records / kind, _facts_text(value)
        try:
            self._make(folder)
            descriptor, new = tempfile.mkstemp(dir=folder, prefix=".new-")
        except OSError:
            return
        try:
            with open(descriptor, "w") as file:
                file.write(text)
            os.replace(new, folder / f"{key}.json")
        except OSError:
            unlink(new)
        _drop_oldest(folder)

    def find(self, key: str, late: Collection[str] = ()) -> Entry | None:
        """The entry of this key; None where there is no sound one.

        Args:
            key: The key.
            late: Files whose sums the caller checks when it uses them.
        """
        folder = self._entries / key
        try:
            check(folder)
            noted = _read_facts(folder / FACTS)
            for name, (size, total) in noted["files"].items():
                check(folder / name, stat.S_ISREG)
                if (folder / name).stat().st_size != size or (name not in late and _sum(folder / name) != total):
                    raise ValueError(f"{name} is damaged")
            entry = _entry(folder, noted)
        except BROKEN:
            self._remove(folder)
            return None
        with contextlib.suppress(OSError):  # a cache that can only be read serves as well
            os.utime(folder / FACTS)  # the least recently used goes first
        return entry

    def store(self, key: str, facts: dict[str, Any], write: Callable[[Path], None]) -> Entry | None:
        """Keep what `write` puts into the folder that it is given; None where that cannot be done.

        What an earlier entry of this key has is replaced. An error of `write` goes to the caller.
        """
        if not self.limit:
            return None
        try:
            self._make(self._entries)
            new = Path(tempfile.mkdtemp(dir=self._entries, prefix=".new-"))
        except OSError:
            return None
        try:
            write(new)
            for path in new.iterdir():
                path.chmod(0o600)  # what wrote it may have left it to a group
            files = {path.name: (path.stat().st_size, _sum(path)) for path in sorted(new.iterdir())}
            if sum(size for size, _ in files.values()) > self.limit:
                return None
            (new / FACTS).touch(mode=0o600)
            (new / FACTS).write_text(_facts_text({"facts": facts, "files": files}))
            self._remove(self._entries / key)
            os.rename(new, self._entries / key)
        except OSError:  # no room, or another process was first
            return self.find(key)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        self._trim(key)
        return self.find(key)

    def workplace(self, key: str, path: str) -> Path | None:
        """A folder in which a compiler finds what it made of a model, and leaves more; `settle` belongs behind its use.

        Nothing in it is checked before it is used, so it is this user's alone. None where nothing is kept.

        Args:
            key: What it is found by.
            path: The model's file.

        Raises:
            UnsafeError: Others may have put something there.
            OSError: It cannot be made, or written.
        """
        folder = self._kernels / key
        if not self.limit:
            return None
        self._make(folder)
        for place in (self._kernels, folder):
            check(place, closed=True)
        os.utime(folder)  # the least recently used goes first
        if self.record(KERNELS, key) is None:
            self.put_record(KERNELS, key, {"path": path})
        return folder

    def settle(self, key: str) -> None:
        """Hold what compilers left to its share of the limit; the folder of this key goes last."""
        found = sorted(self._workplaces(), key=lambda entry: (entry.key == key, entry.used))
        excess = sum(entry.nbytes for entry in found) - self.limit // KERNELS_SHARE
        for entry in found:
            if excess > 0:
                self._remove(entry.folder)
                excess -= entry.nbytes
        self._trim(key)

    def drop_workplace(self, key: str) -> None:
        """Remove the folder of a compiler that fails on what it finds there."""
        self._remove(self._kernels / key)

    def drop_opened(self, key: str) -> None:
        """Remove what a compiler has made anew, where its folder was removed under it: others can look into that."""
        for place in (self._kernels, self._kernels / key):
            try:
                check(place, closed=True)
            except UnsafeError:
                self._remove(place)
            except OSError:
                pass  # not there

    def kernels_trouble(self) -> str | None:
        """Why kernels are not kept, though models are; None where they are."""
        try:
            check(self._kernels, closed=True)
        except UnsafeError as error:
            return str(error)
        except OSError:
            pass  # not there yet
        return None

    @contextlib.contextmanager
    def turn(self, key: str, seconds: float, tell: Callable[[str], None]) -> Iterator[bool]:
        """Let processes and threads that make the same entry do so one after the other; whether others went before.

        Args:
            key: The key of the entry.
            seconds: How long to wait at most; then it goes on beside them.
            tell: Told that there is something to wait for.
        """
        name = hashlib.sha256(key.encode()).hexdigest()[:2]  # few files, that need not be removed
        try:
            self._make(self._locks)
            descriptor = os.open(self._locks / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # a cache that can only be read
            yield False
            return
        try:
            yield _wait_for(descriptor, seconds, tell)
        finally:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked off meanwhile may have it open
            os.close(descriptor)

    def forget(self, path: str) -> int:
        """Remove the entries of the model at a path, and what was measured of it; the bytes that were freed."""
        freed = 0
        for entry in self.entries():
            if _same_file(entry.facts.get("path"), path):
                self._remove(entry.folder)
                freed += entry.nbytes
        for kind in names(self._records):
            for name in names(self._records / kind):
                noted = self.record(kind, name.removesuffix(".json"))
                if noted is not None and _same_file(noted.get("path"), path):
                    unlink(self._records / kind / name)
        return freed

    def discard(self, entry: Entry) -> None:
        """Remove an entry that is damaged."""
        self._remove(entry.folder)

    def entries(self) -> list[Entry]:
        """All entries whose notes can be read, the last used first."""
        found = []
        for name in names(self._entries):
            folder = self._entries / name
            try:
                found += [] if name.startswith(".") else [_entry(folder, _read_facts(folder / FACTS))]
            except BROKEN:
                continue
        return sorted([*found, *self._workplaces()], key=lambda entry: -entry.used)

    def _workplaces(self) -> list[Entry]:
        """The folders of compilers."""
        found = []
        for name in names(self._kernels):
            folder = self._kernels / name
            used = changed(folder)
            if not name.startswith(".") and used < float("inf"):
                facts = {"what": KERNELS, "path": (self.record(KERNELS, name) or {}).get("path", "")}
                found.append(Entry(name, folder, facts, size_of(folder), {}, used))
        return found

    def nbytes(self) -> int:
        """The size of all that lies there."""
        return size_of(self._own)

    def is_there(self) -> bool:
        """Whether anything was ever kept in the folder."""
        return os.path.lexists(self._own)

    def clear(self) -> int:
        """Remove everything; the bytes that were freed. A model that is in use stays usable until its process ends.

        Raises:
            OSError: This user may not.
        """
        if self.is_there():
            # Under another name nobody begins to write there.
            old = tempfile.mkdtemp(dir=self.folder, prefix=REMOVED)
            with contextlib.suppress(FileNotFoundError):  # another process has done it
                os.rename(self._own, old)
        freed = 0
        for name in names(self.folder):
            if name.startswith(REMOVED):  # this one, or what a process that died left behind
                before = size_of(self.folder / name)
                shutil.rmtree(self.folder / name, ignore_errors=True)
                freed += before - size_of(self.folder / name)
        return freed

    def _make(self, folder: Path) -> None:
        """Make a folder and those above it, down from the cache's own: nobody else may write there."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        inner = folder.relative_to(self.folder).parts
        for place in (self.folder, *(self.folder.joinpath(*inner[: depth + 1]) for depth in range(len(inner)))):
            place.mkdir(mode=0o700, exist_ok=True)
            check(place, follow=place == self.folder)  # somebody else may have been faster

    def _trim(self, keep: str) -> None:
        """Remove the least recently used entries beyond the limit, and what a writer that died left behind."""
        entries = self.entries()
        excess = sum(entry.nbytes for entry in entries) - self.limit
        for entry in reversed(entries):
            if excess > 0 and entry.key != keep:
                self._remove(entry.folder)
                excess -= entry.nbytes
        for place in (self._entries, self._kernels):
            for name in names(place) - {entry.key for entry in entries}:
                if time.time() - changed(place / name) > STALE_SECONDS:
                    shutil.rmtree(place / name, ignore_errors=True)

    def _remove(self, folder: Path) -> None:
        """Take an entry away at once: under another name it cannot be found half deleted."""
        if not os.path.lexists(folder):
            return
        try:
            old = tempfile.mkdtemp(dir=folder.parent, prefix=".old-")
        except OSError:
            return
        with contextlib.suppress(OSError):  # another process has done it
            os.rename(folder, old)
        shutil.rmtree(old, ignore_errors=True)


def open_cache(setting: bool | Path = True) -> Cache | None:
    """The cache at a path, or the user's own for True; None for False, or where `trouble` has an objection."""
    folder = default_folder() if setting is True else setting
    limit = _limit()
    if not folder or limit is None or trouble(Path(folder)) is not None:
        return None
    return Cache(Path(folder), limit)


def warn_of_trouble(setting: bool | Path) -> None:
    """Say once why a cache that somebody asked for is not used: every start is a first one then."""
    is_asked_for = isinstance(setting, Path) or bool(os.environ.get(FOLDER_VARIABLE)) or _limit() is None
    folder = default_folder() if setting is True else setting
    if is_asked_for and isinstance(folder, Path) and (reason := trouble(folder)) is not None:
        _warn(reason)


@functools.cache
def _warn(reason: str) -> None:
    logging.getLogger(__name__).warning("no model is kept for the next start: %s", reason)


def default_folder() -> Path | None:
    """`$LITEHOUSE_CACHE_DIR`, else the user's cache folder; None where that variable is empty, or there is no home."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "litehouse"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "litehouse" if os.path.isabs(home) else None


def trouble(folder: Path | None) -> str | None:
    """Why a folder cannot serve as a cache, in words; None when it can, or can be made.

    The engines trust what they find there, so nobody else may be able to write it.

    Args:
        folder: The folder; None for a `default_folder` that there is not.
    """
    if folder is None:
        if os.environ.get(FOLDER_VARIABLE) == "":
            return f"it is turned off by an empty {FOLDER_VARIABLE}"
        return f"this user has no home folder; {FOLDER_VARIABLE} can name another"
    if _limit() is None:
        given = os.environ.get(BYTES_VARIABLE)
        return f"{BYTES_VARIABLE} is {given!r}; it takes a whole number, with a unit or without: 8000000000, 8G or 8Gi"
    try:
        own = folder.absolute() / LAYOUT
        for place in (folder, own, own / "entries", own / "records"):
            with contextlib.suppress(FileNotFoundError):
                check(place, follow=place == folder)
    except UnsafeError as error:
        return str(error)
    except (OSError, ValueError) as error:
        return f"{folder} cannot be used ({getattr(error, 'strerror', None) or error})"
    if not os.path.lexists(own) and not is_writable(own):
        return f"nothing can be written to {folder}"
    return None


def checksum(data: Any) -> str:
    """A sum that tells damaged bytes from sound ones, at the speed of memory: it guards against no forger."""
    if not len(data):
        return ""
    array = np.frombuffer(data, np.uint8)
    whole = array.size // BLOCK * BLOCK
    sums = array[:whole].view(np.uint64).reshape(-1, BLOCK // 8).sum(axis=1)
    return hashlib.sha256(sums.tobytes() + array[whole:].tobytes()).hexdigest()


def is_limit_wrong() -> bool:
    """Whether the variable for the bytes that may be kept holds no size."""
    return _limit() is None


def _limit() -> int | None:
    """The bytes that the entries may take; None where the variable for it holds no size."""
    text = os.environ.get(BYTES_VARIABLE, "").strip()
    if not text:
        return DEFAULT_BYTES
    found = re.fullmatch(rf"([0-9]+) ?(?:([{UNITS}])(i?))?b?", text, re.IGNORECASE)
    if found is None:
        return None
    number, unit, binary = found.groups()
    power = UNITS.index(unit.lower()) + 1 if unit else 0
    return int(number) * int((1024 if binary else 1000) ** power)


def _entry(folder: Path, noted: dict[str, Any]) -> Entry:
    nbytes = sum(size for size, _ in noted["files"].values())
    sums = {name: total for name, (_, total) in noted["files"].items()}
    return Entry(folder.name, folder, noted["facts"], nbytes, sums, (folder / FACTS).stat().st_mtime)


def _facts_text(value: dict[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True)
    return json.dumps({"value": text, "sum": hashlib.sha256(text.encode()).hexdigest()})


def _read_facts(path: Path) -> dict[str, Any]:
    check(path, stat.S_ISREG)
    outer = json.loads(path.read_text())
    if not isinstance(outer, dict) or not isinstance(outer.get("value"), str):
        raise ValueError(f"{path} is no record")
    if hashlib.sha256(outer["value"].encode()).hexdigest() != outer.get("sum"):
        raise ValueError(f"{path} is damaged")
    value: dict[str, Any] = json.loads(outer["value"])
    return value


def _wait_for(descriptor: int, seconds: float, tell: Callable[[str], None]) -> bool:
    """Take the lock of a file; whether somebody else had it."""
    has_waited, end = False, time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return has_waited
        except BlockingIOError:
            if not has_waited:
                tell("waiting for another process that builds it")
        except OSError:  # a file system without locks
            return has_waited
        has_waited = True
        if time.monotonic() > end:
            return has_waited
        time.sleep(WAIT_STEP)


def _same_file(noted: Any, path: str) -> bool:
    return isinstance(noted, str) and os.path.realpath(noted) == os.path.realpath(path)


def _sum(path: Path) -> str:
    return checksum(np.memmap(path, np.uint8, "r")) if path.stat().st_size else ""


def _drop_oldest(folder: Path) -> None:
    """Halve the records of a kind when they become too many."""
    items = [folder / name for name in names(folder)]
    if len(items) > MAX_RECORDS:
        for item in sorted(items, key=changed)[: MAX_RECORDS // 2]:
            unlink(item)

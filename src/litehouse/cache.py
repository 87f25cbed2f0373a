"""What Litehouse keeps on disk between processes: models that were built, and small records of what was measured.

All of it can be deleted at any time. Whatever is missing, damaged or of another kind counts as not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LAYOUT = "v1"  # of the files; another number leaves older ones to be removed
DEFAULT_BYTES = 16 << 30
MAX_RECORDS = 4096
BLOCK = 1 << 20
STALE_SECONDS = 3600.0  # a process that stores takes seconds: what is older was left by one that died
FACTS = "entry.json"
KEEP_SECONDS = 0.2  # what is made in less time is made again as fast as it would be found


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder of files that belong together.

    Attributes:
        key: What it is found by.
        folder: Where its files lie.
        facts: What was noted when it was stored.
        nbytes: The size of its files.
        used: When it was last found, in seconds since the epoch.
    """

    key: str
    folder: Path
    facts: dict[str, Any]
    nbytes: int
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
        self.folder = folder
        self.limit = limit
        self._entries = folder / LAYOUT / "entries"
        self._records = folder / LAYOUT / "records"

    def record(self, kind: str, key: str) -> dict[str, Any] | None:
        """The record of this kind under this key; None where there is no sound one."""
        try:
            return _read_facts(self._records / kind / f"{key}.json")
        except (OSError, ValueError):
            return None

    def put_record(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Keep a record; where that cannot be done, it is not kept."""
        folder = self._records / kind
        try:
            _make_folder(folder)
            with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".new-", delete=False) as file:
                file.write(_facts_text(value))
            os.replace(file.name, folder / f"{key}.json")
            _drop_oldest(folder)
        except OSError:
            return

    def find(self, key: str) -> Entry | None:
        """The entry of this key, its files checked against their sums; None where there is no sound one."""
        folder = self._entries / key
        try:
            noted = _read_facts(folder / FACTS)
            for name, (size, total) in noted["files"].items():
                if (folder / name).stat().st_size != size or _sum(folder / name) != total:
                    raise ValueError(f"{name} is damaged")
            entry = _entry(folder, noted)
        except (OSError, ValueError, KeyError, TypeError):
            self._remove(folder)
            return None
        try:
            os.utime(folder / FACTS)  # the least recently used goes first
        except OSError:
            return entry  # a cache that can only be read serves as well
        return entry

    def store(self, key: str, facts: dict[str, Any], write: Callable[[Path], None]) -> Entry | None:
        """Keep what `write` puts into the folder that it is given; None where that cannot be done.

        What an earlier entry of this key has is replaced. An error of `write` goes to the caller.
        """
        if not self.limit:
            return None
        try:
            _make_folder(self._entries)
            new = Path(tempfile.mkdtemp(dir=self._entries, prefix=".new-"))
        except OSError:
            return None
        try:
            write(new)
            files = {path.name: (path.stat().st_size, _sum(path)) for path in sorted(new.iterdir())}
            if sum(size for size, _ in files.values()) > self.limit:
                return None
            (new / FACTS).write_text(_facts_text({"facts": facts, "files": files}))
            self._remove(self._entries / key)
            os.rename(new, self._entries / key)
        except OSError:  # no room, or another process was first
            return self.find(key)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        self._trim(key)
        return self.find(key)

    def entries(self) -> list[Entry]:
        """All entries whose notes can be read, the last used first."""
        found = []
        for folder in self._folders():
            try:
                found.append(_entry(folder, _read_facts(folder / FACTS)))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return sorted(found, key=lambda entry: -entry.used)

    def clear(self) -> int:
        """Remove everything; the bytes that were freed. A model that is in use stays usable until its process ends."""
        own = self.folder / LAYOUT
        freed = sum(path.stat().st_size for path in own.rglob("*") if path.is_file())
        if own.exists():
            shutil.rmtree(own)
        return freed

    def _folders(self) -> Iterator[Path]:
        try:
            yield from (Path(item.path) for item in os.scandir(self._entries) if not item.name.startswith("."))
        except OSError:
            return

    def _trim(self, keep: str) -> None:
        """Remove the least recently used entries beyond the limit, and what a writer that died left behind."""
        entries = self.entries()
        excess = sum(entry.nbytes for entry in entries) - self.limit
        for entry in reversed(entries):
            if excess > 0 and entry.key != keep:
                self._remove(entry.folder)
                excess -= entry.nbytes
        known = {entry.key for entry in entries}
        for item in os.scandir(self._entries):
            if item.name not in known and time.time() - item.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(item.path, ignore_errors=True)

    def _remove(self, folder: Path) -> None:
        """Take an entry away at once: under another name it cannot be found half deleted."""
        if not folder.exists():
            return
        try:
            old = tempfile.mkdtemp(dir=self._entries, prefix=".old-")
        except OSError:
            return
        with contextlib.suppress(OSError):  # another process has done it
            os.rename(folder, old)
        shutil.rmtree(old, ignore_errors=True)


def open_cache(setting: bool | Path = True) -> Cache | None:
    """The cache at a path, or the user's own for True; None for False, or where a stranger could have written there."""
    folder = default_folder() if setting is True else setting
    if not folder:
        return None
    return Cache(Path(folder), _limit()) if trouble(Path(folder)) is None else None


def default_folder() -> Path | None:
    """`$LITEHOUSE_CACHE_DIR`, else the user's cache folder; None where that variable is set but empty."""
    named = os.environ.get("LITEHOUSE_CACHE_DIR")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "litehouse"


def trouble(folder: Path) -> str | None:
    """Why a folder cannot serve as a cache, in words; None when it can, or can be made.

    The engines trust what they find there, so nobody else may be able to write it.
    """
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{folder} cannot be used ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is not a folder"
    if status.st_uid not in (os.getuid(), 0):
        return f"{folder} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{folder} can be written by others; chmod go-w makes it safe"
    return None


def _limit() -> int:
    text = os.environ.get("LITEHOUSE_CACHE_BYTES", "")
    return int(text) if text.isdecimal() else DEFAULT_BYTES


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _entry(folder: Path, noted: dict[str, Any]) -> Entry:
    nbytes = sum(size for size, _ in noted["files"].values())
    return Entry(folder.name, folder, noted["facts"], nbytes, (folder / FACTS).stat().st_mtime)


def _facts_text(value: dict[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True)
    return json.dumps({"value": text, "sum": hashlib.sha256(text.encode()).hexdigest()})


def _read_facts(path: Path) -> dict[str, Any]:
    outer = json.loads(path.read_text())
    if not isinstance(outer, dict) or not isinstance(outer.get("value"), str):
        raise ValueError(f"{path} is no record")
    if hashlib.sha256(outer["value"].encode()).hexdigest() != outer.get("sum"):
        raise ValueError(f"{path} is damaged")
    value: dict[str, Any] = json.loads(outer["value"])
    return value


def _sum(path: Path) -> str:
    """A sum that tells a damaged file from a sound one, at the speed of memory: it guards against no forger."""
    if not path.stat().st_size:
        return ""
    data = np.memmap(path, np.uint8, "r")
    whole = data.size // BLOCK * BLOCK
    sums = data[:whole].view(np.uint64).reshape(-1, BLOCK // 8).sum(axis=1)
    return hashlib.sha256(sums.tobytes() + data[whole:].tobytes()).hexdigest()


def _drop_oldest(folder: Path) -> None:
    """Halve the records of a kind when they become too many."""
    items = list(os.scandir(folder))
    if len(items) > MAX_RECORDS:
        for item in sorted(items, key=lambda item: item.stat().st_mtime)[: MAX_RECORDS // 2]:
            os.unlink(item.path)

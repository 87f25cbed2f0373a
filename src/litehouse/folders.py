"""Folders that only this user can write, while any of its processes may change them at any time."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path


class UnsafeError(OSError):
    """Somebody else may have written what lies there."""


def check(
    path: Path, is_right: Callable[[int], bool] = stat.S_ISDIR, *, follow: bool = False, closed: bool = False
) -> None:
    """Refuse what another user may have put there.

    Args:
        path: A folder, or what `is_right` tells.
        is_right: Tells the right kind of thing by its mode.
        follow: Whether it may be a link.
        closed: Whether others may not even read it: what lies inside can then have any mode.

    Raises:
        UnsafeError: It is of another kind, or others can write it.
        OSError: It is not there, or cannot be looked at.
    """
    status = path.stat() if follow else path.lstat()
    if not is_right(status.st_mode):
        raise UnsafeError(f"{path} is not a {'folder' if is_right is stat.S_ISDIR else 'file'}")
    if status.st_uid not in (os.geteuid(), 0):
        raise UnsafeError(f"{path} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeError(f"{path} can be written by others; remove it, or use a folder of your own")
    if closed and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UnsafeError(f"{path} is open to others; remove it, or give it the mode 0700")


def nearest(path: Path) -> Path:
    """The path, or what is there of it."""
    return next((place for place in (path, *path.parents) if os.path.exists(place)), Path("/"))


def is_writable(path: Path) -> bool:
    """Whether something can be put there, as far as permissions tell."""
    return os.access(nearest(path), os.W_OK | os.X_OK, effective_ids=True)


def names(folder: Path) -> set[str]:
    """What lies in a folder; nothing where it cannot be read."""
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def changed(path: Path) -> float:
    """When something was last written, in seconds since the epoch; the far future where it is gone."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return float("inf")


def unlink(path: str | Path) -> None:
    """Remove a file, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def size_of(folder: str | Path) -> int:
    """The bytes of all files inside; what another process removes meanwhile counts nothing."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total

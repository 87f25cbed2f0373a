"""Keeps the engines that TensorRT builds for ONNX Runtime, which takes it minutes, for the next start.

TensorRT's provider names an engine after the names in its graph, not after the weights, and trusts what it finds: a
folder that two models shared would give one of them the numbers of the other. So each model has an entry of the cache,
found by all that its engines are made of and checked like any other, and the provider sees a folder only while it
builds a session. Engines whose shapes are only known in a run are built then, and not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from litehouse.cache import Cache, Entry, open_cache
from litehouse.engines.base import Names
from litehouse.engines.safety import engine_version
from litehouse.errors import EngineError
from litehouse.options import Options

ENGINES, TIMINGS = "*.engine", "*.timing"  # as TensorRT's provider ends the names of its files

Opened = Callable[[Path | None], Any]
"""Makes a session whose provider uses a folder, or none."""


class _NothingBuiltError(Exception):
    """TensorRT has left no engine: there is none, or it will be built in the first run."""


def digest(graph: bytes, weights: Mapping[str, np.ndarray], *facts: object) -> str:
    """What tells a model from all others, down to the last bit of its weights."""
    total = hashlib.sha256(repr(("tensorrt", engine_version("onnxruntime"), *facts)).encode())
    total.update(graph)
    for name, array in weights.items():
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def open_kept(opened: Opened, key: Callable[[], str], release: int, options: Options, names: Names) -> Any:
    """A session, with engines from the cache or for it.

    Args:
        opened: Makes the session.
        key: Gives the `digest` of the model.
        release: The version of TensorRT, whose timings no other can use; 0 where it is unknown.
        options: Where the cache is.
        names: What the model is called.
    """
    cache = open_cache(options.cache)
    if cache is None:
        return opened(None)
    name = key()
    if (entry := cache.find(name)) is not None:
        try:
            return _restored(entry, opened)
        except EngineError:
            cache.discard(entry)  # as after a change of the driver
    timings = digest(b"", {}, "timings", release) if release else ""
    return _built(cache, name, opened, timings, names)


def _restored(entry: Entry, opened: Opened) -> Any:
    """A session with the engines of an entry: they are linked to, as the provider may write beside them."""
    try:
        place = tempfile.mkdtemp(dir=entry.folder.parent, prefix=".new-")  # where nobody else can put anything
    except OSError:  # a cache that can only be read
        return opened(entry.folder)
    try:
        for name in entry.sums:
            os.symlink(entry.folder / name, os.path.join(place, name))
        return opened(Path(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _built(cache: Cache, key: str, opened: Opened, timings: str, names: Names) -> Any:
    """A new session, whose engines are kept; what TensorRT has timed for one model helps with the next."""
    sessions: list[Any] = []

    def write(folder: Path) -> None:
        if timings and (known := cache.find(timings)) is not None:
            _copy(known.folder, folder)
        sessions.append(opened(folder))
        if timings and any(folder.glob(TIMINGS)):
            cache.store(timings, {"what": "TensorRT's timings"}, lambda place: _copy(folder, place))
        if not any(folder.glob(ENGINES)):
            raise _NothingBuiltError

    with contextlib.suppress(_NothingBuiltError):
        cache.store(key, {"what": "TensorRT engines", "path": names.path}, write)
    return sessions[0] if sessions else opened(None)


def _copy(source: Path, target: Path) -> None:
    for path in source.glob(TIMINGS):
        shutil.copyfile(path, target / path.name)

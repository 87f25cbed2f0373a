"""Translated models in the cache: the graph, and its weights in one file that is mapped when they are used."""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse import identity
from litehouse.cache import BROKEN, KEEP_SECONDS, Cache, Entry, checksum, open_cache, warn_of_trouble
from litehouse.errors import ModelFormatError
from litehouse.identity import Files, Origin, own_identity
from litehouse.model import Model, State, TensorInfo
from litehouse.options import Limits
from litehouse.weights import Weights
from litehouse.weights.store import ALIGNMENT, dtype_named
from litehouse.weights.store import Entry as Place

if TYPE_CHECKING:
    import onnx_ir as ir

GRAPH = "graph.onnx"
WEIGHTS = "weights.bin"
INLINE_BYTES = 1024  # smaller constants stay in the graph
SHARE = 2  # the compiled program is about as large: where only one fits, each would push the other out at every start


class KeptModel(Model):
    """A model from the cache. Its graph and weights are read when they are first asked for."""

    _kept: _Kept

    @classmethod
    def of(cls, kept: _Kept, origin: Origin, files: Files) -> KeptModel:
        """The model that `store` kept; all but the graph and the weights is set."""
        facts, model = kept.facts, cls.__new__(cls)
        model._kept = kept
        model.inputs = infos_of(facts["inputs"])
        model.outputs = infos_of(facts["outputs"])
        model.format = facts["format"]
        model.path = origin.path
        model.metadata = facts["metadata"]
        model.source_ops = facts["source_ops"]
        model.states = tuple(State(*state) for state in facts["states"])
        model.fixed_nodes = tuple(facts["fixed_nodes"])
        model.defaults = dict(kept.table("defaults"))
        model.translate = kept.translate if facts["is_translated_anew"] else None
        model.files = files
        model.updatable, model.live = tuple(facts["updatable"]), ()
        model.is_secret = False
        model.origin = model.read_from = origin
        model.shelf = {}
        return model

    @functools.cached_property
    def graph(self) -> ir.Model:  # type: ignore[override]
        """The graph, over the weights' memory."""
        return self._kept.graph

    @functools.cached_property
    def weights(self) -> Weights:  # type: ignore[override]
        """The weights, over the mapped file."""
        return self._kept.weights

    @property
    def given_names(self) -> list[str]:
        """The graph's names of all that it gives."""
        return super().given_names if "graph" in vars(self) else list(self._kept.facts["given_names"])


class _Kept:
    """The files of an entry, opened at once: the model does not need the folder any longer."""

    def __init__(self, cache: Cache, entry: Entry, again: Callable[[], Model] | None) -> None:
        """Map the files.

        Args:
            cache: Where they lie.
            entry: What `store` made.
            again: Reads the model file itself, for what is not kept, or is damaged; None where neither is possible.
        """
        self.facts = entry.facts
        self._places: dict[str, dict[str, list[Any]]] = entry.facts["places"]
        self._cache = cache
        self._entry = entry
        self._again = again
        self._graph = _map(entry.folder / GRAPH)
        self._arrays = _map(entry.folder / WEIGHTS)

    @functools.cached_property
    def is_sound(self) -> bool:
        """Whether the arrays are as they were written. A program that was restored never asks for this."""
        is_sound = checksum(self._arrays or b"") == self._entry.sums[WEIGHTS]
        if not is_sound:
            self._cache.discard(self._entry)
        return is_sound

    @functools.cached_property
    def weights(self) -> Weights:
        """The weights."""
        return self.table("weights") if self.is_sound else self._model.weights

    @functools.cached_property
    def graph(self) -> ir.Model:
        """The graph."""
        if self._graph is None or not self.is_sound:
            return self._model.graph
        return _read_graph(self._graph[:], {**self.table("constants"), **self.weights})

    def table(self, name: str) -> Weights:
        """The arrays of a table that `store` wrote."""
        return Weights(self._arrays, {key: _place(*place) for key, place in self._places[name].items()})

    def translate(self, *arguments: Any, **options: Any) -> Model:
        """What `Model.translate` does, over the file itself."""
        assert self._model.translate is not None
        return self._model.translate(*arguments, **options)

    @functools.cached_property
    def _model(self) -> Model:
        assert self._again is not None
        return self._again()


def read(
    source: str | os.PathLike[str] | bytes, limits: Limits, setting: Path | bool, updatable: tuple[str, ...] = ()
) -> Model:
    """A model from the cache; else from its file, and kept if that took long."""
    cache, chosen = open_cache(setting), identity.find(source)
    if cache is None:
        warn_of_trouble(setting)
        origin = Origin(chosen)
        model = translated(chosen, limits, updatable)
        model.read_from = origin
        return model
    origin = Origin(chosen)
    found = find(cache, origin, limits, lambda: translated(origin.file or chosen, limits, updatable), updatable)
    if found is not None:
        return found
    start = time.perf_counter()
    model = translated(chosen, limits, updatable)
    model.origin = model.read_from = origin
    origin.seconds = time.perf_counter() - start
    if not model.is_secret:
        origin.identify(cache, model.files)
    if origin.seconds > KEEP_SECONDS:
        store(cache, model, limits, updatable)
    return model


def translated(source: str | os.PathLike[str] | bytes, limits: Limits, updatable: tuple[str, ...]) -> Model:
    """A model, read from its file."""
    from litehouse import formats, passes

    return passes.prepare(formats.read(source, limits=limits, updatable=updatable))


def find(
    cache: Cache, origin: Origin, limits: Limits, read: Callable[[], Model], updatable: tuple[str, ...] = ()
) -> Model | None:
    """The translation of a file that is kept; None without one.

    Args:
        cache: Where it may be.
        origin: What tells it from others.
        limits: What it was read with.
        read: Reads the file itself.
        updatable: What it was read with.
    """
    known = origin.recall(cache)
    entry = cache.find(_key(known, limits, updatable), late=(WEIGHTS,)) if known else None
    if entry is None:
        return None
    try:
        files = origin.beside(entry.facts["files"])
        whole = origin.recall(cache, files)
        if whole is None or whole != entry.facts["whole"]:
            return None
        # Bytes in memory are not held only to be read again: what was kept of them is checked at once.
        can_wait = bool(origin.file)
        is_held = can_wait or entry.facts["is_translated_anew"]
        kept = _Kept(cache, entry, reader(origin, files, read) if is_held else None)
        if (not can_wait or entry.facts["places"]["defaults"]) and not kept.is_sound:
            return None
        model = KeptModel.of(kept, origin, files)
    except BROKEN:
        return None  # another process has just replaced it
    origin.settle(whole)
    return model


def reader(origin: Origin, files: Files, read: Callable[[], Model]) -> Callable[[], Model]:
    """Reads a file again, if it is still what it was: else that would be another model."""

    def again() -> Model:
        model = None if origin.has_changed() else read()
        if model is None or origin.has_changed() or model.files != files:
            raise ModelFormatError("the file has changed since it was loaded; load it again", path=origin.path)
        return model

    return again


def store(cache: Cache, model: Model, limits: Limits, updatable: tuple[str, ...] = ()) -> None:
    """Keep a translation, if its file is one that may be kept and there is room; else nothing happens."""
    origin = model.origin
    whole = None if model.is_secret or origin is None else origin.identify(cache, model.files)
    if whole is None or origin is None or origin.content is None:
        return
    places: dict[str, dict[str, Any]] = {}
    facts = {
        "what": "translation",
        "path": origin.file or model.path,
        "inputs": info_facts(model.inputs),
        "outputs": info_facts(model.outputs),
        "format": model.format,
        "metadata": model.metadata,
        "source_ops": model.source_ops,
        "states": [(state.name, state.output) for state in model.states],
        "fixed_nodes": list(model.fixed_nodes),
        "updatable": list(model.updatable),
        "files": list(model.files),
        "whole": whole,
        "given_names": model.given_names,
        "is_translated_anew": model.translate is not None,
        "places": places,
    }
    try:
        tables = _tables(model)
        if cache.has_room_for(SHARE * sum(array.nbytes for table in tables.values() for array in table.values())):
            key = _key(origin.content, limits, updatable)
            cache.store(key, facts, lambda folder: places.update(_write(model, tables, folder)))
    except Exception:  # noqa: BLE001  (libraries raise many types, and the model can be used all the same)
        return


def _key(known: str, limits: Limits, updatable: tuple[str, ...]) -> str:
    return hashlib.sha256(f"translation {known} {own_identity()} {limits} {updatable}".encode()).hexdigest()


def _tables(model: Model) -> dict[str, dict[str, np.ndarray]]:
    """All arrays that lie beside the graph."""
    constants = {
        name: value.const_value.numpy()
        for name, value in model.graph.graph.initializers.items()
        if name not in model.weights and value.const_value is not None and _is_large(value.const_value)
    }
    return {"weights": dict(model.weights), "constants": constants, "defaults": model.defaults}


def _write(model: Model, tables: dict[str, dict[str, np.ndarray]], folder: Path) -> dict[str, dict[str, Any]]:
    """Write the graph and all arrays; where each of them lies."""
    import onnx_ir as ir

    whole = model.graph.clone()
    for name, array in (*tables["weights"].items(), *tables["constants"].items()):
        value = whole.graph.initializers.get(name)
        if value is not None:
            value.const_value = ir.ExternalTensor(
                WEIGHTS, 0, array.nbytes, ir.DataType.from_numpy(array.dtype), shape=ir.Shape(array.shape), name=name
            )
    ir.save(whole, folder / GRAPH)
    with open(folder / WEIGHTS, "wb") as file:
        written: dict[tuple[Any, ...], int] = {}
        return {
            table: {name: _append(file, array, written) for name, array in arrays.items()}
            for table, arrays in tables.items()
        }


def _append(file: Any, array: np.ndarray, written: dict[tuple[Any, ...], int]) -> list[Any]:
    """Write an array at an aligned place, once for all names that share its memory and its bytes."""
    is_plain = array.flags.c_contiguous and array.dtype.isnative
    order = () if is_plain else (array.dtype.str, array.shape, array.strides)
    memory = (array.__array_interface__["data"][0], array.nbytes, *order)
    if memory not in written:
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        written[memory] = file.tell()
        plain = array if is_plain else np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        file.write(plain.reshape(-1).view(np.uint8).data)
    return [written[memory], array.dtype.name, list(array.shape)]


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.nbytes >= INLINE_BYTES and tensor.dtype.bitwidth >= 8 and tensor.dtype.name != "STRING"


def _read_graph(content: bytes, arrays: dict[str, np.ndarray]) -> ir.Model:
    import onnx
    import onnx_ir as ir

    whole = ir.serde.deserialize_model(onnx.ModelProto.FromString(content))
    for name, array in arrays.items():
        value = whole.graph.initializers.get(name)
        if value is not None:
            value.const_value = ir.tensor(array, name=name)
    return whole


def _map(path: Path) -> mmap.mmap | None:
    with open(path, "rb") as file:
        # Private: pages are shared with other processes until one of them writes.
        size = os.fstat(file.fileno()).st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else None


def _place(offset: int, dtype: str, shape: list[int]) -> Place:
    return Place(offset, dtype_named(dtype), tuple(shape))


def infos_of(facts: Iterable[Any]) -> tuple[TensorInfo, ...]:
    """What `info_facts` described."""
    return tuple(TensorInfo(name, dtype_named(dtype), tuple(shape)) for name, dtype, shape in facts)


def info_facts(infos: Iterable[TensorInfo]) -> list[Any]:
    """Inputs or outputs as JSON can hold them."""
    return [(info.name, info.dtype.name, list(info.shape)) for info in infos]

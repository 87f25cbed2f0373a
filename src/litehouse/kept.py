"""Translated models in the cache: the graph, and its weights in one file that is mapped when they are used."""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse import identity
from litehouse.cache import KEEP_SECONDS, Cache, Entry, open_cache
from litehouse.identity import Origin, own_identity
from litehouse.model import Model, State, TensorInfo
from litehouse.options import Limits
from litehouse.weights import Weights
from litehouse.weights.store import ALIGNMENT
from litehouse.weights.store import Entry as Place

if TYPE_CHECKING:
    import onnx_ir as ir

GRAPH = "graph.onnx"
WEIGHTS = "weights.bin"
INLINE_BYTES = 1024  # smaller constants stay in the graph


class KeptModel(Model):
    """A model from the cache. Its graph and weights are read when they are first asked for."""

    def __init__(self, entry: Entry, origin: Origin, again: Callable[[], Model]) -> None:
        """Take the notes of an entry.

        Args:
            entry: What `store` made.
            origin: What tells it from others.
            again: Reads the file itself, for what is not kept.
        """
        facts = entry.facts
        self._folder = entry.folder
        self._places: dict[str, dict[str, list[Any]]] = facts["places"]
        self._weights: Weights | None = None
        self._graph: ir.Model | None = None
        self.inputs = _infos(facts["inputs"])
        self.outputs = _infos(facts["outputs"])
        self.format = facts["format"]
        self.path = origin.path
        self.metadata = facts["metadata"]
        self.source_ops = facts["source_ops"]
        self.states = tuple(State(*state) for state in facts["states"])
        self.fixed_nodes = tuple(facts["fixed_nodes"])
        self.defaults = dict(self._mapped("defaults")) if self._places["defaults"] else {}
        self.files = tuple(facts["files"])
        self.is_secret = False
        self.origin = origin
        self._given_names: list[str] = facts["given_names"]
        self.translate = _translated_again(again) if facts["is_translated_anew"] else None

    @property
    def graph(self) -> ir.Model:  # type: ignore[override]
        """The graph, over the weights' memory."""
        if self._graph is None:
            self._graph = _read_graph(self._folder / GRAPH, {**self._mapped("constants"), **self.weights})
        return self._graph

    @property
    def weights(self) -> Weights:  # type: ignore[override]
        """The weights, over the mapped file."""
        if self._weights is None:
            self._weights = self._mapped("weights")
        return self._weights

    @property
    def given_names(self) -> list[str]:
        """The graph's names of all that it gives."""
        return list(self._given_names)

    def _mapped(self, table: str) -> Weights:
        places = {name: _place(*place) for name, place in self._places[table].items()}
        return Weights(_map(self._folder / WEIGHTS), places)


def read(source: str | os.PathLike[str] | bytes, limits: Limits, setting: Path | bool) -> Model:
    """A model from the cache; else from its file, and kept if that took long."""

    def again() -> Model:
        from litehouse import formats, passes

        return passes.prepare(formats.read(source, limits=limits))

    cache = open_cache(setting)
    if cache is None:
        return again()
    origin = Origin(identity.find(source))
    if (found := find(cache, origin, limits, again)) is not None:
        return found
    start = time.perf_counter()
    model = again()
    model.origin = origin
    origin.seconds = time.perf_counter() - start
    if origin.seconds > KEEP_SECONDS:
        store(cache, model, limits)
    return model


def find(cache: Cache, origin: Origin, limits: Limits, again: Callable[[], Model]) -> Model | None:
    """The translation of a file that is kept; None without one."""
    known = origin.recall(cache)
    entry = cache.find(_key(known, limits)) if known else None
    if entry is None or entry.facts.get("whole") != origin.recall(cache, entry.facts.get("files", ())):
        return None
    try:
        return KeptModel(entry, origin, again)
    except (OSError, KeyError, TypeError, ValueError):
        return None  # another process has just replaced it


def store(cache: Cache, model: Model, limits: Limits) -> None:
    """Keep a translation, if its file is one that may be kept."""
    origin = model.origin
    known = None if model.is_secret or origin is None else origin.identify(cache)
    if known is None or origin is None:
        return
    places: dict[str, dict[str, Any]] = {}
    facts = {
        "what": "translation",
        "path": model.path,
        "inputs": _info_facts(model.inputs),
        "outputs": _info_facts(model.outputs),
        "format": model.format,
        "metadata": model.metadata,
        "source_ops": model.source_ops,
        "states": [(state.name, state.output) for state in model.states],
        "fixed_nodes": list(model.fixed_nodes),
        "files": list(model.files),
        "whole": origin.identify(cache, model.files),
        "given_names": model.given_names,
        "is_translated_anew": model.translate is not None,
        "places": places,
    }
    cache.store(_key(known, limits), facts, lambda folder: places.update(_write(model, folder)))


def _key(known: str, limits: Limits) -> str:
    return hashlib.sha256(f"translation {known} {own_identity()} {limits}".encode()).hexdigest()


def _write(model: Model, folder: Path) -> dict[str, dict[str, Any]]:
    """Write the graph and all arrays; where each of them lies."""
    import onnx_ir as ir

    constants = {
        name: value.const_value.numpy()
        for name, value in model.graph.graph.initializers.items()
        if name not in model.weights and value.const_value is not None and _is_large(value.const_value)
    }
    tables: dict[str, dict[str, np.ndarray]] = {
        "weights": dict(model.weights),
        "constants": constants,
        "defaults": model.defaults,
    }
    whole = model.graph.clone()
    for name in (*model.weights, *constants):
        value = whole.graph.initializers.get(name)
        if value is not None:
            array = constants[name] if name in constants else model.weights[name]
            value.const_value = ir.ExternalTensor(
                WEIGHTS, 0, array.nbytes, ir.DataType.from_numpy(array.dtype), shape=ir.Shape(array.shape), name=name
            )
    ir.save(whole, folder / GRAPH)
    with open(folder / WEIGHTS, "wb") as file:
        written: dict[tuple[int, int], int] = {}
        return {
            table: {name: _append(file, array, written) for name, array in arrays.items()}
            for table, arrays in tables.items()
        }


def _append(file: Any, array: np.ndarray, written: dict[tuple[int, int], int]) -> list[Any]:
    """Write an array at an aligned place, once for all names that share its memory."""
    memory = (array.__array_interface__["data"][0], array.nbytes)
    if memory not in written:
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        written[memory] = file.tell()
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return [written[memory], array.dtype.name, list(array.shape)]


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.nbytes >= INLINE_BYTES and tensor.dtype.bitwidth >= 8 and tensor.dtype.name != "STRING"


def _read_graph(path: Path, arrays: dict[str, np.ndarray]) -> ir.Model:
    import onnx_ir as ir

    whole = ir.load(path)
    for name, array in arrays.items():
        value = whole.graph.initializers.get(name)
        if value is not None:
            value.const_value = ir.tensor(array, name=name)
    return whole


def _map(path: Path) -> mmap.mmap | None:
    with open(path, "rb") as file:
        # Private: pages are shared with other processes until one of them writes.
        size = path.stat().st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else None


def _place(offset: int, dtype: str, shape: list[int]) -> Place:
    return Place(offset, _dtype(dtype), tuple(shape))


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16" or name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2")):
        import ml_dtypes

        special: np.dtype = np.dtype(getattr(ml_dtypes, name))
        return special
    return np.dtype(name)


def _infos(facts: Iterable[Any]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name, _dtype(dtype), tuple(shape)) for name, dtype, shape in facts)


def _info_facts(infos: Iterable[TensorInfo]) -> list[Any]:
    return [(info.name, info.dtype.name, list(info.shape)) for info in infos]


def _translated_again(again: Callable[[], Model]) -> Callable[..., Model]:
    """What `Model.translate` does, over the file itself, which is read when this is first called."""
    model: list[Model] = []

    def translate(*arguments: Any, **options: Any) -> Model:
        if not model:
            model.append(again())
        assert model[0].translate is not None
        return model[0].translate(*arguments, **options)

    return translate

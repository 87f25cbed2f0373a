"""Puts the weights of a model that ONNX Runtime has saved at aligned places.

ONNX Runtime 1.31.1 writes packed weights right behind one another, and its kernels read them with instructions that
demand aligned memory: a process that maps such a file dies as soon as a weight before has an odd size.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

ALIGNMENT = 64
CHUNK = 1 << 20
PACKED = "prepacked_"  # the value: a key, "|", then offset, length and check of each piece


def align(folder: Path, graph: str, weights: str) -> None:
    """Rewrite the two files of a saved model, if any weight lies at an odd place."""
    import onnx

    model = onnx.load(folder / graph, load_external_data=False)
    places = [entry for tensor in _tensors(model.graph) for entry in tensor.external_data]
    if all(offset % ALIGNMENT == 0 for entry in places for offset in _offsets(entry)):
        return
    aligned = folder / f"{weights}.aligned"
    with open(folder / weights, "rb") as source, open(aligned, "wb") as target:
        for tensor in _tensors(model.graph):
            _move(tensor, source, target)
    os.replace(aligned, folder / weights)
    (folder / graph).write_bytes(model.SerializeToString())


def _tensors(graph: Any) -> list[Any]:
    """All external weights, those of inner graphs too."""
    found = [tensor for tensor in graph.initializer if tensor.external_data]
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                found += _tensors(inner)
    return found


def _offsets(entry: Any) -> list[int]:
    if entry.key == "offset":
        return [int(entry.value)]
    return [int(piece[0]) for piece in _pieces(entry.value)[1]] if entry.key.startswith(PACKED) else []


def _pieces(value: str) -> tuple[str, list[list[str]]]:
    """The key of packed weights, and offset, length and check of each piece."""
    key, _, text = value.rpartition("|")
    numbers = text.split(";")
    return key, [numbers[place : place + 3] for place in range(0, len(numbers), 3)]


def _move(tensor: Any, source: IO[bytes], target: IO[bytes]) -> None:
    entries = {entry.key: entry for entry in tensor.external_data}
    length = int(entries["length"].value)
    entries["offset"].value = str(_copy(source, int(entries["offset"].value), length, target))
    for key, entry in entries.items():
        if key.startswith(PACKED):
            packed, pieces = _pieces(entry.value)
            moved = [
                [str(_copy(source, int(offset), int(size), target)), size, check] for offset, size, check in pieces
            ]
            entry.value = f"{packed}|" + ";".join(text for piece in moved for text in piece)


def _copy(source: IO[bytes], offset: int, length: int, target: IO[bytes]) -> int:
    """Copy bytes to the next aligned place; where that is."""
    target.write(b"\0" * (-target.tell() % ALIGNMENT))
    place = target.tell()
    source.seek(offset)
    while length:
        piece = source.read(min(length, CHUNK))
        if not piece:
            raise OSError(f"{source.name} ends within a weight")
        target.write(piece)
        length -= len(piece)
    return place

"""Writes the models of all ranks: `rank_0.onnx` with its weights in `rank_0.onnx.data`, and so on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing import slip
from litehouse.distributed.slicing.plan import Plan
from litehouse.errors import LitehouseError
from litehouse.model import Model

ALIGNMENT = 4096  # a page: what lies there can be mapped
INLINE_BYTES = 1024  # smaller ones stay in the graph's file
CHUNK = 1 << 26  # bytes that are copied at a time
Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Progress that nobody sees."""


def names(ranks: int) -> list[str]:
    """The names of the files with the graphs."""
    return [f"rank_{rank}.onnx" for rank in range(ranks)]


def refuse_states(model: Model) -> None:
    """Raise for a model whose parts could not be written.

    Raises:
        LitehouseError: The model has states, which a file cannot tell from inputs.
    """
    if model.states:
        raise LitehouseError(
            f"{model.path}: a run changes the network's own variables, as {model.states[0].name!r}, and an ONNX file "
            "cannot tell them from inputs; slice a model without such variables"
        )


def write(plan: Plan, folder: str | os.PathLike[str], progress: Progress = silent) -> list[Path]:
    """Write the models of all ranks into a folder, which is made where it is missing.

    Each weight is cut out of the whole model's memory when it is written, one after the other. The files appear under
    their names when all of them are complete.

    Args:
        plan: What each rank gets.
        folder: Where the files go; those of the same names are replaced.
        progress: Called with the count of weights that are written, and that of all.

    Raises:
        LitehouseError: The model has states, which a file cannot tell from inputs.
    """
    refuse_states(plan.model)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    total = sum(bool(size) for row in plan.rows for size in row.bytes_per_rank)
    done = 0

    def step() -> None:
        nonlocal done
        done = min(done + 1, total)
        progress(done, total)

    with tempfile.TemporaryDirectory(prefix=".litehouse-", dir=target) as place:
        for rank, name in enumerate(names(plan.ranks)):
            _write(plan.model_for(rank), Path(place) / name, step)
        for name in names(plan.ranks):
            for each in (f"{name}.data", name):
                os.replace(Path(place) / each, target / each)
    return [target / name for name in names(plan.ranks)]


def _write(model: Model, path: Path, step: Callable[[], None]) -> None:
    graph = model.graph
    graph.metadata_props.setdefault("litehouse.source", Path(model.path).name)
    data = path.with_name(f"{path.name}.data")
    with data.open("wb") as file:
        for value in graph.graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes >= INLINE_BYTES and tensor.dtype != ir.DataType.STRING:
                value.const_value = _append(file, tensor, data)
            step()
        own = slip.read(model)
        assert own is not None
        file.write(own.mark())
    ir.save(graph, path, format="protobuf")


def _append(file: BinaryIO, tensor: ir.TensorProtocol, data: Path) -> ir.ExternalTensor:
    """Put a weight behind the others. Its memory is given back before the next one is cut."""
    offset = -(-file.tell() // ALIGNMENT) * ALIGNMENT
    file.write(bytes(offset - file.tell()))
    array = tensor.numpy()
    if tensor.dtype.bitwidth >= 8 and array.dtype.isnative and array.flags.c_contiguous:
        content = memoryview(array.reshape(-1).view(np.uint8).data)
    else:
        content = memoryview(tensor.tobytes())
    for start in range(0, len(content), CHUNK):
        file.write(content[start : start + CHUNK])
    shape, name = ir.Shape(tensor.shape.numpy()), str(tensor.name)
    return ir.ExternalTensor(
        data.name, offset, len(content), tensor.dtype, shape=shape, name=name, base_dir=data.parent
    )

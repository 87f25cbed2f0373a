"""Stage 1, with MindSpore: exports networks, runs them, and stores inputs and outputs beside them."""

import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindir_fixtures.harness import build_cells, export, first_line, flatten
from mindir_fixtures.harness import make as make_case
from mindir_fixtures.table import Draw
from mindspore import nn
from mindspore.train.mind_ir_pb2 import ModelProto

from networks import control, families, language, single_ops, vision
from networks.table import Network


def networks() -> list[Network]:
    """All networks."""
    return [*families.networks(), *vision.networks(), *language.networks(), *control.networks()]


def listed() -> dict[str, dict[str, str]]:
    """Names and sources of everything that can be made."""
    found = {network.name: {"source": network.source} for network in networks()}
    return found | {item.name: {"source": "single op"} for item in single_ops.cases()}


def make_all(names: Sequence[str], folder: Path) -> None:
    """Make the named ones: NAME.mindir, NAME.npz and NAME.json in the folder, or only an error in the last."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    with suppress(SystemError):
        ms.ops.zeros((1,), ms.float32)  # beside NumPy 2, the first eager operator of a process may fail
    wanted = set(names)
    for network in networks():
        if network.name in wanted:
            _guarded(network.name, folder, lambda network=network: _make(network, folder))
    cases = [item for item in single_ops.cases() if item.name in wanted]
    if cases:
        build = build_cells(cases, folder)
        for item in cases:
            _guarded(item.name, folder, lambda item=item: _make_op(item, build, folder))


def _guarded(name: str, folder: Path, make: Any) -> None:
    try:
        answer = make()
    except Exception as error:  # noqa: BLE001 - MindSpore raises any type
        answer = {"error": first_line(error)}
        (folder / f"{name}.mindir").unlink(missing_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(answer))


def _make(network: Network, folder: Path) -> dict[str, Any]:
    ms.set_seed(0)
    rng = np.random.default_rng(zlib.crc32(network.name.encode()))
    calls = [[entry(rng) if isinstance(entry, Draw) else entry for entry in inputs] for inputs in network.calls]
    cell = network.build()
    spread(cell, rng)
    cell.set_train(False)
    path = folder / f"{network.name}.mindir"
    tensors = [ms.Tensor(array) for array in calls[0]]
    if network.shapes is not None:
        pairs = zip(network.shapes, tensors, strict=True)
        tensors = [ms.Tensor(shape=list(shape), dtype=tensor.dtype) for shape, tensor in pairs]
    export(cell, tensors, path)
    stored = {}
    for number, arrays in enumerate(calls):
        outputs = flatten(cell(*[ms.Tensor(array.copy()) for array in arrays]))
        stored |= {f"call_{number}_input_{k}": array for k, array in enumerate(arrays)}
        stored |= {f"call_{number}_output_{k}": array for k, array in enumerate(outputs)}
    np.savez(folder / f"{network.name}.npz", **stored)
    return count(path)


def _make_op(item: Any, build: Any, folder: Path) -> dict[str, Any]:
    make_case(item, *build(item), folder)
    with np.load(folder / f"{item.name}.npz") as stored:
        arrays = {f"call_0_{name}": stored[name] for name in stored.files}
    np.savez(folder / f"{item.name}.npz", **arrays)
    text = item.network if isinstance(item.network, str) else str(item.network).replace("\n", " ")
    inputs = [array for name, array in arrays.items() if "input" in name]
    shown = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
    return count(folder / f"{item.name}.mindir") | {"text": text, "inputs": shown}


def count(path: Path) -> dict[str, Any]:
    """Nodes of all graphs (constants left out), and the megabytes of the weights."""
    model = ModelProto()
    model.ParseFromString(path.read_bytes())
    graphs = [model.graph, *model.functions]
    nodes = sum(node.op_type != "Constant" for graph in graphs for node in graph.node)
    return {"nodes": nodes, "megabytes": sum(len(tensor.raw_data) for tensor in model.graph.parameter) / 1e6}


def spread(cell: nn.Cell, rng: np.random.Generator) -> None:
    """Make statistics, scales and biases non-trivial; a fresh network's zeros and ones hide mistakes."""
    for weight in cell.get_parameters():
        array = weight.asnumpy()
        if weight.name.startswith("kept") or array.dtype != np.float32:
            continue
        name = weight.name.rsplit(".", 1)[-1]
        if "variance" in name or "gamma" in name:
            new = rng.uniform(0.5, 1.5, array.shape)
        elif array.ndim < 2 or not array.any():
            new = array + rng.normal(0, 0.1, array.shape)
        else:
            continue
        weight.set_data(ms.Tensor(new.astype(np.float32)))

"""Turns a table of small functions into ``.mge`` + ``.npz`` pairs with the outputs of MegEngine itself.

Needs MegEngine 1.13 and megenginelite; run through ``tools/make_mge_fixtures.py``.
"""

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import megengine as mge
import megengine.module as M
import numpy as np
from megengine.jit import trace
from megengine.utils.comp_graph_tools import GraphInference

import megenginelite as lite
from mge_fixtures.peek import op_types
from mge_fixtures.table import ARGUMENTS, Case, Draw

Named = dict[str, np.ndarray]
TRACE = ("symbolic", "symbolic_shape", "record_only")
"""Options of the tracer; all others are of the dump."""


def randomise(module: M.Module, rng: np.random.Generator) -> None:
    """Give every weight non-trivial values: fresh layers have zero biases and unit scales, which hide mistakes."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.dtype != np.float32:
            continue
        shape = tensor.shape if isinstance(tensor.shape, tuple) else tuple(int(n) for n in tensor.shape.numpy())
        if name.endswith("running_var"):
            array = rng.uniform(0.5, 1.5, shape)
        else:
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 4
            array = rng.standard_normal(shape) / np.sqrt(max(fan_in, 1))
        tensor._reset(mge.Tensor(array.astype(np.float32)))


def flatten(value: Any) -> Any:
    """Outputs as one tensor or one list of tensors: MegEngine dumps nothing else."""
    if not isinstance(value, (tuple, list)):
        return value
    found = [flatten(entry) for entry in value if entry is not None]
    return [tensor for entry in found for tensor in (entry if isinstance(entry, list) else [entry])]


def dump(item: Case, arrays: Sequence[np.ndarray], path: Path, options: dict[str, Any]) -> list[str]:
    """Trace the case and dump it; returns the names of the inputs in the order of the function."""
    function = item.function() if isinstance(item.function, type) else item.function
    if isinstance(function, M.Module):
        randomise(function, np.random.default_rng(zlib.crc32(item.name.encode()) + 1))
        function.eval()
    names = options.pop("arg_names", ARGUMENTS[: len(arrays)])
    mge.random.seed(0)  # attention keeps a seed in the file
    np.random.seed(0)  # noqa: NPY002 - test cases are drawn from it
    how = {"symbolic": True} | {key: options.pop(key) for key in TRACE if key in options}
    traced = trace(lambda *inputs: flatten(function(*inputs)), capture_as_const=True, **how)
    traced(*[mge.Tensor(array) for array in arrays])
    path.unlink(missing_ok=True)
    traced.dump(str(path), arg_names=names and list(names), **options)
    return names or [f"arg_{k}" for k in range(len(arrays))]


def run_lite(path: Path, inputs: Named) -> tuple[list[str], Named]:
    """Run a file with megenginelite; returns the names of its inputs and its outputs."""
    network = lite.LiteNetwork()
    network.load(str(path))
    names = network.get_all_input_name()
    for name in names:
        network.get_io_tensor(name).set_data_by_copy(inputs[name])
    network.forward()
    network.wait()
    return names, {name: network.get_io_tensor(name).to_numpy().copy() for name in network.get_all_output_name()}


def run_graph(path: Path, inputs: Named) -> tuple[list[str], Named]:
    """The same with MegEngine's own graph loader, for the types that lite does not know."""
    graph = GraphInference(str(path))
    names = list(graph._inp_dict)
    return names, graph.run(inp_dict={name: inputs[name] for name in names})


def outputs_of(path: Path, inputs: Named) -> tuple[str, list[str], Named]:
    """Who computed it ("lite", or "graph" for MegEngine's graph loader), the names of the inputs, and the outputs."""
    try:
        return "lite", *run_lite(path, inputs)
    except (RuntimeError, KeyError, NotImplementedError, AssertionError):
        return "graph", *run_graph(path, inputs)


def different(first: Named, second: Named) -> bool:
    return any(array.tobytes() != again.tobytes() for array, again in zip(first.values(), second.values(), strict=True))


def draw(inputs: Sequence[Any], rng: np.random.Generator) -> list[np.ndarray]:
    return [np.atleast_1d(entry(rng) if isinstance(entry, Draw) else entry) for entry in inputs]


def make(item: Case, folder: Path) -> dict[str, Any]:
    """Dump a case, run the file, and store inputs and outputs; returns its entry in the index."""
    rng = np.random.default_rng(zlib.crc32(item.name.encode()))
    arrays = draw(item.inputs, rng)
    path = folder / f"{item.name}.mge"
    asked = dump(item, arrays, path, dict(item.options))
    runnable = path
    if item.reference is not None:
        runnable = folder / f"{item.name}.reference"
        other = item.reference if callable(item.reference) else item.function
        options = {} if callable(item.reference) else item.reference
        dump(replace(item, function=other), arrays, runnable, dict(options))
    stored: Named = {}
    for prefix, given in (("", arrays), ("resized_", draw(item.resized or (), rng))):
        if given:
            inputs = dict(zip(asked, given, strict=True))
            who, names, outputs = outputs_of(runnable, inputs)
            if different(outputs, outputs_of(runnable, inputs)[2]):
                raise RuntimeError("two runs of the same file give different outputs")
            stored |= {f"{prefix}in_{name}": inputs[name] for name in asked if name in names}
            stored |= {f"{prefix}out_{k}": array for k, array in enumerate(outputs.values())}
    if runnable != path:
        runnable.unlink()
    np.savez_compressed(path.with_suffix(".npz"), **stored, out_names=np.array(list(outputs)))
    entry = {"name": item.name, "ops": op_types(path), "options": item.options, "outputs": who}
    if item.reference is not None:
        entry["reference"] = "an equivalent function" if callable(item.reference) else item.reference
    return entry | item.checks


def first_line(error: BaseException) -> str:
    """The telling part of MegEngine's long error texts, without paths and addresses of the machine."""
    text = " ".join(str(error).split("backtrace:")[0].split())
    text = re.sub(r"\S*/[\w./+-]+:?", "", text)
    text = re.sub(r"0x[0-9a-f]+", "0x..", text)
    return f"{type(error).__name__}: {text}"[:240]


def run_family(cases: Sequence[Case], folder: Path, report: Path) -> None:
    """Make the cases of a family; one JSON line is written before and one after each, so a crash can be placed."""
    folder.mkdir(parents=True, exist_ok=True)
    with report.open("a") as log:
        for item in cases:
            print(json.dumps({"start": item.name}), file=log, flush=True)
            try:
                result = make(item, folder)
            except Exception as error:  # noqa: BLE001 - MegEngine raises any type
                result = {"name": item.name, "error": first_line(error)}
                for suffix in (".mge", ".npz", ".reference"):
                    (folder / f"{item.name}{suffix}").unlink(missing_ok=True)
            print(json.dumps(result), file=log, flush=True)

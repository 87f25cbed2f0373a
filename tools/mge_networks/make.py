"""Stage 1, with MegEngine: dumps networks, runs them with megenginelite, and stores inputs and outputs beside them."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import megengine as mge
import megengine.module as M
import numpy as np
from megengine import quantization
from mge_fixtures.harness import draw, dump, first_line, outputs_of
from mge_fixtures.peek import op_types
from mge_fixtures.table import Case

from mge_networks import classifiers, images, quantised, sequences
from mge_networks.table import NETWORKS, Network

FILES = (classifiers, images, sequences, quantised)


def listed() -> dict[str, dict[str, Any]]:
    """Names and kinds of the networks."""
    keys = ("what", "options", "quantised", "plain")
    return {item.name: {key: getattr(item, key) for key in keys} for item in NETWORKS}


def make_all(names: Sequence[str], folder: Path) -> None:
    """Make the named ones: NAME.mge, NAME.npz and NAME.json in the folder, or only an error in the last."""
    for item in NETWORKS:
        if item.name not in names:
            continue
        try:
            answer = make(item, folder)
        except Exception as error:  # noqa: BLE001 - MegEngine raises any type
            answer = {"error": first_line(error)}
            (folder / f"{item.name}.mge").unlink(missing_ok=True)
        (folder / f"{item.name}.json").write_text(json.dumps(answer))


def make(item: Network, folder: Path) -> dict[str, Any]:
    """Dump one network and store what lite computes, for both sets of inputs."""
    rng = np.random.default_rng(zlib.crc32(item.name.encode()))
    module = item.build()
    spread(module, rng)
    sets = [draw(item.inputs, rng), draw(item.resized, rng)]
    calibrate(module, sets[1])
    if item.quantised:
        module = converted(module, sets[1])
    module.eval()
    path = folder / f"{item.name}.mge"
    case = Case(item.name, lambda *inputs: module(*inputs), item.inputs)
    names = dump(case, sets[0], path, dict(item.options))
    runnable = path
    if item.plain:
        runnable = folder / f"{item.name}.reference"
        dump(case, sets[0], runnable, {})
    stored = {}
    for number, arrays in enumerate(sets):
        inputs = dict(zip(names, arrays, strict=True))
        _, used, outputs = outputs_of(runnable, inputs)
        stored |= {f"call_{number}_in_{name}": inputs[name] for name in names if name in used}
        stored |= {f"call_{number}_out_{k}": array for k, array in enumerate(outputs.values())}
    np.savez(folder / f"{item.name}.npz", **stored)
    return {"ops": op_types(path), "megabytes": path.stat().st_size / 1e6}


def spread(module: M.Module, rng: np.random.Generator) -> None:
    """Random weights that keep the size of the activations, and scales and biases that are not ones and zeros."""
    for name, tensor in module.named_parameters():
        shape = tensor.numpy().shape
        if len(shape) > 1 and "bias" not in name and min(shape) < max(shape) != int(np.prod(shape)):
            array = rng.standard_normal(shape) * np.sqrt(2 / max(int(np.prod(shape)) // max(shape[0], 1), 1))
        elif name.endswith("weight") and len(shape) < 5:
            array = rng.uniform(0.7, 1.3, shape)
        else:
            array = rng.standard_normal(shape) * 0.1
        tensor._reset(mge.Tensor(array.astype(np.float32)))


def calibrate(module: M.Module, arrays: Sequence[np.ndarray]) -> None:
    """Set the statistics of all batch norms from a batch."""
    norms = [part for part in module.modules() if isinstance(part, M.BatchNorm2d | M.BatchNorm1d)]
    if not norms:
        return
    module.eval()
    for part in norms:
        part.train()
        part.momentum = 0.1
    for _ in range(3):
        module(*[mge.Tensor(array) for array in arrays])
    module.eval()


def converted(module: M.Module, arrays: Sequence[np.ndarray]) -> M.Module:
    """The network on 8-bit data, calibrated on the given inputs."""
    module = quantization.quantize_qat(module, quantization.ema_fakequant_qconfig)
    module.eval()
    quantization.enable_observer(module)
    for _ in range(3):
        module(*[mge.Tensor(array) for array in arrays])
    quantization.disable_observer(module)
    quantization.quantize(module)
    return module

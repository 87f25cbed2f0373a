"""Dumps the networks of the suite as `.mge`, with an input beside each. For a Python with MegEngine 1.13::

    PYTHON benchmarks/networks/megengine_dump.py FOLDER NAME,NAME BATCH,BATCH

Writes NAME_bBATCH.mge and NAME_bBATCH.mge.npz (input_0…, output_0 as megenginelite computes it). Weights are random,
from a fixed seed, and the same for every batch; they are not those of the MindIR files.
"""

import sys
import zlib
from pathlib import Path

import megengine as mge
import megengine.module as M  # noqa: N812 - as its documentation does
import numpy as np
from inputs import draw, images
from megengine.jit import trace
from megengine_modules import BUILD

import megenginelite as lite


def spread(module: M.Module, rng: np.random.Generator) -> None:
    """Random weights that keep the size of activations; scales near one, small biases."""
    for name, tensor in module.named_parameters():
        shape = tensor.numpy().shape
        own = name.rsplit(".", 1)[-1]
        if name.startswith("lstm"):
            array = rng.uniform(-1, 1, shape) / 16
        elif own in ("places", "token") or name == "words.weight":
            array = 0.5 * rng.standard_normal(shape)
        elif own == "bias" or len(shape) < 2:
            array = 0.1 * rng.standard_normal(shape) + (own == "weight")
        elif shape[0] == 1:  # the scale of a norm
            array = rng.uniform(0.7, 1.3, shape)
        else:
            fan_in = np.prod(shape[-3:] if len(shape) > 2 else shape[1:])
            array = rng.standard_normal(shape) * (1.5 / fan_in) ** 0.5
        tensor._reset(mge.Tensor(array.astype(np.float32)))


def calibrate(module: M.Module, rng: np.random.Generator) -> None:
    """Set the statistics of all batch norms to those of one batch of smaller images."""
    norms = [part for part in module.modules() if isinstance(part, M.BatchNorm2d)]
    module.eval()
    if not norms:
        return
    for part in norms:
        part.train()
        part.momentum = 0.0
    module(mge.Tensor(images(rng, 8, 128)))
    module.eval()


def run(path: Path, arrays: "dict[str, np.ndarray]") -> np.ndarray:
    """What megenginelite computes."""
    network = lite.LiteNetwork()
    network.load(str(path))
    for name in network.get_all_input_name():
        network.get_io_tensor(name).set_data_by_copy(arrays[name])
    network.forward()
    network.wait()
    return network.get_io_tensor(network.get_output_name(0)).to_numpy().copy()


def dump(name: str, batches: "list[int]", folder: Path) -> None:
    """Build one network and dump it for every batch."""
    mge.random.seed(0)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    module = BUILD[name]()
    spread(module, rng)
    calibrate(module, rng)
    for batch in batches:
        arrays = draw(name, batch)
        names = [f"input_{k}" for k in range(len(arrays))]
        traced = trace(lambda *inputs: module(*inputs), symbolic=True, capture_as_const=True)
        traced(*[mge.Tensor(array) for array in arrays])
        path = folder / f"{name}_b{batch}.mge"
        traced.dump(str(path), arg_names=names, enable_fuse_conv_bias_nonlinearity=True)
        stored = dict(zip(names, arrays))  # noqa: B905
        output = run(path, stored)
        np.savez(f"{path}.npz", output_0=output, **stored)
        print(f"{path.name}: output {output.shape}, deviation {output.std():.3g}", flush=True)


def main() -> None:
    """Dump what is named."""
    folder, names, batches = sys.argv[1:]
    for name in names.split(","):
        dump(name, [int(batch) for batch in batches.split(",")], Path(folder).resolve())


if __name__ == "__main__":
    main()

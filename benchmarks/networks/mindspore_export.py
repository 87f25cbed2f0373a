"""Exports the networks of the suite as MindIR, with an input and MindSpore's own output beside each.

For a Python with MindSpore 2.10 and mindcv 0.3::

    PYTHON benchmarks/networks/mindspore_export.py FOLDER NAME,NAME BATCH,BATCH

Writes NAME_bBATCH.mindir and NAME_bBATCH.npz (input_0…, output_0…). Weights are random, from a fixed seed, and the same
for every batch; batch norms take their statistics from a batch of images, so that activations keep their size.
"""

import sys
import zlib
from contextlib import suppress
from pathlib import Path

import mindcv
import mindspore as ms
import mindspore_cells as cells
import numpy as np
from inputs import draw, images
from mindcv.models.vit import VisionTransformer
from mindspore import nn, ops


def deit_tiny() -> nn.Cell:
    """DeiT-tiny: patches of 16, 12 layers of width 192, 3 heads."""
    return VisionTransformer(
        embed_dim=192,
        depth=12,
        num_heads=3,
        act_layer=lambda: nn.GELU(approximate=False),
        norm_layer=lambda shape: nn.LayerNorm(shape, epsilon=1e-6),
    )


BUILD = {
    "mobilenet_v2": lambda: mindcv.create_model("mobilenet_v2_100"),
    "shufflenet_v2": lambda: mindcv.create_model("shufflenet_v2_x1_0"),
    "resnet50": lambda: mindcv.create_model("resnet50"),
    "efficientnet_b0": lambda: mindcv.create_model("efficientnet_b0"),
    "deit_tiny": deit_tiny,
    "bert": cells.Bert,
    "unet_block": cells.UNetBlock,
    "lstm": cells.Lstm,
    "mlp": cells.Mlp,
}


def spread(cell: nn.Cell, rng: np.random.Generator) -> None:
    """Random weights that keep the size of activations; scales near one, small biases."""
    for weight in cell.get_parameters():
        shape, name = weight.shape, weight.name.rsplit(".", 1)[-1]
        if "moving" in name or name in ("mean", "variance"):
            continue
        if "gamma" in name:
            new = rng.uniform(0.7, 1.3, shape)
        elif len(shape) < 2 or "bias" in name or "beta" in name:
            new = 0.1 * rng.standard_normal(shape)
        elif "embedding" in name or name in ("places", "cls_token", "pos_embed"):
            new = 0.5 * rng.standard_normal(shape)
        else:
            new = rng.standard_normal(shape) * (1.5 / np.prod(shape[1:])) ** 0.5
        if "lstm" in weight.name:
            new = rng.uniform(-1, 1, shape) / 16
        weight.set_data(ms.Tensor(new.astype(np.float32)))


def calibrate(cell: nn.Cell, rng: np.random.Generator) -> None:
    """Set the statistics of all batch norms to those of one batch of smaller images."""
    norms = [part for _, part in cell.cells_and_names() if isinstance(part, nn.BatchNorm2d)]
    if not norms:
        return
    for part in norms:
        part.set_train(True)
        part.bn_train = ops.BatchNorm(is_training=True, epsilon=part.eps, momentum=1.0)
    cell(ms.Tensor(images(rng, 8, 128)))
    cell.set_train(False)


def export(name: str, batches: list[int], folder: Path) -> None:
    """Build one network and export it for every batch."""
    ms.set_seed(0)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    cell = BUILD[name]()
    cell.set_train(False)
    spread(cell, rng)
    calibrate(cell, rng)
    for batch in batches:
        arrays = draw(name, batch)
        tensors = [ms.Tensor(array) for array in arrays]
        path = folder / f"{name}_b{batch}.mindir"
        path.unlink(missing_ok=True)
        ms.export(cell, *tensors, file_name=str(path), file_format="MINDIR")
        path.chmod(0o644)
        output = cell(*tensors).asnumpy()
        stored = {f"input_{k}": array for k, array in enumerate(arrays)}
        np.savez(folder / f"{name}_b{batch}.npz", output_0=output, **stored)
        print(f"{path.name}: output {output.shape}, deviation {output.std():.3g}", flush=True)


def main() -> None:
    """Export what is named."""
    folder, names, batches = sys.argv[1:]
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    with suppress(SystemError):
        ops.zeros((1,), ms.float32)  # beside NumPy 2, the first eager operator of a process may fail
    for name in names.split(","):
        export(name, [int(batch) for batch in batches.split(",")], Path(folder).resolve())


if __name__ == "__main__":
    main()

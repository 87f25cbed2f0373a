"""The networks of the suite: what there is, and where it is built.

Scripts in this folder build them with the real frameworks, which need Pythons of their own; `build` runs what is there.
"""

import os
from pathlib import Path

TITLES = {
    "mobilenet_v2": "MobileNetV2 1.0",
    "shufflenet_v2": "ShuffleNetV2 x1.0",
    "resnet50": "ResNet-50",
    "efficientnet_b0": "EfficientNet-B0",
    "deit_tiny": "DeiT-tiny",
    "bert": "BERT-base, 128 tokens",
    "unet_block": "UNet block, 320 × 32 × 32",
    "lstm": "LSTM, 2 × 256, 64 steps",
    "mlp": "MLP 32-64-64-10",
}
NAMES = tuple(TITLES)

# Written by `benchmarks.mindir_models`, so that there is something to run where there is no framework to build with.
WRITTEN = "encoder"

PEERS = {
    "mindspore": "LITEHOUSE_MINDSPORE_PYTHON",
    "mindspore_lite": "LITEHOUSE_MINDSPORE_LITE_PYTHON",
    "megengine": "LITEHOUSE_MEGENGINE_PYTHON",
}
"""The variables that name a Python with mindspore 2.10 and mindcv 0.3, mindspore-lite 2.0.0, and megengine 1.13."""


def peer(name: str) -> str | None:
    """The Python of a peer: the one that its variable names, else the one that `peers` made; None without."""
    return os.environ.get(PEERS[name]) or (str(made(name)) if made(name).exists() else None)


def made(name: str) -> Path:
    """Where `peers` puts the Python of a peer."""
    return folder() / "peers" / name / "bin" / "python"


def folder() -> Path:
    """Where the networks are: LITEHOUSE_BENCHMARK_NETWORKS, else `benchmarks/built`."""
    path = Path(os.environ.get("LITEHOUSE_BENCHMARK_NETWORKS") or Path(__file__).parent.parent / "built").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def file(name: str, batch: int, suffix: str) -> Path:
    """A file of a network."""
    return folder() / f"{name}_b{batch}{suffix}"

"""Container fixtures: one small network stored plain, encrypted, split, and split and encrypted."""

import json
import os
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import serialization

from mindir_fixtures.harness import export, first_line, randomise

KEY_16 = b"litehouse-key-16"
KEY_24 = b"litehouse-fixture-key-24"
KEY_32 = b"litehouse-fixture-key-32-bytes!!"

ENCRYPTED = {
    "aes_gcm_128": (KEY_16, "AES-GCM"),
    "aes_gcm_256": (KEY_32, "AES-GCM"),
    "aes_cbc_192": (KEY_24, "AES-CBC"),
    "sm4_cbc": (KEY_16, "SM4-CBC"),
}


def network() -> nn.Cell:
    """The network of all files; its weights have sizes that are and are not multiples of the 64 bytes of a slot."""
    return nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 5), nn.Softmax())


def split_export(cell: nn.Cell, x: ms.Tensor, path: Path, file_kilobytes: float | None = None, **options: Any) -> None:
    """Export with the weights outside the graph file, as MindSpore does above 1 GiB.

    Args:
        cell: The network.
        x: Its input.
        path: ``<name>.mindir``; MindSpore writes ``<name>_graph.mindir`` and ``<name>_variables/``.
        file_kilobytes: Size after which MindSpore begins another data file.
        **options: Encryption options.
    """
    total, size = serialization.TOTAL_SAVE, serialization.PARAMETER_SPLIT_SIZE
    serialization.TOTAL_SAVE = 0
    if file_kilobytes is not None:
        serialization.PARAMETER_SPLIT_SIZE = file_kilobytes
    try:
        export(cell, [x], path, **options)
    finally:
        serialization.TOTAL_SAVE, serialization.PARAMETER_SPLIT_SIZE = total, size
    path.with_name(f"{path.stem}_graph.mindir").chmod(0o644)
    folder = path.with_name(f"{path.stem}_variables")
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def check(file: Path, secret: dict[str, str] | None, x: ms.Tensor, expected: np.ndarray) -> None:
    """MindSpore's own loader must read the file back."""
    options = {"dec_key": secret["key"].encode(), "dec_mode": secret["mode"]} if secret else {}
    try:
        output = nn.GraphCell(ms.load(str(file), **options))(x).asnumpy()
    except (RuntimeError, ValueError) as error:
        print(f"  remark {file.name}: MindSpore cannot load it: {first_line(error)}")
        return
    np.testing.assert_allclose(output, expected, rtol=1e-5, err_msg=file.name)


def make(folder: Path) -> None:
    """Write all container fixtures into ``folder``."""
    os.umask(0o022)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    cell = network()
    randomise(cell, rng)
    x = ms.Tensor(rng.standard_normal((3, 8)).astype(np.float32))
    export(cell, [x], folder / "plain.mindir")
    keys: dict[str, dict[str, str]] = {}
    for name, (key, mode) in ENCRYPTED.items():
        export(cell, [x], folder / f"{name}.mindir", enc_key=key, enc_mode=mode)
        keys[f"{name}.mindir"] = {"key": key.decode(), "mode": mode}
    split_export(cell, x, folder / "split.mindir")
    split_export(cell, x, folder / "split_files.mindir", file_kilobytes=0.1)
    split_export(cell, x, folder / "split_gcm.mindir", enc_key=KEY_16, enc_mode="AES-GCM")
    keys["split_gcm_graph.mindir"] = {"key": KEY_16.decode(), "mode": "AES-GCM"}
    split_export(cell, x, folder / "split_cbc.mindir", enc_key=KEY_32, enc_mode="AES-CBC")
    keys["split_cbc_graph.mindir"] = {"key": KEY_32.decode(), "mode": "AES-CBC"}
    output = cell.set_train(False)(x).asnumpy()
    for file in sorted(folder.glob("*.mindir")):
        check(file, keys.get(file.name), x, output)
    (folder / "keys.json").write_text(json.dumps(keys, indent=2) + "\n")
    np.savez_compressed(folder / "io.npz", input_0=x.asnumpy(), output_0=output)

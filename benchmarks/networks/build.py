"""Builds the networks that are not there yet: `python -m benchmarks build` for all of them.

| file | what | by |
|---|---|---|
| NAME_bBATCH.mindir, .npz | the network, its inputs, and the output that MindSpore computed | MindSpore 2.10 |
| NAME_bBATCH.onnx | its plain translation, as `litehouse convert` writes it | Litehouse |
| NAME_bBATCH.lite.mindir | the same network for MindSpore Lite | the converter of MindSpore Lite 2.0.0 |
| NAME_bBATCH.mge, .mge.npz | the same architecture with other weights, and megenginelite's output | MegEngine 1.13 |
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from rich.console import Console

import litehouse
from benchmarks.mindir_models import LENGTH, write_bert
from benchmarks.networks import NAMES, WRITTEN, file, folder, peer
from benchmarks.networks.lite_onnx import write_for_lite

HERE = Path(__file__).parent
QUIET = {"GLOG_v": "3", "PYTHONWARNINGS": "ignore", "PYTHONPATH": ""}
WRITTEN_LAYERS, WRITTEN_WORDS = 2, 1000


def main() -> None:
    """Build everything."""
    build(NAMES, (1, 8))


def build(names: tuple[str, ...], batches: tuple[int, ...]) -> None:
    """Build what is missing, with the frameworks that are there."""
    scripts = {"mindspore": ("mindspore_export.py", ".mindir"), "megengine": ("megengine_dump.py", ".mge")}
    for framework, (script, suffix) in scripts.items():
        for name in names:
            missing = [str(batch) for batch in batches if not file(name, batch, suffix).exists()]
            if python := peer(framework) if missing and name in NAMES else None:
                _run(f"{name}{suffix}", python, script, str(folder()), name, ",".join(missing))
    for name in names:
        for batch in batches:
            if name == WRITTEN:
                _write(batch)
            if file(name, batch, ".mindir").exists():
                translate(name, batch)
            if name in NAMES and file(name, batch, ".onnx").exists():
                _convert(name, batch)


def available(names: Sequence[str]) -> tuple[str, ...]:
    """Build networks at batch 1, and name those that are there; a part of BERT where no framework can build any."""
    build(tuple(names), (1,))
    found = tuple(name for name in names if file(name, 1, ".onnx").exists())
    if not found:
        print("There is no framework to build networks with: a part of BERT is written, and run instead.")
        build((WRITTEN,), (1,))
    return found or (WRITTEN,)


def translate(name: str, batch: int) -> None:
    """Write the plain ONNX translation; anew each time, since it follows Litehouse's source."""
    ir.save(litehouse.read(file(name, batch, ".mindir")).graph, file(name, batch, ".onnx"))


def _convert(name: str, batch: int) -> None:
    target = file(name, batch, ".lite.mindir")
    if (python := peer("mindspore_lite")) and not target.exists():
        source = file(name, batch, ".lite.onnx")
        write_for_lite(file(name, batch, ".onnx"), source)
        _run(target.name, python, "lite_convert.py", str(source), str(target.with_suffix("")))
        source.unlink()


def _write(batch: int) -> None:
    path = file(WRITTEN, batch, ".mindir")
    if not path.exists():
        write_bert(path, layers=WRITTEN_LAYERS, words=WRITTEN_WORDS, batch=batch)
        words = np.random.default_rng(0).integers(0, WRITTEN_WORDS, (batch, LENGTH)).astype(np.int32)
        np.savez(file(WRITTEN, batch, ".npz"), input_0=words)


def _run(what: str, python: str, script: str, *arguments: str) -> None:
    with Console(stderr=True).status(f"building {what}"):
        command = [python, str(HERE / script), *arguments]
        done = subprocess.run(command, env=os.environ | QUIET, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-1000:], done.stderr[-3000:], file=sys.stderr)
        raise SystemExit(f"{script} failed on {what}; what it printed is above")


if __name__ == "__main__":
    main()

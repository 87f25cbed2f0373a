"""What the second start costs: building ResNet-50 and BERT-base with an empty cache, and again with what is in it.

Each start is a process of its own; before each pair the cache is a new folder. Networks are those of the suite; without
MindSpore to build them there is BERT-base alone, written by `benchmarks.mindir_models`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS, machine
from benchmarks.mindir_models import LENGTH, WORDS, write_bert
from benchmarks.networks import TITLES, file
from benchmarks.networks.build import build
from benchmarks.progress import progress

ROUNDS, THREADS = 5, 2
NETWORKS = ("resnet50", "bert")
STARTS = ("first", "second")
PROGRAM = """
import json, sys, time
import numpy as np
import litehouse

path, arrays, threads = sys.argv[1:]
with np.load(arrays) as stored:
    inputs = [stored[key] for key in stored.files if key.startswith("input_")]
start = time.perf_counter()
session = litehouse.load(path, threads=int(threads))
loaded = time.perf_counter()
session.run(inputs)
print(json.dumps({"load": loaded - start, "run": time.perf_counter() - loaded, "engine": str(session.engine)}))
"""


def start(model: Path, arrays: Path, cache: Path) -> dict[str, float]:
    """Load and run once in a fresh process: the seconds of both."""
    command = [sys.executable, "-c", PROGRAM, str(model), str(arrays), str(THREADS)]
    environment = os.environ | {"LITEHOUSE_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def pair(model: Path, arrays: Path) -> tuple[dict[str, float], dict[str, float]]:
    """A start with an empty cache, and one after it."""
    with tempfile.TemporaryDirectory() as cache:
        return start(model, arrays, Path(cache)), start(model, arrays, Path(cache))


def medians(pairs: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Medians of the seconds, and of the ratio second to first within a pair."""
    found = {
        f"{name}_{kind}": statistics.median(one[place][kind] for one in pairs)
        for place, name in enumerate(STARTS)
        for kind in ("load", "run")
    }
    return found | {"ratio": statistics.median(second["load"] / first["load"] for first, second in pairs)}


def main() -> None:
    """Measure, print a table, and write the same as JSON."""
    build(NETWORKS, (1,))
    with tempfile.TemporaryDirectory() as folder:
        models = {TITLES[name]: (file(name, 1, ".mindir"), file(name, 1, ".npz")) for name in NETWORKS}
        models = {title: paths for title, paths in models.items() if paths[0].exists()} or _written(Path(folder))
        pairs: dict[str, list[Sequence[Mapping[str, float]]]] = {title: [] for title in models}
        with progress() as bar:
            for _ in bar.track(range(ROUNDS), description="starting"):
                for title, paths in models.items():
                    pairs[title].append(pair(*paths))
    results = {title: medians(own) for title, own in pairs.items()}
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores, {THREADS} threads; medians of {ROUNDS} pairs of fresh processes"
    table = Table("", "first load, s", "second load, s", "ratio", "first run after each, s", caption=caption)
    for title, own in results.items():
        runs = " / ".join(f"{own[f'{name}_run']:.2f}" for name in STARTS)
        table.add_row(title, f"{own['first_load']:.2f}", f"{own['second_load']:.2f}", f"{own['ratio']:.2f}", runs)
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    document = {"title": "start", "machine": here, "results": results, "pairs": pairs}
    (RESULTS / "start.json").write_text(json.dumps(document, indent=2) + "\n")


def _written(folder: Path) -> dict[str, tuple[Path, Path]]:
    model, arrays = folder / "bert.mindir", folder / "bert.npz"
    write_bert(model)
    np.savez(arrays, input_0=np.random.default_rng(0).integers(0, WORDS, (1, LENGTH)).astype(np.int32))
    return {TITLES["bert"]: (model, arrays)}


if __name__ == "__main__":
    main()

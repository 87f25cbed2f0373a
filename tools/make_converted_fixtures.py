"""Make the fixtures under `tests/fixtures/converted` with MindSpore Lite's own converter and runtime.

Runs in a Python with `onnx` and `onnxruntime`, and wants one with `mindspore-lite==2.0.0` (Python 3.7); for the sources
that MindSpore exports itself, also one with `mindspore==2.0.0`::

    python tools/make_converted_fixtures.py --peer PYTHON            # everything
    python tools/make_converted_fixtures.py --peer PYTHON conv pool  # cases whose names contain a word

Each case becomes `NAME.mindir`, `NAME.ms` and `NAME.npz` (in0, …, out0, …). `INDEX.json` says whose numbers the
outputs are: `mindspore_lite` where its runtime agrees with the source model; where it fails or departs `onnxruntime`,
or `mindspore` for its own exports.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = Path(__file__).resolve().parent
TARGET = TOOLS.parent / "tests" / "fixtures" / "converted"
EXTENSIONS = ("mindir", "ms")
SOURCE = "onnxruntime"
TOLERANCE = 1e-4
FAR = 1e6
SECONDS = 120

sys.path.insert(0, str(TOOLS))

from converted_fixtures import arrays, elements, sources, windows  # noqa: E402

from litehouse.formats.mindir.schema_pb2 import Model as ModelProto  # noqa: E402

FAMILIES = (windows, elements, arrays)


def convert(peer: str, folder: Path, name: str, extension: str) -> str:
    """Convert and run one file. Gives why it failed, or nothing."""
    settings = json.dumps(sources.CASES[name].settings)
    command = [peer, str(TOOLS / "converted_fixtures" / "convert.py"), str(folder), name, extension, settings]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        return "hangs"
    if "DONE" in done.stdout:
        return ""
    last = (done.stderr.strip().splitlines() or ["crashes"])[-1]
    return ("cannot run: " if "CONVERTED" in done.stdout else "cannot convert: ") + last[-120:]


def distance(actual: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """The largest error relative to the range of each output; infinite where shapes differ."""
    largest = 0.0
    for key, expected in wanted.items():
        found = actual.get(key)
        if found is None or found.shape != expected.shape:
            return float("inf")
        if expected.size:
            error = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
            spread = max(np.ptp(expected.astype(np.float64)), np.abs(expected).max(), 1e-6)
            largest = max(largest, float(error / spread))
    return largest


def outputs_of(path: Path) -> dict[str, np.ndarray]:
    """The outputs in an archive."""
    return arrays_of(path, "out")


def arrays_of(path: Path, kind: str) -> dict[str, np.ndarray]:
    """The inputs or outputs in an archive; converted files have int32 wherever the source had int64."""
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored if key.startswith(kind)}
    return {key: array.astype(np.int32) if array.dtype == np.int64 else array for key, array in arrays.items()}


def ops_of(path: Path) -> list[str]:
    """The ops of a converted file."""
    proto = ModelProto()
    proto.ParseFromString(path.read_bytes())
    return sorted({primitive.op_type for primitive in proto.primitives})


def collect(folder: Path, name: str, failures: dict[str, str]) -> dict[str, Any] | None:
    """Copy what was made of a case, and say what the numbers are; None where nothing was converted."""
    case = sources.CASES[name]
    made = [extension for extension in EXTENSIONS if (folder / f"{name}.{extension}").exists()]
    if not made:
        return None
    wanted = outputs_of(folder / f"{name}.npz")
    facts: dict[str, Any] = {
        "onnx_ops": sorted({node.op_type for node in case.nodes}),
        "truth": SOURCE if case.nodes else "mindspore",
    }
    if "encrypt" not in case.settings:
        facts["ops"] = ops_of(folder / f"{name}.mindir")
    for extension in made:
        shutil.copy(folder / f"{name}.{extension}", TARGET / f"{name}.{extension}")
        (TARGET / f"{name}.{extension}").chmod(0o644)
        entry: dict[str, Any] = {}
        if failures[extension]:
            entry["real"] = failures[extension]
        elif (folder / f"{name}.{extension}.npz").exists():
            entry = json.loads((folder / f"{name}.{extension}.json").read_text())
            entry["distance"] = round(min(distance(outputs_of(folder / f"{name}.{extension}.npz"), wanted), FAR), 6)
        facts[extension] = entry
    agreeing = [extension for extension in made if facts[extension].get("distance", 1.0) <= TOLERANCE]
    running = [extension for extension in made if "distance" in facts[extension]]
    follow = running if case.follow else agreeing
    if follow:
        wanted = outputs_of(folder / f"{name}.{follow[0]}.npz")
        facts["truth"] = "mindspore_lite"
    facts |= {key: value for key in ("follow", "settings", "tolerance") if (value := getattr(case, key))}
    np.savez_compressed(TARGET / f"{name}.npz", **arrays_of(folder / f"{name}.npz", "in"), **wanted)
    return facts


def native(python: str, folder: Path) -> list[str]:
    """Let MindSpore export its networks. Gives their names."""
    subprocess.run([python, str(TOOLS / "converted_fixtures" / "native.py"), str(folder)], check=True)
    names = sorted(path.name.partition(".")[0] for path in folder.glob("*.source.mindir"))
    sources.CASES.update({name: sources.Case(name, [], []) for name in names})
    return names


def main() -> None:
    """Make the chosen cases, and the index of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with mindspore-lite 2.0.0")
    parser.add_argument("--mindspore", help="a Python with MindSpore 2.0.0; without it, native sources are left out")
    parser.add_argument("words", nargs="*", help="make only the cases whose names contain one of these")
    options = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    index_path = TARGET / "INDEX.json"
    whole = options.mindspore and not options.words
    index = json.loads(index_path.read_text()) if index_path.exists() and not whole else {}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        folder = Path(scratch)
        names = sources.write(folder, lambda name: not options.words or any(word in name for word in options.words))
        names += native(options.mindspore, folder) if options.mindspore else []
        jobs = [(name, extension) for name in names for extension in EXTENSIONS]
        results = dict(zip(jobs, pool.map(lambda job: convert(options.peer, folder, *job), jobs), strict=True))
        for name in names:
            failures = {extension: results[name, extension] for extension in EXTENSIONS}
            facts = collect(folder, name, failures)
            if facts is None:
                index.pop(name, None)
                print(f"{name}: {failures['mindir']}")
            else:
                index[name] = facts
    index_path.write_text(json.dumps(dict(sorted(index.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()

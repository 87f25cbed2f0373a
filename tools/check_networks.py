"""Check networks that the real MindSpore 2.10 exports, outside CI, and write the table of ``docs/networks.md``.

Run in Litehouse's own environment, with the Python that has MindSpore 2.10 and mindcv::

    python tools/check_networks.py --peer PYTHON --folder SCRATCH                # everything, then the table
    python tools/check_networks.py --peer PYTHON --folder SCRATCH resnet18 Gpt   # some of them

Stage 1, in the other Python, exports a network, runs it and stores inputs and outputs in the scratch folder. Stage 2
loads the export on every engine and compares. Then the export is deleted, unless ``--keep``. Results stay in the
scratch folder, so that the check can be cut off and taken up again; ``--again`` repeats what is there (stage 1 only
where the export is gone), ``--table`` only writes the table.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
DOCUMENT = TOOLS.parent / "docs" / "networks.md"
ENGINES = ("onnxruntime", "openvino")
TOLERANCE = {"float16": 1e-3}
SECONDS = 1500

HEAD = """\
# Networks that were checked

<!-- Written by tools/check_networks.py. -->

These were exported by MindSpore 2.10 on the CPU, run there, and run by Litehouse on both engines. They are too large or
too many for the tests, so this is the result of a run by hand. Weights are random, from a fixed seed. The figure is the
largest error of any output, relative to the range of that output (or to its largest value, where that is more).
Integers and bools must be equal. What does not agree to 1e-4 (float16: 1e-3), or is refused, says so.
"""

NOTES = """\
`visformer_tiny_v2` misses because its random weights drive activations to 1e4, where the softmax of its attention is
a step and every rounding shows: against the same network in float64, MindSpore itself is off by 4e-3, ONNX Runtime by
3e-5 and OpenVINO by 2e-4. With the weights of queries, keys and values made a hundred times smaller, all three agree to
3e-7.
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="networks or single ops (default: all)")
    parser.add_argument("--peer", help="the Python that has MindSpore 2.10 and mindcv")
    parser.add_argument("--folder", type=Path, required=True, help="scratch folder")
    parser.add_argument("--keep", action="store_true", help="keep the exports")
    parser.add_argument("--again", action="store_true", help="repeat what has a result")
    parser.add_argument("--table", action="store_true", help="only write the table from the results there are")
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(actual: Any, expected: Any) -> tuple[float, str]:
    """The error relative to the output's range, and what else is wrong."""
    import numpy as np

    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return 0.0, f"is {actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind != "f":
        unequal = int((actual != expected).sum())
        return 0.0, f"{unequal} of {expected.size} integers differ" if unequal else ""
    finite = np.isfinite(expected)
    if not np.array_equal(np.where(finite, 0, actual), np.where(finite, 0, expected), equal_nan=True):
        return 0.0, "infinities or NaNs differ"
    a, b = actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    if not b.size:
        return 0.0, ""
    error = float(np.abs(a - b).max() / max(np.ptp(b), np.abs(b).max(), 1e-6))
    allowed = TOLERANCE.get(expected.dtype.name, 1e-4)
    return error, "" if error <= allowed else f"error {error:.1e}"


def check(name: str, folder: Path, engine: str) -> dict[str, Any]:
    """Stage 2 for one network and engine."""
    import numpy as np

    import litehouse

    stored = np.load(folder / f"{name}.npz")
    calls = sorted({int(key.split("_")[1]) for key in stored.files})
    worst, remarks = 0.0, []
    try:
        session = litehouse.load(folder / f"{name}.mindir", engine=engine, threads=2)
        for call in calls:
            inputs, expected = (
                [stored[f"call_{call}_{kind}_{k}"] for k in range(count)]
                for kind in ("input", "output")
                for count in [sum(key.startswith(f"call_{call}_{kind}_") for key in stored.files)]
            )
            outputs = session.run(inputs)
            if len(outputs) != len(expected):
                remarks.append(f"{len(outputs)} outputs, not {len(expected)}")
            for k, (actual, wanted) in enumerate(zip(outputs, expected, strict=False)):
                error, remark = measure(actual, wanted)
                worst = max(worst, error)
                if remark:
                    remarks.append(f"output {k}{f' of call {call}' if call else ''} {remark}")
    except litehouse.LitehouseError as error:
        kind = "refused" if isinstance(error, litehouse.UnsupportedOpError) else type(error).__name__
        text = " ".join(str(error).split("`litehouse inspect`")[0].split())
        return {"miss": f"{kind}: {text.removeprefix(f'{folder}/')}"[:300]}
    return {"error": worst, "miss": "; ".join(remarks[:3])}


def child(command: list[str], seconds: int = SECONDS) -> str:
    """Run one; returns why it failed, or nothing."""
    environment = os.environ | {"GLOG_v": "3", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "2"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no result in {seconds} s"
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-2000:], file=sys.stderr)
        return f"the process died (exit {done.returncode})"
    return ""


def stages(names: list[str], arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Both stages for some names; the single ops of one call share a process per stage."""
    folder, script = arguments.folder, str(Path(__file__).resolve())
    missing = [name for name in names if not (folder / f"{name}.mindir").exists()]
    if missing:
        failure = child([arguments.peer, script, "--make", "--folder", str(folder), *missing])
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        made = folder / f"{name}.json"
        results[name] = json.loads(made.read_text()) if made.exists() else {"error": f"MindSpore: {failure}"}
    exported = [name for name in names if "error" not in results[name]]
    if exported:
        failure = child([sys.executable, script, "--check", "--folder", str(folder), *exported])
    for name in exported:
        checked = folder / f"{name}.check"
        nothing = {engine: {"miss": failure} for engine in ENGINES}
        results[name] |= json.loads(checked.read_text()) if checked.exists() else nothing
        checked.unlink(missing_ok=True)
    if not arguments.keep:
        for name in names:
            for suffix in (".mindir", ".npz", ".json"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)
    return results


def cell(result: dict[str, Any], engine: str) -> str:
    found = result[engine]
    text = found["miss"] or f"{found['error']:.0e}".replace("0e+00", "0")
    return text.replace("|", "/").replace("<", "&lt;")


def table(results: dict[str, dict[str, Any]]) -> str:
    """The document."""
    networks = {name: result for name, result in results.items() if result["source"] != "single op"}
    operators = {name: result for name, result in results.items() if result["source"] == "single op"}
    lines = [HEAD, "## Networks", "", summary(networks), ""]
    lines += ["| network | source | nodes | weights, MB | ONNX Runtime | OpenVINO |", "|---|---|---|---|---|---|"]
    for name, result in networks.items():
        if "error" not in result:
            cells = [name, result["source"], str(result["nodes"]), f"{result['megabytes']:.1f}"]
            lines.append("| " + " | ".join([*cells, *(cell(result, engine) for engine in ENGINES)]) + " |")
    lines += ["", NOTES, "## Single operators", "", summary(operators), ""]
    lines += ["| operator | inputs | ONNX Runtime | OpenVINO |", "|---|---|---|---|"]
    for result in operators.values():
        if "error" not in result:
            text = result["text"].replace("|", "&#124;")
            lines.append(
                "| " + " | ".join([f"`{text}`", result["inputs"], *(cell(result, engine) for engine in ENGINES)]) + " |"
            )
    lines += ["", "## What MindSpore could not create, export or run", "", "| name | reason |", "|---|---|"]
    lines += [
        f"| {name} | {result['error'].replace('|', '/').replace('<', '&lt;')} |"
        for name, result in results.items()
        if "error" in result
    ]
    return "\n".join(lines) + "\n"


def summary(results: dict[str, dict[str, Any]]) -> str:
    made = [result for result in results.values() if "error" not in result]
    counts = ", ".join(
        f"{sum(not result[engine]['miss'] for result in made)} of {len(made)} match on {title}"
        for engine, title in zip(ENGINES, ("ONNX Runtime", "OpenVINO"), strict=True)
    )
    return f"{counts}. MindSpore itself failed on {len(results) - len(made)} more."


def run(arguments: argparse.Namespace) -> None:
    file = arguments.folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    if not arguments.table:
        command = [arguments.peer, str(Path(__file__).resolve()), "--list", "--folder", str(arguments.folder)]
        known = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()[-1])
        unknown = set(arguments.names) - set(known)
        if unknown:
            raise SystemExit(f"Unknown: {sorted(unknown)}. Known are: {', '.join(known)}.")
        names = [name for name in arguments.names or known if arguments.again or name not in results]
        operators = [name for name in names if known[name]["source"] == "single op"]
        batches = [[name] for name in names if name not in operators]
        batches += [operators[k : k + 20] for k in range(0, len(operators), 20)]
        for batch in batches:
            for name, result in stages(batch, arguments).items():
                results[name] = known[name] | result
                shown = result.get("error") or {engine: cell(result, engine) for engine in ENGINES}
                print(name, shown, flush=True)
            results = {name: results[name] for name in known if name in results}
            file.write_text(json.dumps(results, indent=1))
    DOCUMENT.write_text(table(results))


def main() -> None:
    arguments = parse()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.list or arguments.make:
        sys.path.insert(0, str(TOOLS))
        from networks import make

        if arguments.list:
            print(json.dumps(make.listed()))
        else:
            make.make_all(arguments.names, arguments.folder.resolve())
    elif arguments.check:
        for name in arguments.names:
            found = {engine: check(name, arguments.folder, engine) for engine in ENGINES}
            (arguments.folder / f"{name}.check").write_text(json.dumps(found))
    else:
        run(arguments)


if __name__ == "__main__":
    main()

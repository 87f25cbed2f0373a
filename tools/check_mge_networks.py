"""Check networks that the real MegEngine 1.13 dumps, outside CI, and write the table of ``docs/mge_networks.md``.

Stage 1 runs in a Python that has MegEngine 1.13, stage 2 in Litehouse's own environment::

    PEER tools/check_mge_networks.py make --folder SCRATCH             # dump, run with megenginelite, store
    python tools/check_mge_networks.py compare --folder SCRATCH        # load on every engine, compare, write the table
    python tools/check_mge_networks.py compare --folder SCRATCH vgg    # some of them, without the table

Every network is run at two sizes of its inputs. Stage 1 makes each network in a process of its own.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
DOCUMENT = TOOLS.parent / "docs" / "mge_networks.md"
ENGINES = ("onnxruntime", "openvino")
SECONDS = 300

# The largest error that counts as equal, relative to the range of the output.
TOLERANCE, HALF, QUANTISED = 1e-4, 5e-3, 2e-2

HEAD = """\
# MegEngine networks that were checked

<!-- Written by tools/check_mge_networks.py. -->

These were dumped by MegEngine 1.13, run by megenginelite 1.13 on the CPU, and run by Litehouse on both engines, at the
traced sizes of their inputs and at others. They are too many for the tests, so this is the result of a run by hand.
Weights are random, from a fixed seed; batch norms are calibrated. The figure is the largest error of any output,
relative to the range of that output (or to its largest value, where that is more), at the first / the second sizes.
Integers must be equal. The outputs of a network with a star come from a dump without options: lite dies on the one that
is checked, or gives wrong numbers. What does not agree to 1e-4 (networks in half precision: 5e-3; on 8-bit data: 2e-2,
a few steps of quantisation), or is refused, says so.
"""

NOTES = """\
On 8-bit data, the graph for ONNX Runtime takes the steps that MegEngine takes on x86, and the networks above give the
same numbers. OpenVINO moves the factors behind a convolution into its weights, so that a sum near to a half may be
rounded to the other side, a difference of one step: layers with random weights, as in `mobilenet_quantised`, make more
of it.
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("make", "compare", "one"), help="one: make in this very process")
    parser.add_argument("names", nargs="*", help="networks (default: all)")
    parser.add_argument("--folder", type=Path, required=True, help="scratch folder")
    return parser.parse_intermixed_args()


def make(names: list[str], folder: Path) -> None:
    """Stage 1: every network in a child process."""
    sys.path.insert(0, str(TOOLS))
    from mge_networks.make import listed

    known = listed()
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"Unknown: {sorted(unknown)}. Known are: {', '.join(known)}.")
    (folder / "networks.json").write_text(json.dumps(known))
    for name in names or known:
        made = folder / f"{name}.json"
        made.unlink(missing_ok=True)
        command = [sys.executable, str(Path(__file__).resolve()), "one", "--folder", str(folder), name]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        if not made.exists():
            made.write_text(json.dumps({"error": f"the process died (exit {done.returncode})"}))
        answer = json.loads(made.read_text())
        print(
            name,
            answer.get("error") or f"{answer['megabytes']:.2f} MB, {len(answer['ops'])} kinds of operators",
            flush=True,
        )


def measure(actual: Any, expected: Any, allowed: float) -> tuple[float, str]:
    """The error relative to the output's range, and what else is wrong."""
    import numpy as np

    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return 0.0, f"is {actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind != "f":
        unequal = int((actual != expected).sum())
        return 0.0, f"{unequal} of {expected.size} integers differ" if unequal else ""
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if not b.size:
        return 0.0, ""
    error = float(np.abs(a - b).max() / max(np.ptp(b), np.abs(b).max(), 1e-6))
    return error, "" if error <= allowed else f"error {error:.1e}"


def check(name: str, folder: Path, engine: str, allowed: float) -> dict[str, Any]:
    """Stage 2 for one network and engine: the errors at both sizes, and what is wrong."""
    import numpy as np

    import litehouse

    errors, remarks = [], []
    with np.load(folder / f"{name}.npz") as stored:
        try:
            session = litehouse.load(folder / f"{name}.mge", engine=engine, threads=1)
            for call in (0, 1):
                prefix = f"call_{call}_in_"
                inputs = {key.removeprefix(prefix): stored[key] for key in stored if key.startswith(prefix)}
                expected = [stored[key] for key in stored if key.startswith(f"call_{call}_out_")]
                if call:
                    session.resize({key: array.shape for key, array in inputs.items()})
                outputs = session.run(inputs)
                found = [measure(*pair, allowed) for pair in zip(outputs, expected, strict=True)]
                errors.append(max(error for error, _ in found))
                remarks += [f"output {k} at size {call + 1} {text}" for k, (_, text) in enumerate(found) if text]
        except litehouse.LitehouseError as error:
            kind = "refused" if isinstance(error, litehouse.UnsupportedOpError) else type(error).__name__
            text = " ".join(str(error).split("`litehouse inspect`")[0].split())
            return {"errors": errors, "miss": f"{kind}: {text.removeprefix(f'{folder}/')}"[:300]}
    return {"errors": errors, "miss": "; ".join(remarks[:3])}


def tolerance(entry: dict[str, Any]) -> float:
    if entry["quantised"]:
        return QUANTISED
    return HALF if {"enable_ioc16", "enable_io16xc32"} & set(entry["options"]) else TOLERANCE


def compare(names: list[str], folder: Path) -> None:
    """Stage 2; writes the table when all networks were asked for."""
    known = json.loads((folder / "networks.json").read_text())
    results = {}
    for name in names or known:
        made = json.loads((folder / f"{name}.json").read_text())
        results[name] = known[name] | made
        if "error" not in made:
            allowed = tolerance(known[name])
            results[name] |= {engine: check(name, folder, engine, allowed) for engine in ENGINES}
        print(name, made.get("error") or [cell(results[name][engine]) for engine in ENGINES], flush=True)
    if not names:
        DOCUMENT.write_text(table(results))


def cell(found: dict[str, Any]) -> str:
    figures = " / ".join(f"{error:.0e}".replace("0e+00", "0") for error in found["errors"])
    return (found["miss"] or figures).replace("|", "/").replace("<", "&lt;")


def table(results: dict[str, dict[str, Any]]) -> str:
    """The document."""
    made = {name: result for name, result in results.items() if "error" not in result}
    counts = ", ".join(
        f"{sum(not result[engine]['miss'] for result in made.values())} of {len(made)} match on {title}"
        for engine, title in zip(ENGINES, ("ONNX Runtime", "OpenVINO"), strict=True)
    )
    lines = [
        HEAD,
        f"{counts}.",
        "",
        "| network | what | MB | operators | ONNX Runtime | OpenVINO |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in made.items():
        operators = ", ".join(sorted({op.removeprefix("Elemwise:") for op in result["ops"]}))
        cells = [name + " \\*" * result["plain"], result["what"], f"{result['megabytes']:.2f}", operators]
        lines.append("| " + " | ".join([*cells, *(cell(result[engine]) for engine in ENGINES)]) + " |")
    lines += ["", NOTES.rstrip()]
    failed = {name: result["error"] for name, result in results.items() if "error" in result}
    if failed:
        lines += ["", "## What MegEngine could not dump or run", "", "| name | reason |", "|---|---|"]
        lines += [f"| {name} | {reason.replace('|', '/').replace('<', '&lt;')} |" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = parse()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.stage == "make":
        make(arguments.names, folder)
    elif arguments.stage == "compare":
        compare(arguments.names, folder)
    else:
        sys.path.insert(0, str(TOOLS))
        from mge_networks.make import make_all

        make_all(arguments.names, folder)


if __name__ == "__main__":
    main()

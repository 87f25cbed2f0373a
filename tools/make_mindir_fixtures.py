"""Make the MindIR fixtures under ``tests/fixtures/mindir`` with the real MindSpore.

Run with a Python that has MindSpore 2.10 installed::

    python tools/make_mindir_fixtures.py                  # everything
    python tools/make_mindir_fixtures.py pool norm        # some families
    python tools/make_mindir_fixtures.py --only relu pool # cases whose names contain "relu"

Every family of cases runs in a process of its own: MindSpore may crash or hang on an operator, which then is listed as
skipped. A skipped case and its reason go to ``SKIPPED.md``, the operators of each file to ``ops/INDEX.json``.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fixture_children import CASE_SECONDS, read_report, watch

TOOLS = Path(__file__).resolve().parent
FIXTURES = TOOLS.parent / "tests" / "fixtures" / "mindir"
FAMILIES = (
    "conv",
    "pool",
    "norm",
    "activation",
    "linear",
    "elementwise",
    "scalar",
    "reduction",
    "shape",
    "indexing",
    "resize",
    "structure",
    "inplace",
    "control",
    "device_layers",
    "device_math",
    "device_primitives",
    "special",
    "losses",
    "matrices",
    "counting",
    "spectral",
)
OTHER = ("vision", "language", "containers")
FOLDERS = {"vision": "networks", "language": "networks"}
SKIPPED = "## Cases that MindSpore 2.10 on CPU cannot export or run"
REPLACED = "## Cases without a CPU kernel, whose outputs come from an equivalent network"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("families", nargs="*", help=f"of: {', '.join(FAMILIES + OTHER)} (default: all)")
    parser.add_argument("--only", default="", help="make only cases whose name contains this text")
    parser.add_argument("--out", type=Path, default=FIXTURES, help="folder of the fixtures")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="[]", help=argparse.SUPPRESS)
    return parser.parse_args()


def family_folder(out: Path, family: str) -> Path:
    return out / FOLDERS.get(family, "ops")


def work(arguments: argparse.Namespace) -> None:
    """The child process: import the family's table, make its cases."""
    sys.path.insert(0, str(TOOLS))
    # Loaded under its short name: MindSpore repeats the module's name in every name of the exported file.
    spec = importlib.util.spec_from_file_location(
        arguments.worker, TOOLS / "mindir_fixtures" / f"{arguments.worker}.py"
    )
    if spec is None or spec.loader is None:
        raise SystemExit(f"No family named {arguments.worker}; the families are {', '.join(FAMILIES + OTHER)}.")
    family = importlib.util.module_from_spec(spec)
    sys.modules[arguments.worker] = family
    spec.loader.exec_module(family)
    if arguments.worker == "containers":
        family.make(arguments.out / "containers")
        return
    from mindir_fixtures.harness import run_family

    cases = [item for item in family.cases() if arguments.only in item.name]
    names = [item.name for item in cases]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise SystemExit(f"{arguments.worker}: case names occur twice: {sorted(repeated)}. Rename them.")
    folder = family_folder(arguments.out, arguments.worker)
    run_family(cases, folder, Path.cwd(), arguments.report, set(json.loads(arguments.skip)))


def run_in_children(family: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a family's child process, again after a crash, until every case has a result."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        log = Path(folder) / "log.txt"
        environment = os.environ | {"GLOG_v": "3", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "2"}
        while True:
            done = [entry["name"] for entry in read_report(report)[0]]
            command = [sys.executable, __file__, "--worker", family, "--report", str(report), "--only", arguments.only]
            command += ["--out", str(arguments.out.resolve()), "--skip", json.dumps(done)]
            with log.open("wb") as stream:
                process = subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=stream)
                in_time = watch(process, report)
            results, begun = read_report(report)
            if begun is None:
                if process.returncode:
                    raise SystemExit(f"family {family} failed:\n{log.read_text(errors='replace')[-3000:]}")
                return results
            reason = f"MindSpore died (exit {process.returncode})" if in_time else f"no result in {CASE_SECONDS} s"
            for suffix in (".mindir", ".npz"):
                (family_folder(arguments.out, family) / (begun + suffix)).unlink(missing_ok=True)
            with report.open("a") as stream:
                print(json.dumps({"name": begun, "error": reason}), file=stream)


def read_table(lines: list[str], title: str) -> dict[str, list[str]]:
    """Rows of a table of SKIPPED.md by case name."""
    rows: dict[str, list[str]] = {}
    inside = False
    for line in lines:
        inside = line == title or (inside and not line.startswith("#"))
        if inside and line.startswith("| ") and not line.startswith("| case |"):
            name, *rest = line[2:-2].split(" | ")
            rows[name] = rest
    return rows


def write_index(out: Path, family: str, entries: list[dict[str, Any]], whole: bool) -> None:
    """Merge a family's results, whole or in part, into INDEX.json and SKIPPED.md."""
    index_file, skipped_file = out / "ops" / "INDEX.json", out / "SKIPPED.md"
    index = json.loads(index_file.read_text()) if index_file.exists() else {}
    lines = skipped_file.read_text().splitlines() if skipped_file.exists() else []
    skipped, replaced = read_table(lines, SKIPPED), read_table(lines, REPLACED)
    if whole:
        skipped = {name: row for name, row in skipped.items() if row[0] != family}
    for entry in entries:
        name = entry["name"]
        for table in (index, skipped, replaced):
            table.pop(name, None)
        if "error" in entry:
            skipped[name] = [family, entry["error"].replace("|", "/").replace("<", "&lt;")]
        elif family not in OTHER:
            index[name] = entry["ops"]
        if "reference" in entry:
            replaced[name] = [f"`{'; '.join(entry['reference'].split(chr(10))).replace('|', '&#124;')}`"]
    index = {name: ops for name, ops in index.items() if (out / "ops" / f"{name}.mindir").exists()}
    replaced = {name: row for name, row in replaced.items() if name in index}
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(index[name])}" for name in sorted(index))
    index_file.parent.mkdir(parents=True, exist_ok=True)
    index_file.write_text("{\n" + rows + "\n}\n")
    text = [
        "<!-- Written by tools/make_mindir_fixtures.py. -->",
        "",
        SKIPPED,
        "",
        "| case | family | reason |",
        "|---|---|---|",
    ]
    text += [f"| {name} | {' | '.join(row)} |" for name, row in sorted(skipped.items())]
    text += ["", REPLACED, "", "| case | outputs computed by |", "|---|---|"]
    text += [f"| {name} | {' | '.join(row)} |" for name, row in sorted(replaced.items())]
    skipped_file.write_text("\n".join(text) + "\n")


def main() -> None:
    arguments = parse()
    if arguments.worker:
        work(arguments)
        return
    if not arguments.families and not arguments.only:
        for name in ("ops", "networks", "containers"):
            shutil.rmtree(arguments.out / name, ignore_errors=True)
        (arguments.out / "SKIPPED.md").unlink(missing_ok=True)
    for family in arguments.families or (*FAMILIES, *OTHER):
        begun = time.monotonic()
        results = run_in_children(family, arguments)
        write_index(arguments.out, family, results, not arguments.only)
        failed = [entry for entry in results if "error" in entry]
        seconds = time.monotonic() - begun
        print(f"{family}: {len(results) - len(failed)} made, {len(failed)} skipped, {seconds:.0f} s")
        for entry in failed:
            print(f"  skipped {entry['name']}: {entry['error']}")
        for entry in results:
            if entry.get("remark"):
                print(f"  remark {entry['name']}: {entry['remark']}")


if __name__ == "__main__":
    main()

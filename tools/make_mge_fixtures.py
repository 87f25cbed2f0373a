"""Make the MegEngine fixtures under ``tests/fixtures/mge`` with the real MegEngine.

Run with a Python that has MegEngine 1.13 (and the megenginelite that comes with it)::

    python tools/make_mge_fixtures.py                     # everything
    python tools/make_mge_fixtures.py pooling layouts     # some families
    python tools/make_mge_fixtures.py 'elemwise_*_int32'  # cases by name

Every family runs in a process of its own: MegEngine may crash on a case, which then is listed as skipped. A skipped
case and its reason go to ``SKIPPED.md``; ``INDEX.json`` tells for each case its family, the operators in the file, the
options of the dump, and who computed the outputs. How to write a case: ``tools/mge_fixtures/__init__.py``.
"""

import argparse
import fcntl
import fnmatch
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fixture_children import CASE_SECONDS, read_report, watch

TOOLS = Path(__file__).resolve().parent
FIXTURES = TOOLS.parent / "tests" / "fixtures" / "mge"
FAMILIES = (
    "elemwise",
    "shape",
    "index",
    "reduction",
    "ordering",
    "linear",
    "convolution",
    "pooling",
    "normalization",
    "recurrent",
    "vision",
    "detection",
    "quantised",
    "layouts",
    "containers",
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"families ({', '.join(FAMILIES)}) or patterns of case names")
    parser.add_argument("--out", type=Path, default=FIXTURES, help="folder of the fixtures")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def work(arguments: argparse.Namespace) -> None:
    """The child process: import the family's table, make those of its cases that have no result yet."""
    sys.path.insert(0, str(TOOLS))
    importlib.import_module(f"mge_fixtures.{arguments.worker}")
    from mge_fixtures.harness import run_family
    from mge_fixtures.table import CASES

    names = [item.name for item in CASES]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise SystemExit(f"{arguments.worker}: case names occur twice: {sorted(repeated)}. Rename them.")
    done = {entry["name"] for entry in read_report(arguments.report)[0]}
    patterns = [name for name in arguments.names if name not in FAMILIES]
    whole = arguments.worker in arguments.names or not arguments.names
    cases = [
        item
        for item in CASES
        if item.name not in done and (whole or any(fnmatch.fnmatch(item.name, pattern) for pattern in patterns))
    ]
    run_family(cases, arguments.out / arguments.worker, arguments.report)


def run_in_children(family: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a family's child process, again after a crash, until every case has a result."""
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder) / "report.jsonl", Path(folder) / "log.txt"
        command = [sys.executable, __file__, "--worker", family, "--report", str(report), "--out", str(out)]
        while True:
            with log.open("wb") as stream:
                process = subprocess.Popen([*command, *arguments.names], cwd=folder, stdout=stream, stderr=stream)
                in_time = watch(process, report)
            results, begun = read_report(report)
            if begun is None:
                if process.returncode:
                    raise SystemExit(f"family {family} failed:\n{log.read_text(errors='replace')[-3000:]}")
                return results
            reason = f"MegEngine died (exit {process.returncode})" if in_time else f"no result in {CASE_SECONDS} s"
            for suffix in (".mge", ".npz", ".reference"):
                (out / family / (begun + suffix)).unlink(missing_ok=True)
            with report.open("a") as stream:
                print(json.dumps({"name": begun, "error": reason}), file=stream)


def read_skipped(file: Path) -> dict[str, list[str]]:
    """Rows of SKIPPED.md by case name."""
    rows: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        if line.startswith("| ") and not line.startswith("| case |"):
            name, *rest = line[2:-2].split(" | ")
            rows[name] = rest
    return rows


def write_index(out: Path, family: str, entries: list[dict[str, Any]], whole: bool) -> None:
    """Merge a family's results into INDEX.json and SKIPPED.md; two runs of this tool may do so at the same time."""
    index_file, skipped_file = out / "INDEX.json", out / "SKIPPED.md"
    with index_file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        index = json.loads(index_file.read_text() or "{}")
        skipped = read_skipped(skipped_file)
        if whole:
            index = {name: entry for name, entry in index.items() if entry["family"] != family}
            skipped = {name: row for name, row in skipped.items() if row[0] != family}
        for entry in entries:
            name = entry.pop("name")
            index.pop(name, None)
            skipped.pop(name, None)
            if "error" in entry:
                skipped[name] = [family, entry["error"].replace("|", "/").replace("<", "&lt;")]
            else:
                index[name] = {"family": family} | entry
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(index[name])}" for name in sorted(index))
        index_file.write_text("{\n" + rows + "\n}\n")
        text = ["<!-- Written by tools/make_mge_fixtures.py. -->", ""]
        text += [
            "## Cases that MegEngine 1.13 on CPU cannot dump or run",
            "",
            "| case | family | reason |",
            "|---|---|---|",
        ]
        text += [f"| {name} | {' | '.join(row)} |" for name, row in sorted(skipped.items())]
        skipped_file.write_text("\n".join(text) + "\n")


def remove_old(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Delete the files of cases that the family no longer has."""
    names = {entry["name"] for entry in entries}
    for file in folder.glob("*"):
        if file.stem not in names:
            file.unlink()


def main() -> None:
    arguments = parse()
    if arguments.worker:
        work(arguments)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    patterns = [name for name in arguments.names if name not in FAMILIES]
    for family in FAMILIES:
        whole = family in arguments.names or not arguments.names
        if not (whole or patterns) or not (TOOLS / "mge_fixtures" / f"{family}.py").exists():
            continue
        results = run_in_children(family, arguments)
        if whole:
            remove_old(arguments.out / family, results)
        failed = [(entry["name"], entry["error"]) for entry in results if "error" in entry]
        if results:
            print(f"{family}: {len(results) - len(failed)} made, {len(failed)} skipped", flush=True)
        for name, error in failed:
            print(f"  skipped {name}: {error}")
        write_index(arguments.out, family, results, whole)


if __name__ == "__main__":
    main()

"""What loading costs: memory over file size, translation beyond reading, and growth with the number of nodes.

Every measurement runs in a process of its own.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS, machine
from benchmarks.mindir_models import write_bert, write_chain

ROUNDS = 5
COUNTS = (12_500, 25_000, 50_000, 100_000)
PROGRAM = """
import json, sys, time
import litehouse, litehouse.formats, litehouse.formats.mindir.reader, litehouse.passes
from litehouse.options import Limits

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

path = sys.argv[1]
before = peak()
start = time.perf_counter()
with open(path, "rb", buffering=0) as file:
    block = bytearray(1 << 20)
    while file.readinto(block):
        pass
reading = time.perf_counter() - start
start = time.perf_counter()
model = litehouse.read(path)
loading = time.perf_counter() - start
print(json.dumps({"reading": reading, "loading": loading, "memory": peak() - before}))
"""


def measure(path: Path) -> dict[str, float]:
    """Medians over some rounds, each in a fresh process."""
    rounds = []
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True, capture_output=True, text=True)
        rounds.append(json.loads(done.stdout))
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def main() -> None:
    """Measure, print two tables, and write the same as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mindir"
        write_bert(path)
        size = path.stat().st_size
        bert = {"megabytes": size / 1e6, **measure(path)}
        bert["memory_over_size"] = bert["memory"] / size
        bert["translating"] = bert["loading"] - bert["reading"]
        chains = []
        for count in COUNTS:
            write_chain(path, count)
            chains.append({"nodes": count, **measure(path)})
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores; medians of {ROUNDS} fresh processes"
    table = Table("", "", title="loading BERT-base from MindIR", caption=caption)
    table.add_row("file", f"{bert['megabytes']:.0f} MB")
    table.add_row("peak memory over file size", f"{bert['memory_over_size']:.2f}")
    table.add_row("reading the file", f"{bert['reading']:.2f} s")
    table.add_row("litehouse.read", f"{bert['loading']:.2f} s, {bert['translating']:.2f} s beyond reading")
    Console().print(table)
    table = Table("nodes", "litehouse.read", "per node, to the first", title="growth with the number of nodes")
    first = chains[0]["loading"] / chains[0]["nodes"]
    for chain in chains:
        each = chain["loading"] / chain["nodes"]
        table.add_row(f"{chain['nodes']:,}", f"{chain['loading']:.2f} s", f"{each / first:.2f}")
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    document = {"title": "load", "machine": here, "bert": bert, "chains": chains}
    (RESULTS / "load.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()

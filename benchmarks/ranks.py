"""What it costs to run one model over several processes, and what each of them holds.

First the slicing: networks of the usual kinds, written as plain ONNX with random weights, are sliced over 2 and 4
ranks; all ranks run as processes, and are compared with the whole model. Then the time: one process with as many
threads as there are ranks, and the ranks with one thread each, take turns.

    python -m benchmarks ranks --rounds 15
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import litehouse
from benchmarks.asked import Asked
from benchmarks.figures import Spread, spread
from benchmarks.harness import machine, write
from benchmarks.networks import plain
from benchmarks.progress import progress
from benchmarks.tables import cell
from litehouse.distributed.slicing import Plan, plan
from litehouse.distributed.slicing import write as write_parts

PROGRAM = Path(__file__).parent / "workers" / "ranks_worker.py"
WARM_UP = 3
NETWORKS = {
    "bert": (
        "BERT-base, 128 tokens",
        lambda: plain.bert(
            layers=12, hidden=768, count=12, vocabulary=30522, length=128, inner=3072, positions=512, classes=2
        ),
    ),
    "llama": (
        "LLaMA-style decoder, 8 layers of 1024, 128 tokens",
        lambda: plain.llama(layers=8, hidden=1024, count=16, pairs=4, inner=2816, vocabulary=32000, length=128),
    ),
    "resnet18": ("ResNet-18, 224 × 224", lambda: plain.resnet18(width=64, size=224, classes=1000)),
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ranks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4], help="over how many ranks they are sliced")
    parser.add_argument("--timed", nargs="*", type=int, default=[2], help="of these, the ones that are timed")
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print a table, and write the same as JSON."""
    given = parse(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder, progress() as bar:
        for name in bar.track(given.networks, description="networks"):
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(NETWORKS[name][1]())
            arrays = _inputs(path)
            rows += [
                _measure(name, path, arrays, ranks, given.rounds if ranks in given.timed else 0)
                for ranks in given.ranks
            ]
    Console().print(table(rows))
    write("ranks", results=rows)


def _inputs(path: Path) -> Path:
    """Random inputs: ids where whole numbers are wanted, ones for a mask."""
    random, arrays = np.random.default_rng(0), {}
    for place, info in enumerate(litehouse.read(path).inputs):
        shape = [int(size or 1) for size in info.shape]
        whole = random.integers(0, 500, shape)
        arrays[f"input_{place}"] = (
            whole if info.dtype.kind == "i" else np.ones(shape) if info.name == "mask" else random.normal(size=shape)
        ).astype(info.dtype)
    target = path.with_suffix(".npz")
    np.savez(target, **arrays)
    return target


def _measure(name: str, path: Path, arrays: Path, ranks: int, rounds: int) -> dict[str, Any]:
    sliced = plan(litehouse.read(path), ranks)
    parts = write_parts(sliced, path.with_name(f"{name}_{ranks}"))
    with ExitStack() as stack:
        one = Asked(stack, PROGRAM, arrays, ranks if rounds else 0, path)
        expected = one.ask("results")
        several = Asked(stack, PROGRAM, arrays, 1, *parts)
        found = {
            "network": name,
            "ranks": ranks,
            "weights": max(sliced.bytes_per_rank) / sliced.bytes_whole,
            "planned_bytes": sliced.bytes_sent,
            "sent_bytes": several.ask("sent"),
            "exchanges": _counts(sliced),
            "error": _error(expected, several.ask("results")),
            "engines": [one.ask("engine"), several.ask("engine")],
        }
        return found | (_timed(one, several, rounds) if rounds else {})


def _timed(one: Asked, several: Asked, rounds: int) -> dict[str, Any]:
    for process in (one, several):
        process.ask("run", WARM_UP)
    times = [[process.ask("run", 1) for process in (one, several)] for _ in range(rounds)]
    return {
        "one_ms": asdict(spread(1e3 * alone for alone, _ in times)),
        "several_ms": asdict(spread(1e3 * together for _, together in times)),
        "ratio": asdict(spread(together / alone for alone, together in times)),
        "rounds": times,
    }


def _counts(sliced: Plan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for exchange in sliced.exchanges:
        counts[exchange.op] = counts.get(exchange.op, 0) + 1
    return counts


def _error(expected: list[list[float]], found: list[list[float]]) -> float:
    """The largest error, as a part of the range of the output."""
    return max(
        float(np.abs(np.subtract(actual, wanted)).max() / np.ptp(wanted))
        for actual, wanted in zip(found, expected, strict=True)
    )


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All of it in words."""
    here = machine()
    made = Table(
        *("network", "ranks", "weights per rank", "exchanges", "MB sent by a rank", "error / range", "time"),
        caption=f"{here['cpu']}, {here['cores']} cores; time: ranks with 1 thread each to one process with all threads",
    )
    for row in rows:
        kinds = ", ".join(f"{count} {op}" for op, count in row["exchanges"].items())
        ratio = cell(Spread(**row["ratio"])) if "ratio" in row else "-"
        share, sent = f"{row['weights']:.2f}", f"{row['sent_bytes'] / 1e6:.1f}"
        made.add_row(NETWORKS[row["network"]][0], str(row["ranks"]), share, kinds, sent, f"{row['error']:.1e}", ratio)
    return made


if __name__ == "__main__":
    main(sys.argv[1:])

"""Litehouse on an NVIDIA GPU: right answers, speed against torch, and what calls, updates, processes and pools cost.

Parts: `zoo` runs every model of the zoo against its stored outputs; `networks` races three networks against torch as
it is, compiled, and captured as CUDA graphs; `overhead` tells what a call costs beyond the device's own time; `update`
times an update of one weight; `processes` counts the memory of three processes that share a model; `starts` times
the first start of a network and the second; `runner` counts requests per second of a pool.

    python -m benchmarks gpu --parts networks,overhead --networks bert --batches 1 --seconds 500 --json found.json

With `--device cpu` everything runs on CPU tensors with tiny networks: a rehearsal, whose figures mean nothing.
"""

import argparse
import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.options import numbers, some
from litehouse.device import lack

PARTS = ("zoo", "networks", "overhead", "update", "processes", "starts", "runner")
NETWORKS = ("mobilenet_v2", "resnet50", "bert")
PRECISIONS = ("fp32", "fp16")
PEERS = ("eager", "captured", "compiled", "compiled+captured")
AS_WRITTEN = argparse.RawDescriptionHelpFormatter
ZOO = Path(__file__).parents[3] / "shared" / "zoo"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__, formatter_class=AS_WRITTEN)
    parser.add_argument("--parts", type=some(PARTS), default=PARTS, help="some of them, with commas; all unless given")
    parser.add_argument("--device", default="gpu:0", help="gpu:0 unless given, or cpu for a rehearsal")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="the folder of the zoo; some of its folders will do")
    parser.add_argument("--processes", type=int, default=1, help="how many run models of the zoo at a time")
    parser.add_argument("--networks", type=some(NETWORKS), default=NETWORKS, help=", ".join(NETWORKS))
    parser.add_argument("--batches", type=numbers, default=(1, 32), help="1,32 unless given")
    parser.add_argument("--precisions", type=some(PRECISIONS), default=PRECISIONS, help=", ".join(PRECISIONS))
    parser.add_argument(
        "--peers", type=some(PEERS), default=PEERS, help=f"torch's ways to run networks: {', '.join(PEERS)}"
    )
    parser.add_argument("--rounds", type=int, default=15, help="15 unless given")
    parser.add_argument("--burst", type=float, default=0.05, help="seconds that each contender runs in a round")
    parser.add_argument(
        "--tune", choices=("off", "fast", "full"), default="full", help="how long ours looks for the fastest form"
    )
    parser.add_argument("--seconds", type=float, default=0, help="bound for all of it; what no longer fits is left out")
    parser.add_argument("--json", type=Path, help="write what was found there, too")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print tables, and write the same as JSON, after each step anew."""
    given = parse(arguments)
    if (reason := lack(given.device)) is not None:
        print(f"gpu: {reason}; left out" + ("" if given.device == "cpu" else " (--device cpu rehearses it)"))
        return
    from benchmarks.gpu.record import Record

    with tempfile.TemporaryDirectory() as folder:
        record = Record(given, Path(folder))
        for part in given.parts:
            importlib.import_module(f"benchmarks.gpu.{part}").measure(record)
        record.finish()

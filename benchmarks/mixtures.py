"""No run sees weights of two updates: many runs in many threads, while the weights are updated without a pause.

The network multiplies its input with several weights, one after another, and every update sets all of them to the same
number: the result is a power of one of these numbers, unless a run has seen some of the one update and some of the
other. The same again in a process that is attached to the memory of the one that updates.

    python -m benchmarks mixtures --runs 100000 --threads 8
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import helper
from rich.console import Console
from rich.table import Table

import litehouse
from benchmarks.harness import machine, write

WEIGHTS, SIZE = 6, 128
NUMBERS = (1.0, 2.0, 3.0)  # powers of which are exact


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixtures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100_000, help="of all threads together")
    parser.add_argument("--threads", type=int, default=8)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Run, print a table, and write the same as JSON."""
    given = parse(arguments)
    results = {}
    for name, mode, share in (
        ("in place", "in_place", 1.0),
        ("in place, attached", "in_place", 1.0),
        ("swap", "swap", 0.1),
    ):
        runs = int(given.runs * share)
        found = attached if name.endswith("attached") else beside
        results[name] = found(mode, runs, given.threads)
    here = machine()
    made = Table("", "runs", "updates", "mixtures", "runs/s")
    made.caption = f"{here['cpu']}, {here['cores']} cores; {given.threads} threads"
    for name, own in results.items():
        made.add_row(
            name, f"{own['runs']:,.0f}", f"{own['updates']:,.0f}", f"{own['wrong']:.0f}", f"{own['rate']:,.0f}"
        )
    Console().print(made)
    write("mixtures", threads=given.threads, results=results)
    if any(own["wrong"] for own in results.values()):
        raise SystemExit("some runs saw weights of two updates")


def network() -> bytes:
    """The input, times each weight in turn."""
    names = [f"w{place}" for place in range(WEIGHTS)]
    nodes = [helper.make_node("MatMul", [f"x{place}", name], [f"x{place + 1}"]) for place, name in enumerate(names)]
    first, last = (
        helper.make_tensor_value_info(f"x{place}", onnx.TensorProto.FLOAT, (1, SIZE)) for place in (0, WEIGHTS)
    )
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in values(NUMBERS[0]).items()]
    graph = helper.make_graph(nodes, "mixtures", [first], [last], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def values(number: float) -> dict[str, np.ndarray]:
    """All weights, for an update."""
    return {f"w{place}": np.eye(SIZE, dtype="f") * np.float32(number) for place in range(WEIGHTS)}


def beside(mode: str, runs: int, threads: int) -> dict[str, float]:
    """Runs beside updates in one process."""
    with litehouse.load(network(), updatable="all", updatable_mode=mode, threads=1, tune="off") as session:
        ended = threading.Event()
        with ThreadPoolExecutor(1) as updater:
            updating = updater.submit(update, session, ended)
            start = time.perf_counter()
            wrong = run(session, runs, threads)
            rate = runs / (time.perf_counter() - start)
            ended.set()
            return {"runs": runs, "updates": updating.result(), "wrong": wrong, "rate": rate}


def attached(mode: str, runs: int, threads: int) -> dict[str, float]:
    """Runs in another process than the updates."""
    with litehouse.load(network(), updatable="all", updatable_mode=mode, threads=1, tune="off") as session:
        command = [sys.executable, "-m", "benchmarks.mixtures", "--attached"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ended = threading.Event()
        with process, ThreadPoolExecutor(1) as updater:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([session.share([process.pid]), runs, threads]) + "\n")
            process.stdin.flush()
            updating = updater.submit(update, session, ended)
            answer = process.stdout.readline()
            ended.set()
            if not answer:
                raise SystemExit("the attached process has ended")
            return {"runs": runs, "updates": updating.result(), **json.loads(answer)}


def attach() -> None:
    """What the other process does."""
    handle, runs, threads = json.loads(sys.stdin.readline())
    with litehouse.attach(handle, threads=1) as session:
        start = time.perf_counter()
        wrong = run(session, runs, threads)
        print(json.dumps({"wrong": wrong, "rate": runs / (time.perf_counter() - start)}), flush=True)


def update(session: litehouse.Session, ended: threading.Event) -> int:
    """Update all weights until told to end, at least once; how often that was."""
    count = 0
    while not count or not ended.is_set():
        count += 1
        session.update_weights(values(NUMBERS[count % len(NUMBERS)]))
    return count


def run(session: litehouse.Session, runs: int, threads: int) -> int:
    """Run so many times in so many threads; how many results were of no single update."""
    x, allowed = np.ones((1, SIZE), "f"), {number**WEIGHTS for number in NUMBERS}

    def client(times: int) -> int:
        wrong = 0
        for _ in range(times):
            (y,) = session.run([x])
            wrong += bool(np.ptp(y)) or float(y[0, 0]) not in allowed
        return wrong

    with ThreadPoolExecutor(threads) as clients:
        return sum(clients.map(client, [runs // threads] * threads))


if __name__ == "__main__":
    attach() if sys.argv[1:] == ["--attached"] else main()

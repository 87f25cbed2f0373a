"""No answer goes to the wrong client: many requests from many threads on two models, each answer checked to the bit.

A request carries its own number, and each model turns it into another one: an answer to another request, or of the
other model, shows. Answers are looked at when they come, and again some requests later, when whatever wrote them may
have been used for others. Both models are served side by side, by ModelParallelRunners and by Pools; one pool joins
requests, the other does not.

    python -m benchmarks swaps --requests 400000 --threads 8
"""

import argparse
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import mindspore_lite as mslite
from benchmarks.harness import machine, write
from benchmarks.small_models import coder
from litehouse import Batching, Pool

MODELS = ((2, 1), (3, 2))  # factors and offsets
FIELDS = 16  # how many numbers a request has
PART = 1000  # a request's number is written in parts of three digits: exact in float32, whatever a model does to it
KEPT = 16  # answers that are looked at again

Serve = Callable[[np.ndarray], np.ndarray]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks swaps", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=400_000, help="to the runners, and as many to the pools")
    parser.add_argument("--threads", type=int, default=8)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] = ()) -> None:
    """Serve them, print a table, and write the same as JSON."""
    given = parse(arguments)
    results = {}
    for name, make in {"ModelParallelRunner": runners, "Pool": pools}.items():
        with ExitStack() as stack:
            served = make(stack)
            start = time.perf_counter()
            wrong = ask(served, given.requests, given.threads)
            rate = given.requests / (time.perf_counter() - start)
        results[name] = {"requests": given.requests, "wrong": wrong, "per_second": rate}
    here = machine()
    caption = f"{here['cpu']}, {here['cores']} cores; {given.threads} threads, two models"
    table = Table("", "requests", "wrong answers", "requests/s", caption=caption)
    for name, own in results.items():
        table.add_row(name, f"{own['requests']:,}", str(own["wrong"]), f"{own['per_second']:,.0f}")
    Console().print(table)
    write("swaps", threads=given.threads, results=results)
    if any(own["wrong"] for own in results.values()):
        raise SystemExit("there are wrong answers")


def runners(stack: ExitStack) -> list[Serve]:
    """Each model behind a ModelParallelRunner."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return [_runner(folder / f"{place}.onnx", *numbers) for place, numbers in enumerate(MODELS)]


def _runner(path: Path, factor: int, offset: int) -> Serve:
    path.write_bytes(coder(factor, offset, FIELDS))
    runner = mslite.ModelParallelRunner()
    runner.build_from_file(str(path))

    def serve(x: np.ndarray) -> np.ndarray:
        tensors = runner.get_inputs()
        tensors[0].set_data_from_numpy(x)
        return runner.predict(tensors)[0].get_data_to_numpy()

    return serve


def pools(stack: ExitStack) -> list[Serve]:
    """Each model behind a Pool; the first joins requests."""
    joined = Batching(max_size=8, force=True)
    made = [
        stack.enter_context(Pool(coder(*numbers, FIELDS), batching=batching))
        for numbers, batching in zip(MODELS, (joined, None), strict=True)
    ]
    return [lambda x, pool=pool: pool.submit([x]).result()[0] for pool in made]  # type: ignore[misc]


def ask(served: Sequence[Serve], requests: int, threads: int) -> int:
    """Send so many requests from so many threads to the models in turn; how many answers were wrong."""
    numbers = iter(range(requests))  # to take the next one is atomic
    with ThreadPoolExecutor(threads) as clients:
        return sum(clients.map(lambda _: client(served, numbers), range(threads)))


def client(served: Sequence[Serve], numbers: Iterator[int]) -> int:
    """Take numbers until there are no more, and send each to a model."""
    kept: deque[tuple[np.ndarray, np.ndarray]] = deque()
    wrong = 0
    for number in numbers:
        place = number % len(served)
        x = request(number)
        answer, wanted = served[place](x), expected(x, *MODELS[place])
        wrong += not np.array_equal(answer, wanted)
        kept.append((answer, wanted))
        if len(kept) > KEPT:
            wrong += not np.array_equal(*kept.popleft())
    return wrong + sum(not np.array_equal(*pair) for pair in kept)


def request(number: int) -> np.ndarray:
    """An array that says which request it is, all over."""
    parts = number % PART, number // PART % PART, number // PART**2
    return np.fromiter(itertools.islice(itertools.cycle(parts), FIELDS), np.float32, FIELDS).reshape(1, FIELDS)


def expected(x: np.ndarray, factor: int, offset: int) -> np.ndarray:
    """What a model makes of it."""
    return x * np.float32(factor) + np.float32(offset)


if __name__ == "__main__":
    main()

"""What all workers do: load, run once, then answer bursts. Words of Python 3.7 only, and NumPy.

A worker is started as `PYTHON WORKER MODEL ARRAYS THREADS OUTPUTS [OPTION]`. It loads the model, runs it on the inputs
in ARRAYS (an npz with input_0, input_1…), writes what it computed to OUTPUTS and prints a line of JSON about itself.
Then it reads two counts a line: calls that are not timed, and calls that are. It prints the seconds of one of these by
the wall clock, the same by the process's CPU clock, and those of the fastest.

A third count asks for so many client threads, which share the calls: the seconds of one by the wall clock are then
those of all by their count. The calls that are not timed are made by the threads too, at least one for each of them,
and what they give is held against what the first run gave.
"""

import gc
import json
import os
import sys
import threading
import time

import numpy as np

# Native libraries print to stdout too: only the answers of this module leave by it.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

TOLERANCE = 1e-4  # of the range of an output


class Task:
    """The command line of a worker."""

    def __init__(self):
        """Read it."""
        self.model, arrays, threads, self.outputs = sys.argv[1:5]
        self.threads, self.option = int(threads), sys.argv[5] if len(sys.argv) > 5 else ""
        with np.load(arrays) as stored:
            self.inputs = [stored[f"input_{k}"] for k in range(sum(key.startswith("input_") for key in stored.files))]


def answer(text):
    """Send one line."""
    ANSWERS.write(text + "\n")
    ANSWERS.flush()


def serve(task, load):
    """Load the network, then answer bursts until stdin ends.

    Args:
        task: The command line.
        load: Gives the function that runs the network on the inputs and returns its outputs, and facts about it.
    """
    start = time.perf_counter()
    run, facts = load(task)
    outputs = [np.array(array) for array in run()]
    facts["start"] = time.perf_counter() - start
    np.savez(task.outputs, **{f"output_{k}": array for k, array in enumerate(outputs)})
    answer(json.dumps(facts))
    gc.disable()
    for line in sys.stdin:
        warm, calls, clients = [*map(int, line.split()), 1][:3]
        if clients > 1:
            shared_burst(lambda: check(run(), outputs), max(warm, clients), clients)
            took = shared_burst(run, calls, clients)
        else:
            for _ in range(warm):
                run()
            took = burst(run, calls)
        answer(" ".join(map(repr, took)))


def burst(run, calls):
    """The seconds of one call by the wall clock and by the CPU clock, and those of the fastest."""
    clock, best = time.perf_counter, float("inf")
    before = time.process_time()
    start = last = clock()
    for _ in range(calls):
        run()
        now = clock()
        if now - last < best:
            best = now - last
        last = now
    return (last - start) / calls, (time.process_time() - before) / calls, best


def shared_burst(run, calls, clients):
    """The same for calls that so many threads share; the fastest is not looked for."""
    left, errors = iter(range(calls)), []  # to take the next one is atomic
    gate = threading.Barrier(clients + 1)

    def client():
        gate.wait()
        try:
            for _ in left:
                run()
        except BaseException as error:  # noqa: BLE001 - whoever joins the threads raises it
            errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    before, start = time.process_time(), time.perf_counter()
    gate.wait()
    for thread in threads:
        thread.join()
    wall, cpu = time.perf_counter() - start, time.process_time() - before
    if errors:
        raise errors[0]
    return wall / calls, cpu / calls, wall / calls


def check(found, expected):
    """Raise where a client got something else than the first run gave."""
    for actual, wanted in zip(found, expected):  # noqa: B905
        error = np.abs(np.asarray(actual, np.float64) - wanted).max() / max(np.ptp(wanted), 1e-9)
        if not error <= TOLERANCE:
            raise ValueError(f"a client got an output that is off by {error:.1e} of its range")

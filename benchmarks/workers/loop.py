"""What all workers do: load, run once, then answer bursts. Words of Python 3.7 only, and NumPy.

A worker is started as `PYTHON WORKER MODEL ARRAYS THREADS OUTPUTS [OPTION]`. It loads the model, runs it on the inputs
in ARRAYS (an npz with input_0, input_1…), writes what it computed to OUTPUTS and prints a line of JSON about itself.
Then it reads two counts a line: calls that are not timed, and calls that are. It prints the seconds of one of these by
the wall clock, the same by the process's CPU clock, and those of the fastest.
"""

import gc
import json
import os
import sys
import time

import numpy as np

# Native libraries print to stdout too: only the answers of this module leave by it.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


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
        warm, calls = map(int, line.split())
        for _ in range(warm):
            run()
        answer(" ".join(map(repr, burst(run, calls))))


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

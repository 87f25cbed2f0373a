"""A process with a model: `ranks_worker.py ARRAYS THREADS PART...`, whole, or rank 0 of several; then JSON lines."""

import json
import sys
import time
from pathlib import Path

import numpy as np

import litehouse
from litehouse.parallel.launched import Launched


class Worker:
    """What the process has, and what it can be told to do."""

    def __init__(self, arrays, threads, *parts):
        with np.load(arrays) as stored:
            self._inputs = [stored[key] for key in stored.files if key.startswith("input_")]
        options = litehouse.Options(threads=int(threads))
        self._made = litehouse.load(parts[0], options=options) if len(parts) == 1 else self._launch(parts, options)

    @staticmethod
    def _launch(parts, options):
        return Launched([Path(part) for part in parts], options)

    def engine(self):
        session = self._made.session if isinstance(self._made, Launched) else self._made
        return {"engine": str(session.engine), "reason": session.engine.reason}

    def run(self, times):
        start = time.perf_counter()
        for _ in range(times):
            self._made.run(self._inputs)
        return (time.perf_counter() - start) / times

    def sent(self):
        """Bytes that rank 0 sends in a run, without the inputs, which it hands on to the others."""
        before = self._made.bytes_sent
        self._made.run(self._inputs)
        return self._made.bytes_sent - before

    def results(self):
        return [np.asarray(array, np.float64).ravel()[:1000].tolist() for array in self._made.run(self._inputs)]


def main():
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        command, *given = json.loads(line)
        print(json.dumps(getattr(worker, command)(*given)), flush=True)
    if isinstance(worker._made, Launched):
        worker._made.close()


if __name__ == "__main__":
    main()

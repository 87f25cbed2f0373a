"""A process that loads, shares or attaches to a model: `sharing_worker.py MODEL ARRAYS THREADS`, then JSON lines."""

import gc
import json
import sys
import time

import numpy as np

import litehouse


class Worker:
    """What the process has, and what it can be told to do."""

    def __init__(self, model, arrays, threads):
        with np.load(arrays) as stored:
            self._inputs = [stored[key] for key in stored.files if key.startswith("input_")]
        self._model, self._threads, self._made = model, int(threads), None

    def load(self, options):
        self._made = litehouse.load(self._model, threads=self._threads, **options)
        return str(self._made.engine)

    def share(self, pids):
        return self._made.share(pids)

    def attach(self, handle):
        self._made = litehouse.attach(handle, threads=self._threads)

    def pool(self, workers, engine):
        self._made = litehouse.Pool(self._model, workers=workers, threads=self._threads, engine=engine)
        for future in [self._made.submit(self._inputs) for _ in range(4 * workers)]:
            future.result()

    def run(self, times):
        start = time.perf_counter()
        for _ in range(times):
            self._made.run(self._inputs)
        return (time.perf_counter() - start) / times

    def memory(self):
        gc.collect()
        with open("/proc/self/smaps_rollup") as lines:
            found = dict(line.split(":", 1) for line in lines if ":" in line and line[0].isupper())
        return int(found["Pss"].split()[0]) * 1024 / 1e6


def main():
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        command, *given = json.loads(line)
        print(json.dumps(getattr(worker, command)(*given)), flush=True)


if __name__ == "__main__":
    main()

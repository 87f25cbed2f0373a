"""A process with a model on a GPU: `gpu_worker.py MODEL ARRAYS DEVICE`, then JSON lines, each with a JSON answer."""

import json
import sys
import time
from pathlib import Path

import numpy as np

import litehouse
from litehouse.device import place


class Worker:
    """What the process has, and what it can be told to do."""

    def __init__(self, model, arrays, device):
        with np.load(arrays) as stored:
            self._inputs = [stored[key] for key in stored.files if key.startswith("input_")]
        self._model, self._made = model, None
        self._place = place(device)

    def begin(self):
        """Take what any process takes on the card, before there is a model: a context, and memory for products."""
        import torch

        some = torch.ones(64, 64, device=self._place)
        return float((some @ some).sum().cpu())

    def load(self, options):
        self._made = litehouse.load(self._model, **options)

    def start(self, options, cache):
        """Seconds until the first result, and what the engine says of itself; with a cache in a folder."""
        start = time.perf_counter()
        self.load(options | {"cache": Path(cache)})
        self.run(1)
        return {"seconds": time.perf_counter() - start, "chosen": self._made.engine.facts()}

    def share(self, pids):
        return self._made.share(pids)

    def attach(self, handle, options):
        self._made = litehouse.attach(handle, **options)

    def engine(self):
        return f"{self._made.engine} {self._made.engine.form}".strip()

    def run(self, times):
        start = time.perf_counter()
        for _ in range(times):
            self._made.run(self._inputs)
        return (time.perf_counter() - start) / times

    def results(self):
        return [np.asarray(array, np.float64).ravel()[:1000].tolist() for array in self._made.run(self._inputs)]

    def memory(self):
        """Megabytes that torch has taken in this process; graphs have theirs among them."""
        import torch

        return torch.cuda.memory_reserved() / 1e6 if self._place.type == "cuda" else 0.0


def main():
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        command, *given = json.loads(line)
        try:
            answer = {"answer": getattr(worker, command)(*given)}
        except Exception as error:  # noqa: BLE001  (who asked is told)
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""Runs a model in the real megenginelite, for `benchmarks.megengine`. Needs that package alone, on Python 3.10.

Takes the model's path, a count of threads and `plain` or `tuned`. Reads counts from stdin, one a line; for each it runs
the network as often and prints the seconds of one run.
"""

import sys
import time

import numpy as np

from megenginelite import LiteConfig, LiteNetwork


def main() -> None:
    """Load, then run as told."""
    path, threads, kind = sys.argv[1:]
    config = LiteConfig()
    if kind == "tuned":
        config.options.enable_nchw88 = 1
        config.options.weight_preprocess = 1
    network = LiteNetwork(config=config)
    network.threads_number = int(threads)
    network.load(path)
    rng = np.random.default_rng(0)
    for name in network.get_all_input_name():
        tensor = network.get_io_tensor(name)
        shape = list(tensor.layout.shapes)[: tensor.layout.ndim]
        tensor.set_data_by_copy(rng.standard_normal(shape).astype(tensor.layout.dtype))
    for line in sys.stdin:
        calls = int(line)
        start = time.perf_counter()
        for _ in range(calls):
            network.forward()
            network.wait()
        print((time.perf_counter() - start) / calls, flush=True)


if __name__ == "__main__":
    main()

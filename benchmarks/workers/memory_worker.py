"""The memory of a process with many workers: `memory_worker.py pool|runner WORKERS MODEL ARRAYS OPTIONS`.

It lets every worker run some times, and prints a line of JSON. OPTIONS is JSON with options of the pool.
"""

import gc
import json
import sys
import threading

import numpy as np

RUNS = 2


def main():
    kind, workers, model, arrays, options = sys.argv[1:]
    with np.load(arrays) as stored:
        inputs = [stored[key] for key in stored.files if key.startswith("input_")]
    make = {"pool": make_pool, "runner": make_runner}[kind]
    run, engine = make(model, int(workers), json.loads(options))
    together(lambda: run(inputs), int(workers))
    gc.collect()
    print(json.dumps({"engine": engine, **memory()}))


def make_pool(model, workers, options):
    import litehouse

    pool = litehouse.Pool(model, workers=workers, **options)
    return (lambda inputs: pool(*inputs)), str(pool.engine)


def make_runner(model, workers, options):
    import mindspore_lite

    context = mindspore_lite.Context()
    context.parallel.workers_num = workers
    context.parallel.config_info = {"litehouse": options}
    runner = mindspore_lite.ModelParallelRunner()
    runner.build_from_file(model, context)

    def run(inputs):
        tensors = runner.get_inputs()
        for tensor, array in zip(tensors, inputs, strict=True):
            tensor.set_data_from_numpy(array)
        return [tensor.get_data_to_numpy() for tensor in runner.predict(tensors)]

    return run, options.get("engine", "as chosen")


def together(run, count):
    """Run some times in each of so many threads, all at once, so that each worker has something to do."""
    gate = threading.Barrier(count)

    def client():
        for _ in range(RUNS):
            gate.wait()
            run()

    clients = [threading.Thread(target=client) for _ in range(count)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()


def memory():
    with open("/proc/self/smaps_rollup") as lines:
        found = dict(line.split(":", 1) for line in lines if ":" in line and line[0].isupper())
    return {name: int(found[key].split()[0]) * 1024 for name, key in (("resident", "Rss"), ("proportional", "Pss"))}


if __name__ == "__main__":
    main()

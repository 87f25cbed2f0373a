"""Five clients share one `mindspore_lite.ModelParallelRunner`: the calls are those of a program for MindSpore Lite."""

import time
from pathlib import Path
from threading import Thread

import numpy as np

import mindspore_lite as mslite

FOLDER = Path(__file__).parents[1] / "digits" / "model"
WORKERS, THREADS_OF_A_WORKER, CLIENTS, TASKS = 3, 1, 5, 2


def client(runner: mslite.ModelParallelRunner, number: int) -> None:
    """Ask for some predictions, one after the other."""
    for task in range(1, TASKS + 1):
        inputs = runner.get_inputs()
        inputs[0].set_data_from_numpy(np.fromfile(FOLDER / "input.bin", dtype=np.float32))
        start = time.time()
        outputs = runner.predict(inputs)
        taken = time.time() - start
        for output in outputs:
            first = output.get_data_to_numpy().flatten()[:5]
            told = f"client {number}, task {task}: {taken * 1e3:.2f} ms, {output.element_num} numbers, first {first}\n"
            print(told, end="")  # at once, or those of other clients come between


def main() -> None:
    """Build the runner and let all clients ask at once."""
    context = mslite.Context()
    context.target = ["cpu"]
    context.cpu.thread_num = THREADS_OF_A_WORKER
    context.cpu.inter_op_parallel_num = THREADS_OF_A_WORKER
    context.parallel.workers_num = WORKERS
    runner = mslite.ModelParallelRunner()
    runner.build_from_file(model_path=str(FOLDER / "digits.mindir"), context=context)
    clients = [Thread(target=client, args=(runner, number)) for number in range(CLIENTS)]
    start = time.time()
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    print(f"{CLIENTS * TASKS} predictions in {(time.time() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()

"""ModelParallelRunner, the real one of MindSpore Lite 2.0.0 or Litehouse's. Words of Python 3.7 only.

The option gives the counts of workers and of the threads of each, as 2x1. Every client has tensors of its own.
"""

import threading

from loop import Task, serve
from mindspore_lite_worker import fitted

import mindspore_lite


def load(task):
    workers, threads = map(int, task.option.split("x"))
    context = mindspore_lite.Context()
    context.target = ["cpu"]
    context.cpu.thread_num = threads
    context.parallel.workers_num = workers
    runner = mindspore_lite.ModelParallelRunner()
    runner.build_from_file(task.model, context)
    own = threading.local()

    def run():
        if not hasattr(own, "pairs"):
            tensors = runner.get_inputs()
            own.pairs = [(tensor, fitted(array, tensor.shape)) for tensor, array in zip(tensors, task.inputs)]  # noqa: B905
        for tensor, array in own.pairs:
            tensor.set_data_from_numpy(array)
        return [output.get_data_to_numpy() for output in runner.predict([tensor for tensor, _ in own.pairs])]

    return run, {"version": mindspore_lite.__version__}


if __name__ == "__main__":
    serve(Task(), load)

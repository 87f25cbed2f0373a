"""MindSpore 2.10 on its own MindIR file: graph mode, arrays to tensors and back."""

from contextlib import suppress

import mindspore as ms
from loop import Task, serve
from mindspore import nn, ops


def load(task):
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.device_context.cpu.op_tuning.threads_num(task.threads)
    with suppress(SystemError):
        ops.zeros((1,), ms.float32)  # beside NumPy 2, the first eager operator of a process may fail
    network = nn.GraphCell(ms.load(task.model))

    def run():
        return [network(*[ms.Tensor(array) for array in task.inputs]).asnumpy()]

    return run, {"version": ms.__version__}


if __name__ == "__main__":
    serve(Task(), load)

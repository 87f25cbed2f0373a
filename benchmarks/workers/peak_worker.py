"""A square product of float32 matrices, by NumPy or ONNX Runtime: the most that this machine computes in a second.

The option names the library, ARRAYS holds the two matrices, and MODEL is the product as ONNX.
"""

import onnxruntime_worker
from loop import Task, serve


def load(task):
    if task.option == "onnxruntime":
        return onnxruntime_worker.load(task)
    left, right = task.inputs
    return lambda: [left @ right], {}


if __name__ == "__main__":
    serve(Task(), load)

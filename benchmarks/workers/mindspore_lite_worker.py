"""The real MindSpore Lite 2.0.0 on what its own converter wrote. Words of Python 3.7 only.

Where the converter turned an image to channels last, so is the input, before any time is taken.
"""

import numpy as np
from loop import Task, serve

import mindspore_lite


def load(task):
    context = mindspore_lite.Context()
    context.target = ["cpu"]
    context.cpu.thread_num = task.threads
    model = mindspore_lite.Model()
    kinds = mindspore_lite.ModelType
    model.build_from_file(task.model, kinds.MINDIR_LITE if task.model.endswith(".ms") else kinds.MINDIR, context)
    tensors = model.get_inputs()
    pairs = [(tensor, fitted(array, tensor.shape)) for tensor, array in zip(tensors, task.inputs)]  # noqa: B905

    def run():
        for tensor, array in pairs:
            tensor.set_data_from_numpy(array)
        return [output.get_data_to_numpy() for output in model.predict(tensors)]

    return run, {"version": "2.0.0"}


def fitted(array, shape):
    return array if list(array.shape) == list(shape) else np.ascontiguousarray(array.transpose(0, 2, 3, 1))


if __name__ == "__main__":
    serve(Task(), load)

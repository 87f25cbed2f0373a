"""Bare ONNX Runtime: `InferenceSession.run(None, …)`, all optimisations, one pool of the given size."""

import onnxruntime
from loop import Task, serve


def load(task):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = task.threads
    settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(task.model, settings, providers=["CPUExecutionProvider"])
    feed = {info.name: array for info, array in zip(session.get_inputs(), task.inputs, strict=True)}
    return lambda: session.run(None, feed), {"version": onnxruntime.__version__}


if __name__ == "__main__":
    serve(Task(), load)

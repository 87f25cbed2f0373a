"""What this machine computes at most: the faster of NumPy and ONNX Runtime on a square product in float32."""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from benchmarks.contenders import WORKERS
from benchmarks.turns import Worker

SIZE, ROUNDS = 1536, 8


def measure(threads: int, folder: Path) -> float:
    """Floating-point operations in a second, by the best of some rounds in turn."""
    rng = np.random.default_rng(0)
    arrays, model = folder / "square.npz", folder / "square.onnx"
    left, right = rng.standard_normal((2, SIZE, SIZE), np.float32)
    np.savez(arrays, input_0=left, input_1=right)
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (SIZE, SIZE)) for name in "aby"]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "square", sides[:2], sides[2:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    command = [sys.executable, str(WORKERS / "peak_worker.py"), str(model), str(arrays), str(threads)]
    workers = [
        Worker(
            [*command, str(folder / f"{kind}.npz"), kind],
            folder / f"{kind}.log",
            patience=120,
            OPENBLAS_NUM_THREADS=str(threads),
        )
        for kind in ("numpy", "onnxruntime")
    ]
    try:
        for worker in workers:
            worker.ready()
        best = min(worker.burst(1, 2).best for _ in range(ROUNDS) for worker in workers)
    finally:
        for worker in workers:
            worker.close()
    return 2 * SIZE**3 / best

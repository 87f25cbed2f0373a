"""`LiteNetwork.forward` against the real megenginelite, and what a call of it costs beyond bare ONNX Runtime.

The real one needs a Python of its own: name one that has megengine 1.13.0 in LITEHOUSE_MEGENGINE_PYTHON. Models are
taken from LITEHOUSE_MEGENGINE_MODELS, paths with a colon between; without it, the digits network of `examples` is run.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime

import litehouse
import megenginelite as lite
from benchmarks.harness import Remote, race, report

REPOSITORY = Path(__file__).parent.parent
DIGITS = REPOSITORY / "examples" / "megengine_digits" / "digits.mge"
TINY = REPOSITORY / "tests" / "fixtures" / "mge_lite" / "tiny.mge"
WORKER = Path(__file__).parent / "megengine_worker.py"


def main() -> None:
    """Race them at one and two threads, then on a tiny network."""
    models = [Path(text) for text in os.environ.get("LITEHOUSE_MEGENGINE_MODELS", str(DIGITS)).split(":")]
    python = os.environ.get("LITEHOUSE_MEGENGINE_PYTHON")
    if not python:
        print("LITEHOUSE_MEGENGINE_PYTHON is not set: the real megenginelite is left out", file=sys.stderr)
    for path in models:
        for threads in (1, 2):
            compare(path, threads, python)
    overhead()


def compare(path: Path, threads: int, python: str | None) -> None:
    """One model, all contenders in turn."""
    contenders: dict[str, Callable[[], object] | Remote] = {}
    workers = []
    if python:
        for kind in ("plain", "tuned"):
            command = [python, str(WORKER), str(path), str(threads), kind]
            workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            contenders[f"megenginelite 1.13.0, {kind}"] = Remote(workers[-1])
    bare = _bare(path, threads)
    contenders["onnxruntime run"] = bare
    contenders["Litehouse's LiteNetwork.forward"] = _ours(path, threads)
    try:
        name = path.stem if path.stem != "model" else path.parent.name
        report(f"megengine {name} {threads} threads", race(contenders, rounds=25, seconds=0.4), model=path.name)
    finally:
        for worker in workers:
            worker.stdin.close()
            worker.wait(timeout=30)


def overhead() -> None:
    """A tiny network: what it costs to call it."""
    network = _loaded(TINY, 1)
    inputs = [network.get_io_tensor(name) for name in network.get_all_input_name()]
    arrays = [tensor.to_numpy() for tensor in inputs]
    output = network.get_io_tensor(network.get_output_name(0))

    def whole() -> np.ndarray:
        for tensor, array in zip(inputs, arrays, strict=True):
            tensor.set_data_by_copy(array)
        network.forward()
        network.wait()
        return output.to_numpy()

    contenders = {
        "onnxruntime run": _bare(TINY, 1),
        "LiteNetwork.forward": network.forward,
        "copy in, forward, wait, to_numpy": whole,
    }
    report("megengine call overhead", race(contenders, rounds=150, seconds=0.04), model=TINY.name)


def _bare(path: Path, threads: int) -> Callable[[], object]:
    """The converted model in plain ONNX Runtime."""
    model = litehouse.read(path)
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "model.onnx"
        ir.save(model.graph, converted)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(converted, settings)
    rng = np.random.default_rng(0)
    feed = {info.name: rng.standard_normal(info.shape).astype(info.dtype) for info in model.inputs}
    return lambda: session.run(None, feed)


def _ours(path: Path, threads: int) -> Callable[[], object]:
    network = _loaded(path, threads)

    def run() -> None:
        network.forward()
        network.wait()

    return run


def _loaded(path: Path, threads: int) -> lite.LiteNetwork:
    network = lite.LiteNetwork()
    network.threads_number = threads
    network.load(str(path))
    rng = np.random.default_rng(0)
    for name in network.get_all_input_name():
        tensor = network.get_io_tensor(name)
        shape = list(tensor.layout.shapes)[: tensor.layout.ndim]
        tensor.set_data_by_copy(rng.standard_normal(shape).astype(tensor.layout.dtype))
    return network


if __name__ == "__main__":
    main()

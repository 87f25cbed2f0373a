"""What a call costs beyond the engine: `predict` and `run` of a tiny network against bare ONNX Runtime."""

import tempfile
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime

import litehouse
import mindspore_lite as mslite
from benchmarks.harness import race, report

MODEL = Path(__file__).parent.parent / "tests" / "fixtures" / "mindir" / "containers" / "plain.mindir"


def main() -> None:
    """Race them on the same graph, the same input and one thread."""
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "model.onnx"
        ir.save(litehouse.read(MODEL).graph, converted)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        bare = onnxruntime.InferenceSession(converted, settings)
    session = litehouse.load(MODEL, engine="onnxruntime", threads=1)
    context = mslite.Context()
    context.cpu.thread_num = 1
    model = mslite.Model()
    model.build_from_file(str(MODEL), mslite.ModelType.MINDIR, context)

    info = session.inputs[0]
    x = np.random.default_rng(0).normal(size=info.shape).astype(info.dtype)
    tensors = model.get_inputs()
    tensors[0].set_data_from_numpy(x)
    feed = {info.name: x}

    def whole() -> np.ndarray:
        tensors[0].set_data_from_numpy(x)
        return model.predict(tensors)[0].get_data_to_numpy()

    contenders = {
        "onnxruntime run": lambda: bare.run(None, feed),
        "litehouse Session.run": lambda: session.run([x]),
        "mindspore_lite Model.predict": lambda: model.predict(tensors),
        "… and get_data_to_numpy": lambda: model.predict(tensors)[0].get_data_to_numpy(),
        "… and set_data_from_numpy": whole,
    }
    report("call overhead", race(contenders, rounds=150, seconds=0.04), model=MODEL.name)


if __name__ == "__main__":
    main()

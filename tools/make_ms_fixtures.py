"""Make the fixtures under `tests/fixtures/ms`: `.ms` files of MindSpore Lite's converter.

Runs in a Python with `onnx` and `onnxruntime`, and wants two others: one with `mindspore==2.0.0` (Python 3.9), one with
`mindspore-lite==2.0.0` (Python 3.7)::

    python tools/make_ms_fixtures.py --mindspore PYTHON --lite PYTHON

Networks with control flow come with what MindSpore computes (`NAME.npz`: input_CALL_INDEX, output_CALL_INDEX), networks
with quantised weights (`quant_NAME_BITS.ms`) with what ONNX Runtime computes with the weights before that.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TOOLS = Path(__file__).resolve().parent
TARGET = TOOLS.parent / "tests" / "fixtures" / "ms"
BITS = (4, 6, 8)
FLOW = ("if", "early_return", "nested_if", "while", "if_in_while")


def quantised_sources(folder: Path) -> dict[str, tuple[int, ...]]:
    """Write ONNX files with one square weight each, so that only numbers tell its axes apart. Gives input shapes."""
    generator = np.random.default_rng(0)
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "group": 1, "pads": [1, 1, 1, 1]}
    sources = {
        "conv": (helper.make_node("Conv", ["x", "w"], ["a"], **window), (1, 6, 5, 5), (6, 6, 3, 3)),
        "deconv": (helper.make_node("ConvTranspose", ["x", "w"], ["a"], **window), (1, 6, 5, 5), (6, 6, 3, 3)),
        "matmul": (helper.make_node("MatMul", ["x", "w"], ["a"]), (2, 12), (12, 12)),
        "gemm": (helper.make_node("Gemm", ["x", "w"], ["a"], transB=1), (2, 12), (12, 12)),
    }
    for name, (node, shape, weight_shape) in sources.items():
        scales = np.linspace(0.2, 2, weight_shape[1]).reshape([-1 if axis == 1 else 1 for axis in range(len(shape))])
        weight = (generator.normal(size=weight_shape) * scales).astype(np.float32)
        graph = helper.make_graph(
            [node, helper.make_node("Relu", ["a"], ["y"])],
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
        onnx.save(model, folder / f"{name}.onnx")
    return {name: shape for name, (_, shape, _) in sources.items()}


def convert(lite: str, folder: Path, source: str, target: str, **settings: str) -> None:
    """Convert one file and keep the result."""
    sections = {"common_quant_param": settings} if settings else {}
    command = [lite, str(TOOLS / "ms_fixtures" / "convert.py"), str(folder), source, target, json.dumps(sections)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    shutil.copyfile(folder / f"{target}.ms", TARGET / f"{target}.ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mindspore", required=True, metavar="PYTHON")
    parser.add_argument("--lite", required=True, metavar="PYTHON")
    arguments = parser.parse_args()
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([arguments.mindspore, str(TOOLS / "ms_fixtures" / "networks.py"), temporary], check=True)
        for name in FLOW:
            convert(arguments.lite, folder, f"{name}.mindir", name)
            shutil.copyfile(folder / f"{name}.npz", TARGET / f"{name}.npz")
        for name, shape in quantised_sources(folder).items():
            x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            (y,) = onnxruntime.InferenceSession(folder / f"{name}.onnx").run(None, {"x": x})
            # 4-D inputs of `.ms` files are NHWC.
            np.savez(TARGET / f"quant_{name}.npz", input=x.transpose(0, 2, 3, 1) if x.ndim == 4 else x, output=y)
            for bits in BITS:
                convert(
                    arguments.lite,
                    folder,
                    f"{name}.onnx",
                    f"quant_{name}_{bits}",
                    quant_type="WEIGHT_QUANT",
                    bit_num=str(bits),
                    min_quant_weight_size="0",
                    min_quant_weight_channel="1",
                )


if __name__ == "__main__":
    main()

"""Small networks, made quantised by ONNX Runtime's own tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from engines.torch.against import numbers
from onnx import TensorProto, helper
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

from onnx_models import node

Arrays = dict[str, np.ndarray]
IMAGE = {"x": numbers(2, 3, 16, 16)}
WORDS = {"ids": np.array([[1, 2, 3], [0, 29, 7]], np.int64)}
STEPS = {"x": numbers(5, 1, 6)}
SIZE = 32


def network(nodes: list[onnx.NodeProto], inputs: Arrays, weights: Arrays, opset: int = 17) -> onnx.ModelProto:
    """A network with one output, `y`."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    for place, each in enumerate(nodes):
        each.name = f"node{place}"  # the quantisers tell nodes by their names
    wanted = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    kept = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", given, wanted, kept)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def images() -> onnx.ModelProto:
    """A network of images, with most of what is quantised."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1] * 4),
        node("Relu", "c1", "r1"),
        node("MaxPool", "r1", "m1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "m1 w2 b2", "c2", pads=[1] * 4, group=2),
        node("LeakyRelu", "c2", "l2", alpha=0.1),
        node("Sigmoid", "c2", "s2"),
        node("Mul", "l2 s2", "g2"),
        node("Add", "g2 m1", "a2"),
        node("AveragePool", "a2", "p2", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p2 w3 b3", "c3"),
        node("Where", "chosen p2 c3", "h3"),
        node("Concat", "h3 c3", "k3", axis=1),
        node("GlobalAveragePool", "k3", "p3"),
        node("Flatten", "p3", "f3"),
        node("Gemm", "f3 w4 b4", "g4", transB=1),
        node("MatMul", "g4 w5", "m5"),
        node("Softmax", "m5", "y", axis=-1),
    ]
    shapes: dict[str, tuple[int, ...]] = {"w1": (8, 3, 3, 3), "w2": (8, 4, 3, 3), "w3": (8, 8, 1, 1), "w4": (6, 16)}
    shapes |= {"b1": (8,), "b2": (8,), "b3": (8,), "b4": (6,), "w5": (6, 5)}
    weights = {name: numbers(*shape, seed=seed) * np.float32(0.3) for seed, (name, shape) in enumerate(shapes.items())}
    chosen = np.random.default_rng(0).random((1, 8, 4, 4)) < 0.5
    return network(nodes, IMAGE, {**weights, "chosen": chosen})


def words() -> onnx.ModelProto:
    """A table and two layers."""
    nodes = [node("Gather", "table ids", "g"), node("MatMul", "g w1", "m"), node("Relu", "m", "r")]
    nodes.append(node("MatMul", "r w2", "y"))
    weights = {"table": numbers(30, 64), "w1": numbers(64, 48, seed=1) / 8, "w2": numbers(48, 40, seed=2) / 8}
    return network(nodes, WORDS, weights, 21)


def recurrent() -> onnx.ModelProto:
    """A recurrent layer in both directions, and one behind it."""
    nodes = [
        node("LSTM", "x w r b", "h", hidden_size=8, direction="bidirectional"),
        node("Transpose", "h", "t", perm=[0, 2, 1, 3]),
        node("Reshape", "t shape", "f"),
        node("MatMul", "f w2", "m"),
        node("Add", "m b2", "y"),
    ]
    weights = {"w": numbers(2, 32, 6) / 2, "r": numbers(2, 32, 8, seed=1) / 2, "b": numbers(2, 64, seed=2)}
    weights |= {"shape": np.array([5, 1, 16]), "w2": numbers(16, 4, seed=3), "b2": numbers(4, seed=4)}
    return network(nodes, STEPS, weights)


TOKENS = {
    "ids": np.random.default_rng(0).integers(0, 20, (2, 6)).astype(np.int32),
    "kinds": np.random.default_rng(1).integers(0, 2, (2, 6)).astype(np.int32),
    "mask": np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32),
}


def layer() -> onnx.ModelProto:
    """A layer of a transformer, as ONNX Runtime's optimiser writes it."""

    def own(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
        return node(op, inputs, outputs, domain="com.microsoft", **attributes)

    nodes = [
        own("EmbedLayerNormalization", "ids kinds words places segments g0 b0 mask", "e ends", epsilon=1e-5),
        own("Attention", "e w1 b1 ends", "a", num_heads=4),
        node("MatMul", "a w2", "m2"),
        own("SkipLayerNormalization", "m2 e g2 b2", "s2", epsilon=1e-5),
        node("MatMul", "s2 w3", "m3"),
        own("BiasGelu", "m3 b3", "h3"),
        node("MatMul", "h3 w4", "m4"),
        own("SkipLayerNormalization", "m4 s2 g4 b4", "y", epsilon=1e-5),
    ]
    shapes: dict[str, tuple[int, ...]] = {"words": (20, SIZE), "places": (10, SIZE), "segments": (2, SIZE)}
    shapes |= {"w1": (SIZE, 3 * SIZE), "b1": (3 * SIZE,), "w2": (SIZE, SIZE), "w3": (SIZE, 64), "b3": (64,)}
    shapes |= {"w4": (64, SIZE)} | dict.fromkeys(("g0", "b0", "g2", "b2", "g4", "b4"), (SIZE,))
    weights = {name: numbers(*shape, seed=seed) * np.float32(0.2) for seed, (name, shape) in enumerate(shapes.items())}
    return network(nodes, TOKENS, weights)


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Inputs that show the quantiser which numbers there are."""

    def __init__(self, inputs: Arrays) -> None:
        """Give the same inputs once."""
        self._left: Iterator[Arrays] = iter([inputs])

    def get_next(self) -> Arrays | None:
        """The next inputs; None behind the last ones."""
        return next(self._left, None)


EXTRA = {"DefaultTensorType": TensorProto.FLOAT, "ForceQuantizeNoInputCheck": True}


def static(made: onnx.ModelProto, inputs: Arrays, folder: Path, form: str, kind: str, *, is_wide: bool) -> bytes:
    """Quantised for the numbers of some inputs, as operators or with operators between quantisers."""
    source, target = folder / "network.onnx", folder / "quantised.onnx"
    onnx.save(made, source)
    quantization.quantize_static(
        source,
        target,
        Reader(inputs),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType[kind],
        weight_type=quantization.QuantType.QInt8,
        per_channel=is_wide,
        extra_options=EXTRA,
    )
    return target.read_bytes()


def dynamic(made: onnx.ModelProto, folder: Path, kind: str, *, is_wide: bool) -> bytes:
    """Quantised in its weights; the rest is when it runs."""
    source, target = folder / "network.onnx", folder / "quantised.onnx"
    onnx.save(made, source)
    extra = {**EXTRA, "MatMulConstBOnly": True}
    weight_type = quantization.QuantType[kind]
    quantization.quantize_dynamic(source, target, weight_type=weight_type, per_channel=is_wide, extra_options=extra)
    return target.read_bytes()


def few_bits(made: onnx.ModelProto, bits: int, *, is_symmetric: bool, form: str = "QOperator") -> bytes:
    """With weights of few bits."""
    ops = ("MatMul", "Gather") if bits == 4 and form == "QOperator" else ("MatMul",)
    settings = DefaultWeightOnlyQuantConfig(
        block_size=16,
        is_symmetric=is_symmetric,
        bits=bits,
        quant_format=quantization.QuantFormat[form],
        op_types_to_quantize=ops,
    )
    quantiser = MatMulNBitsQuantizer(made, algo_config=settings)
    quantiser.process()
    content: bytes = quantiser.model.model.SerializeToString()
    return content


def optimised(content: bytes, folder: Path, level: str) -> bytes:
    """What ONNX Runtime's optimiser makes of a network."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    settings.log_severity_level = 4  # it warns that the file is for this kind of CPU
    settings.add_session_config_entry("session.qdqisint8allowed", "1")
    settings.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    return (folder / "optimised.onnx").read_bytes()

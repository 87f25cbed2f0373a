"""Small ONNX models, with inputs and the outputs that ONNX Runtime computes without optimisation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 7
LOST = "the converter loses what the source model says"
CASES: dict[str, "Case"] = {}


@dataclass
class Case:
    """A source model: nodes of which `x0`, `x1`, … are inputs, `y0`, `y1`, … outputs, and all else weights by name.

    Attributes:
        name: The name of its files.
        nodes: The nodes.
        inputs: The arrays that it is run with.
        weights: Its weights by name.
        outputs: How many outputs it has.
        opset: The version of ONNX.
        follow: Why the converted file means what MindSpore Lite computes, and not what the source said; else empty.
        tolerance: The error that a test may allow, relative to the range; 0 for the usual one.
        dynamic: Axes of the first input that have no fixed size.
        settings: What to set on the converter, in words that `convert.py` knows.
    """

    name: str
    nodes: list[onnx.NodeProto]
    inputs: list[np.ndarray]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 13
    follow: str = ""
    tolerance: float = 0.0
    dynamic: Sequence[int] = ()
    settings: dict[str, str] = field(default_factory=dict)


def node(op: str, inputs: str, outputs: str = "y0", **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by blanks, and `-` leaves an input out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def case(name: str, nodes: onnx.NodeProto | list[onnx.NodeProto], inputs: list[np.ndarray], **more: Any) -> None:
    """Add a case."""
    if name in CASES:
        raise ValueError(f"two cases are named {name}")
    CASES[name] = Case(name, nodes if isinstance(nodes, list) else [nodes], inputs, **more)


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Random numbers that float32 holds with few digits."""
    values = np.random.default_rng([seed, *shape]).uniform(low, high, shape)
    return (np.round(values * 256) / 256).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    """Integers, as ONNX states shapes and axes."""
    return np.array(values, np.int64)


def model(made: Case) -> onnx.ModelProto:
    """The case as an ONNX model, its outputs typed by ONNX's own inference."""
    types = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in made.inputs]
    inputs = []
    for index, (array, kind) in enumerate(zip(made.inputs, types, strict=True)):
        free = made.dynamic if index == 0 else ()
        shape = [f"n{axis}" if axis in free else size for axis, size in enumerate(array.shape)]
        inputs.append(helper.make_tensor_value_info(f"x{index}", kind, shape))
    outputs = [helper.make_empty_tensor_value_info(f"y{index}") for index in range(made.outputs)]
    weights = [numpy_helper.from_array(array, name) for name, array in made.weights.items()]
    graph = helper.make_graph(made.nodes, made.name, inputs, outputs, weights)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", made.opset)])
    whole.ir_version = IR_VERSION
    whole = onnx.shape_inference.infer_shapes(whole, data_prop=True)
    for output in whole.graph.output:
        if not output.type.tensor_type.HasField("shape"):
            output.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, [None, None]))
    onnx.checker.check_model(whole)
    return whole


def write(folder: Path, chosen: Callable[[str], bool]) -> list[str]:
    """Write the chosen cases: `NAME.onnx`, and `NAME.npz` with in0, … and out0, …"""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    names = [name for name in CASES if chosen(name)]
    for name in names:
        made = CASES[name]
        source = model(made)
        onnx.save(source, folder / f"{name}.onnx")
        session = onnxruntime.InferenceSession(source.SerializeToString(), options)
        results = session.run(None, {f"x{index}": array for index, array in enumerate(made.inputs)})
        arrays = {f"in{index}": array for index, array in enumerate(made.inputs)}
        arrays |= {f"out{index}": np.asarray(array) for index, array in enumerate(results)}
        np.savez(folder / f"{name}.npz", **arrays)
    return names

"""What 16 bits cost in accuracy: every network of the suite with each number rounded to bfloat16 or to half precision.

Weights and the result of every operator are rounded; sums within an operator are made in float32, as the instructions
for 16 bits make them. ONNX Runtime computes it with optimisation off, so no CPU with such instructions is needed, and
none is timed. The error is the largest difference from float32, as a share of the output's range.
"""

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS, machine
from benchmarks.networks import NAMES, TITLES, file
from benchmarks.networks.build import build
from benchmarks.progress import progress

TYPES = {"bf16": ir.DataType.BFLOAT16, "fp16": ir.DataType.FLOAT16}


def rounded(path: Path, kept: ir.DataType) -> bytes:
    """The network of an ONNX file, with a round trip through a 16-bit type behind each float32 value."""
    model = ir.load(path)
    graph = model.graph
    for value in [*graph.initializers.values(), *(out for node in list(graph) for out in node.outputs)]:
        if value.dtype != ir.DataType.FLOAT:
            continue
        down = ir.Node("", "Cast", [value], [ir.AttrInt64("to", kept)])
        up = ir.Node("", "Cast", [down.outputs[0]], [ir.AttrInt64("to", ir.DataType.FLOAT)])
        users = [(use.node, use.idx) for use in value.uses() if use.node is not down]
        for node, place in users:
            node.replace_input_with(place, up.outputs[0])
        for place, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[place] = up.outputs[0]
        first = value.producer()
        if first is None:
            graph.insert_before(graph[0], [down, up])
        else:
            graph.insert_after(first, [down, up])
    data: bytes = ir.to_proto(model).SerializeToString()
    return data


def outputs(model: bytes | str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes, with optimisation off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found


def error(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference, as a share of the range of its output."""
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True))


def measure(name: str) -> dict[str, float]:
    """The errors of one network at batch 1."""
    path = file(name, 1, ".onnx")
    with np.load(file(name, 1, ".npz")) as stored:
        inputs = [stored[key] for key in stored.files if key.startswith("input_")]
    wanted = outputs(str(path), inputs)
    return {kind: error(outputs(rounded(path, kept), inputs), wanted) for kind, kept in TYPES.items()}


def main() -> None:
    """Measure, print a table, and write the same as JSON."""
    build(NAMES, (1,))
    networks = [name for name in NAMES if file(name, 1, ".onnx").exists()]
    with progress() as bar:
        results = {name: measure(name) for name in bar.track(networks, description="rounding")}
    table = Table("network", *TYPES, caption="largest error, as a share of the output's range")
    for name, own in results.items():
        table.add_row(TITLES[name], *(f"{own[kind]:.1e}" for kind in TYPES))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    document = {"title": "precision", "machine": machine(), "results": results}
    (RESULTS / "precision.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()

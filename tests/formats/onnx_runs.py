"""What ONNX Runtime computes from a file, to compare with."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import litehouse
from conftest import assert_close


def direct(source: Path | bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes from the file, with no optimisation."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    content = str(source) if isinstance(source, Path) else source
    session = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)  # type: ignore[no-any-return]


def agrees(source: Path | bytes, **feeds: np.ndarray) -> litehouse.Session:
    """Both compute the same. Returns our session."""
    session = litehouse.load(source, engine="onnxruntime", threads=1)
    actual, expected = session.run(feeds), direct(source, feeds)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert_close(ours, theirs)
    return session


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: list[onnx.TensorProto] | None = None,
    opset: int = 21,
    **fields: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "test", inputs, outputs, weights or [])
    imports = [
        helper.make_opsetid(domain, version) for domain, version in (("", opset), ("own", 1), ("com.microsoft", 1))
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **fields)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)

"""OpenVINO dies of a Reshape to rank 0 behind a product: the defect, and that users are safe from it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import ENGINES
from onnx_models import model, node

NODES = [node("MatMul", "x w", "m"), node("Reshape", "m none", "s"), node("Add", "s one", "y")]
WEIGHTS = {"w": np.ones((3, 1), "f"), "none": np.zeros(0, np.int64), "one": np.float32(1)}
X = np.array([[1, 2, 3]], np.float32)


def _model() -> bytes:
    return model(NODES, {"x": [1, 3]}, {"y": []}, WEIGHTS)


@pytest.mark.openvino
def test_the_defect_is_there(tmp_path: Path) -> None:
    """If this fails, OpenVINO has mended it, and the pass can go. In a process of its own, which it kills."""
    path = tmp_path / "model.onnx"
    path.write_bytes(_model())
    program = f"import openvino; core = openvino.Core(); core.compile_model(core.read_model({str(path)!r}), 'CPU')"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode < 0


@pytest.mark.parametrize("opset", [11, 13, 20])
@pytest.mark.parametrize("name", ENGINES)
def test_users_are_safe_from_it(name: str, opset: int) -> None:
    (result,) = litehouse.load(model(NODES, {"x": [1, 3]}, {"y": []}, WEIGHTS, opset=opset), engine=name).run([X])
    assert result.shape == ()
    assert result == 7


@pytest.mark.parametrize("name", ENGINES)
def test_as_an_output_and_of_dynamic_size(name: str) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Reshape", "m none", "y")]
    weights = {key: WEIGHTS[key] for key in ("w", "none")}
    (result,) = litehouse.load(model(nodes, {"x": ["n", 3]}, {"y": []}, weights), engine=name).run([X])
    assert result.shape == ()
    assert result == 6


def test_a_file_that_has_our_names() -> None:
    """As one that Litehouse wrote, and another tool has optimised since."""
    nodes = [*NODES[:2], node("Add", "s #one", "t"), node("Add", "t #first", "y")]
    weights = {"w": WEIGHTS["w"], "none": WEIGHTS["none"], "#one": np.float32(1), "#first": np.float32(5)}
    (result,) = litehouse.load(model(nodes, {"x": [1, 3]}, {"y": []}, weights), engine="onnxruntime").run([X])
    assert result == 12

"""ONNX Runtime turns zero padding before a MaxPool into minus infinity: the defect, and that users are safe from it."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import litehouse
from conftest import ENGINES
from onnx_models import model, node

NEGATIVE = np.full((1, 1, 2, 2), -1, "f")


def _pad_pool(pool: str) -> bytes:
    nodes = [node("Pad", "x pads", "padded"), node(pool, "padded", "y", kernel_shape=[2, 2], strides=[2, 2])]
    return model(nodes, {"x": [1, 1, 2, 2]}, {"y": [1, 1, 2, 2]}, {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])})


def test_the_defect_is_there() -> None:
    """If this fails, ONNX Runtime has mended it, and the pass can go."""
    assert (onnxruntime.InferenceSession(_pad_pool("MaxPool")).run(None, {"x": NEGATIVE})[0] == -1).all()


@pytest.mark.parametrize("name", ENGINES)
def test_users_are_safe_from_it(name: str) -> None:
    assert (litehouse.load(_pad_pool("MaxPool"), engine=name).run([NEGATIVE])[0] == 0).all()


def test_a_converted_file_is_safe_in_plain_onnxruntime(tmp_path: Path) -> None:
    import onnx_ir as ir

    path = tmp_path / "safe.onnx"
    ir.save(litehouse.read(_pad_pool("MaxPool")).graph, path)
    assert (onnxruntime.InferenceSession(path).run(None, {"x": NEGATIVE})[0] == 0).all()


def test_average_pooling_of_wide_padding() -> None:
    nodes = [node("Pad", "x pads", "padded"), node("AveragePool", "padded", "y", kernel_shape=[2, 2], strides=[2, 2])]
    pads = np.array([0, 0, 2, 2, 0, 0, 2, 2])
    bytes_ = model(nodes, {"x": [1, 1, 2, 2]}, {"y": [1, 1, 3, 3]}, {"pads": pads})
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="Pad should be smaller than kernel"):
        onnxruntime.InferenceSession(bytes_)
    expected = np.zeros((1, 1, 3, 3), np.float32)
    expected[0, 0, 1, 1] = NEGATIVE.mean()
    np.testing.assert_allclose(litehouse.load(bytes_, engine="onnxruntime").run([NEGATIVE])[0], expected)


@pytest.mark.parametrize(
    "between", [[("Identity", {})], [("Dropout", {})], [("Cast", {"to": 1})], [("Identity", {}), ("Cast", {"to": 1})]]
)
@pytest.mark.parametrize("name", ENGINES)
def test_what_the_optimiser_removes_does_not_hide_the_pair(between: list[tuple[str, dict]], name: str) -> None:
    names = ["padded", *(f"b{index}" for index in range(len(between)))]
    nodes = [node("Pad", "x pads", "padded")]
    nodes += [node(op, names[index], names[index + 1], **attributes) for index, (op, attributes) in enumerate(between)]
    nodes += [node("MaxPool", names[-1], "y", kernel_shape=[2, 2], strides=[2, 2])]
    bytes_ = model(nodes, {"x": [1, 1, 2, 2]}, {"y": [1, 1, 2, 2]}, {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    assert (litehouse.load(bytes_, engine=name).run([NEGATIVE])[0] == 0).all()

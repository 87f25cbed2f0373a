"""Indices that are wrong: on a GPU, a kernel that refuses one would end all that the process does there."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against import agrees, numbers, one_op

from litehouse import EngineError, Options, read
from litehouse.engines.torch.engine import TorchEngine

ONES = np.ones((1, 1, 4, 4), np.float32)
TABLE = numbers(5, 2)
GATES = [numbers(3, 2, 1), numbers(1, 3, 1, seed=1), numbers(1, 3, 1, seed=2), None]
REGION = np.array([[0, 0, 2, 2]], np.float32)
# For each op: its inputs with an index that is too great, the axis that it is for, and its attributes.
WRONG: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("RotaryEmbedding", [numbers(1, 1, 2, 4), TABLE, TABLE, np.array([[0, 5]])], 5, {"opset": 23}),
    ("RotaryEmbedding", [numbers(1, 1, 2, 4), TABLE, TABLE, np.array([[0, -1]])], 5, {"opset": 23}),
    ("MaxUnpool", [ONES[0, :, :1, :2], np.array([[[0, 4]]])], 4, {"kernel_shape": [2], "strides": [2], "opset": 11}),
    ("MaxRoiPool", [ONES, np.array([[1, 0, 0, 2, 2]], np.float32)], 1, {"pooled_shape": [1, 1], "opset": 20}),
    ("RoiAlign", [ONES, REGION, np.array([1])], 1, {"opset": 16}),
    ("RoiAlign", [ONES, REGION, np.array([-1])], 1, {"opset": 16, "sampling_ratio": 2}),
    ("NegativeLogLikelihoodLoss", [numbers(2, 3), np.array([1, 3])], 3, {"opset": 13}),
    ("NegativeLogLikelihoodLoss", [numbers(2, 3), np.array([-1, -100])], 3, {"opset": 13, "ignore_index": -1}),
    ("SoftmaxCrossEntropyLoss", [numbers(2, 3), np.array([1, -100])], 3, {"opset": 13}),
    ("TensorScatter", [ONES[0], ONES[0, :, :2], np.array([-1])], 4, {"opset": 24}),
    ("GRU", [*GATES, np.array([2, 4], np.int32)], 3, {"hidden_size": 1, "direction": "reverse", "opset": 14}),
    ("GRU", [*GATES, np.array([2, 4], np.int32)], 3, {"hidden_size": 1, "opset": 14}),
]


@pytest.mark.parametrize(("op", "inputs", "size", "attributes"), WRONG, ids=[row[0] for row in WRONG])
def test_out_of_range(op: str, inputs: list[Any], size: int, attributes: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=f"{op}: IndexError: the index -?[0-9]+ is out of .* an axis of size {size}"):
        run(one_op(op, inputs, **attributes), inputs, "cpu")


@pytest.mark.parametrize(("op", "inputs", "size", "attributes"), WRONG, ids=[row[0] for row in WRONG])
def test_out_of_range_on_a_gpu(op: str, inputs: list[Any], size: int, attributes: dict[str, Any], gpu: None) -> None:
    """The kernels get none of these; the run is told wrong in the end, and the GPU is there for the next one."""
    with pytest.raises(EngineError, match=f"{op}: an index is out of the range of an axis of size {size}"):
        run(one_op(op, inputs, **attributes), inputs, "gpu:0")
    assert run(one_op("Neg", [TABLE]), [TABLE], "gpu:0")[0].tolist() == (-TABLE).tolist()


def run(model: bytes, inputs: list[Any], device: str) -> list[np.ndarray]:
    options = Options(engine="torch", cache=False, device=device)
    runner = TorchEngine().compile(read(model), options).bind()
    return runner.run([array for array in inputs if array is not None])


def test_labels_that_are_ignored() -> None:
    for index in (-1, 1, 7):
        labels = np.array([0, index, 2])
        for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
            agrees(op, [numbers(3, 3), labels, np.array([1, 2, 3], np.float32)], opset=13, ignore_index=index)


@pytest.mark.parametrize("samples", [0, 2])
def test_regions_that_are_nowhere(samples: int, gpu: None) -> None:
    """ONNX Runtime refuses them."""
    rois = np.array([[0, np.nan, 2, 2], [np.inf, 0, 2, 2], [0, 0, 4, 4]], np.float32)
    inputs = [ONES, rois, np.zeros(3, np.int64)]
    (found,) = run(one_op("RoiAlign", inputs, opset=16, sampling_ratio=samples), inputs, "gpu:0")
    assert found.reshape(-1)[2] == 1


def test_offsets_that_are_nowhere() -> None:
    offset = np.zeros((1, 2, 4, 4), np.float32)
    offset[0, 0, 0, 0], offset[0, 1, 1, 1] = np.nan, np.inf
    agrees("DeformConv", [ONES, np.ones((1, 1, 1, 1), np.float32), offset], opset=19)

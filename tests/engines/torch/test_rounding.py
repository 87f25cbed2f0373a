"""What is rounded, and what must not be on the way: divisions on a GPU, and sums of 16 bits."""

from typing import Any

import numpy as np
import pytest
import torch
from engines.torch.against import on_torch, one_op
from torch.utils._python_dispatch import TorchDispatchMode

from litehouse.engines.torch.ops.pooling import max_roi_pool
from litehouse.engines.torch.ops.position_bias import relative_position_bias
from litehouse.engines.torch.ops.quantised import dynamic_quantize_linear
from litehouse.engines.torch.ops.sampling import roi_align


class Divided(TorchDispatchMode):
    """Refuses a division by a number: a GPU multiplies by its reciprocal, so that 21 / 7 is more than 3."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_exact = function is not torch.ops.aten.div.Tensor or isinstance(args[1], torch.Tensor) or args[1] == 2
        assert is_exact, f"a division by {args[1]}"
        return function(*args, **(kwargs or {}))


def test_no_division_by_a_number_where_the_last_bit_decides() -> None:
    x, image = torch.ones(1, 1, 9, 9), torch.zeros(1, dtype=torch.int64)
    rois = torch.tensor([[0.0, 0.0, 21.0, 21.0]])
    with Divided():
        for samples in (0, 2):
            roi_align(x, rois, image, output_height=7, output_width=7, sampling_ratio=samples)
        max_roi_pool(x, torch.tensor([[0.0, 0, 0, 8, 8]]), pooled_shape=[7, 7])
        dynamic_quantize_linear(x)
        count = torch.tensor([90])  # 80 is half of the way from 8 to 800
        relative_position_bias(torch.ones(16, 1), count, count, max_distance=800)


def test_sums_of_16_bits() -> None:
    """They add up in 32 bits: numbers that are too small to count one by one, and squares that are too large."""
    ones = np.ones(4096, np.float16)
    cases: list[tuple[str, list[np.ndarray], float, dict[str, Any]]] = [
        ("CumSum", [ones, np.array(0)], 4096, {}),
        ("ScatterElements", [ones[:1], np.zeros(4096, np.int64), ones], 4097, {"reduction": "add"}),
        ("ReduceLogSum", [ones * 100], np.log(409600), {}),
        ("LpNormalization", [ones.reshape(1, -1) * 3000], 1 / 64, {}),
        ("LRN", [np.full((1, 1, 1), 300, np.float16)], 300 / (1 + 0.1 * 90000), {"size": 1, "alpha": 0.1, "beta": 1.0}),
        ("MeanVarianceNormalization", [np.array([-600, 600], np.float16).reshape(2, 1, 1, 1)], 1.0, {}),
    ]
    for op, inputs, wanted, attributes in cases:
        (found,) = on_torch(one_op(op, inputs, opset=18, **attributes), inputs)
        np.testing.assert_allclose(found.reshape(-1)[-1].astype(np.float64), wanted, rtol=1e-3, err_msg=op)


@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
def test_scatter_of_16_bits(reduction: str) -> None:
    inputs = [np.array([2.0, 300.0], np.float16), np.array([1, 1, 0]), np.array([300.0, 0.5, 3.0], np.float16)]
    (found,) = on_torch(one_op("ScatterElements", inputs, opset=18, reduction=reduction), inputs)
    assert found.dtype == np.float16
    assert found.tolist() == {"mul": [6, 44992], "max": [3, 300], "min": [2, 0.5]}[reduction]

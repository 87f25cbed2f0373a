"""Ops that ONNX Runtime had before ONNX, or has beside it."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against import agrees, numbers

RUNTIME: dict[str, Any] = {"domain": "com.microsoft", "dtypes": ["float32"]}


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_expand_dims(axis: int) -> None:
    agrees("ExpandDims", [numbers(3, 4), np.array(axis, np.int32)], **RUNTIME)
    agrees("ExpandDims", [numbers(3, 4), np.array([axis], np.int32)], known=[1], **RUNTIME)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int16"])
def test_range(dtype: str) -> None:
    options = RUNTIME | {"dtypes": [dtype]}
    start, limit, delta = (np.array(number, dtype) for number in (2, 9, 3))
    agrees("Range", [start, limit, delta], **options)
    agrees("Range", [start, limit], **options)
    agrees("Range", [start, limit], known=[0, 1], **options)
    agrees("Range", [limit.reshape(1), start.reshape(1), -delta.reshape(1)], **options)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    pads = np.array([0, 1, 2, 0, 2, 1], np.int64)
    agrees("Pad", [numbers(2, 3, 4), pads], mode=mode, **RUNTIME)
    agrees("Pad", [numbers(2, 3, 4), pads.reshape(1, 6)], mode=mode, **RUNTIME)
    if mode == "constant":
        agrees("Pad", [numbers(2, 3, 4), pads - 1, np.array([3], np.float32)], **RUNTIME)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 2, 9])
def test_trilu(upper: int, k: int | None) -> None:
    inputs = [numbers(2, 4, 5), *([] if k is None else [np.array(k, np.int64)])]
    agrees("Trilu", inputs, upper=upper, **RUNTIME)
    agrees("Trilu", inputs[:1], **RUNTIME)


def test_gather_nd() -> None:
    for indices in ([[0, 1], [1, -2]], [[[1]], [[0]]]):
        agrees("GatherND", [numbers(2, 3, 4), np.array(indices, np.int64)], **RUNTIME)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    inputs = [numbers(2, 3, 5, 6), numbers(2, 4, 3, 2, seed=1) * 0.9]
    options = RUNTIME | {"tolerance": 1e-4}
    agrees("GridSample", inputs, mode=mode, padding_mode=padding, align_corners=align, **options)


def test_unique() -> None:
    options = RUNTIME | {"dtypes": ["float32", "int64", "int64"], "outputs": 3}
    agrees("Unique", [np.array([2, 1, 1, 3, 4, 3, 2.5, 1], np.float32)], **options)
    agrees("Unique", [np.zeros(0, np.float32)], **options)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 5), (1, 3), (3, 1), (1, 1)])
def test_crop_and_resize(mode: str, size: tuple[int, int]) -> None:
    """Boxes that reach over the image, and that are turned round, too."""
    boxes = [[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [-0.3, 0.2, 1.2, 0.6], [0.8, 0.9, 0.1, 0.3], [0.5, 0.5, 0.5, 0.5]]
    images = np.array([1, 0, 1, 0, 1], np.int32)
    inputs = [numbers(2, 3, 6, 7), np.array(boxes, np.float32), images, np.array(size, np.int32)]
    agrees("CropAndResize", inputs, mode=mode, extrapolation_value=0.7, **RUNTIME)
    agrees("CropAndResize", inputs, mode=mode, known=[3], **RUNTIME)


def test_inverse() -> None:
    agrees("Inverse", [numbers(2, 3, 4, 4)], **RUNTIME | {"tolerance": 1e-4})
    agrees("Inverse", [numbers(4, 4, dtype=np.float64)], **RUNTIME | {"dtypes": ["float64"]})


@pytest.mark.parametrize("options", [{"size": 2}, {"size": 3, "step": 2}, {"size": 2, "dim": 1}])
def test_unfold(options: dict[str, int]) -> None:
    agrees("UnfoldTensor", [numbers(2, 5, 7)], **options, **RUNTIME)


@pytest.mark.parametrize("is_known", [False, True])
def test_conv_transpose_with_pads(is_known: bool) -> None:
    known = [2] if is_known else []
    inputs = [numbers(2, 4, 5, 6), numbers(4, 3, 3, 3, seed=1), np.array([1, 0, 1, 2], np.int64), numbers(3, seed=2)]
    options = RUNTIME | {"tolerance": 1e-4, "known": known}
    agrees("ConvTransposeWithDynamicPads", inputs, strides=[2, 1], output_padding=[1, 0], **options)
    agrees("ConvTransposeWithDynamicPads", inputs[:3], **options)


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity", "swiglu"])
@pytest.mark.parametrize("count", [1, 2])
def test_experts(tokens: int, activation: str, count: int) -> None:
    """Few tokens take copies of their experts, many ask all of them."""
    experts, size, inside = 6, 8, 12
    wide = inside * (2 if activation == "swiglu" else 1)
    inputs = [
        numbers(1, tokens, size),
        numbers(tokens, experts, seed=1),
        numbers(experts, wide, size, seed=2),
        numbers(experts, wide, seed=3),
        numbers(experts, size, inside, seed=4),
        numbers(experts, size, seed=5),
    ]
    options: dict[str, Any] = RUNTIME | {"tolerance": 1e-4, "k": count, "activation_type": activation}
    if activation == "swiglu":
        options |= {"swiglu_fusion": 1, "swiglu_limit": 2.0, "activation_alpha": 1.702, "activation_beta": 1.0}
    agrees("MoE", inputs, **options)
    agrees("MoE", [inputs[0][0], *inputs[1:3], None, inputs[4]], normalize_routing_weights=1, **options)

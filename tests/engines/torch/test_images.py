"""Ops on images: in which order they leave the elements, and what they make of no images."""

import numpy as np
import pytest
from engines.torch.against import agrees, numbers

torch = pytest.importorskip("torch")

CALLS = [
    ("convolution", "conv", {"pads": [1, 1, 1, 1]}),
    ("convolution", "conv", {"pads": [0, 1, 2, 1], "strides": [2, 2]}),
    ("convolution", "conv_transpose", {"pads": [1, 1, 1, 1], "strides": [2, 2], "output_padding": [1, 1]}),
    ("convolution", "conv_transpose", {"pads": [0, 1, 1, 2], "strides": [2, 2]}),
    ("pooling", "max_pool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("pooling", "max_pool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("pooling", "average_pool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("pooling", "average_pool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("resize", "resize", {"mode": "linear"}),
    ("resize", "resize", {"mode": "nearest"}),
]


@pytest.mark.parametrize(("family", "name", "attributes"), CALLS, ids=str)
def test_channels_that_come_last_stay_last(family, name, attributes):
    import importlib

    function = getattr(importlib.import_module(f"litehouse.engines.torch.ops.{family}"), name)
    x = torch.zeros(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    inputs = [x]
    if family == "convolution":
        inputs.append(torch.zeros(4, 4, 3, 3).contiguous(memory_format=torch.channels_last))
    if family == "resize":
        inputs += [None, torch.tensor([1.0, 1.0, 2.0, 2.0])]
    y = function(*inputs, **attributes)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert not y.is_contiguous()


NONE = [
    ("Conv", [(0, 4, 8, 8), (6, 4, 3, 3)], {"pads": [0, 1, 2, 1]}),
    ("ConvTranspose", [(0, 4, 8, 8), (4, 6, 3, 3)], {"strides": [2, 2]}),
    ("DeformConv", [(0, 4, 8, 8), (6, 4, 3, 3), (0, 18, 6, 6)], {}),
    ("MaxPool", [(0, 4, 8, 8)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "outputs": 2}),
    ("AveragePool", [(0, 4, 8, 8)], {"kernel_shape": [3, 3], "pads": [0, 1, 1, 0]}),
    ("LpPool", [(0, 4, 8, 8)], {"kernel_shape": [3, 3]}),
    ("GlobalAveragePool", [(0, 4, 8, 8)], {}),
    ("GridSample", [(0, 4, 8, 8), (0, 3, 5, 2)], {}),
    ("DepthToSpace", [(0, 4, 8, 8)], {"blocksize": 2}),
    ("SpaceToDepth", [(0, 4, 8, 8)], {"blocksize": 2}),
    ("MaxRoiPool", [(1, 4, 8, 8), (0, 5)], {"pooled_shape": [2, 3]}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), NONE, ids=str)
def test_no_images(op, shapes, attributes):
    agrees(op, [numbers(*shape) for shape in shapes], opset=19, **attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_no_images_to_resize(mode):
    agrees("Resize", [numbers(0, 4, 8, 8), None, None, np.array([0, 4, 5, 6])], known=[3], mode=mode)

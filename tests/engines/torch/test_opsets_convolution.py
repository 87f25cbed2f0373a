import numpy as np
import onnx
import pytest
from engines.torch.against import agrees, numbers, on_torch

from onnx_models import model

GEOMETRIES = [
    {},
    {"pads": [1, 2, 1, 2]},
    {"pads": [0, 1, 2, 3], "strides": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    {"auto_pad": "VALID", "dilations": [1, 2]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2], "kernel_shape": [3, 2]},
]


@pytest.mark.parametrize("opset", [7, 11, 22])
@pytest.mark.parametrize("attributes", GEOMETRIES, ids=str)
def test_conv(attributes, opset):
    agrees("Conv", [numbers(2, 4, 9, 8), numbers(6, 4, 3, 2, seed=1), numbers(6, seed=2)], opset=opset, **attributes)


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_of_another_rank(rank):
    x, w = numbers(2, 4, *[7, 6, 5][:rank]), numbers(6, 2, *[3, 2, 3][:rank], seed=1)
    agrees("Conv", [x, w], group=2, pads=[1, 0, 1][:rank] + [1, 0, 1][:rank])
    agrees("Conv", [x, w], group=2, pads=[1, 0, 1][:rank] + [2, 1, 0][:rank], strides=[2] * rank)


def test_conv_of_each_channel_alone():
    agrees("Conv", [numbers(1, 8, 10, 10), numbers(8, 1, 3, 3, seed=1)], group=8, pads=[1, 1, 1, 1])


def test_conv_of_nothing():
    agrees("Conv", [numbers(0, 3, 8, 8), numbers(4, 3, 3, 3)])


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 1.5]), ("", None)],
)
def test_fused_conv(activation, parameters):
    inputs = [numbers(1, 4, 6, 6), numbers(4, 4, 3, 3, seed=1), numbers(4, seed=2)]
    attributes = {"activation": activation} if activation else {}
    attributes |= {"activation_params": parameters} if parameters else {}
    agrees("FusedConv", inputs, domain="com.microsoft", dtypes=["float32"], pads=[1, 1, 1, 1], **attributes)


def test_fused_conv_with_sum():
    inputs = [numbers(1, 4, 6, 6), numbers(4, 4, 1, 1, seed=1), numbers(4, seed=2), numbers(1, 4, 6, 6, seed=3)]
    agrees("FusedConv", inputs, domain="com.microsoft", dtypes=["float32"], activation="Relu")


TRANSPOSED = [
    {},
    {"strides": [2, 3], "output_padding": [1, 2]},
    {"strides": [2, 2], "pads": [1, 0, 0, 2]},
    {"strides": [3, 2], "pads": [0, 2, 1, 1], "output_padding": [2, 1]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [3, 3], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "VALID"},
    {"strides": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "output_shape": [10, 9]},
    {"strides": [2, 2], "output_shape": [9, 8], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "output_shape": [9, 8], "auto_pad": "SAME_LOWER"},
]


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("attributes", TRANSPOSED, ids=str)
def test_conv_transpose(attributes, opset):
    inputs = [numbers(2, 4, 5, 4), numbers(4, 3, 3, 3, seed=1), numbers(6, seed=2)]
    agrees("ConvTranspose", inputs, opset=opset, group=2, **attributes)


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_transpose_of_another_rank(rank):
    inputs = [numbers(2, 4, *[5, 4, 3][:rank]), numbers(4, 3, *[3, 2, 2][:rank], seed=1), numbers(3, seed=2)]
    agrees("ConvTranspose", inputs, strides=[2] * rank, pads=[1, 0, 0][:rank] + [0, 1, 0][:rank])


def test_deform_conv():
    x, w, b = numbers(2, 4, 7, 6), numbers(6, 2, 3, 2, seed=1), numbers(6, seed=2)
    offset, mask = 2 * numbers(2, 2 * 2 * 6, 4, 4, seed=3), numbers(2, 2 * 6, 4, 4, seed=4)
    attributes = {"group": 2, "offset_group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 3]}
    agrees("DeformConv", [x, w, offset, b, mask], opset=19, **attributes)
    agrees("DeformConv", [x, w, offset], opset=19, **attributes)


@pytest.mark.parametrize(
    "attributes", [{"pads": [1, 1, 1, 1]}, {"pads": [0, 1, 2, 0], "strides": [2, 1]}, {"dilations": [2, 1]}], ids=str
)
def test_col2im(attributes):
    sizes, block = np.array([6, 7]), np.array([2, 3])
    pads, strides = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
    dilations = attributes.get("dilations", [1, 1])
    counts = [
        (sizes[a] + pads[a] + pads[a + 2] - (block[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in range(2)
    ]
    x = numbers(2, 3 * 6, int(np.prod(counts)))
    agrees("Col2Im", [x, sizes, block], known=[1, 2], opset=18, **attributes)


@pytest.mark.parametrize("opset", [7, 22])
def test_conv_transpose_with_less_than_its_size(opset):
    inputs = [numbers(1, 2, 5, 4), numbers(2, 3, 3, 3, seed=1)]
    agrees("ConvTranspose", inputs, opset=opset, strides=[4, 4], auto_pad="SAME_LOWER", lacks=True)


def test_dilated_windows_of_the_same_size():
    """ONNX Runtime refuses them."""
    x, w = numbers(1, 2, 9, 8), numbers(3, 2, 3, 2, seed=1)
    same = {"strides": [2, 3], "dilations": [2, 3]}
    (expected,) = agrees("Conv", [x, w], pads=[2, 1, 2, 1], **same)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_LOWER", **same)
    (found,) = on_torch(model([node], {"x": x.shape, "w": w.shape}, {"y": None}), [x, w])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_numbers_of_64_bits_stay_so(op):
    """ONNX Runtime has no such kernel; whole numbers tell whether any bit is lost."""
    x, w = np.round(1e6 * numbers(1, 3, 6, 6, dtype=np.float64)), np.round(1e6 * numbers(3, 3, 1, 1, dtype=np.float64))
    node = onnx.helper.make_node(op, ["x", "w"], ["y"])
    source = model([node], {"x": x.shape, "w": w.shape}, {"y": None}, dtype=onnx.TensorProto.DOUBLE)
    (found,) = on_torch(source, [x, w])
    np.testing.assert_array_equal(
        found, np.einsum("nihw,oi->nohw" if op == "Conv" else "nihw,io->nohw", x, w[..., 0, 0])
    )


def test_numbers_of_16_bits():
    agrees(
        "Conv", [numbers(1, 2, 6, 6, dtype=np.float16), numbers(3, 2, 3, 3, seed=1, dtype=np.float16)], tolerance=1e-2
    )

"""Convolutions, pools, resizing, normalisation: what has channels."""

import numpy as np

from converted_fixtures.sources import LOST, case, ints, node, numbers

IMAGE = numbers(1, 4, 7, 8)
PLAIN = {"strides": [1, 1], "dilations": [1, 1], "group": 1}


def conv(inputs: str, outputs: str = "y0", **attributes: object) -> object:
    """A convolution with its attributes written out, which the converter wants."""
    return node("Conv", inputs, outputs, **{**PLAIN, **attributes})


WEIGHT = {"w": numbers(6, 4, 3, 3), "b": numbers(6)}

case("conv_pads", conv("x0 w b", kernel_shape=[3, 3], pads=[0, 1, 2, 1]), [IMAGE], weights=WEIGHT)
case("conv_stride_batch", conv("x0 w b", kernel_shape=[3, 3], strides=[2, 3]), [numbers(3, 4, 9, 8)], weights=WEIGHT)
case(
    "conv_same_upper",
    conv("x0 w b", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    [IMAGE],
    weights=WEIGHT,
)
case(
    "conv_same_lower",
    conv("x0 w b", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    [IMAGE],
    weights=WEIGHT,
    follow=LOST,
)
case("conv_valid", conv("x0 w b", kernel_shape=[3, 3], auto_pad="VALID"), [IMAGE], weights=WEIGHT)
case("conv_dilated", conv("x0 w b", kernel_shape=[3, 3], dilations=[2, 1], pads=[2, 1, 2, 1]), [IMAGE], weights=WEIGHT)
case(
    "conv_groups",
    conv("x0 w b", kernel_shape=[3, 3], group=2),
    [IMAGE],
    weights={"w": numbers(6, 2, 3, 3), "b": numbers(6)},
)
case(
    "conv_depthwise",
    conv("x0 w b", kernel_shape=[3, 3], group=4, pads=[1, 1, 1, 1]),
    [IMAGE],
    weights={"w": numbers(4, 1, 3, 3), "b": numbers(4)},
)
case(
    "conv_depthwise_twice",
    conv("x0 w b", kernel_shape=[3, 3], group=4),
    [IMAGE],
    weights={"w": numbers(8, 1, 3, 3), "b": numbers(8)},
)
case(
    "conv_lines",
    node("Conv", "x0 w b", kernel_shape=[3], strides=[2], dilations=[1], group=1, pads=[1, 0]),
    [numbers(2, 4, 9)],
    weights={"w": numbers(6, 4, 3), "b": numbers(6)},
)

BEHIND = {
    "relu": [node("Relu", "c")],
    "relu6": [node("Clip", "c low high")],
    "leaky": [node("LeakyRelu", "c", alpha=0.3)],
    "sigmoid": [node("Sigmoid", "c")],
    "swish": [node("Sigmoid", "c", "s"), node("Mul", "c s")],
    "hswish": [
        node("Add", "c three", "a"),
        node("Clip", "a low high", "k"),
        node("Mul", "c k", "m"),
        node("Div", "m six"),
    ],
    "elu": [node("Elu", "c", alpha=0.7)],
}
for name, nodes in BEHIND.items():
    numbers_of_name = {"low": np.float32(0), "high": np.float32(6), "three": np.float32(3), "six": np.float32(6)}
    used = {key: np.array(value) for key, value in numbers_of_name.items() if any(key in each.input for each in nodes)}
    case(f"conv_{name}", [conv("x0 w b", "c", kernel_shape=[3, 3]), *nodes], [IMAGE], weights=WEIGHT | used)

NORM = {
    "s": numbers(6, low=0.5, high=1.5),
    "o": numbers(6, seed=1),
    "m": numbers(6, seed=2),
    "v": numbers(6, low=0.5, high=2),
}
case(
    "conv_batchnorm",
    [conv("x0 w b", "c", kernel_shape=[3, 3]), node("BatchNormalization", "c s o m v", epsilon=1e-3)],
    [IMAGE],
    weights=WEIGHT | NORM,
)
case(
    "conv_sum",
    [conv("x0 w b", "c", kernel_shape=[1, 1]), node("Add", "c x0", "a"), node("Relu", "a")],
    [IMAGE],
    weights={"w": numbers(4, 4, 1, 1), "b": numbers(4)},
)

DECONV = {"w": numbers(4, 3, 3, 3), "b": numbers(3)}
TRANSPOSED = {"kernel_shape": [3, 3], "dilations": [1, 1], "group": 1}
case(
    "deconv", node("ConvTranspose", "x0 w b", strides=[1, 1], pads=[0, 0, 0, 0], **TRANSPOSED), [IMAGE], weights=DECONV
)
case(
    "deconv_stride",
    node("ConvTranspose", "x0 w b", strides=[2, 3], pads=[1, 0, 1, 2], **TRANSPOSED),
    [IMAGE],
    weights=DECONV,
)
case(
    "deconv_more",
    node("ConvTranspose", "x0 w b", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1], **TRANSPOSED),
    [IMAGE],
    weights=DECONV,
)
case(
    "deconv_same",
    node("ConvTranspose", "x0 w b", strides=[2, 2], auto_pad="SAME_UPPER", **TRANSPOSED),
    [IMAGE],
    weights=DECONV,
)
case(
    "deconv_same_wide",
    node(
        "ConvTranspose", "x0 w b", strides=[3, 2], auto_pad="SAME_UPPER", kernel_shape=[2, 2], dilations=[1, 1], group=1
    ),
    [IMAGE],
    weights={"w": numbers(4, 3, 2, 2), "b": numbers(3)},
    follow="ONNX Runtime leaves out what lies beyond the last window",
)
case(
    "deconv_depthwise",
    node("ConvTranspose", "x0 w", strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3], dilations=[1, 1], group=4),
    [IMAGE],
    weights={"w": numbers(4, 1, 3, 3)},
)

WINDOW = {"kernel_shape": [3, 2], "strides": [2, 2]}
for op, name in (("MaxPool", "max"), ("AveragePool", "mean")):
    case(f"{name}pool", node(op, "x0", **WINDOW), [IMAGE])
    case(f"{name}pool_pads", node(op, "x0", pads=[1, 0, 1, 1], **WINDOW), [IMAGE])
    case(f"{name}pool_ceil", node(op, "x0", ceil_mode=1, **WINDOW), [IMAGE])
    case(f"{name}pool_same", node(op, "x0", auto_pad="SAME_UPPER", **WINDOW), [IMAGE])
    case(f"{name}pool_global", node("Global" + op, "x0"), [numbers(2, 3, 4, 5)])
case(
    "meanpool_counting_pads",
    node("AveragePool", "x0", pads=[1, 0, 1, 1], count_include_pad=1, **WINDOW),
    [IMAGE],
    follow=LOST,
)

CHANNELS = {"s": numbers(4, low=0.5, high=1.5), "o": numbers(4, seed=1)}
STATISTICS = {"m": numbers(4, seed=2), "v": numbers(4, low=0.5, high=2)}
case("batchnorm", node("BatchNormalization", "x0 s o m v", epsilon=1e-3), [IMAGE], weights=CHANNELS | STATISTICS)
case(
    "batchnorm_rows",
    node("BatchNormalization", "x0 s o m v", epsilon=1e-3),
    [numbers(5, 4)],
    weights=CHANNELS | STATISTICS,
)
case("instancenorm", node("InstanceNormalization", "x0 s o", epsilon=1e-3), [numbers(2, 4, 5, 6)], weights=CHANNELS)
case("lrn", node("LRN", "x0", size=3, alpha=0.3, beta=0.5, bias=1.5), [IMAGE])
case("lrn_default", node("LRN", "x0", size=3, alpha=0.3), [IMAGE])
case("prelu", node("PRelu", "x0 p"), [IMAGE], weights={"p": numbers(4, 1, 1)})
case("prelu_shared", node("PRelu", "x0 p"), [IMAGE], weights={"p": numbers(1)})
case(
    "channel_scale",
    [node("Mul", "x0 s", "m"), node("Add", "m o")],
    [IMAGE],
    weights={"s": numbers(1, 4, 1, 1), "o": numbers(1, 4, 1, 1, seed=1)},
)
case("channel_add", node("Add", "x0 o"), [IMAGE], weights={"o": numbers(4, 1, 1)})
case("depth_to_space", node("DepthToSpace", "x0", blocksize=2, mode="DCR"), [numbers(1, 8, 3, 2)])
case("depth_to_space_crd", node("DepthToSpace", "x0", blocksize=2, mode="CRD"), [numbers(1, 8, 3, 2)])
case("space_to_depth", node("SpaceToDepth", "x0", blocksize=2), [numbers(1, 3, 4, 6)])

SMALL = numbers(1, 2, 3, 4)
SCALES = {"k": np.array([1, 1, 2, 3], np.float32)}
SIZES = {"k": ints(1, 2, 5, 7)}
RULES = {"asym": "asymmetric", "align": "align_corners", "half": "half_pixel"}
for short, rule in RULES.items():
    common = {"coordinate_transformation_mode": rule}
    case(f"resize_linear_{short}", node("Resize", "x0 - k", mode="linear", **common), [SMALL], weights=SCALES)
    case(f"resize_linear_{short}_sizes", node("Resize", "x0 - - k", mode="linear", **common), [SMALL], weights=SIZES)
    case(
        f"resize_cubic_{short}",
        node("Resize", "x0 - k", mode="cubic", cubic_coeff_a=-0.5, **common),
        [SMALL],
        weights=SCALES,
    )
    for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        name = f"resize_nearest_{short}_{rounding}"
        case(name, node("Resize", "x0 - - k", mode="nearest", nearest_mode=rounding, **common), [SMALL], weights=SIZES)

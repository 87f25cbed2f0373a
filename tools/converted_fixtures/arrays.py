"""Shapes, slices, indices, recurrent layers, and a few networks."""

import numpy as np
from onnx import helper

from converted_fixtures.sources import LOST, case, ints, node, numbers
from converted_fixtures.windows import conv

CUBE = numbers(2, 3, 4)

case("reshape_kept", node("Reshape", "x0 s"), [CUBE], weights={"s": ints(0, -1)})
case("flatten", node("Flatten", "x0", axis=2), [CUBE])
case("transpose", node("Transpose", "x0", perm=[2, 0, 1]), [CUBE])
case("transpose_images", [node("Transpose", "x0", "t", perm=[0, 2, 3, 1]), node("Relu", "t")], [numbers(1, 2, 3, 4)])
case(
    "squeeze",
    [node("Unsqueeze", "x0 a", "u"), node("Relu", "u", "r"), node("Squeeze", "r b")],
    [CUBE],
    weights={"a": ints(0, 2), "b": ints(0)},
)
case("concat", node("Concat", "x0 x1 x2", axis=1), [CUBE, numbers(2, 1, 4), numbers(2, 2, 4)])
case("concat_images", node("Concat", "x0 x1", axis=1), [numbers(1, 2, 3, 4), numbers(1, 1, 3, 4)])
case("split", node("Split", "x0 s", "y0 y1", axis=2), [CUBE], weights={"s": ints(1, 3)}, outputs=2)
case("split_images", node("Split", "x0", "y0 y1 y2", axis=1), [numbers(1, 6, 2, 3)], outputs=3)
SLICE = {"b": ints(1, -1), "e": ints(100, 0), "a": ints(1, -1), "s": ints(1, -2)}
case("slice", node("Slice", "x0 b e a s"), [CUBE], weights=SLICE)
case("slice_no_steps", node("Slice", "x0 b e a"), [CUBE], weights={"b": ints(1), "e": ints(-1), "a": ints(2)})
case(
    "slice_images",
    node("Slice", "x0 b e a s"),
    [numbers(1, 4, 5, 6)],
    weights={"b": ints(1, 2), "e": ints(3, 6), "a": ints(1, 3), "s": ints(1, 2)},
)
case("expand", node("Expand", "x0 s"), [numbers(3, 1)], weights={"s": ints(2, 1, 4)})
case("tile", node("Tile", "x0 r"), [CUBE], weights={"r": ints(1, 2, 2)})
case("pad", node("Pad", "x0 p v"), [CUBE], weights={"p": ints(0, 1, 0, 1, 0, 2), "v": np.array(1.5, np.float32)})
case("pad_images", node("Pad", "x0 p"), [numbers(1, 2, 3, 4)], weights={"p": ints(0, 1, 1, 0, 0, 0, 2, 1)})
case(
    "pad_reflect",
    node("Pad", "x0 p", mode="reflect"),
    [numbers(1, 2, 3, 4)],
    weights={"p": ints(0, 0, 1, 2, 0, 0, 2, 1)},
)
case(
    "pad_edge",
    node("Pad", "x0 p", mode="edge"),
    [numbers(1, 2, 3, 4)],
    weights={"p": ints(0, 0, 1, 2, 0, 0, 2, 1)},
    follow=LOST,
)
case(
    "shape_arithmetic",
    [
        node("Shape", "x0", "s"),
        node("Gather", "s i", "n", axis=0),
        node("Unsqueeze", "n z", "u"),
        node("Concat", "u m", "t", axis=0),
        node("Reshape", "x0 t"),
    ],
    [CUBE],
    weights={"i": np.array(1, np.int64), "z": ints(0), "m": ints(-1)},
)
case(
    "filled",
    [
        node("Shape", "x0", "s"),
        node("ConstantOfShape", "s", "f", value=helper.make_tensor("v", 1, [1], [2.5])),
        node("Add", "x0 f"),
    ],
    [CUBE],
)
case(
    "range",
    [node("Shape", "x0", "s"), node("Gather", "s i", "n", axis=0), node("Range", "a n d")],
    [numbers(5, 2)],
    weights={"i": np.array(0, np.int64), "a": np.array(0, np.int64), "d": np.array(1, np.int64)},
)

case("squeeze_all", [node("Squeeze", "x0", "s"), node("Relu", "s")], [numbers(1, 3, 1, 4)])
case("concat_last", node("Concat", "x0 x1", axis=-1), [numbers(1, 2, 3, 4), numbers(1, 2, 3, 1)])
case(
    "slice_twice",
    [node("Slice", "x0 b e a", "s"), node("Slice", "s b e a")],
    [numbers(2, 8, 3)],
    weights={"b": ints(1), "e": ints(-1), "a": ints(1)},
)
GROUPS = {
    "a": ints(2, 2, -1),
    "b": ints(2, 4, 3, 3),
    "s": np.ones(2, np.float32),
    "o": np.zeros(2, np.float32),
    "g": numbers(4, 1, 1),
    "h": numbers(4, 1, 1, seed=1),
}
GROUP_NORM = [
    node("Reshape", "x0 a", "r"),
    node("InstanceNormalization", "r s o", "i", epsilon=1e-3),
    node("Reshape", "i b", "u"),
    node("Mul", "u g", "m"),
    node("Add", "m h"),
]
case("groupnorm", GROUP_NORM, [numbers(2, 4, 3, 3)], weights=GROUPS)

# By index
case("gather_one", node("Gather", "x0 i", axis=1), [CUBE], weights={"i": np.array(2, np.int64)})
case("gather_channels", node("Gather", "x0 i", axis=1), [numbers(1, 4, 2, 3)], weights={"i": ints(3, 0)})
case("gather", node("Gather", "x0 i", axis=1), [CUBE], weights={"i": ints([2, 0], [1, -1])})
case(
    "gather_rows", node("Gather", "w x0", axis=0), [np.array([[1, 3], [0, 2]], np.int64)], weights={"w": numbers(5, 4)}
)
case(
    "gather_elements",
    node("GatherElements", "x0 i", axis=1),
    [numbers(2, 4)],
    weights={"i": ints([0, 3, 1], [2, 2, 0])},
)
case("gather_nd", node("GatherND", "x0 i"), [CUBE], weights={"i": ints([0, 2], [1, 1])})
case("scatter_nd", node("ScatterND", "x0 i u"), [CUBE], weights={"i": ints([1], [0]), "u": numbers(2, 3, 4, seed=5)})
case(
    "scatter_nd_and_before",
    [node("ScatterND", "x0 i u", "n"), node("Add", "n x0")],
    [CUBE],
    weights={"i": ints([1]), "u": numbers(1, 3, 4, seed=5)},
)
case(
    "scatter_elements",
    node("ScatterElements", "x0 i u", axis=1),
    [numbers(2, 4)],
    weights={"i": ints([0, 3], [2, 1]), "u": numbers(2, 2, seed=5)},
)
case(
    "one_hot",
    node("OneHot", "x0 d v", axis=1),
    [np.array([[1, 3], [0, 2]], np.int64)],
    weights={"d": np.array(4, np.int64), "v": np.array([-1, 2], np.float32)},
)
case("lower_triangle", node("Trilu", "x0", upper=0), [numbers(4, 4)], opset=14)
case("upper_triangle", node("Trilu", "x0", upper=1), [numbers(4, 4)], opset=14)
case("non_zero", node("NonZero", "x0"), [np.round(numbers(3, 4))])
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3]]], np.float32)
LIMITS = {"n": ints(3), "o": np.array([0.5], np.float32), "s": np.array([0.1], np.float32)}
case(
    "non_max_suppression",
    node("NonMaxSuppression", "x0 x1 n o s"),
    [BOXES, np.array([[[0.9, 0.8, 0.05, 0.7]]], np.float32)],
    weights=LIMITS,
)


# Recurrent
def lstm(directions: int) -> dict[str, np.ndarray]:
    """The weights of an LSTM of 4 numbers to 3."""
    sizes = {
        "w": (directions, 12, 4),
        "r": (directions, 12, 3),
        "b": (directions, 24),
        "h": (directions, 2, 3),
        "c": (directions, 2, 3),
    }
    return {name: numbers(*shape, seed=6, low=-1, high=1) for name, shape in sizes.items()}


case("lstm", node("LSTM", "x0 w r b - h c", "y0 y1 y2", hidden_size=3), [numbers(5, 2, 4)], weights=lstm(1), outputs=3)
case(
    "lstm_both_ways",
    node("LSTM", "x0 w r b - h c", "y0 y1 y2", hidden_size=3, direction="bidirectional"),
    [numbers(5, 2, 4)],
    weights=lstm(2),
    outputs=3,
)

# Networks
SHUFFLE = [
    node("Reshape", "x0 a", "r"),
    node("Transpose", "r", "t", perm=[0, 2, 1, 3, 4]),
    node("Reshape", "t b", "u"),
    conv("u w", kernel_shape=[1, 1]),
]
case(
    "net_shuffle",
    SHUFFLE,
    [numbers(1, 6, 4, 5)],
    weights={"a": ints(1, 2, 3, 4, 5), "b": ints(1, 6, 4, 5), "w": numbers(3, 6, 1, 1)},
)
CNN = [
    conv("x0 w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    node("Relu", "c1", "r1"),
    node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
    conv("p1 w2 b2", "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    node("Add", "c2 p1", "a2"),
    node("Relu", "a2", "r2"),
    node("GlobalAveragePool", "r2", "g"),
    node("Flatten", "g", "f", axis=1),
    node("Gemm", "f k kb", "z", transB=1),
    node("Softmax", "z", axis=1),
]
CNN_WEIGHTS = {
    "w1": numbers(8, 3, 3, 3) / 4,
    "b1": numbers(8),
    "w2": numbers(8, 8, 3, 3) / 8,
    "b2": numbers(8),
    "k": numbers(10, 8),
    "kb": numbers(10),
}
for name, settings in {
    "": {},
    "_plain": {"optimize": "none"},
    "_nhwc": {"input_format": "NHWC"},
    "_fp16": {"weight_fp16": "1"},
    "_dynamic_quant": {"quant": "dynamic"},
    "_weight_quant": {"quant": "weight"},
    "_encrypted": {"encrypt": "1"},
}.items():
    more = {"follow": "numbers are quantised when the model runs"} if name == "_dynamic_quant" else {}
    more |= (
        {"tolerance": 2e-2}
        if name == "_weight_quant"
        else {"tolerance": 1e-3}
        if "quant" in name or "fp16" in name
        else {}
    )
    case(f"net_cnn{name}", CNN, [numbers(1, 3, 8, 8)], weights=CNN_WEIGHTS, settings=settings, **more)
case("net_cnn_any_batch", CNN, [numbers(2, 3, 8, 8)], weights=CNN_WEIGHTS, dynamic=(0,))
UNET = [
    conv("x0 w1 b1", "e1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    node("LeakyRelu", "e1", "l1", alpha=0.1),
    node("MaxPool", "l1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
    conv("p1 w2", "e2", kernel_shape=[1, 1]),
    node("Resize", "e2 - k", "u", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    node("Concat", "u l1", "j", axis=1),
    node(
        "ConvTranspose", "j w3", "d", kernel_shape=[2, 2], strides=[2, 2], dilations=[1, 1], group=1, pads=[0, 0, 0, 0]
    ),
    node("Sigmoid", "d"),
]
case(
    "net_unet",
    UNET,
    [numbers(1, 3, 8, 8)],
    weights={
        "w1": numbers(4, 3, 3, 3),
        "b1": numbers(4),
        "w2": numbers(5, 4, 1, 1),
        "w3": numbers(9, 2, 2, 2),
        "k": np.array([1, 1, 2, 2], np.float32),
    },
)
ATTENTION = [
    node("MatMul", "x0 wq", "q"),
    node("MatMul", "x0 wk", "k"),
    node("MatMul", "x0 wv", "v"),
    *[node("Reshape", f"{each} heads", f"{each}r") for each in "qkv"],
    node("Transpose", "qr", "qt", perm=[0, 2, 1, 3]),
    node("Transpose", "kr", "kt", perm=[0, 2, 3, 1]),
    node("Transpose", "vr", "vt", perm=[0, 2, 1, 3]),
    node("MatMul", "qt kt", "s"),
    node("Mul", "s scale", "ss"),
    node("Softmax", "ss", "p", axis=-1),
    node("MatMul", "p vt", "o"),
    node("Transpose", "o", "ot", perm=[0, 2, 1, 3]),
    node("Reshape", "ot whole", "r"),
    node("Add", "r x0"),
]
case(
    "net_attention",
    ATTENTION,
    [numbers(1, 6, 8)],
    weights={
        "wq": numbers(8, 8),
        "wk": numbers(8, 8, seed=1),
        "wv": numbers(8, 8, seed=2),
        "heads": ints(1, 6, 2, 4),
        "whole": ints(1, 6, 8),
        "scale": np.array(0.5, np.float32),
    },
)

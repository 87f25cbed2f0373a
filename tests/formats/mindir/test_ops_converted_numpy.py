"""Ops of MindSpore Lite's dialect that no fixture has, or not in all forms, against calculations by hand."""

import math
from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.tape import RefusedError

F32, I32, BOOL = np.float32, np.int32, np.bool_
ROWS = np.array([[-3, -1, -0.5, 0], [0.5, 1, 2, 7]], F32)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape).astype(F32)


def only(name: str, operands: list[Any], engine: str, attributes: dict[str, Any] | None = None, **more: Any) -> Any:
    """The one result of an op, float32 unless told otherwise."""
    (result,) = run_op(name, operands, [more.pop("dtype", F32)], engine, attributes=attributes, **more)
    return result


# Activation functions ------------------------------------------------------------------------------------------------

ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    0: lambda x: x,
    1: lambda x: np.maximum(x, 0),
    2: lambda x: 1 / (1 + np.exp(-x)),
    3: lambda x: np.clip(x, 0, 6),
    4: lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)),
    5: lambda x: np.where(x > 0, x, 0.5 * x),
    6: np.abs,
    8: lambda x: x / (1 + np.abs(x)),
    9: lambda x: np.log1p(np.exp(x)),
    10: np.tanh,
    12: lambda x: x * np.clip(x + 3, 0, 6) / 6,
    13: lambda x: np.clip(x + 3, 0, 6) / 6,
    15: lambda x: x,
    16: lambda x: np.clip(x, -1, 1.5),
    17: np.sign,
    18: lambda x: x / (1 + np.exp(-x)),
    19: lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2))),
    20: lambda x: x / (1 + np.exp(-1.702 * x)),
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activation(kind: int, engine: str) -> None:
    details = {"activation_type": kind, "alpha": 0.5, "min_val": -1.0, "max_val": 1.5}
    assert_close(only("Activation", [ROWS], engine, details), ACTIVATIONS[kind](ROWS).astype(F32))


def test_activation_by_the_sources_default_slope(engine: str) -> None:
    assert_close(only("Activation", [ROWS], engine, {"activation_type": 4}), np.where(ROWS > 0, ROWS, np.expm1(ROWS)))
    leaky = only("Activation", [ROWS], engine, {"activation_type": 5})
    assert_close(leaky, np.where(ROWS > 0, ROWS, ROWS * F32(0.01)))


@pytest.mark.parametrize("kind", [7, 14, 21])
def test_activation_of_no_known_meaning_is_refused(kind: int) -> None:
    with pytest.raises(RefusedError, match=f"activation function {kind}"):
        only("Activation", [ROWS], "onnxruntime", {"activation_type": kind})


def test_gelu_by_tanh(engine: str) -> None:
    inner = math.sqrt(2 / math.pi) * (ROWS + 0.044715 * ROWS**3)
    wanted = (0.5 * ROWS * (1 + np.tanh(inner))).astype(F32)
    assert_close(only("Activation", [ROWS], engine, {"activation_type": 19, "approximate": True}), wanted)


def test_leaky_relu_and_clip(engine: str) -> None:
    assert_close(only("LeakyRelu", [ROWS], engine, {"negative_slope": 0.25}), np.where(ROWS > 0, ROWS, ROWS / 4))
    assert_close(only("Clip", [ROWS], engine, {"min": -1.0, "max": 2.0}), np.clip(ROWS, -1, 2))
    low, high = np.array([-1], F32), np.array([2], F32)
    assert_close(only("Clip", [ROWS, low, high], engine, {"min": -3e38, "max": 3e38}), np.clip(ROWS, -1, 2))


# Arithmetic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function"),
    [("AddFusion", np.add), ("SubFusion", np.subtract), ("MulFusion", np.multiply), ("DivFusion", np.divide)],
)
def test_elementwise(name: str, function: Any, engine: str) -> None:
    other = np.array([2, -1, 4, 0.5], F32)
    wanted = np.clip(function(ROWS, other), 0, 6).astype(F32)
    assert_close(only(name, [ROWS, other], engine, {"activation_type": 3}), wanted)


def test_division_of_integers_cuts(engine: str) -> None:
    result = only("DivFusion", [np.array([7, 9], I32), np.array([2, 3], I32)], engine, dtype=I32)
    assert_close(result, np.array([3, 3], I32))


@pytest.mark.parametrize(("mode", "function"), [(0, np.multiply), (1, np.add), (2, np.maximum)])
def test_eltwise_of_three(mode: int, function: Any, engine: str) -> None:
    a, b, c = (numbers(2, 3, seed=seed) for seed in range(3))
    assert_close(only("Eltwise", [a, b, c], engine, {"mode": mode}), function(function(a, b), c))


def test_powers(engine: str) -> None:
    x = np.array([1, 2, 3], F32)
    assert_close(only("PowFusion", [x, np.array(2, F32)], engine, {"scale": 2.0, "shift": 1.0}), (2 * x + 1) ** 2)
    assert_close(only("ExpFusion", [x], engine, {"base": 2.0, "scale": 2.0, "shift": -1.0}), 2 ** (2 * x - 1))
    assert_close(only("ExpFusion", [x], engine, {"base": -1.0}), np.exp(x))


@pytest.mark.parametrize("axis", [1, -3])
def test_scale_from_an_axis_on(axis: int, engine: str) -> None:
    x, scale, offset = numbers(2, 3, 4, 5), numbers(3, 4, seed=1), numbers(3, 4, seed=2)
    wanted = np.maximum(x * scale[..., None] + offset[..., None], 0)
    assert_close(only("ScaleFusion", [x, scale, offset], engine, {"axis": axis, "activation_type": 1}), wanted)


def test_full_connection(engine: str) -> None:
    x, weight, bias = numbers(2, 3, 4), numbers(5, 12, seed=1), numbers(5, seed=2)
    flat = x.reshape(2, 12) @ weight.T + bias
    assert_close(only("FullConnection", [x, weight, bias], engine, ranks=[2]), flat)
    along = only("FullConnection", [x, weight], engine, {"use_axis": True, "axis": 1}, ranks=[2])
    assert_close(along, x.reshape(2, 12) @ weight.T)
    last = numbers(5, 4, seed=3)
    assert_close(only("FullConnection", [x, last], engine, {"use_axis": True, "axis": 2}), x @ last.T)


@pytest.mark.parametrize(("left", "right"), [(False, True), (True, False), (True, True)])
def test_mat_mul_fusion(left: bool, right: bool, engine: str) -> None:
    a, b, bias = numbers(2, 3, 4), numbers(2, 4, 5, seed=1), numbers(5, seed=2)
    operands = [a.swapaxes(1, 2).copy() if left else a, b.swapaxes(1, 2).copy() if right else b, bias]
    details = {"transpose_a": left, "transpose_b": right, "activation_type": 1}
    assert_close(only("MatMulFusion", operands, engine, details), np.maximum(a @ b + bias, 0))


# Reductions ----------------------------------------------------------------------------------------------------------

REDUCTIONS = {
    0: np.mean,
    1: np.max,
    2: np.min,
    3: np.prod,
    4: np.sum,
    5: lambda x, axis: np.sum(x * x, axis),
    6: lambda x, axis: np.sum(np.abs(x), axis),
    8: lambda x, axis: np.sqrt(np.sum(x * x, axis)),
}


@pytest.mark.parametrize("mode", REDUCTIONS)
def test_reduce(mode: int, engine: str) -> None:
    x = numbers(2, 3, 4) - 3
    axes = np.array([0, -1], I32)
    assert_close(only("ReduceFusion", [x, (0, -1)], engine, {"mode": mode}, ranks=[1]), REDUCTIONS[mode](x, (0, 2)))
    assert axes.size == 2


def test_reduce_to_the_end_and_all(engine: str) -> None:
    x = numbers(2, 3, 4)
    ended = only(
        "ReduceFusion",
        [x, (1,)],
        engine,
        {"mode": 4, "reduce_to_end": True, "coeff": 0.5, "keep_dims": True},
        ranks=[1],
    )
    assert_close(ended, x.sum((1, 2)) * F32(0.5))
    truths = np.array([[True, False], [True, True]])
    assert_close(only("ReduceFusion", [truths, (1,)], engine, {"mode": 7}, dtype=BOOL, ranks=[1]), truths.all(1))
    assert_close(only("All", [truths, (0,)], engine, {"keep_dims": 1}, dtype=BOOL), truths.all(0, keepdims=True))
    with pytest.raises(RefusedError, match="mode 9"):
        only("ReduceFusion", [x], engine, {"mode": 9})


def test_extremes(engine: str) -> None:
    x = np.array([[3, 1, 2], [0, 5, 5]], F32)
    assert_close(only("ArgMaxFusion", [x], engine, {"axis": 1}, dtype=I32, ranks=[1]), np.array([0, 1], I32))
    assert_close(
        only("ArgMinFusion", [x], engine, {"axis": -1, "keep_dims": True}, dtype=I32), np.array([[1], [0]], I32)
    )
    values = only("ArgMaxFusion", [x], engine, {"axis": 1, "top_k": 2, "out_max_value": True})
    assert_close(values, np.array([[3, 2], [5, 5]], F32))
    places, found = run_op("ArgMaxFusion", [x], [I32, F32], engine, attributes={"axis": 1, "keep_dims": True})
    assert_close(places, np.array([[0], [1]], I32))
    assert_close(found, np.array([[3], [5]], F32))


def test_top_k_in_the_operands_order(engine: str) -> None:
    x = np.array([[1, 9, 3, 7]], F32)
    values, places = run_op("TopKFusion", [x, 3], [F32, I32], engine, attributes={"sorted": False, "axis": 1})
    assert_close(values, np.array([[9, 3, 7]], F32))
    assert_close(places, np.array([[1, 2, 3]], I32))


# Arrays --------------------------------------------------------------------------------------------------------------


def test_slices(engine: str) -> None:
    x = numbers(4, 5, 6)
    assert_close(only("SliceFusion", [x, (1, 2), (2, -1)], engine, {"axes": (0, 2)}), x[1:3, :, 2:])
    assert_close(only("SliceFusion", [x, (1, 0, 2), (2, 5, 3)], engine), x[1:3, :, 2:5])
    model = numbers(4, 2, 3)
    assert_close(only("Crop", [x, model], engine, {"axis": 1, "offsets": (2, 1)}), x[:, 2:4, 1:4])
    assert_close(only("Crop", [x, model], engine, {"axis": 1, "offsets": (1,)}), x[:, 1:3, 1:4])


def test_pads_and_tiles(engine: str) -> None:
    x = numbers(2, 3)
    for mode, word in enumerate(("constant", "reflect", "symmetric")):
        fill = {"constant_values": 1.5} if mode == 0 else {}
        wanted = np.pad(x, ((0, 1), (2, 1)), word, **fill)
        details = {"padding_mode": mode, "constant_value": 1.5}
        assert_close(only("PadFusion", [x, ((0, 1), (2, 1))], engine, details), wanted)
    assert_close(only("TileFusion", [x, (3,)], engine, {"dims": (1,)}), np.tile(x, (1, 3)))


def test_split_with_overlap(engine: str) -> None:
    x = numbers(1, 10, 2)
    details = {"split_dim": 1, "number_split": 2, "ratio": (1, 2), "extend_top": (0, 1), "extend_bottom": (2, 0)}
    first, second = run_op("SplitWithOverlap", [x], [F32, F32], engine, attributes=details, static=True)
    assert_close(first, x[:, :6])
    assert_close(second, x[:, 3:])


def test_format_transpose(engine: str) -> None:
    x = numbers(1, 2, 3, 4)
    assert_close(only("FormatTranspose", [x], engine, {"src_format": 1, "dst_format": 0}), x.transpose(0, 3, 1, 2))
    assert_close(only("FormatTranspose", [x], engine, {"src_format": 0, "dst_format": 1}), x.transpose(0, 2, 3, 1))
    assert_close(only("FormatTranspose", [x], engine, {"src_format": 1, "dst_format": 1}), x)


def test_made_from_numbers(engine: str) -> None:
    shape = np.array([2, 3], I32)
    full = only("ConstantOfShape", [shape], engine, {"value": (2.5,), "data_type": 43}, ranks=[2], static=True)
    assert_close(full, np.full((2, 3), 2.5, F32))
    assert_close(only("Fill", [np.array(7, F32), (2, 3)], engine, ranks=[2]), np.full((2, 3), 7, F32))
    places = np.array([[0, 1], [1, 2]], I32)
    dense = only("SparseToDense", [places, (2, 3), np.array([5, 6], F32), np.array(-1, F32)], engine, ranks=[2])
    assert_close(dense, np.array([[-1, 5, -1], [-1, -1, 6]], F32))
    order = np.array([2, 0, 3, 1], I32)
    assert_close(only("InvertPermutation", [order], engine, dtype=I32), np.array([1, 3, 0, 2], I32))


def test_places_and_choices(engine: str) -> None:
    x = np.array([[0, 2], [3, 0]], F32)
    assert_close(only("Where", [x], engine, dtype=I32), np.array([[0, 1], [1, 0]], I32))
    assert_close(only("LiteNonZero", [x], engine, dtype=I32), np.array([[0, 1], [1, 0]], I32).T)
    assert_close(only("Where", [x > 1, x, -x], engine), np.where(x > 1, x, -x))
    scattered = only("ScatterElements", [x, np.array([[1], [0]], I32), np.array([[8], [9]], F32)], engine, {"axis": 1})
    assert_close(scattered, np.array([[0, 8], [9, 0]], F32))


def test_ragged_range(engine: str) -> None:
    starts, limits, deltas = np.array([2, 5, 0], I32), np.array([5, 5, 7], I32), np.array([1, 1, 3], I32)
    splits, values = run_op("RaggedRange", [starts, limits, deltas], [I32, I32], engine)
    assert_close(splits, np.array([0, 3, 3, 6], I32))
    assert_close(values, np.array([2, 3, 4, 0, 3, 6], I32))


def test_embedding_lookup_of_two_tables(engine: str) -> None:
    first, second = numbers(2, 3), numbers(4, 3, seed=1)
    places = np.array([[0, 5], [2, 1]], I32)
    result = only("EmbeddingLookupFusion", [first, second, places], engine, {"max_norm": 0.0}, ranks=[3])
    assert_close(result, np.concatenate([first, second])[places])
    with pytest.raises(RefusedError, match="norm"):
        only("EmbeddingLookupFusion", [first, places], engine, {"max_norm": 1.0})


def test_a_custom_op_is_refused_by_its_type() -> None:
    with pytest.raises(RefusedError, match="'MyOp'"):
        only("Custom", [ROWS], "onnxruntime", {"type": "MyOp"})


# Speech and adder nets -----------------------------------------------------------------------------------------------


def test_splice_and_affine(engine: str) -> None:
    x, weight, bias = numbers(1, 5, 3), numbers(4, 9, seed=1), numbers(4, seed=2)
    rows = [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    wide = np.stack([np.concatenate([x[0, row] for row in window]) for window in rows])[None]
    details = {"context": (-1, 0, 1), "forward_indexes": (0, 1, 2, 1, 2, 3, 2, 3, 4)}
    assert_close(only("Splice", [x], engine, details), wide)
    details = {"context": (-1, 0, 1), "transpose_b": True, "activation_type": 1}
    assert_close(only("Affine", [x, weight, bias], engine, details), np.maximum(wide @ weight.T + bias, 0))


@pytest.mark.parametrize("layout", [0, 1])
def test_adder(layout: int, engine: str) -> None:
    x, weight, bias = numbers(1, 2, 4, 5), numbers(3, 2, 2, 2, seed=1), numbers(3, seed=2)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
    wanted = np.zeros((1, 3, 4, 5), F32)
    for row in range(4):
        for column in range(5):
            window = padded[0, :, row : row + 2, column : column + 2]
            wanted[0, :, row, column] = bias - np.abs(window - weight).sum((1, 2, 3))
    details = {"pad_mode": 0, "pad_list": (1, 0, 0, 1), "format": layout}
    operands, result = [x, weight, bias], wanted
    if layout:
        operands = [x.transpose(0, 2, 3, 1).copy(), weight.transpose(0, 2, 3, 1).copy(), bias]
        result = wanted.transpose(0, 2, 3, 1)
    assert_close(only("AdderFusion", operands, engine, details, static=True), result)


# Quantisation --------------------------------------------------------------------------------------------------------


def test_quantized_weights(engine: str) -> None:
    weight = np.array([[-128, 0, 127], [5, 6, 7]], np.int8)
    details = {
        "scale_list": (0.5, 0.25),
        "zero_point_list": (2, -1),
        "var_corr_list": (1.0, 2.0),
        "mean_corr_list": (0.0, 0.125),
        "channel_axis": 0,
    }
    scale, zero, mean = np.array([[0.5], [0.5]]), np.array([[2], [-1]]), np.array([[0], [0.125]])
    assert_close(only("QuantDTypeCast", [weight], engine, details), ((weight - zero) * scale + mean).astype(F32))
    one = {"scale_list": (0.5,), "zero_point_list": (3,)}
    assert_close(only("QuantDTypeCast", [weight], engine, one), ((weight.astype(F32) - 3) * 0.5).astype(F32))
    with pytest.raises(RefusedError, match="when the model runs"):
        only("QuantDTypeCast", [ROWS], engine, one, dtype=np.int8)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("axes", [(), (0,)])
def test_dynamic_quant(symmetric: bool, axes: tuple[int, ...], engine: str) -> None:
    x = numbers(3, 40)
    over = (1,) if axes else (0, 1)
    low, high = x.min(over, keepdims=True), x.max(over, keepdims=True)
    if symmetric:
        scale, zero = np.maximum(abs(low), abs(high)) / 127, 0
    else:
        scale = (high - low) / 255
        zero = np.round(-128 - low / scale)
    wanted = (np.clip(np.round(x / scale + zero), -128, 127) - zero) * scale
    result = only("DynamicQuant", [x], engine, {"symmetric": symmetric, "prefer_axes": axes})
    assert_close(result, wanted.astype(F32))
    assert len(np.unique(result)) <= 256 * len(x)
    assert np.abs(result - x).max() > 1e-4


def test_fake_quant(engine: str) -> None:
    x = np.linspace(-2.013, 3.021, 41, dtype=F32)
    low, high = F32(-1), F32(2)
    scale = (high - low) / 255
    zero = np.round(-low / scale)
    bottom, top = -zero * scale, (255 - zero) * scale
    wanted = np.floor((np.clip(x, bottom, top) - bottom) / scale + 0.5) * scale + bottom
    operands = [x, np.array(low, F32), np.array(high, F32)]
    assert_close(only("FakeQuantWithMinMaxVars", operands, engine, {"num_bits": 8}), wanted.astype(F32))


# Recurrent -----------------------------------------------------------------------------------------------------------


def test_gru(engine: str) -> None:
    x, w, r = numbers(4, 2, 3), numbers(1, 15, 3, seed=1), numbers(1, 15, 5, seed=2)
    b, h = numbers(1, 30, seed=3), numbers(1, 2, 5, seed=4)

    def sigmoid(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    state, states = h[0], []
    (wz, wr, wn), (rz, rr, rn) = np.split(w[0], 3), np.split(r[0], 3)
    bz, br, bn, cz, cr, cn = np.split(b[0], 6)
    for step in x:
        update = sigmoid(step @ wz.T + bz + state @ rz.T + cz)
        reset = sigmoid(step @ wr.T + br + state @ rr.T + cr)
        new = np.tanh(step @ wn.T + bn + (reset * state) @ rn.T + cn)
        state = update * state + (1 - update) * new
        states.append(state)
    y, last = run_op("GRU", [x, w, r, b, h], [F32, F32], engine, ranks=[4, 3], static=True)
    assert_close(y, np.stack(states)[:, None].astype(F32))
    assert_close(last, state[None].astype(F32))


# Detection -----------------------------------------------------------------------------------------------------------


def test_prior_box(engine: str) -> None:
    features = numbers(1, 3, 2, 2)
    details = {
        "min_sizes": (8,),
        "max_sizes": (18,),
        "aspect_ratios": (1.0, 2.0),
        "flip": True,
        "variances": (0.1, 0.1, 0.2, 0.2),
        "image_size_w": 32,
        "image_size_h": 64,
        "offset": 0.5,
    }
    sides = [(8, 8), (12, 12), (8 * 2**0.5, 8 / 2**0.5), (8 / 2**0.5, 8 * 2**0.5)]
    boxes = [
        ((column + 0.5) / 2 + sign * width / 32 / 2, (row + 0.5) / 2 + sign * height / 64 / 2)
        for row in range(2)
        for column in range(2)
        for width, height in sides
        for sign in (-1, 1)
    ]
    flat = np.concatenate([np.ravel(boxes), np.tile([0.1, 0.1, 0.2, 0.2], 16)])
    result = only("PriorBox", [features, numbers(1, 3, 64, 32)], engine, details, static=True)
    assert_close(result, flat.reshape(1, -1, 1, 2).astype(F32))


@pytest.mark.parametrize("regular", [False, True])
def test_detection_post_process(regular: bool, engine: str) -> None:
    anchors = np.array([[0.5, 0.5, 1, 1], [0.5, 0.55, 1, 1], [0.5, 3.5, 1, 1]], F32)
    boxes = np.zeros((1, 3, 4), F32)
    boxes[0, 2] = [1, 2, 0, 0]  # 0.1 down and 0.2 to the right of its anchor
    scores = np.array([[[0, 0.9, 0.2], [0, 0.8, 0.1], [0, 0.3, 0.7]]], F32)
    details = {
        "scale": (10.0, 10.0, 5.0, 5.0),
        "nms_iou_threshold": 0.5,
        "nms_score_threshold": 0.3,
        "max_detections": 4,
        "detections_per_class": 4,
        "max_classes_per_detection": 1,
        "num_classes": 2,
        "use_regular_nms": regular,
    }
    results = run_op("DetectionPostProcess", [boxes, scores, anchors], [F32] * 4, engine, [3, 2, 2, 1], details)
    near, far = [0, 0, 1, 1], [0.1, 3.2, 1.1, 4.2]
    rows = [near, far, far] if regular else [near, far]
    classes, best = ([0, 1, 0], [0.9, 0.7, 0.3]) if regular else ([0, 1], [0.9, 0.7])
    missing = 4 - len(rows)
    assert_close(results[0], np.array([[*rows, *[[0] * 4] * missing]], F32))
    assert_close(results[1], np.array([[*classes, *[0] * missing]], F32))
    assert_close(results[2], np.array([[*best, *[0] * missing]], F32))
    assert_close(results[3], np.array([len(rows)], F32))


# Layouts -------------------------------------------------------------------------------------------------------------

IMAGES = numbers(4, 8, 4, 6)
VECTORS = [np.abs(numbers(8, seed=seed)) + F32(0.5) for seed in range(4)]
PLAIN: dict[str, Any] = {"stride": (2, 1), "dilation": (1, 2), "pad_list": (1, 0, 2, 1), "activation_type": 1}
POOL: dict[str, Any] = {"kernel_size": (3, 2), "strides": (2, 2), "pad": (1, 0, 0, 1)}
BLOCKS: dict[str, Any] = {"block_shape": (2, 3), "paddings": ((0, 0), (1, 2))}
LAYOUTS: dict[str, tuple[str, list[np.ndarray], dict[str, Any]]] = {
    "conv": ("Conv2DFusion", [numbers(5, 8, 3, 2), numbers(5)], {**PLAIN, "kernel_size": (3, 2)}),
    "conv_same": ("Conv2DFusion", [numbers(8, 1, 3, 3)], {**PLAIN, "kernel_size": (3, 3), "pad_mode": 1, "group": 8}),
    "deconv": ("Conv2dTransposeFusion", [numbers(8, 3, 3, 2), numbers(3)], {**PLAIN, "output_paddings": (1, 0)}),
    "maxpool": ("MaxPoolFusion", [], {**POOL, "round_mode": 1}),
    "avgpool": ("AvgPoolFusion", [], {**POOL, "activation_type": 1}),
    "global": ("AvgPoolFusion", [], {"global": True}),
    "global_max": ("MaxPoolFusion", [], {"global": True}),
    "instancenorm": ("InstanceNorm", VECTORS[:2], {"epsilon": 1e-3}),
    "batchnorm": ("BatchNorm", VECTORS, {"epsilon": 1e-3}),
    "fused_batchnorm": ("FusedBatchNorm", VECTORS, {"epsilon": 1e-3}),
    "groupnorm": ("GroupNormFusion", VECTORS[:2], {"num_groups": 4, "epsilon": 1e-3}),
    "prelu": ("PReLUFusion", VECTORS[:1], {}),
    "lrn": ("LRN", [], {"depth_radius": 2, "alpha": 0.3, "beta": 0.5, "bias": 1.5}),
    "resize": ("Resize", [], {"new_height": 7, "new_width": 9, "coordinate_transform_mode": 2}),
    "resize_nearest": ("Resize", [], {"new_height": 8, "new_width": 9, "method": 1}),
    "depth_to_space": ("DepthToSpace", [], {"block_size": 2}),
    "depth_to_space_crd": ("DepthToSpace", [], {"block_size": 2, "mode": "CRD"}),
    "space_to_depth": ("SpaceToDepth", [], {"block_size": 2}),
    "bias": ("BiasAdd", VECTORS[:1], {}),
    "space_to_batch": ("SpaceToBatchND", [], BLOCKS),
    "batch_to_space": ("BatchToSpaceND", [], {"block_shape": (2, 2), "crops": ((1, 0), (0, 2))}),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_channels_last_as_channels_first(case: str, engine: str) -> None:
    """Channels first is what the fixtures prove."""
    name, weights, details = LAYOUTS[case]
    first = only(name, [IMAGES, *weights], engine, {**details, "format": 0}, static=True)
    turned = [weight.transpose(0, 2, 3, 1).copy() if weight.ndim == 4 else weight for weight in weights]
    images = IMAGES.transpose(0, 2, 3, 1).copy()
    last = only(name, [images, *turned], engine, {**details, "format": 1}, static=True)
    assert_close(last, first.transpose(0, 2, 3, 1))


def test_blocks_between_space_and_batch(engine: str) -> None:
    x = numbers(1, 4, 6, 2)
    details = {"block_shape": (2, 3), "paddings": ((0, 0), (0, 0)), "format": 1}
    wanted = np.concatenate([x[:, row::2, column::3] for row in range(2) for column in range(3)])
    assert_close(only("SpaceToBatchND", [x], engine, details, static=True), wanted)
    back = {"block_shape": (2, 3), "crops": ((0, 0), (0, 0)), "format": 1}
    assert_close(only("BatchToSpaceND", [wanted], engine, back, static=True), x)
    square = {"block_size": (2, 2), "paddings": ((0, 0), (0, 0)), "format": 1}
    pieces = np.concatenate([x[:, row::2, column::2] for row in range(2) for column in range(2)])
    assert_close(only("SpaceToBatch", [x], engine, square, static=True), pieces)


def test_norms(engine: str) -> None:
    x = numbers(2, 6)
    root = np.sqrt(np.maximum((x * x).sum(1, keepdims=True), 1e-6))
    assert_close(only("L2NormalizeFusion", [x], engine, {"axis": (-1,), "epsilon": 1e-6}), x / root)
    assert_close(only("LpNormalization", [x], engine, {"axis": 1, "p": 1}), x / np.abs(x).sum(1, keepdims=True))
    gamma, beta = numbers(6, seed=1), numbers(6, seed=2)
    centred = x - x.mean(1, keepdims=True)
    wanted = centred / np.sqrt(x.var(1, keepdims=True) + 1e-3) * gamma + beta
    details = {"begin_norm_axis": -1, "begin_params_axis": -1, "epsilon": 1e-3}
    assert_close(only("LayerNormFusion", [x, gamma, beta], engine, details), wanted)
    images = numbers(2, 4, 3, 3)
    groups = images.reshape(2, 2, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-3)
    scale, offset = numbers(4, seed=1), numbers(4, seed=2)
    result = only("GroupNormFusion", [images, scale, offset], engine, {"num_groups": 2, "epsilon": 1e-3})
    assert_close(result, normal.reshape(images.shape) * scale[:, None, None] + offset[:, None, None])


def test_distinct_floats_in_the_order_of_appearance(engine: str) -> None:
    x = np.array([3, 1, 2, 1, 5, 3, 0.5], F32)
    values, places = run_op("Unique", [x], [F32, I32], engine, ranks=[1, 1])
    assert_close(values, np.array([3, 1, 2, 5, 0.5], F32))
    assert_close(places, np.array([0, 1, 2, 1, 3, 0, 4], I32))

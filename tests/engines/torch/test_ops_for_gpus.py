"""Ops that ONNX Runtime's optimiser writes for GPUs, and that it has nowhere else: numpy tells what they are."""

from typing import Any

import numpy as np
import pytest
from engines.torch import against_runtime
from engines.torch.against import numbers, one_op
from engines.torch.onnx_cases import check
from formats.onnx_runs import direct

from litehouse import EngineError, Options, read
from litehouse.engines.torch.engine import TorchEngine

X, BIAS = numbers(2, 3, 8), numbers(8, seed=1)
Inputs = list[np.ndarray | None]


def gives(op: str, inputs: Inputs, *expected: np.ndarray, tolerance: float = 1e-5, **attributes: Any) -> None:
    """Torch computes these numbers."""
    dtypes = [array.dtype for array in expected]
    model = one_op(op, inputs, domain="com.microsoft", dtypes=dtypes, outputs=len(expected), **attributes)
    given = {f"x{place}": array for place, array in enumerate(inputs) if array is not None}
    for ours, theirs in zip(against_runtime.run(model, given), expected, strict=True):
        check(ours, theirs, tolerance, tolerance)


def is_refused(op: str, inputs: Inputs, **attributes: Any) -> None:
    """Nobody computes it, and the error names it."""
    model = one_op(op, inputs, domain="com.microsoft", dtypes=["float32"], **attributes)
    runner = TorchEngine().compile(read(model), Options(engine="torch", cache=False)).bind()
    with pytest.raises(EngineError, match=op):
        runner.run([array for array in inputs if array is not None])


def of_onnx(op: str, inputs: Inputs, **attributes: Any) -> np.ndarray:
    """What ONNX Runtime computes for an op of ONNX, or of its own on the CPU."""
    model = one_op(op, inputs, dtypes=["float32"], **attributes)
    return direct(model, {f"x{place}": array for place, array in enumerate(inputs) if array is not None})[0]


def gelu(x: np.ndarray) -> np.ndarray:
    return of_onnx("Gelu", [x], opset=20)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_sums_with_biases() -> None:
    skip = numbers(2, 3, 8, seed=2)
    gives("BiasAdd", [X, BIAS, skip], X + BIAS + skip)
    left, right = np.split(X + BIAS, 2, -1)
    gives("BiasSplitGelu", [X, BIAS], left * gelu(right))


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_bias_before_softmax(axis: int) -> None:
    x = numbers(2, 3, 4, 5)
    axes = tuple(range(axis % 4, 4))
    alone = [size if place in axes else 1 for place, size in enumerate(x.shape)][1:]  # of the axes of the sum
    for is_inner, sizes in ((1, [2, *alone]), (0, [1, *alone]), (0, alone), (0, [3, 4, 5])):
        bias = numbers(*sizes, seed=1)
        scores = np.exp(x + bias)
        expected = scores / scores.sum(axes, keepdims=True)
        gives("BiasSoftmax", [x, bias], expected, axis=axis, is_inner_broadcast=is_inner)


@pytest.mark.parametrize(("sizes", "is_inner"), [((3, 4, 5), 1), ((2, 1, 4, 5), 0), ((4, 1), 0)])
def test_bias_that_is_spread_over_other_axes(sizes: tuple[int, ...], is_inner: int) -> None:
    is_refused("BiasSoftmax", [numbers(2, 3, 4, 5), numbers(*sizes)], axis=3, is_inner_broadcast=is_inner)


def test_products_with_activations() -> None:
    weight = numbers(8, 5, seed=2)
    for bias in (None, numbers(5, seed=3)):
        product = X @ weight if bias is None else X @ weight + bias
        expected = of_onnx("Gelu", [product], opset=20, approximate="tanh")
        gives("GemmFastGelu", [X, weight, *([] if bias is None else [bias])], expected)
    product = 0.5 * X.swapaxes(1, 2) @ weight[:3]
    options = {"transA": 1, "alpha": 0.5}
    gives("FusedMatMulActivation", [X, weight[:3]], np.maximum(product, 0), activation="Relu", **options)
    gives("FusedMatMulActivation", [X, weight[:3]], np.tanh(product), activation="Tanh", **options)
    leaky = np.where(product > 0, product, 0.3 * product)
    gives("FusedMatMulActivation", [X, weight[:3]], leaky, activation="LeakyRelu", activation_alpha=0.3, **options)
    is_refused("FusedMatMulActivation", [X, weight[:3]], activation="Selu", **options)
    is_refused("FusedMatMulActivation", [X, weight[:3]], activation="Softmax", activation_axis=1, **options)


def normal_groups(x: np.ndarray, groups: int) -> np.ndarray:
    """With channels last."""
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean, var = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    return ((parts - mean) / np.sqrt(var + 1e-3)).reshape(x.shape)


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_norms_of_groups(activation: int, channels_last: int) -> None:
    x, scale, bias, before = numbers(2, 4, 5, 12), numbers(12, seed=1), numbers(12, seed=2), numbers(12, seed=3)
    options = {"groups": 3, "epsilon": 1e-3, "activation": activation, "channels_last": channels_last}

    def placed(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array if channels_last else np.moveaxis(array, -1, 1))

    def expected(total: np.ndarray) -> np.ndarray:
        y = normal_groups(total, 3) * scale + bias
        return placed(y * sigmoid(y) if activation else y)

    gives("GroupNorm", [placed(x), scale, bias], expected(x), **options)
    full, short = numbers(2, 4, 5, 12, seed=4), numbers(2, 12, seed=5)
    for skip, given in ((full, placed(full)), (short[:, None, None], short)):
        total = x + skip
        gives("SkipGroupNorm", [placed(x), scale, bias, given], expected(total), placed(total), **options)
        total = total + before
        gives("SkipGroupNorm", [placed(x), scale, bias, given, before], expected(total), placed(total), **options)


def test_norms_of_groups_in_half_precision() -> None:
    """The weights are of 32 bits."""
    x, scale, bias = numbers(2, 4, 5, 12) * 50, numbers(12, seed=1), numbers(12, seed=2)
    expected = (normal_groups(x, 3) * scale + bias).astype(np.float16)
    options = {"groups": 3, "epsilon": 1e-3, "activation": 0, "tolerance": 1e-2}
    gives("GroupNorm", [x.astype(np.float16), scale, bias], expected, **options)


@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_with_channels_last(group: int) -> None:
    x, weight = numbers(2, 8, 6, 7), numbers(4, 8 // group, 3, 2, seed=1)
    bias, more = numbers(4, seed=2), numbers(2, 4, 3, 8, seed=3)
    options: dict[str, Any] = {"group": group, "strides": [2, 1], "pads": [1, 1, 0, 1]}
    plain = of_onnx("Conv", [x, weight, bias], **options)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    turned = np.ascontiguousarray(np.moveaxis(weight, 1, -1))
    expected = np.ascontiguousarray(np.moveaxis(plain, 1, -1))
    gives("NhwcConv", [last, turned, bias], expected, kernel_shape=[3, 2], tolerance=1e-4, **options)
    gives("NhwcConv", [last, weight, bias], expected, tolerance=1e-4, **options)
    gives("NhwcFusedConv", [last, weight, bias], expected, tolerance=1e-4, **options)
    total = np.ascontiguousarray(np.moveaxis(np.maximum(plain + more, 0), 1, -1))
    inputs = [last, weight, bias, np.ascontiguousarray(np.moveaxis(more, 1, -1))]
    gives("NhwcFusedConv", inputs, total, activation="Relu", tolerance=1e-4, **options)


def test_products_of_16_bits_without_a_sign() -> None:
    is_refused("MatMulInteger16", [np.ones((3, 4), np.uint16), np.ones((4, 2), np.int16)])


def test_skips_of_other_axes() -> None:
    inputs = [numbers(2, 4, 3, 4), numbers(4), numbers(4), numbers(2, 1, 1, 4)]
    is_refused("SkipGroupNorm", inputs, groups=2, activation=0, channels_last=0)


def test_convolutions_whose_weights_could_be_either() -> None:
    is_refused("NhwcConv", [numbers(1, 6, 6, 3), numbers(4, 3, 3, 3)], kernel_shape=[3, 3])


def test_fourier_transforms() -> None:
    x = numbers(2, 3, 8)
    half = np.fft.rfft(x).astype(np.complex64)
    gives("Rfft", [x], half.view(np.float32).reshape(2, 3, 5, 2), signal_ndim=1, onesided=1, normalized=0)
    parts = numbers(2, 3, 5, 2, seed=1)
    whole = np.fft.irfft(parts[..., 0] + 1j * parts[..., 1]).astype(np.float32)
    gives("Irfft", [parts], whole, signal_ndim=1)
    is_refused("Rfft", [x], signal_ndim=2)
    is_refused("Irfft", [parts], signal_ndim=1, normalized=1)


def test_complex_products() -> None:
    a, b = numbers(2, 3, 4, 2), numbers(3, 1, 2, seed=1)
    one, two = (array[..., 0] + 1j * array[..., 1] for array in (a, b))
    for op, product in (("ComplexMul", one * two), ("ComplexMulConj", one * two.conj())):
        gives(op, [a, b], np.stack([product.real, product.imag], -1))


@pytest.mark.parametrize("is_bidirectional", [0, 1])
@pytest.mark.parametrize("is_known", [False, True])
def test_bias_by_distance(is_bidirectional: int, is_known: bool) -> None:
    """As T5 has it; the table's memory is by heads, though its sizes say otherwise."""
    count, buckets, heads, most = 40, 16, 3, 30
    table = numbers(buckets, heads)
    expected = np.zeros((1, heads, count, count), np.float32)
    for query in range(count):
        for key in range(count):
            back, bucket, part = query - key, 0, buckets
            if is_bidirectional:
                part //= 2
                bucket, back = (part if back < 0 else 0), abs(back)
            back, exact = max(back, 0), part // 2
            if back >= exact:
                far = np.log(np.float32(back / exact)) / np.log(np.float32(most / exact)) * np.float32(part - exact)
                back = min(exact + int(far), part - 1)
            expected[0, :, query, key] = table.reshape(heads, buckets)[:, bucket + back]
    lengths = np.array([count], np.int64)
    known = [1, 2] if is_known else []
    options = {"max_distance": most, "is_bidirectional": is_bidirectional}
    model = one_op(
        "RelativePositionBias",
        [table, lengths, lengths],
        known=known,
        domain="com.microsoft",
        dtypes=["float32"],
        **options,
    )
    given = {"x0": table} if is_known else {"x0": table, "x1": lengths, "x2": lengths}
    check(against_runtime.run(model, given)[0], expected, 0, 0)


def test_bias_by_distance_with_gates() -> None:
    heads, size, count, inside = 2, 4, 3, 8
    x, x_bias, places = numbers(2, count, heads * size), numbers(heads * size, seed=1), numbers(1, heads, count, count)
    weight, bias, factors = numbers(size, inside, seed=3), numbers(inside, seed=4), numbers(1, heads, 1, 1, seed=5)
    queries = (x + x_bias).reshape(2, count, heads, size).swapaxes(1, 2)
    opened = sigmoid((queries @ weight + bias).reshape(2, heads, count, 2, inside // 2).sum(-1))
    update, reset = opened[..., :1], opened[..., 1:]
    expected = (update * (reset * factors - 1) + 2) * places
    inputs = [x, x_bias, places, weight, bias, factors]
    gives("GatedRelativePositionBias", inputs, expected, num_heads=heads)
    is_refused("GatedRelativePositionBias", [*inputs, np.zeros((2, count), np.int32)], num_heads=heads)

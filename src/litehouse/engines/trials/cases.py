"""Small networks, with what they return as NumPy computes it.

They are as large as it takes for an engine to pick the kernels that real networks get: whole blocks of channels, more
rows than a tile has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

OPSET = 17
STEP = 2.0**-7  # of quantised numbers; a power of two, so that they are exact as floats
WEIGHT_STEP = 2.0**-8
ZERO = 128


@dataclass(frozen=True, slots=True)
class Case:
    """A network of one output.

    Attributes:
        name: What it tries, in words.
        model: The network as ONNX bytes.
        inputs: What it takes.
        expected: What it returns.
        step: The step of the output where that is quantised: one more or less is no fault. 0 where it is not.
    """

    name: str
    model: bytes
    inputs: dict[str, np.ndarray]
    expected: np.ndarray
    step: float = 0.0


def float_cases() -> Iterator[Case]:
    """Networks of floats."""
    draw = _drawer(1)
    image, square = draw(1, 64, 20, 20), draw(64, 64, 3, 3)
    yield _convolution("a 3×3 convolution", image, square)
    yield _convolution("a 1×1 convolution", image, draw(96, 64, 1, 1))
    yield _convolution("a depthwise convolution", image, draw(64, 1, 3, 3), group=64)
    rows, matrix, bias = draw(48, 192), draw(192, 160), draw(160)
    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    yield _case("a matrix product", product, {"x": rows}, {"w": matrix}, _product(rows, matrix))
    gemm = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    yield _case("a linear layer", gemm, {"x": rows[:1]}, {"w": matrix, "b": bias}, _product(rows[:1], matrix) + bias)
    yield _attention(draw)
    yield _lstm(draw)


def int8_cases() -> Iterator[Case]:
    """Quantised networks: static and dynamic quantisation, and floats times int8 weights."""
    draw = _drawer(2)
    image = _on_grid(draw(1, 64, 20, 20))
    for name, sizes, group in (
        ("an int8 3×3 convolution", (64, 64, 3, 3), 1),
        ("an int8 1×1 convolution", (96, 64, 1, 1), 1),
        ("an int8 depthwise convolution", (64, 1, 3, 3), 64),
    ):
        kernel = _int8(draw(*sizes))
        node = helper.make_node("Conv", ["x'", "weight'"], ["sum"], pads=[sizes[-1] // 2] * 4, group=group)
        yield _quantised(name, node, image, kernel, _convolve(image, kernel * WEIGHT_STEP, group), axis=0)
    rows, matrix = _on_grid(draw(48, 192)), _int8(draw(192, 160))
    exact = _product(rows, matrix * WEIGHT_STEP)
    node = helper.make_node("MatMul", ["x'", "weight'"], ["sum"])
    yield _quantised("an int8 matrix product", node, rows, matrix, exact)
    nodes = [_weight_node(), helper.make_node("MatMul", ["x", "weight'"], ["y"])]
    weights = {"weight": matrix, "weight_step": np.float32(WEIGHT_STEP)}
    # Engines may quantise the floats too, as they see fit.
    yield _case("floats times int8 weights", nodes, {"x": rows}, weights, exact, step=float(np.abs(exact).max()) / 64)
    yield _small_weights(draw)
    yield from _integer_sums(draw)


def _small_weights(draw: Callable[..., np.ndarray]) -> Case:
    """Weights that plain arithmetic makes floats of, as Litehouse writes those of other formats; no rounding."""
    rows, matrix = draw(48, 192), _int8(draw(192, 160))
    zeros, steps = np.rint(draw(160) * 9), np.abs(draw(160)) + np.float32(0.1)
    nodes = [
        helper.make_node("Cast", ["weight"], ["whole"], to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))),
        helper.make_node("Sub", ["whole", "zeros"], ["moved"]),
        helper.make_node("Mul", ["moved", "steps"], ["floats"]),
        helper.make_node("MatMul", ["x", "floats"], ["y"]),
    ]
    expected = _product(rows, (matrix - zeros.astype(np.float64)) * steps)
    weights = {"weight": matrix, "zeros": zeros, "steps": steps}
    return _case("floats times small weights", nodes, {"x": rows}, weights, expected)


def _integer_sums(draw: Callable[..., np.ndarray]) -> Iterator[Case]:
    """What dynamic quantisation makes: bytes times bytes, summed as integers."""
    rows, matrix = _on_grid(draw(48, 192)), _int8(draw(192, 160))
    rows[0, :2] = 1.0, -1.0  # the range that the quantisation finds
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        helper.make_node("MatMulInteger", ["q", "weight", "zero"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["float"], to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))),
        helper.make_node("Mul", ["float", "step"], ["y"]),
    ]
    step = np.float32(2 / 255)
    quantised = np.clip(np.rint(rows / step) + np.rint(1 / step), 0, 255) - np.rint(1 / step)
    expected = _product(quantised, matrix) * step
    # Two engines may round one number of a row to neighbouring steps.
    yield _case(
        "a dynamically quantised product", nodes, {"x": rows}, {"weight": matrix}, expected, step=float(128 * step)
    )
    bytes_ = (draw(1, 32, 12, 12) * 127 + 128).astype(np.uint8)
    kernel, zero = _int8(draw(32, 32, 3, 3)), np.uint8(ZERO)
    nodes = [
        helper.make_node("ConvInteger", ["x", "weight", "zero"], ["sum"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["sum"], ["y"], to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))),
    ]
    expected = _convolve(bytes_.astype(np.float64) - ZERO, kernel, 1)
    yield _case("an integer convolution", nodes, {"x": bytes_}, {"weight": kernel, "zero": zero}, expected)


def _case(
    name: str,
    nodes: Sequence[Any],
    inputs: dict[str, np.ndarray],
    weights: dict[str, Any],
    expected: np.ndarray,
    *,
    step: float = 0.0,
) -> Case:
    def info(label: str, array: np.ndarray) -> Any:
        return helper.make_tensor_value_info(label, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    expected = expected.astype(np.float32)
    constants = [numpy_helper.from_array(np.asarray(array), label) for label, array in weights.items()]
    taken = [info(label, array) for label, array in inputs.items()]
    graph = helper.make_graph(nodes, "trial", taken, [info("y", expected)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return Case(name, model.SerializeToString(), inputs, expected, step)


def _drawer(seed: int) -> Callable[..., np.ndarray]:
    """A function that gives an array of these sizes with numbers from -1 to 1."""
    generator = np.random.default_rng(seed)
    return lambda *sizes: generator.uniform(-1, 1, sizes).astype(np.float32)


# Floats ---------------------------------------------------------------------------------------------------------------


def _convolve(image: np.ndarray, kernel: np.ndarray, group: int) -> np.ndarray:
    """A convolution of odd size that keeps height and width."""
    pad = kernel.shape[-1] // 2
    padded = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], (2, 3))
    parts = zip(np.split(windows, group, 1), np.split(kernel.astype(np.float64), group), strict=True)
    return np.concatenate([np.einsum("bchwij,ocij->bohw", *part) for part in parts], 1)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A matrix product without BLAS, which is one more library that may die on a strange CPU (seen)."""
    return np.asarray(np.einsum("...ij,...jk->...ik", left.astype(np.float64), right.astype(np.float64)))


def _convolution(name: str, image: np.ndarray, kernel: np.ndarray, group: int = 1) -> Case:
    pads = [kernel.shape[-1] // 2] * 4
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["sum"], pads=pads, group=group),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    return _case(name, nodes, {"x": image}, {"w": kernel}, np.maximum(_convolve(image, kernel, group), 0))


def _attention(draw: Callable[..., np.ndarray]) -> Case:
    query, key, value = (draw(1, 4, 48, 32) for _ in range(3))
    gain, shift = draw(32), draw(32)
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["bent"]),
        helper.make_node("LayerNormalization", ["bent", "gain", "shift"], ["y"], axis=-1),
    ]
    scores = np.exp(_product(query, key.swapaxes(2, 3)))
    mixed = np.tanh(_product(scores / scores.sum(-1, keepdims=True), value))
    centred = mixed - mixed.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + shift
    inputs = {"q": query, "k": key, "v": value}
    return _case("attention with layer normalisation", nodes, inputs, {"gain": gain, "shift": shift}, expected)


def _lstm(draw: Callable[..., np.ndarray]) -> Case:
    hidden = 48
    sequence, taken, kept = draw(6, 2, 64), draw(1, 4 * hidden, 64) / 8, draw(1, 4 * hidden, hidden) / 8
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["all"], hidden_size=hidden),
        helper.make_node("Squeeze", ["all", "axis"], ["y"]),
    ]
    state, cell, expected = np.zeros((2, hidden)), np.zeros((2, hidden)), []
    for step in sequence:
        gates = _product(step, taken[0].T) + _product(state, kept[0].T)
        into, out, forget = (1 / (1 + np.exp(-part)) for part in np.split(gates[:, : 3 * hidden], 3, 1))
        cell = forget * cell + into * np.tanh(gates[:, 3 * hidden :])
        state = out * np.tanh(cell)
        expected.append(state)
    weights = {"w": taken, "r": kept, "axis": np.array([1])}
    return _case("an LSTM", nodes, {"x": sequence}, weights, np.stack(expected))


# Quantised ------------------------------------------------------------------------------------------------------------


def _on_grid(array: np.ndarray, step: float = STEP) -> np.ndarray:
    """What is left of floats that are quantised and back."""
    return np.asarray(np.clip(np.rint(array / step), -ZERO, 255 - ZERO) * step, np.float32)


def _int8(weight: np.ndarray) -> np.ndarray:
    """Weights in 7 bits: with more, instruction sets older than VNNI may overflow where two products are added."""
    return np.asarray(np.rint(weight * 63), np.int8)


def _weight_node(**settings: Any) -> Any:
    return helper.make_node("DequantizeLinear", ["weight", "weight_step"], ["weight'"], **settings)


def _quantised(
    name: str, node: Any, x: np.ndarray, weight: np.ndarray, exact: np.ndarray, axis: int | None = None
) -> Case:
    """A node between quantised numbers; with `axis`, each channel of the weight has a step of its own."""
    step = float(2 ** np.ceil(np.log2(np.abs(exact).max() / 127)))
    weights = {"x_step": np.float32(STEP), "y_step": np.float32(step), "zero": np.uint8(ZERO), "weight": weight}
    settings = {} if axis is None else {"axis": axis}
    shape = () if axis is None else weight.shape[axis : axis + 1]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_step", "zero"], ["x/q"]),
        helper.make_node("DequantizeLinear", ["x/q", "x_step", "zero"], ["x'"]),
        _weight_node(**settings),
        node,
        helper.make_node("QuantizeLinear", ["sum", "y_step", "zero"], ["y/q"]),
        helper.make_node("DequantizeLinear", ["y/q", "y_step", "zero"], ["y"]),
    ]
    weights["weight_step"] = np.full(shape, WEIGHT_STEP, np.float32)
    return _case(name, nodes, {"x": x}, weights, _on_grid(exact, step), step=step)

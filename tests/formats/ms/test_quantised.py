"""Quantised weights and values in `.ms` files, against their definition written out in numpy."""

from typing import Any

import numpy as np
import pytest
from formats.ms.ms_builder import (
    ACTIVATION,
    ADD,
    CLUSTERS,
    COMPRESSION,
    GATHER,
    INT8,
    INT32,
    MATMUL,
    QUANT_CAST,
    QUANTISATION,
    RELU,
    RESHAPE,
    Numbers,
    flat,
    model,
    node,
    scale,
    tensor,
)

import litehouse
from conftest import assert_close

INT16, UINT8 = 33, 37
ALL, WEIGHTS = 5, 4  # kinds of quantisation that a node names
GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(2, 6)).astype(np.float32)


def run(root: dict[int, Any], engine: str, *inputs: np.ndarray) -> np.ndarray:
    (result,) = litehouse.load(flat(root), engine=engine, threads=1).run(inputs)
    return result


def product(weight: dict[int, Any], columns: int, fields: dict[int, Any] | None = None) -> dict[int, Any]:
    """A network that multiplies its input by a quantised weight."""
    tensors = [tensor("x", X.shape), weight, tensor("y", (2, columns))]
    return model(tensors, [node(MATMUL, (0, 1), (2,), fields or {}, WEIGHTS)], (0,), (2,))


def items(scales: list[float], zeros: list[int], **slots: Any) -> list[dict[int, Any]]:
    return [scale(number, zero, **slots) for number, zero in zip(scales, zeros, strict=True)]


@pytest.mark.parametrize(("type_id", "dtype"), [(INT8, np.int8), (INT16, np.int16)])
def test_one_scale_for_all(engine: str, type_id: int, dtype: type) -> None:
    stored = GENERATOR.integers(-128, 128, (6, 4)).astype(dtype)
    weight = tensor("w", stored.shape, stored.tobytes(), type_id)
    weight[QUANTISATION] = [scale(0.02, -3, _5=("i", 16 if dtype == np.int16 else 8))]
    real = (stored.astype(np.float32) + 3) * np.float32(0.02)
    assert_close(run(product(weight, 4), engine, X), X @ real)


@pytest.mark.parametrize("turned", [False, True])
def test_channels_lie_along_the_results(engine: str, turned: bool) -> None:
    """As many rows as columns: a scale along the wrong axis would go unnoticed but for the numbers."""
    stored = GENERATOR.integers(-128, 128, (6, 6)).astype(np.int8)
    scales, zeros = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], [0, 1, -1, 2, -2, 3]
    weight = tensor("w", stored.shape, stored.tobytes(), INT8)
    weight[QUANTISATION] = items(scales, zeros, _7=("f", 0.5), _8=("f", 0.125))
    shape = (6, 1) if turned else (1, 6)
    real = (stored - np.reshape(zeros, shape)) * np.reshape(scales, shape) * 0.5 + 0.125
    real = (real.T if turned else real).astype(np.float32)
    assert_close(run(product(weight, 6, {1: ("?", turned)}), engine, X), X @ real)


@pytest.mark.parametrize("axis", [0, 1])
def test_channels_of_a_table(engine: str, axis: int) -> None:
    stored = GENERATOR.integers(-128, 128, (5, 5)).astype(np.int8)
    scales = [0.1, 0.2, 0.3, 0.4, 0.5]
    table = tensor("w", stored.shape, stored.tobytes(), INT8)
    table[QUANTISATION] = items(scales, [0] * 5)
    places = np.array([4, 0, 2], np.int32)
    tensors = [
        table,
        tensor("i", (3,), None, INT32),
        tensor("axis", None, np.int32(axis).tobytes(), INT32),
        tensor("y", (3, 5) if axis == 0 else (5, 3)),
    ]
    result = run(model(tensors, [node(GATHER, (0, 1, 2), (3,), {}, WEIGHTS)], (1,), (3,)), engine, places)
    real = stored * np.reshape(scales, (5, 1) if axis == 0 else (1, 5))
    assert_close(result, np.take(real, places, axis).astype(np.float32))


def pack(numbers: np.ndarray, bits: int, width: int) -> bytes:
    """Numbers in a few bits each, the lowest bit first, in words of `width` bits."""
    stream = "".join(f"{number + (1 << bits - 1):0{bits}b}"[::-1] for number in numbers.ravel().tolist())
    stream += "0" * (-len(stream) % width)
    return bytes(int(stream[at : at + 8][::-1], 2) for at in range(0, len(stream), 8))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 9, 12, 15])
def test_packed_bits(engine: str, bits: int, named: bool) -> None:
    """Older files do not name the packing."""
    stored = GENERATOR.integers(-(1 << bits - 1), 1 << bits - 1, (6, 3))
    weight = tensor("w", stored.shape, pack(stored, bits, 8 if bits < 8 else 16), INT8 if bits < 8 else INT16)
    weight[QUANTISATION] = items([0.1, 0.2, 0.3], [0, 1, -1], _5=("i", bits))
    if named:
        weight[COMPRESSION] = ("i", 4)
    real = ((stored - [0, 1, -1]) * [0.1, 0.2, 0.3]).astype(np.float32)
    assert_close(run(product(weight, 3), engine, X), X @ real)


def test_many_packed_bits() -> None:
    """More than are unpacked at once."""
    stored = GENERATOR.integers(-4, 4, (1100, 1000))
    weight = tensor("w", stored.shape, b"", INT8)
    raw = (stored + 4).astype(np.uint8).ravel()
    weight[6] = np.packbits(np.unpackbits(raw[:, None], 1, bitorder="little")[:, :3], bitorder="little").tobytes()
    weight[QUANTISATION] = [scale(1.0, 0, _5=("i", 3))]
    tensors = [tensor("x", (1, 1100)), weight, tensor("y", (1, 1000))]
    root = model(tensors, [node(MATMUL, (0, 1), (2,), {}, WEIGHTS)], (0,), (2,))
    np.testing.assert_array_equal(litehouse.read(flat(root)).weights["w"], stored)


def test_clusters(engine: str) -> None:
    numbers = GENERATOR.normal(size=16).astype(np.float32)
    places = GENERATOR.integers(0, 16, (6, 4))
    weight = tensor("w", places.shape, (places - 128).astype(np.int8).tobytes(), INT8)
    weight[CLUSTERS] = Numbers("f", numbers.tolist())
    assert_close(run(product(weight, 4), engine, X), X @ numbers[places])


def test_a_shape_is_no_quantised_weight(engine: str) -> None:
    """Nodes of a quantised graph may have operands that only look quantised: their flag is not set."""
    shape = tensor("s", (2,), np.array([3, 4], np.int32).tobytes(), INT32)
    shape[QUANTISATION] = [scale(0.5)]
    tensors = [tensor("x", X.shape), shape, tensor("y", (3, 4))]
    assert_close(
        run(model(tensors, [node(RESHAPE, (0, 1), (2,), {}, WEIGHTS)], (0,), (2,)), engine, X), X.reshape(3, 4)
    )


def test_weights_of_nodes_that_are_not_quantised_stay_integers(engine: str) -> None:
    stored = np.array([1, 2, 3, 4, 5, 6], np.int8)
    weight = tensor("w", (6,), stored.tobytes(), INT8)
    weight[QUANTISATION] = [scale(0.5)]
    tensors = [weight, tensor("s", (2,), np.array([3, 2], np.int32).tobytes(), INT32), tensor("y", (3, 2), None, INT8)]
    tensors[2][QUANTISATION] = []
    result = run(model(tensors, [node(RESHAPE, (0, 1), (2,))], (), (2,)), engine)
    np.testing.assert_array_equal(result, stored.reshape(3, 2))
    assert result.dtype == np.int8


def test_wrong_count_of_channels() -> None:
    weight = tensor("w", (6, 4), bytes(24), INT8)
    weight[QUANTISATION] = items([0.1, 0.2, 0.3], [0, 0, 0])
    with pytest.raises(litehouse.UnsupportedOpError, match="3 channels"):
        litehouse.read(flat(product(weight, 4)))


# Graphs that compute in few bits --------------------------------------------------------------------------------------


def stepped(x: np.ndarray, step: float, zero: int, low: int = -128, high: int = 127) -> np.ndarray:
    stored = np.clip(np.round(x / np.float32(step)) + zero, low, high)
    return ((stored - zero) * np.float32(step)).astype(np.float32)


def small(name: str, step: float, zero: int, type_id: int = INT8) -> dict[int, Any]:
    made = tensor(name, X.shape, None, type_id)
    made[QUANTISATION] = [scale(step, zero)]
    return made


def test_values_between_nodes_are_rounded(engine: str) -> None:
    """x as int8, plus itself as uint8, relu, and back to float32."""
    tensors = [
        tensor("x", X.shape),
        small("q", 0.05, 3),
        small("s", 0.1, 100, UINT8),
        small("r", 0.083, -128),
        tensor("y", X.shape),
    ]
    nodes = [
        node(QUANT_CAST, (0,), (1,), {0: ("q", 43), 1: ("q", 32)}, ALL),
        node(ADD, (1, 1), (2,), {}, ALL),
        node(ACTIVATION, (2,), (3,), dict(RELU), ALL),
        node(QUANT_CAST, (3,), (4,), {0: ("q", 32), 1: ("q", 43)}, ALL),
    ]
    first = stepped(X, 0.05, 3)
    total = stepped(first + first, 0.1, 100, 0, 255)
    expected = stepped(np.maximum(total, 0), 0.083, -128)
    assert_close(run(model(tensors, nodes, (0,), (4,)), engine, X), expected)


def test_quantised_inputs_and_outputs(engine: str) -> None:
    tensors = [small("x", 0.05, 3), small("y", 0.025, -10)]
    stored = GENERATOR.integers(-128, 128, X.shape).astype(np.int8)
    result = run(model(tensors, [node(ACTIVATION, (0,), (1,), dict(RELU), ALL)], (0,), (1,)), engine, stored)
    real = np.maximum((stored.astype(np.float32) - 3) * np.float32(0.05), 0)
    expected = np.clip(np.round(real / np.float32(0.025)) - 10, -128, 127).astype(np.int8)
    assert result.dtype == np.int8
    assert np.abs(result.astype(int) - expected).max() <= 1  # exact halves may go either way
    assert np.mean(result == expected) > 0.9


def test_values_that_cannot_be_stored() -> None:
    tensors = [tensor("x", X.shape), small("y", 0.05, 300)]
    with pytest.raises(litehouse.UnsupportedOpError, match="zero point 300"):
        litehouse.read(flat(model(tensors, [node(ACTIVATION, (0,), (1,), dict(RELU), ALL)], (0,), (1,))))

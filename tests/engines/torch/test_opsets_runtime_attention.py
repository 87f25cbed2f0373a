"""ONNX Runtime's own kinds of attention, and what its optimiser puts before and behind them."""

from typing import Any

import numpy as np
import pytest
from engines.torch import against_runtime
from engines.torch.against import agrees, numbers, one_op
from formats.onnx_runs import direct

from litehouse import EngineError, Options, read
from litehouse.engines.torch.engine import TorchEngine

HEADS, SIZE, WIDTH = 4, 8, 32
RUNTIME: dict[str, Any] = {"domain": "com.microsoft", "dtypes": ["float32"], "tolerance": 1e-4}
CACHED = RUNTIME | {"dtypes": ["float32"] * 3, "outputs": 3}
BOTH = RUNTIME | {"dtypes": ["float32"] * 2, "outputs": 2}
PADDING = np.ones((2, 5), np.int32)
PADDING[1, 3:] = 0
PLACES = np.random.default_rng(7).integers(0, 2, (2, 5, 5)).astype(np.int32)
PLACES[:, :, 0] = 1
MASKS = {
    "none": None,
    "of keys": PADDING,
    "of queries and keys": PLACES,
    "ends": np.array([5, 3], np.int32),
    "ends and starts": np.array([5, 4, 0, 2], np.int32),
}
Inputs = list[np.ndarray | None]


def weights(width: int = 6) -> list[np.ndarray]:
    return [numbers(2, 5, width), numbers(width, 3 * WIDTH, seed=1), numbers(3 * WIDTH, seed=2)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_weights(mask: str, causal: int) -> None:
    inputs, options = [*weights(), MASKS[mask]], {"num_heads": HEADS, "unidirectional": causal, **BOTH}
    bias = numbers(1, HEADS, 5, 5, seed=3)
    agrees("Attention", [*inputs, None, bias], scale=0.2, mask_filter_value=-50.0, **options)
    agrees("Attention", inputs, **options | {"tolerance": 2e-3})  # what is masked as a whole loses digits


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("has_mask", [False, True])
def test_attention_with_weights_and_a_cache(has_mask: bool, causal: int) -> None:
    mask = np.random.default_rng(5).integers(0, 2, (2, 11)).astype(np.int32) if has_mask else None
    inputs = [*weights(), mask, numbers(2, 2, HEADS, 6, SIZE, seed=4)]
    agrees("Attention", inputs, num_heads=HEADS, unidirectional=causal, **BOTH)
    agrees("Attention", inputs, num_heads=HEADS, unidirectional=causal, mask_filter_value=-20.0, **BOTH)


def test_attention_with_weights_of_other_sizes() -> None:
    x, matrix, bias = weights()
    inputs = [x, matrix[:, :80], bias[:80]]
    agrees("Attention", inputs, num_heads=HEADS, qkv_hidden_sizes=[32, 32, 16], **RUNTIME)


def test_attention_that_nobody_computes() -> None:
    model = one_op("Attention", weights(), num_heads=HEADS, domain="com.microsoft", dtypes=["float32"], do_rotary=1)
    program = program_of(model)
    with pytest.raises(EngineError, match="Attention"):
        program.bind().run(weights())


def program_of(model: bytes) -> Any:
    return TorchEngine().compile(read(model), Options(engine="torch", cache=False))


def parts(keys: int = 5) -> Inputs:
    return [numbers(2, 5, WIDTH), numbers(2, keys, WIDTH, seed=1), numbers(2, keys, WIDTH, seed=2)]


@pytest.mark.parametrize("mask", ["of queries and keys", "ends"])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_other_masks(mask: str, causal: int) -> None:
    inputs = [*parts(), None, MASKS[mask]]
    agrees("MultiHeadAttention", inputs, num_heads=HEADS, unidirectional=causal, **RUNTIME)
    inputs.append(numbers(2, 1, 5, 5, seed=4))
    agrees("MultiHeadAttention", inputs, num_heads=HEADS, unidirectional=causal, **RUNTIME)


@pytest.mark.parametrize("mask", [None, np.ones((2, 3), np.int32)])
def test_multi_head_attention_in_order_to_fewer_keys(mask: np.ndarray | None) -> None:
    """The first query attends to the first key alone."""
    agrees("MultiHeadAttention", [*parts(3), None, mask], num_heads=HEADS, unidirectional=1, **RUNTIME)


def test_multi_head_attention_of_one_query_in_order() -> None:
    q, k, v = parts()
    agrees("MultiHeadAttention", [q[:, :1], k, v], num_heads=HEADS, unidirectional=1, **RUNTIME)


def test_multi_head_attention_in_order_to_more_keys_is_left_to_onnx_runtime() -> None:
    agrees("MultiHeadAttention", parts(8), num_heads=HEADS, unidirectional=1, lacks=True, **RUNTIME)


def test_multi_head_attention_with_a_mask_of_the_cache() -> None:
    mask = np.ones((2, 11), np.int32)
    mask[0, :4] = 0
    caches = [numbers(2, HEADS, 6, SIZE, seed=seed) for seed in (5, 6)]
    agrees("MultiHeadAttention", [*parts(), None, mask, None, *caches], num_heads=HEADS, **CACHED)


def test_multi_head_attention_of_packed_inputs() -> None:
    """ONNX Runtime takes these on a GPU alone: they are the same as those apart."""
    q, k, v = parts()
    apart = [array.reshape(2, 5, HEADS, SIZE) for array in (q, k, v)]
    model = one_op("MultiHeadAttention", [q, k, v], num_heads=HEADS, domain="com.microsoft", dtypes=["float32"])
    (expected,) = direct(model, {"x0": q, "x1": k, "x2": v})
    for inputs in ([np.stack(apart, 3)], [q, np.stack(apart[1:], 3)]):
        packed = one_op("MultiHeadAttention", inputs, num_heads=HEADS, domain="com.microsoft", dtypes=["float32"])
        (found,) = against_runtime.run(packed, {f"x{place}": array for place, array in enumerate(inputs)})
        np.testing.assert_allclose(found, expected, atol=1e-5)


def decoding(**more: Any) -> dict[str, Any]:
    return {"num_heads": HEADS, "past_present_share_buffer": 1, **CACHED, **more}


@pytest.mark.parametrize("size", [0, 4, 8])
@pytest.mark.parametrize("is_known", [False, True])
def test_decoder_attention(size: int, is_known: bool) -> None:
    new = [numbers(2, 1, WIDTH, seed=seed) for seed in range(3)]
    caches = [numbers(2, HEADS, 9, SIZE, seed=seed) for seed in (3, 4)]
    mask = np.ones((2, size + 1), np.int32)
    mask[0, : size // 2] = 0
    bias = numbers(2, HEADS, 1, size + 1, seed=5)
    place = np.array([size], np.int32)
    agrees("DecoderMaskedMultiHeadAttention", [*new, None, None, *caches, place], **decoding())
    rest = [None, None, numbers(3 * WIDTH, seed=6)]
    inputs = [*new, mask, bias, *caches, place, *rest]
    agrees("DecoderMaskedMultiHeadAttention", inputs, known=[7] if is_known else [], **decoding(scale=0.3))


def test_decoder_attention_of_what_an_encoder_found() -> None:
    found = [numbers(2, HEADS, 7, SIZE, seed=seed) for seed in (1, 2)]
    mask = np.ones((2, 7), np.int32)
    mask[1, 5:] = 0
    for more in ([], [mask], [mask, *[None] * 6, numbers(3 * WIDTH, seed=6)]):
        inputs = [numbers(2, 1, WIDTH), *found, *more]
        agrees("DecoderMaskedMultiHeadAttention", inputs, num_heads=HEADS, **RUNTIME)


def test_decoder_attention_of_beams_is_left_to_onnx_runtime() -> None:
    new = [numbers(2, 1, WIDTH, seed=seed) for seed in range(3)]
    caches = [numbers(2, HEADS, 9, SIZE, seed=seed) for seed in (3, 4)]
    sources = np.random.default_rng(6).integers(0, 2, (1, 2, 9)).astype(np.int32)
    rest = [np.array([4], np.int32), np.array([2], np.int32), sources]
    agrees("DecoderMaskedMultiHeadAttention", [*new, None, None, *caches, *rest], lacks=True, **decoding())


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("layout", [0, 1])
def test_rotation_by_three_places(layout: int, interleaved: int) -> None:
    cos, sin = np.cos(numbers(9, 8)), np.sin(numbers(9, 8))
    places = np.random.default_rng(1).integers(0, 9, (3, 2, 5)).astype(np.int64)
    options = RUNTIME | {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    agrees("MRotaryEmbedding", [numbers(2, 3, 5, 16), places, cos, sin], **options)
    agrees("MRotaryEmbedding", [numbers(2, 5, 48), places, cos, sin], scale=0.5, num_heads=3, **options)
    part = {"rotary_embedding_dim": 16, "num_heads": 2}
    agrees("MRotaryEmbedding", [numbers(2, 5, 64), places, cos, sin], **part, **options)


def test_rotation_of_packed_batches() -> None:
    cos, sin = np.cos(numbers(9, 4)), np.sin(numbers(9, 4))
    places = np.array([[0, 3, 4], [5, 8, 1]], np.int64)
    agrees("RotaryEmbedding", [numbers(2, 2, 3, 8), places, cos, sin], is_packed_batching=1, **RUNTIME)


@pytest.mark.parametrize("given", ["", "segments", "mask", "places", "segments mask places", "segments mask place"])
def test_embedding(given: str) -> None:
    random = np.random.default_rng(3)
    words = random.integers(0, 11, (2, 5)).astype(np.int32)
    segments = random.integers(0, 2, (2, 5)).astype(np.int32) if "segments" in given else None
    tables = [numbers(11, WIDTH), numbers(9, WIDTH, seed=1), None if segments is None else numbers(2, WIDTH, seed=2)]
    mask = PADDING if "mask" in given else None
    places = random.integers(0, 9, (2 if "places" in given else 1, 5)).astype(np.int32) if "place" in given else None
    inputs = [words, segments, *tables, numbers(WIDTH, seed=3), numbers(WIDTH, seed=4), mask, places]
    options = RUNTIME | {"dtypes": ["float32", "int32", "float32"], "outputs": 3}
    agrees("EmbedLayerNormalization", inputs, epsilon=1e-3, **options)
    agrees("EmbedLayerNormalization", inputs, **options | {"outputs": 2, "dtypes": ["float32", "int32"]})


def test_places_that_an_embedding_does_not_have() -> None:
    inputs = [np.array([[0, 11]], np.int32), None, numbers(11, 8), numbers(9, 8), None, numbers(8), numbers(8)]
    model = one_op("EmbedLayerNormalization", inputs, domain="com.microsoft", dtypes=["float32"])
    with pytest.raises(EngineError, match="out of the range"):
        against_runtime.run(model, {f"x{place}": array for place, array in enumerate(inputs) if array is not None})


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_norm(activation: str) -> None:
    inputs = [numbers(2, 5, WIDTH), numbers(SIZE, seed=1), numbers(2, 5, WIDTH, seed=2)]
    agrees("GatedRMSNorm", inputs, activation=activation, epsilon=1e-3, **RUNTIME)


def test_norms_of_branches() -> None:
    x = numbers(2, 5, WIDTH)
    grouped = x.reshape(2, 5, HEADS, SIZE)
    for scale in (None, numbers(WIDTH, seed=1), numbers(HEADS, SIZE, seed=1), numbers(SIZE, seed=1)):
        agrees("BranchwiseRMSNorm", [x, scale], num_branches=HEADS, epsilon=1e-3, **RUNTIME)
        agrees("BranchwiseRMSNorm", [grouped, scale], **RUNTIME)


def test_gates() -> None:
    x, y = numbers(2, 5, WIDTH), numbers(2, 5, WIDTH, seed=1)
    agrees("GatedAdd", [x, y, numbers(2, 5, 1, seed=2)], **RUNTIME)
    agrees("ScaledSiLU", [x], **RUNTIME)
    agrees("ScaledSiLU", [x], alpha=0.3, **RUNTIME)
    agrees("ScaledSiLU", [x, np.array(1.7, np.float32)], alpha=0.3, **RUNTIME)

"""Attention, and ONNX Runtime's own fused ops."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against import agrees, numbers

RUNTIME: dict[str, Any] = {"domain": "com.microsoft", "dtypes": ["float32"], "tolerance": 1e-4}
X, BIAS = numbers(2, 3, 8), numbers(8, seed=1)


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_attention(heads: tuple[int, int], is_causal: int) -> None:
    q, k, v = numbers(2, heads[0], 5, 8), numbers(2, heads[1], 7, 8, seed=1), numbers(2, heads[1], 7, 8, seed=2)
    agrees("Attention", [q, k, v], is_causal=is_causal, opset=23)
    agrees("Attention", [q, k, v, numbers(5, 7, seed=3)], scale=0.3, opset=23)


def test_attention_with_a_cache() -> None:
    values = [numbers(2, 4, 5, 8, seed=seed) for seed in range(3)]
    past = [numbers(2, 4, 6, 8, seed=seed) for seed in (4, 5)]
    agrees("Attention", [*values, None, *past], opset=23, outputs=3)


def test_attention_of_flat_inputs() -> None:
    q, k, v = numbers(2, 5, 32), numbers(2, 7, 16, seed=1), numbers(2, 7, 16, seed=2)
    mask = np.random.default_rng(3).random((2, 1, 5, 7)) < 0.7
    mask[..., 0] = True
    agrees("Attention", [q, k, v, mask], q_num_heads=4, kv_num_heads=2, opset=23)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    cos, sin = np.cos(numbers(9, 4)), np.sin(numbers(9, 4))
    places = np.array([[0, 3, 4], [5, 8, 1]], np.int64)
    agrees("RotaryEmbedding", [numbers(2, 2, 3, 8), cos, sin, places], interleaved=interleaved, opset=23)
    agrees("RotaryEmbedding", [numbers(2, 3, 16), cos, sin, places], num_heads=2, interleaved=interleaved, opset=23)
    half = {"rotary_embedding_dim": 8, "num_heads": 1, "interleaved": interleaved}
    agrees("RotaryEmbedding", [numbers(2, 3, 16), cos, sin, places], **half, opset=23)
    for positions in (places, np.array([2], np.int64)):
        agrees("RotaryEmbedding", [numbers(2, 2, 3, 8), positions, cos, sin], interleaved=interleaved, **RUNTIME)
        agrees("RotaryEmbedding", [numbers(2, 3, 16), positions, cos, sin], interleaved=interleaved, **RUNTIME)


@pytest.mark.parametrize(
    "parts", ["", "bias", "padding", "scores", "past", "past causal", "causal", "bias padding scores"]
)
def test_multi_head_attention(parts: str) -> None:
    places = 6 if "past" in parts else 0
    inputs: list[np.ndarray | None] = [numbers(2, 5, 32), numbers(2, 5, 32, seed=1), numbers(2, 5, 32, seed=2)]
    padding = np.ones((2, 5), np.int32)
    padding[1, 3:] = 0
    inputs.append(numbers(96, seed=3) if "bias" in parts else None)
    inputs.append(padding if "padding" in parts else None)
    inputs.append(numbers(1, 4, 5, 5, seed=4) if "scores" in parts else None)
    if places:
        inputs += [numbers(2, 4, places, 8, seed=5), numbers(2, 4, places, 8, seed=6)]
    outputs = 3 if places else 1
    while inputs[-1] is None:
        inputs.pop()
    options = RUNTIME | {"dtypes": ["float32"] * outputs, "outputs": outputs}
    agrees("MultiHeadAttention", inputs, num_heads=4, unidirectional=int("causal" in parts), **options)


def test_multi_head_attention_across() -> None:
    q, k, v = numbers(2, 5, 32), numbers(2, 4, 7, 8, seed=1), numbers(2, 4, 7, 8, seed=2)
    agrees("MultiHeadAttention", [q, k, v], num_heads=4, scale=0.2, **RUNTIME)


def test_gelus() -> None:
    agrees("Gelu", [X], **RUNTIME)
    agrees("FastGelu", [X], **RUNTIME)
    agrees("FastGelu", [X, BIAS], **RUNTIME)
    agrees("BiasGelu", [X, BIAS], **RUNTIME)
    agrees("QuickGelu", [X], **RUNTIME)
    agrees("QuickGelu", [X], alpha=0.7, **RUNTIME)


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(turned: tuple[int, int]) -> None:
    a = numbers(2, 4, 3) if turned[0] else numbers(2, 3, 4)
    b = numbers(2, 5, 4, seed=1) if turned[1] else numbers(2, 4, 5, seed=1)
    agrees("FusedMatMul", [a, b], transA=turned[0], transB=turned[1], alpha=0.3, **RUNTIME)


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("moved", [(1, 0), (0, 1), (1, 1)])
def test_fused_matmul_with_batches_inside(moved: tuple[int, int], turned: tuple[int, int]) -> None:
    """Operands of rank 4, whose batches are between the axes of a product."""
    operands = []
    for place, plain in enumerate([(2, 6, 3, 4), (2, 6, 4, 5)]):
        array = numbers(*plain, seed=place)
        array = array.swapaxes(-1, -2) if turned[place] else array
        operands.append(np.ascontiguousarray(np.moveaxis(array, -2, 0) if moved[place] else array))
    attributes = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), (*turned, *moved), strict=True))
    agrees("FusedMatMul", operands, alpha=0.3, **attributes, **RUNTIME)


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh", "LeakyRelu"])
def test_fused_gemm(activation: str) -> None:
    extra = {"activation_alpha": 0.2} if activation == "LeakyRelu" else {}
    agrees("FusedGemm", [numbers(3, 4), numbers(5, 4), numbers(5)], transB=1, activation=activation, **extra, **RUNTIME)


def test_skipping_norms() -> None:
    skip = numbers(2, 3, 8, seed=2)
    agrees("SkipLayerNormalization", [X, skip, BIAS, numbers(8, seed=3)], **RUNTIME)
    agrees("SkipLayerNormalization", [X, skip, BIAS, None, numbers(8, seed=3)], epsilon=1e-3, **RUNTIME)
    agrees("SkipLayerNormalization", [X, skip[:1], BIAS], **RUNTIME)
    sums = RUNTIME | {"dtypes": ["float32"] * 4, "outputs": 4, "left_out": (1, 2)}
    agrees("SkipLayerNormalization", [X, skip, BIAS, None, numbers(8, seed=3)], **sums)
    agrees("SkipSimplifiedLayerNormalization", [X, skip, BIAS, numbers(8, seed=3)], **sums)
    agrees("SkipSimplifiedLayerNormalization", [X, skip, BIAS], epsilon=1e-3, **RUNTIME)
    agrees("SkipSimplifiedLayerNormalization", [X, skip, BIAS, numbers(8, seed=3)], **RUNTIME)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_all_outputs_of_skipping_norms(op: str) -> None:
    """Hardly any file asks for the means and deviations: ONNX Runtime computes those that do."""
    options = RUNTIME | {"dtypes": ["float32"] * 4, "outputs": 4, "lacks": True}
    agrees(op, [X, numbers(2, 3, 8, seed=2), BIAS], **options)

"""Recurrent layers and attention without a fixture, against numpy."""

from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(13)
STEPS, BATCH, INPUTS, SIZE = 5, 2, 3, 4


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# Recurrent layers -----------------------------------------------------------------------------------------------------


def test_dynamic_rnn(engine: str) -> None:
    x, w, b = normal(STEPS, BATCH, INPUTS), normal(INPUTS + SIZE, 4 * SIZE), normal(4 * SIZE)
    start, cell = normal(1, BATCH, SIZE), normal(1, BATCH, SIZE)
    h, c, states, cells = start[0], cell[0], [], []
    for step in range(STEPS):
        take, new, keep, out = np.split(np.concatenate([x[step], h], 1) @ w + b, 4, 1)
        c = sigmoid(keep) * c + sigmoid(take) * np.tanh(new)
        h = sigmoid(out) * np.tanh(c)
        states.append(h)
        cells.append(c)
    operands = [x, w, b, None, start, cell]
    found = run_op("DynamicRNN", operands, ["float32"] * 3 + [None] * 5, engine, static=True)
    for result, expected in zip(found, (np.stack(states), np.stack(states), np.stack(cells)), strict=True):
        assert_close(result, expected)


@pytest.mark.parametrize("order", ["rzh", "zrh"])
@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_dynamic_gru(order: str, reset_after: bool, biased: bool, engine: str) -> None:
    x, w, u, start = normal(STEPS, BATCH, INPUTS), normal(INPUTS, 3 * SIZE), normal(SIZE, 3 * SIZE), normal(BATCH, SIZE)
    first, second = (normal(3 * SIZE) if biased else np.zeros(3 * SIZE, np.float32) for _ in range(2))
    h, states = start, []
    for step in range(STEPS):
        gates = np.split(x[step] @ w + first, 3, 1)
        inner = np.split(h @ u + second, 3, 1)
        reset = sigmoid(gates[order.index("r")] + inner[order.index("r")])
        update = sigmoid(gates[order.index("z")] + inner[order.index("z")])
        new_inner = reset * inner[2] if reset_after else (reset * h) @ u[:, 2 * SIZE :] + second[2 * SIZE :]
        h = (1 - update) * np.tanh(gates[2] + new_inner) + update * h
        states.append(h)
    operands = [x, w, u, *((first, second) if biased else (None, None)), None, start]
    attributes = {"gate_order": order, "reset_after": reset_after}
    found = run_op("DynamicGRUV2", operands, ["float32"] * 2 + [None] * 4, engine, attributes=attributes, static=True)
    for result in found:
        assert_close(result, np.stack(states).astype(np.float32))


def test_an_lstm_with_both_biases(engine: str) -> None:
    parts = [normal(4 * SIZE, INPUTS), normal(4 * SIZE, SIZE), normal(4 * SIZE), normal(4 * SIZE)]
    x, h0, c0 = normal(STEPS, BATCH, INPUTS), normal(1, BATCH, SIZE), normal(1, BATCH, SIZE)
    h, c = h0[0], c0[0]
    for step in range(STEPS):
        take, keep, new, out = np.split(x[step] @ parts[0].T + h @ parts[1].T + parts[2] + parts[3], 4, 1)
        c = sigmoid(keep) * c + sigmoid(take) * np.tanh(new)
        h = sigmoid(out) * np.tanh(c)
    flat = np.concatenate([part.ravel() for part in parts]).reshape(-1, 1, 1)
    attributes = {"input_size": INPUTS, "hidden_size": SIZE, "has_bias": True}
    found = run_op("LSTM", [x, h0, c0, flat], ["float32"] * 3 + [None] * 2, engine, attributes=attributes, static=True)
    assert_close(found[0][-1], h)
    assert_close(found[1][0], h)
    assert_close(found[2][0], c)


# Attention ------------------------------------------------------------------------------------------------------------

HEADS, KEY_HEADS, QUERIES, KEYS, FEATURES, SCALE = 4, 2, 5, 6, 8, 0.3
TO_LAYOUT = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """(batch, head, token, feature) in another layout."""
    x = x.transpose(TO_LAYOUT[layout])
    return x.reshape(*x.shape[:2], -1) if layout.endswith("H") else x


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, hidden: Any, shift: Any = 0.0, scale: float = SCALE
) -> np.ndarray:
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat(groups, 1), v.repeat(groups, 1)
    scores = q @ k.swapaxes(2, 3) * scale + shift
    return softmax(np.where(hidden, -1e30, scores)) @ v


def band(queries: int, keys: int, before: int, after: int, from_end: bool) -> np.ndarray:
    away = np.arange(keys) - np.arange(queries)[:, None] - (keys - queries if from_end else 0)
    return (away > after) | (away < -before)


@pytest.mark.parametrize("layout", TO_LAYOUT)
@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
def test_flash_attention(layout: str, mode: int, engine: str) -> None:
    q, k, v = (
        normal(2, heads, count, FEATURES) for heads, count in ((HEADS, QUERIES), (KEY_HEADS, KEYS), (KEY_HEADS, KEYS))
    )
    given = (RANDOM.random((2, 1, QUERIES, KEYS)) < 0.3).astype(np.uint8)
    given[..., 0] = 0
    tokens = (2, 1) if mode == 4 else (2**31 - 1, 2**31 - 1)
    hidden = {
        2: band(QUERIES, KEYS, 99, 0, False),
        3: band(QUERIES, KEYS, 99, 0, True),
        4: band(QUERIES, KEYS, 2, 1, True),
    }.get(mode, given.astype(bool))
    mask = given if mode < 2 else np.triu(np.ones((2048, 2048), np.uint8), 1)
    operands = [*(laid_out(each, layout) for each in (q, k, v)), None, None, None, mask, None, None, None]
    operands += [HEADS, 1.0, SCALE, *tokens, 0, layout, mode]
    found = run_op("FlashAttentionScore", operands, [None] * 3 + ["float32"], engine, static=True)
    assert_close(found[0], laid_out(attended(q, k, v, hidden), layout))


def test_flash_attention_with_mask_and_band_and_shift(engine: str) -> None:
    q, k, v = (normal(2, HEADS, KEYS, FEATURES) for _ in range(3))
    given = (RANDOM.random((KEYS, KEYS)) < 0.2) & ~np.eye(KEYS, dtype=bool)
    shift = normal(1, HEADS, KEYS, KEYS)
    operands: list[Any] = [q, k, v, shift, None, None, given, None, None, None, HEADS, 1.0, 1.0, 3, 0, 0, 1, 0]
    found = run_op("FlashAttentionScore", operands, [None] * 3 + ["float32"], engine, static=True)
    assert_close(found[0], attended(q, k, v, given | band(KEYS, KEYS, 3, 0, False), shift, 1.0))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("masked", [False, True])
def test_prompt_flash_attention(dtype: str, masked: bool, engine: str) -> None:
    q, k, v = (normal(2, heads, KEYS, FEATURES).astype(dtype) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
    hidden = np.triu(np.ones((1, KEYS, KEYS), bool), 1)
    operands: list[Any] = [
        q,
        k,
        v,
        hidden if masked else None,
        *[None] * 8,
        HEADS,
        SCALE,
        2**31 - 1,
        0,
        "BNSD",
        KEY_HEADS,
        0,
        1,
    ]
    expected = attended(*(each.astype(np.float32) for each in (q, k, v)), hidden[None] if masked else False)
    assert_close(run_op("PromptFlashAttention", operands, [dtype], engine, static=True)[0], expected.astype(dtype))


@pytest.mark.parametrize("layout", ["BNSD", "BSH"])
@pytest.mark.parametrize("rank", [0, 2, 3, 4])
def test_attention_of_one_new_token(layout: str, rank: int, engine: str) -> None:
    q, k, v = (normal(2, heads, n, FEATURES) for heads, n in ((HEADS, 1), (KEY_HEADS, KEYS), (KEY_HEADS, KEYS)))
    hidden = np.arange(KEYS) > np.array([[2], [4]])
    mask = hidden.reshape(2, *(1,) * (rank - 2), KEYS) if rank else None
    operands: list[Any] = [laid_out(q, layout), (laid_out(k, layout),), (laid_out(v, layout),), mask, *[None] * 11]
    operands += [HEADS, layout, SCALE, KEY_HEADS, 0, 1]
    expected = attended(q, k, v, hidden[:, None, None] if rank else False)
    found = run_op("IncreFlashAttention", operands, ["float32"], engine, static=True)
    assert_close(found[0], laid_out(expected, layout))


@pytest.mark.parametrize("index", [4, 6, 8])
def test_attention_with_unknown_extras_is_refused(index: int) -> None:
    q = normal(1, HEADS, KEYS, FEATURES)
    operands: list[Any] = [q, q, q, *[None] * 9, HEADS, SCALE, 2**31 - 1, 0, "BNSD", HEADS, 0, 1]
    operands[index] = q
    with pytest.raises(RefusedError, match="not supported"):
        run_op("PromptFlashAttention", operands, ["float32"], "onnxruntime", static=True)


@pytest.mark.parametrize("mode", [0, 1])
def test_rotary_position_embedding(mode: int, engine: str) -> None:
    x, angle = normal(2, 3, 5, FEATURES), normal(1, 1, 5, FEATURES)
    if mode == 0:
        turned = np.concatenate([-x[..., FEATURES // 2 :], x[..., : FEATURES // 2]], -1)
    else:
        turned = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    expected = x * np.cos(angle) + turned * np.sin(angle)
    found = run_op("RotaryPositionEmbedding", [x, np.cos(angle), np.sin(angle), mode], ["float32"], engine)
    assert_close(found[0], expected)

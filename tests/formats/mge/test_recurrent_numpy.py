"""What recurrent layers and attention refuse: what is random or broken, and what MegEngine knows on CUDA alone."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import assert_close

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


LSTM = {"num_layers": 1, "bidirectional": False, "bias": False, "hidden_size": 4}
X, STATE, WEIGHTS = drawn(5, 2, 3), drawn(1, 2, 4), drawn(16, 7)


@pytest.mark.parametrize(
    ("operands", "params", "reason"),
    [
        ([X, drawn(1, 2, 2), STATE, WEIGHTS], LSTM, "a state of sizes"),
        ([X, STATE, STATE, WEIGHTS], LSTM | {"num_layers": 2}, "2 layers"),
        ([X, STATE, STATE, drawn(16, 6)], LSTM, "must be more"),
        ([X, STATE, STATE, drawn(16, 9)], LSTM, "of which 112 are used"),
        ([X, STATE, STATE, WEIGHTS], LSTM | {"num_layers": 1 << 30}, "layers"),
    ],
)
def test_lstm_refused(operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated("LSTM", operands, params)


ATTENTION = {
    **{f"{name}proj_size": 6 for name in "qkvo"},
    **{f"{name}bias": False for name in "qkvo"},
    **dict.fromkeys(("embedding_size", "k_size", "v_size"), 6),
    **dict.fromkeys(("attn_prob", "out_prob"), 0.0),
    **dict.fromkeys(("add_zero_attn", "training", "reslink", "need_weights"), False),
    "num_heads": 2,
    "sm_scaler": 0.5,
    "attn_mask_type": "NO_MASK",
    "tensor_combination_type": "NONE",
}
MASKED = {"attn_mask_type": "USER_DEFINED_MASK", "tensor_combination_type": "ONLY_MASK"}
Q, FLAT = drawn(2, 4, 6), drawn(1, 144)


@pytest.mark.parametrize(
    ("more", "params", "reason"),
    [
        ([], {"attn_mask_type": "CUDNN_STYLE_MASK"}, "cuDNN"),
        ([], {"attn_mask_type": "DEFAULT_MASK"}, "one mask must be"),
        ([drawn(3, 4, 4)], MASKED, "3 masks for 2 heads of 2 samples"),
        ([], {"add_zero_attn": True}, "CUDA alone"),
        ([drawn(1, 1, 6)] * 2, {"tensor_combination_type": "ONLY_BIASKV"}, "CUDA alone"),
        ([], {"training": True, "out_prob": 0.5}, "at random"),
        ([], {"qbias": True}, "must be more"),
        ([], {"oproj_size": 0}, "of which 108 are used"),
    ],
)
def test_attention_refused(more: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated("MultiHeadAttn", [Q, Q, Q, FLAT, *more], ATTENTION | params)


def test_attention_in_float16(engine: str) -> None:
    """Against the exact numbers: in a case like this MegEngine's own results were 2.7e-3 of their range off."""
    q, k, v, flat = (drawn(*shape).astype(np.float16) for shape in ((2, 4, 6), (2, 5, 6), (2, 5, 6), (1, 144)))
    y, shares = run_operator(engine, "MultiHeadAttn", [q, k, v, flat], ATTENTION, (0, 1))
    w_q, w_k, w_v, w_o = flat.astype(np.float64).reshape(4, 6, 6)
    heads = [
        (x.astype(np.float64) @ w).reshape(2, -1, 2, 3).transpose(0, 2, 1, 3) for x, w in ((q, w_q), (k, w_k), (v, w_v))
    ]
    scores = np.exp(heads[0] @ heads[1].transpose(0, 1, 3, 2) * 0.5)
    expected = scores / scores.sum(-1, keepdims=True)
    mixed = (expected @ heads[2]).transpose(0, 2, 1, 3).reshape(2, 4, 6)
    assert_close(shares, expected.reshape(4, 4, 5).astype(np.float16))
    assert_close(y, (mixed @ w_o).astype(np.float16))

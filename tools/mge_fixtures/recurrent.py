"""Recurrent layers and attention."""

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.core._imperative_rt.ops import get_global_rng_seed as _get_global_rng_seed
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, boolean, case, f16, f32, run_op, weight

X = f32(5, 2, 3)
OTHER = [f32(4, 3, 3)]

add("lstm", M.LSTM(3, 4), X, resized=OTHER)
add("lstm_no_bias", M.LSTM(3, 4, bias=False), X)
add("lstm_two_layers", M.LSTM(3, 4, num_layers=2), X)
add("lstm_bidirectional", M.LSTM(3, 4, bidirectional=True), X, resized=OTHER)
add("lstm_two_layers_bidirectional", M.LSTM(3, 4, num_layers=2, bidirectional=True), X)
add("lstm_batch_first", M.LSTM(3, 4, batch_first=True), f32(2, 5, 3), resized=[f32(3, 4, 3)])
add("lstm_v1", M.LSTM(3, 4), X, dump_format="FBS")
add("rnn", M.RNN(3, 4), X, resized=OTHER)
add("rnn_relu", M.RNN(3, 4, nonlinearity="relu"), X)
add("rnn_no_bias", M.RNN(3, 4, bias=False), X)
add("rnn_two_layers_bidirectional", M.RNN(3, 4, num_layers=2, bidirectional=True), X)
add("rnn_batch_first", M.RNN(3, 4, batch_first=True), f32(2, 5, 3))
add("lstm_no_bias_bidirectional", M.LSTM(3, 4, num_layers=3, bias=False, bidirectional=True), X, resized=OTHER)
add("lstm_dropout", M.LSTM(3, 4, num_layers=2, dropout=0.5), X)
add("lstm_projection", M.LSTM(3, 4, proj_size=2), X)
add("lstm_one_step", M.LSTM(3, 4), f32(1, 1, 3))
add("rnn_no_bias_bidirectional", M.RNN(3, 4, num_layers=2, bias=False, bidirectional=True), X, resized=OTHER)


def layers(op):
    """All that an operator of one layer gives but its working memory."""
    gates = 4 if isinstance(op, builtin.LSTM) else 1

    def forward(x, *more):
        flat = weight(gates * 4, 9, dtype=np.dtype(x.dtype).name, scale=0.5)
        return run_op(op, x, *more, flat)[:-1]

    return forward


STATE = f32(1, 2, 4)
ONE = {"num_layers": 1, "hidden_size": 4}
HALF = f16(5, 2, 3), f16(1, 2, 4)
add("lstm_op", layers(builtin.LSTM(**ONE, fwd_mode="TRAINING", dropout=0.5)), X, STATE, STATE, **RAW)
add("lstm_float16", layers(builtin.LSTM(**ONE, fwd_mode="INFERENCE")), *HALF, f16(1, 2, 4), **RAW)
for mode in ("IDENTITY", "RELU", "TANH"):
    op = builtin.RNN(**ONE, fwd_mode="INFERENCE", nonlineMode=mode)
    add(f"rnn_op_{mode.lower()}", layers(op), X, STATE, **RAW)
add("rnn_float16", layers(builtin.RNN(**ONE, fwd_mode="INFERENCE", nonlineMode="TANH")), *HALF, **RAW)


def cell(op, gates, dtype="float32", first=()):
    """All that a cell gives; its biases may have an axis in front."""
    w_x, w_h = (weight(gates * 4, size, dtype=dtype, scale=0.5) for size in (3, 4))
    b_x, b_h = (weight(*first, gates * 4, dtype=dtype) * number for number in (0.5, -0.3))
    return lambda x, h, *c: run_op(op, x, w_x, b_x, h, w_h, b_h, *c)


CELL_STATE = f32(2, 4)
add(
    "lstm_cell_gates",
    cell(builtin.LSTMCell(), 4),
    f32(2, 3),
    CELL_STATE,
    CELL_STATE,
    resized=[f32(5, 3), f32(5, 4), f32(5, 4)],
    **RAW,
)
add("lstm_cell_bias_rows", cell(builtin.LSTMCell(), 4, first=(1,)), f32(2, 3), CELL_STATE, CELL_STATE, **RAW)
add("lstm_cell_float16", cell(builtin.LSTMCell(), 4, "float16"), f16(2, 3), f16(2, 4), f16(2, 4), **RAW)
for mode in ("IDENTITY", "RELU", "TANH"):
    add(f"rnn_cell_op_{mode.lower()}", cell(builtin.RNNCell(nonlineMode=mode), 1), f32(2, 3), CELL_STATE, **RAW)
add("rnn_cell_float16", cell(builtin.RNNCell(nonlineMode="TANH"), 1, "float16"), f16(2, 3), f16(2, 4), **RAW)
add("lstm_cell", M.LSTMCell(3, 4), f32(2, 3))
add("rnn_cell", M.RNNCell(3, 4), f32(2, 3))
add("rnn_cell_relu", M.RNNCell(3, 4, nonlinearity="relu"), f32(2, 3))


@case(X, f32(1, 2, 4), f32(1, 2, 4))
class lstm_state(M.Module):
    def __init__(self):
        super().__init__()
        self.lstm = M.LSTM(3, 4)

    def forward(self, x, y, z):
        return self.lstm(x, (y, z))


@case(X, f32(1, 2, 4))
class rnn_state(M.Module):
    def __init__(self):
        super().__init__()
        self.rnn = M.RNN(3, 4)

    def forward(self, x, y):
        return self.rnn(x, y)


@case(f32(2, 3), f32(2, 4), f32(2, 4))
class lstm_cell_state(M.Module):
    def __init__(self):
        super().__init__()
        self.cell = M.LSTMCell(3, 4)

    def forward(self, x, y, z):
        return self.cell(x, (y, z))


@case(f32(2, 3), f32(2, 4))
class rnn_cell_state(M.Module):
    def __init__(self):
        super().__init__()
        self.cell = M.RNNCell(3, 4)

    def forward(self, x, y):
        return self.cell(x, y)


@case(X)
class lstm_only_states(M.Module):
    def __init__(self):
        super().__init__()
        self.lstm = M.LSTM(3, 4)

    def forward(self, x):
        return self.lstm(x)[1]


@case(f32(2, 4, 6), resized=[f32(3, 5, 6)])
class attention_by_hand(M.Module):
    """Self-attention with two heads from matrix products."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (M.Linear(6, 6) for _ in range(4))
        self.norm = M.LayerNorm(6)

    def heads(self, x):
        return F.transpose(F.reshape(x, (x.shape[0], x.shape[1], 2, 3)), (0, 2, 1, 3))

    def forward(self, x):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        scores = F.softmax(F.matmul(q, k, transpose_b=True) / 3**0.5, axis=-1)
        mixed = F.reshape(F.transpose(F.matmul(scores, v), (0, 2, 1, 3)), (x.shape[0], x.shape[1], 6))
        return self.norm(x + self.o(mixed))


mge.random.seed(0)
SEED = _get_global_rng_seed()
QUERY, KEY = f32(2, 4, 6), f32(2, 5, 6)
ONE_MASK = {"attn_mask_type": "USER_DEFINED_MASK", "tensor_combination_type": "ONLY_MASK"}


def attention(heads=2, query=6, key=6, value=6, bias="qkvo", **settings):
    """The operator with its weights and biases; its result and the weights of the sums."""
    sizes = {f"{name}proj_size": settings.pop(name, 6) for name in "qkvo"}
    rows = {"q": query, "k": key, "v": value, "o": sizes["vproj_size"] or heads * value}
    count = sum(rows[name] * sizes[f"{name}proj_size"] for name in "qkvo")
    count += sum(sizes[f"{name}proj_size"] for name in bias)
    settings = {"seed": SEED, "training": False, "sm_scaler": 0.6} | settings
    biases = {f"{name}bias": name in bias for name in "qkvo"}
    op = builtin.MultiHeadAttn(
        num_heads=heads, embeding_size=query, k_size=key, v_size=value, **sizes, **biases, **settings
    )

    def forward(q, k=None, v=None, *more):
        result = run_op(op, q, q if k is None else k, q if v is None else v, weight(1, count, scale=0.4), *more)
        return result[0], result[1] * 2  # the names of an operator's own outputs are the same, which no file may have

    return forward


add("attention", attention(), QUERY, KEY, KEY, resized=[f32(3, 2, 6), f32(3, 7, 6), f32(3, 7, 6)], **RAW)
add("attention_self", attention(need_weights=True), QUERY, **RAW)
add("attention_no_bias", attention(bias=""), QUERY, KEY, KEY, **RAW)
add("attention_some_biases", attention(bias="qo"), QUERY, KEY, KEY, **RAW)
add("attention_one_head", attention(heads=1), QUERY, KEY, KEY, **RAW)
add("attention_three_heads", attention(heads=3), QUERY, KEY, KEY, **RAW)
add("attention_sizes", attention(query=6, key=5, value=7, q=4, k=4, v=8, o=3), QUERY, f32(2, 5, 5), f32(2, 5, 7), **RAW)
add("attention_shared_queries", attention(q=0, k=12, bias="kvo"), QUERY, KEY, KEY, **RAW)
add("attention_shared_keys", attention(q=12, k=0, bias="qvo"), QUERY, KEY, KEY, **RAW)
add("attention_shared_values", attention(v=0, bias="qko"), QUERY, KEY, KEY, **RAW)
add("attention_no_queries_and_keys", attention(q=0, k=0, bias="vo"), QUERY, KEY, KEY, **RAW)
add("attention_no_result", attention(o=0, bias="qkv"), QUERY, KEY, KEY, **RAW)
add("attention_mask", attention(**ONE_MASK), QUERY, KEY, KEY, f32(4, 5), **RAW)
add("attention_mask_each", attention(**ONE_MASK), QUERY, KEY, KEY, f32(4, 4, 5), **RAW)
add(
    "attention_mask_default",
    attention(**ONE_MASK | {"attn_mask_type": "DEFAULT_MASK"}),
    QUERY,
    KEY,
    KEY,
    f32(4, 5),
    **RAW,
)
add("attention_mask_unused", attention(**ONE_MASK | {"attn_mask_type": "NO_MASK"}), QUERY, KEY, KEY, f32(4, 5), **RAW)
add("attention_causal", attention(attn_mask_type="DEFAULT_MASK"), QUERY, KEY, KEY, **RAW)
add("attention_residual", attention(reslink=True), QUERY, KEY, KEY, **RAW)
add("attention_order", attention(input_order=1), QUERY, KEY, KEY, **RAW)
add("attention_training", attention(training=True), QUERY, KEY, KEY, **RAW)
add("attention_zero", attention(add_zero_attn=True), QUERY, KEY, KEY, **RAW)
add("attention_module", M.MultiHeadAttention(6, 2), QUERY, QUERY, QUERY)
add("attention_module_keep", M.MultiHeadAttention(6, 2), QUERY, QUERY, QUERY, **KEEP)


@case(QUERY, KEY, KEY, boolean(2, 5))
class attention_module_masks(M.Module):
    """Keys that are left out, and an average over the heads."""

    def __init__(self):
        super().__init__()
        self.attention = M.MultiHeadAttention(6, 2)

    def forward(self, q, k, v, padding):
        mask = F.concat([padding[:, :4], F.zeros((2, 1), dtype="bool")], axis=1)
        return self.attention(q, k, v, key_padding_mask=mask, need_weights=True, average_attn_weights=True)


@case(QUERY, QUERY)
class attention_module_causal(M.Module):
    def __init__(self):
        super().__init__()
        self.attention = M.MultiHeadAttention(6, 2)

    def forward(self, q, k):
        return self.attention(q, k, k, is_causal=True)[0]

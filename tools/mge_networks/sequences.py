"""Networks on sequences, and dense ones."""

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from mge_fixtures.table import f32, i32

from mge_networks.table import network


class Attention(M.Module):
    """Attention with several heads from matrix products."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.qkv, self.out = M.Linear(width, width * 3), M.Linear(width, width)

    def forward(self, x, causal: bool = False):
        batch, length = x.shape[0], x.shape[1]
        qkv = F.transpose(F.reshape(self.qkv(x), (batch, length, 3, self.heads, self.each)), (2, 0, 3, 1, 4))
        scores = F.matmul(qkv[0], qkv[1], transpose_b=True) * self.each**-0.5
        if causal:
            places = F.arange(length)
            later = F.expand_dims(places, 0) > F.expand_dims(places, 1)
            scores = F.where(F.broadcast_to(later, scores.shape), F.full_like(scores, -1e9), scores)
        mixed = F.transpose(F.matmul(F.softmax(scores, axis=-1), qkv[2]), (0, 2, 1, 3))
        return self.out(F.reshape(mixed, (batch, length, -1)))


class Layer(M.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention, self.norms = Attention(width, heads), [M.LayerNorm(width), M.LayerNorm(width)]
        self.up, self.down = M.Linear(width, width * 4), M.Linear(width * 4, width)

    def forward(self, x, causal: bool = False):
        x = x + self.attention(self.norms[0](x), causal)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Encoder(M.Module):
    """Embedding, positions, layers; the scores of the next token, or of the whole text."""

    def __init__(self, causal: bool):
        super().__init__()
        self.tokens, self.causal = M.Embedding(50, 32), causal
        self.places = mge.Parameter(np.zeros((40, 32), np.float32))
        self.layers, self.norm, self.head = [Layer(32, 4) for _ in range(2)], M.LayerNorm(32), M.Linear(32, 50)

    def forward(self, x):
        x = self.tokens(x) + self.places[: x.shape[1]]
        for layer in self.layers:
            x = layer(x, self.causal)
        x = self.norm(x)
        return self.head(x) if self.causal else self.head(F.mean(x, axis=1))


class OperatorAttention(M.Module):
    """The operator MultiHeadAttn instead of its parts."""

    def __init__(self):
        super().__init__()
        self.layers, self.norm = [M.MultiHeadAttention(24, 4) for _ in range(2)], M.LayerNorm(24)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(x + layer(x, x, x)[0])
        return x


class Tagger(M.Module):
    """A label for each word by a bidirectional LSTM of two layers."""

    def __init__(self):
        super().__init__()
        self.words, self.lstm = M.Embedding(50, 16), M.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = M.Linear(24, 7)

    def forward(self, x):
        scores = self.head(self.lstm(self.words(x))[0])
        return F.softmax(scores, axis=-1), F.argmax(scores, axis=-1)


class GruCell(M.Module):
    def __init__(self, inside: int, width: int):
        super().__init__()
        self.x, self.h, self.width = M.Linear(inside, 3 * width), M.Linear(width, 3 * width), width

    def forward(self, x, h):
        xr, xz, xn = F.split(self.x(x), 3, axis=1)
        hr, hz, hn = F.split(self.h(h), 3, axis=1)
        r, z = F.sigmoid(xr + hr), F.sigmoid(xz + hz)
        return (1 - z) * F.tanh(xn + r * hn) + z * h


class Gru(M.Module):
    """Gated cells by hand over six steps, and cells of MegEngine."""

    def __init__(self):
        super().__init__()
        self.gru, self.rnn, self.lstm = GruCell(8, 12), M.RNNCell(12, 10), M.LSTMCell(10, 6)
        self.head = M.Linear(6, 4)

    def forward(self, x):
        batch = x.shape[0]
        g, r = F.zeros((batch, 12)), F.zeros((batch, 10))
        h, c = F.zeros((batch, 6)), F.zeros((batch, 6))
        for step in range(6):
            g = self.gru(x[:, step], g)
            r = self.rnn(g, r)
            h, c = self.lstm(r, (h, c))[:2]
        return self.head(h), c


class Wave(M.Module):
    """Dilated 1-D convolutions with gates."""

    def __init__(self):
        super().__init__()
        self.first = M.Conv1d(1, 16, 1)
        self.filters = [M.Conv1d(16, 16, 3, dilation=2**k, padding=2**k) for k in range(3)]
        self.gates = [M.Conv1d(16, 16, 3, dilation=2**k, padding=2**k) for k in range(3)]
        self.last = M.Conv1d(16, 5, 1)

    def forward(self, x):
        x = self.first(x)
        for one, two in zip(self.filters, self.gates, strict=True):
            x = x + F.tanh(one(x)) * F.sigmoid(two(x))
        return F.logsoftmax(self.last(x), axis=1)


class Points(M.Module):
    """A set of points: shared layers, then the maximum over the set."""

    def __init__(self):
        super().__init__()
        self.layers = [M.Sequential(M.Conv1d(a, b, 1), M.BatchNorm1d(b), M.ReLU()) for a, b in ((3, 16), (16, 32))]
        self.head = M.Sequential(M.Linear(32, 16), M.ReLU(), M.Linear(16, 6))

    def forward(self, x):
        x = F.transpose(x, (0, 2, 1))
        for layer in self.layers:
            x = layer(x)
        return self.head(F.max(x, axis=2)), F.topk(F.max(x, axis=2), 3, descending=True)


class Autoencoder(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = [M.Linear(a, b) for a, b in ((40, 20), (20, 6), (6, 20), (20, 40))]

    def forward(self, x):
        mean, deviation = F.mean(x, axis=1, keepdims=True), F.std(x, axis=1, keepdims=True)
        y = (x - mean) / (deviation + 1e-5)
        for layer, act in zip(self.layers, (F.relu, F.nn.softplus, F.nn.silu, F.nn.logsigmoid), strict=True):
            y = act(layer(y))
        return y * deviation + mean, F.norm(x - y, 2, axis=1)


TOKENS = ([i32(2, 12, low=0, high=50)], [i32(3, 20, low=0, high=50)])
network("transformer_encoder", "attention from matrix products, layer norm, GELU", lambda: Encoder(False), *TOKENS)
network("transformer_causal", "the same with a mask, scores of each token", lambda: Encoder(True), *TOKENS)
network(
    "attention_operator",
    "the operator MultiHeadAttn",
    OperatorAttention,
    [f32(2, 6, 24)],
    [f32(3, 9, 24)],
    no_change_graph=True,
)
network("lstm_tagger", "embedding, bidirectional LSTM of two layers", Tagger, *TOKENS)
network("gru_by_hand", "gated cells by hand, RNN and LSTM cells", Gru, [f32(2, 6, 8)], [f32(4, 6, 8)])
network("wave", "dilated 1-D convolutions", Wave, [f32(1, 1, 40)], [f32(2, 1, 64)])
network("points", "layers shared by points, maximum over them", Points, [f32(2, 30, 3)], [f32(1, 50, 3)])
network("autoencoder", "dense layers, statistics", Autoencoder, [f32(4, 40)], [f32(7, 40)])

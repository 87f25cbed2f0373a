"""Networks by hand: text."""

import mindspore as ms
import numpy as np
from mindir_fixtures.table import f32, i32, i64, values
from mindspore import Parameter, Tensor, nn, ops

from networks.table import Network, by_hand


def heads(x, count):
    """[batch, length, width] to [batch, heads, length, width of a head]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(0, 2, 1, 3)


def joined(x):
    """The way back."""
    batch, count, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, count * width)


class BertLayer(nn.Cell):
    def __init__(self, width: int, count: int):
        super().__init__()
        self.count = count
        self.query, self.key, self.value = (nn.Dense(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Dense(width, width), nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.norms = nn.CellList([nn.LayerNorm((width,), epsilon=1e-12) for _ in range(2)])
        self.act = nn.GELU(approximate=False)

    def construct(self, x, mask):
        q, k, v = heads(self.query(x), self.count), heads(self.key(x), self.count), heads(self.value(x), self.count)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1]) + mask
        x = self.norms[0](x + self.out(joined(ops.matmul(ops.softmax(scores, -1), v))))
        return self.norms[1](x + self.down(self.act(self.up(x))))


class BertClassifier(nn.Cell):
    """Six layers, token, position and segment embeddings, a mask, a classifier; batch and length are dynamic."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(500, 96), nn.Embedding(64, 96), nn.Embedding(2, 96)
        self.norm = nn.LayerNorm((96,), epsilon=1e-12)
        self.layers = nn.CellList([BertLayer(96, 6) for _ in range(6)])
        self.pooler = nn.Dense(96, 96, activation="tanh")
        self.head = nn.Dense(96, 3)

    def construct(self, ids, mask, kinds):
        x = self.words(ids) + self.places(ops.arange(ids.shape[1])) + self.kinds(kinds)
        x = self.norm(x)
        additive = (1.0 - mask[:, None, None, :].astype(ms.float32)) * -1e4
        for layer in self.layers:
            x = layer(x, additive)
        return self.head(self.pooler(x[:, 0])), x


class GptLayer(nn.Cell):
    def __init__(self, width: int, count: int):
        super().__init__()
        self.count = count
        self.mixed, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.norms = nn.CellList([nn.LayerNorm((width,), epsilon=1e-5) for _ in range(2)])
        self.act = nn.GELU()

    def construct(self, x, mask):
        q, k, v = ops.chunk(self.mixed(self.norms[0](x)), 3, -1)
        q, k, v = heads(q, self.count), heads(k, self.count), heads(v, self.count)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) * q.shape[-1] ** -0.5
        scores = ops.masked_fill(scores, mask, -65504.0)
        x = x + self.out(joined(ops.matmul(ops.softmax(scores, -1), v)))
        return x + self.down(self.act(self.up(self.norms[1](x))))


class Gpt(nn.Cell):
    """Four causal layers of dynamic length, tied output matrix, the next token."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(300, 64), nn.Embedding(64, 64)
        self.layers = nn.CellList([GptLayer(64, 4) for _ in range(4)])
        self.norm = nn.LayerNorm((64,), epsilon=1e-5)

    def construct(self, ids):
        length = ids.shape[1]
        places = ops.arange(length)
        x = self.words(ids) + self.places(places)
        mask = places[None, :] > places[:, None]
        for layer in self.layers:
            x = layer(x, mask)
        logits = ops.matmul(self.norm(x), self.words.embedding_table.T)
        return logits, ops.argmax(logits[:, -1], -1)


class LlamaLayer(nn.Cell):
    def __init__(self, width: int, count: int, groups: int, number: int):
        super().__init__()
        self.count, self.groups, self.size = count, groups, width // count
        self.query = nn.Dense(width, width, has_bias=False)
        self.key = nn.Dense(width, groups * self.size, has_bias=False)
        self.value = nn.Dense(width, groups * self.size, has_bias=False)
        self.out = nn.Dense(width, width, has_bias=False)
        self.gate, self.up = (nn.Dense(width, 3 * width, has_bias=False) for _ in range(2))
        self.down = nn.Dense(3 * width, width, has_bias=False)
        self.first = Parameter(Tensor(np.ones(width, np.float32)), name=f"gamma_first_{number}")
        self.second = Parameter(Tensor(np.ones(width, np.float32)), name=f"gamma_second_{number}")

    def norm(self, x, weight):
        return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-6) * weight

    def rotate(self, x, cos, sin):
        a, b = ops.split(x, self.size // 2, -1)
        return x * cos + ops.concat((-b, a), -1) * sin

    def construct(self, x, cos, sin, mask):
        y = self.norm(x, self.first)
        q = self.rotate(heads(self.query(y), self.count), cos, sin)
        k = self.rotate(heads(self.key(y), self.groups), cos, sin)
        v = heads(self.value(y), self.groups)
        k, v = (ops.repeat_interleave(part, self.count // self.groups, 1) for part in (k, v))
        scores = ops.matmul(q, k.swapaxes(-1, -2)) * self.size**-0.5 + mask
        x = x + self.out(joined(ops.matmul(ops.softmax(scores, -1), v)))
        y = self.norm(x, self.second)
        return x + self.down(ops.silu(self.gate(y)) * self.up(y))


class Llama(nn.Cell):
    """Four layers with rotary positions, RMS normalisation, SwiGLU and grouped key heads, of dynamic length."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(300, 64)
        self.layers = nn.CellList([LlamaLayer(64, 8, 2, number) for number in range(4)])
        self.frequencies = Tensor(10000.0 ** (-np.arange(0, 8, 2) / 8), ms.float32)
        self.head = nn.Dense(64, 300, has_bias=False)

    def construct(self, ids):
        length = ids.shape[1]
        places = ops.arange(length).astype(ms.float32)
        angles = places[:, None] * self.frequencies[None]
        angles = ops.concat((angles, angles), -1)
        mask = ops.triu(ops.ones((length, length), ms.float32), 1) * -1e9
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, ops.cos(angles), ops.sin(angles), mask)
        return self.head(x)


class LstmLanguageModel(nn.Cell):
    """Two LSTM layers with the state as inputs and outputs."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(80, 24)
        self.lstm = nn.LSTM(24, 32, num_layers=2)
        self.head = nn.Dense(32, 80)

    def construct(self, ids, hidden, memory):
        y, (hidden, memory) = self.lstm(self.words(ids.swapaxes(0, 1)), (hidden, memory))
        return ops.log_softmax(self.head(y), -1), hidden, memory


class Tacotron(nn.Cell):
    """Speech: a convolutional text encoder, a GRU, location-free attention over its steps, mel frames."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(40, 16)
        self.convs = nn.CellList([nn.Conv1d(16, 16, 5, pad_mode="same", has_bias=True) for _ in range(2)])
        self.norms = nn.CellList([nn.BatchNorm1d(16) for _ in range(2)])
        self.gru = nn.GRU(16, 12, batch_first=True, bidirectional=True)
        self.query, self.key, self.energy = nn.Dense(8, 10), nn.Dense(24, 10), nn.Dense(10, 1)
        self.frame = nn.Dense(24 + 8, 20)

    def construct(self, ids, decoder):
        x = self.letters(ids).swapaxes(1, 2)
        for k in range(2):
            x = ops.relu(self.norms[k](self.convs[k](x)))
        memory, _ = self.gru(x.swapaxes(1, 2))
        energies = self.energy(ops.tanh(self.query(decoder)[:, :, None] + self.key(memory)[:, None]))
        weights = ops.softmax(energies.squeeze(-1), -1)
        return self.frame(ops.concat((ops.bmm(weights, memory), decoder), -1)), weights


def networks() -> list[Network]:
    mask = values([[1] * 9, [1] * 5 + [0] * 4], "int32")
    kinds = values([[0] * 4 + [1] * 5, [0] * 9], "int32")
    any_size = (None, None)
    bert = [[i32(2, 9, low=0, high=500), mask, kinds], [i32(1, 6, low=0, high=500), mask[:1, :6], kinds[:1, :6]]]
    lstm = [i32(2, 6, low=0, high=80), f32(2, 2, 32), f32(2, 2, 32)]
    return [
        by_hand(BertClassifier, *bert, shapes=[any_size] * 3),
        by_hand(Gpt, [i64(2, 8, low=0, high=300)], [i64(1, 21, low=0, high=300)], shapes=[any_size]),
        by_hand(Llama, [i32(1, 8, low=0, high=300)], [i32(2, 13, low=0, high=300)], shapes=[any_size]),
        by_hand(LstmLanguageModel, lstm),
        by_hand(Tacotron, [i32(2, 7, low=0, high=40), f32(2, 5, 8)]),
    ]

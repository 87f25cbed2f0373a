"""The networks of the suite that mindcv does not have, for MindSpore 2.10."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def heads(x, count):
    """[batch, length, width] to [batch, heads, length, width of a head]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(0, 2, 1, 3)


def attend(q, k, v, count):
    """Attention of several heads."""
    batch, length, width = q.shape
    q, k, v = heads(q, count), heads(k, count), heads(v, count)
    scores = ops.matmul(q, k.swapaxes(-1, -2)) * (width // count) ** -0.5
    mixed = ops.matmul(ops.softmax(scores, -1), v)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, width)


class BertLayer(nn.Cell):
    def __init__(self, width: int, count: int):
        super().__init__()
        self.count = count
        self.query, self.key, self.value = (nn.Dense(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Dense(width, width), nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.first, self.second = (nn.LayerNorm((width,), epsilon=1e-12) for _ in range(2))
        self.act = nn.GELU(approximate=False)

    def construct(self, x):
        x = self.first(x + self.out(attend(self.query(x), self.key(x), self.value(x), self.count)))
        return self.second(x + self.down(self.act(self.up(x))))


class Bert(nn.Cell):
    """BERT-base on texts of 128 tokens without padding: 12 layers of width 768, the vectors of all tokens."""

    def __init__(self, layers: int = 12, width: int = 768, count: int = 12, words: int = 30522, length: int = 128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = Parameter(Tensor(np.zeros((length, width)), ms.float32), name="places")
        self.norm = nn.LayerNorm((width,), epsilon=1e-12)
        self.layers = nn.CellList([BertLayer(width, count) for _ in range(layers)])

    def construct(self, ids):
        x = self.norm(self.words(ids) + self.places)
        for layer in self.layers:
            x = layer(x)
        return x


class Cross(nn.Cell):
    """Attention of the image to itself, or to a context."""

    def __init__(self, width: int, context: int, count: int):
        super().__init__()
        self.count = count
        self.query = nn.Dense(width, width, has_bias=False)
        self.key, self.value = (nn.Dense(context, width, has_bias=False) for _ in range(2))
        self.out = nn.Dense(width, width)

    def construct(self, x, context):
        return self.out(attend(self.query(x), self.key(context), self.value(context), self.count))


class UNetBlock(nn.Cell):
    """A block of Stable Diffusion's UNet: residual block with a time embedding, then a spatial transformer."""

    def __init__(self, width: int = 320, context: int = 768, time: int = 1280, count: int = 8):
        super().__init__()
        self.time = nn.Dense(time, width)
        self.convs = nn.CellList([nn.Conv2d(width, width, 3, 1, "pad", padding=1, has_bias=True) for _ in range(2)])
        self.groups = nn.CellList([nn.GroupNorm(32, width) for _ in range(3)])
        self.enter, self.leave = (nn.Conv2d(width, width, 1, has_bias=True) for _ in range(2))
        self.norms = nn.CellList([nn.LayerNorm((width,), epsilon=1e-5) for _ in range(3)])
        self.itself, self.other = Cross(width, width, count), Cross(width, context, count)
        self.gate, self.up = (nn.Dense(width, 4 * width) for _ in range(2))
        self.down = nn.Dense(4 * width, width)

    def construct(self, x, time, context):
        y = self.convs[0](ops.silu(self.groups[0](x))) + self.time(ops.silu(time))[:, :, None, None]
        x = x + self.convs[1](ops.silu(self.groups[1](y)))
        batch, width, rows, columns = x.shape
        y = self.enter(self.groups[2](x)).reshape(batch, width, rows * columns).swapaxes(1, 2)
        own = self.norms[0](y)
        y = y + self.itself(own, own)
        y = y + self.other(self.norms[1](y), context)
        own = self.norms[2](y)
        y = y + self.down(self.up(own) * ops.gelu(self.gate(own)))
        return x + self.leave(y.swapaxes(1, 2).reshape(batch, width, rows, columns))


class Lstm(nn.Cell):
    """Two layers, 128 to 256, over steps that come first."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(128, 256, num_layers=2)

    def construct(self, x):
        return self.lstm(x)[0]


class Mlp(nn.Cell):
    """32-64-64-10."""

    def __init__(self):
        super().__init__()
        self.layers = nn.SequentialCell(nn.Dense(32, 64), nn.ReLU(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))

    def construct(self, x):
        return self.layers(x)

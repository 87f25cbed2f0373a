"""The language and general networks of the network fixtures."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindir_fixtures.table import Case, boolean, case, f32, i32, i64, values


class Attention(nn.Cell):
    """Multi-head attention with separate query, key and value layers and an additive mask."""

    def __init__(self, width: int, heads: int, context: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.query = nn.Dense(width, width)
        self.key = nn.Dense(context or width, width)
        self.value = nn.Dense(context or width, width)
        self.out = nn.Dense(width, width)

    def split(self, x):
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def construct(self, x, context, mask):
        batch, length, width = x.shape
        scores = ops.matmul(self.split(self.query(x)), self.split(self.key(context)).swapaxes(-1, -2)) * self.scale
        if mask is not None:
            scores = scores + mask
        mixed = ops.matmul(ops.softmax(scores, -1), self.split(self.value(context)))
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(batch, length, width))


class Block(nn.Cell):
    """Transformer block, normalisation before or after."""

    def __init__(self, width: int, heads: int, before: bool) -> None:
        super().__init__()
        self.before = before
        self.attention = Attention(width, heads)
        self.first = nn.LayerNorm((width,), epsilon=1e-5)
        self.second = nn.LayerNorm((width,), epsilon=1e-5)
        self.up = nn.Dense(width, 2 * width)
        self.act = nn.GELU(approximate=before)
        self.down = nn.Dense(2 * width, width)

    def construct(self, x, mask):
        if self.before:
            y = self.first(x)
            x = x + self.attention(y, y, mask)
            return x + self.down(self.act(self.up(self.second(x))))
        x = self.first(x + self.attention(x, x, mask))
        return self.second(x + self.down(self.act(self.up(x))))


class Bert(nn.Cell):
    """Token, position and segment embeddings, a block, pooled output."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.positions = nn.Embedding(16, 12)
        self.segments = nn.Embedding(2, 12)
        self.norm = nn.LayerNorm((12,), epsilon=1e-12)
        self.blocks = nn.CellList([Block(12, 3, False)])
        self.pooler = nn.Dense(12, 12, activation="tanh")

    def construct(self, ids, mask, segments):
        length = ids.shape[1]
        x = self.words(ids) + self.positions(ops.arange(length)) + self.segments(segments)
        x = self.norm(x)
        additive = (1.0 - mask.astype(ms.float32))[:, None, None, :] * -10000.0
        for block in self.blocks:
            x = block(x, additive)
        return x, self.pooler(x[:, 0])


class ViT(nn.Cell):
    """Patch embedding, class token, a pre-norm block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, 4, "valid", has_bias=True)
        self.token = Parameter(Tensor(np.zeros((1, 1, 12), np.float32)), name="token")
        self.positions = Parameter(Tensor(np.zeros((1, 7, 12), np.float32)), name="positions")
        self.blocks = nn.CellList([Block(12, 2, True)])
        self.norm = nn.LayerNorm((12,))
        self.head = nn.Dense(12, 5)

    def construct(self, x):
        x = self.patches(x)
        batch, width = x.shape[:2]
        x = x.reshape(batch, width, -1).transpose(0, 2, 1)
        x = ops.concat((ops.broadcast_to(self.token, (batch, 1, width)), x), 1) + self.positions
        for block in self.blocks:
            x = block(x, None)
        return self.head(self.norm(x)[:, 0])


class Gpt(nn.Cell):
    """Causal decoder with the output matrix tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(31, 12)
        self.positions = nn.Embedding(10, 12)
        self.blocks = nn.CellList([Block(12, 3, True)])
        self.norm = nn.LayerNorm((12,), epsilon=1e-5)

    def construct(self, ids):
        length = ids.shape[1]
        x = self.words(ids) + self.positions(ops.arange(length))
        causal = ops.triu(ops.ones((length, length), ms.float32), 1).astype(ms.bool_)
        mask = ops.masked_fill(ops.zeros((length, length), ms.float32), causal, -1e9)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return ops.matmul(x, self.words.embedding_table.T)


class Llama(nn.Cell):
    """Rotary positions, RMS normalisation, gated feed-forward, grouped key heads."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(29, 16)
        self.query = nn.Dense(16, 16, has_bias=False)
        self.key = nn.Dense(16, 8, has_bias=False)
        self.value = nn.Dense(16, 8, has_bias=False)
        self.out = nn.Dense(16, 16, has_bias=False)
        self.gate = nn.Dense(16, 24, has_bias=False)
        self.up = nn.Dense(16, 24, has_bias=False)
        self.down = nn.Dense(24, 16, has_bias=False)
        self.first = Parameter(Tensor(np.ones(16, np.float32)), name="first")
        self.second = Parameter(Tensor(np.ones(16, np.float32)), name="second")
        self.frequencies = Tensor(1.0 / (10000 ** (np.arange(0, 4, 2) / 4)), ms.float32)

    def norm(self, x, weight):
        return x * ops.rsqrt(ops.mean(ops.square(x), -1, True) + 1e-6) * weight

    def rotate(self, x, cos, sin):
        a, b = x[..., :2], x[..., 2:]
        return x * cos + ops.concat((-b, a), -1) * sin

    def construct(self, ids):
        batch, length = ids.shape
        x = self.words(ids)
        angles = ops.arange(length).astype(ms.float32)[:, None] * self.frequencies[None]
        angles = ops.concat((angles, angles), -1)
        cos, sin = ops.cos(angles), ops.sin(angles)
        y = self.norm(x, self.first)
        q = self.rotate(self.query(y).reshape(batch, length, 4, 4).transpose(0, 2, 1, 3), cos, sin)
        k = self.rotate(self.key(y).reshape(batch, length, 2, 4).transpose(0, 2, 1, 3), cos, sin)
        v = self.value(y).reshape(batch, length, 2, 4).transpose(0, 2, 1, 3)
        k, v = ops.repeat_interleave(k, 2, 1), ops.repeat_interleave(v, 2, 1)
        scores = ops.matmul(q, k.swapaxes(2, 3)) * 0.5
        positions = ops.arange(length)
        scores = ops.where(positions[None, :] > positions[:, None], -1e9, scores)
        mixed = ops.matmul(ops.softmax(scores, -1), v).transpose(0, 2, 1, 3).reshape(batch, length, 16)
        x = x + self.out(mixed)
        y = self.norm(x, self.second)
        return x + self.down(ops.silu(self.gate(y)) * self.up(y))


class ManyOutputs(nn.Cell):
    """Three inputs of three types, nested outputs, one branch shared."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(5, 4)
        self.second = nn.Dense(4, 3)
        self.table = nn.Embedding(6, 5)

    def construct(self, x, ids, mask):
        shared = ops.relu(self.first(x + self.table(ids)))
        scores = ops.where(mask, self.second(shared), -1.0)
        values, indices = ops.topk(scores, 2)
        return shared, (scores, (values, indices)), [shared.sum(-1), scores.argmax(-1)], x


class Integers(nn.Cell):
    """Only integers in, integers and a float out."""

    def construct(self, x, y):
        total = x * 3 + y
        return total // 4, total % 5, (total > 7).astype(ms.int32), ops.cumsum(x, 1), total.astype(ms.float32).mean()


class Counter(nn.Cell):
    """Keeps a running sum in a weight between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Parameter(Tensor(np.zeros((2, 3), np.float32)), name="kept_total")

    def construct(self, x):
        ops.assign_add(self.total, x)
        return self.total * 2


def cases() -> list[Case]:
    ids = i32(2, 6, low=0, high=29)
    mask = values([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], "int32")
    segments = values([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]], "int32")
    dynamic = (None, None)
    return [
        case("bert", Bert(), ids, mask, segments),
        case("bert_dynamic", Bert(), ids, mask, segments, shapes=[dynamic] * 3),
        case("vit", ViT(), f32(2, 3, 8, 12)),
        case("gpt", Gpt(), i64(2, 6, low=0, high=31)),
        case("gpt_dynamic", Gpt(), i64(2, 6, low=0, high=31), shapes=[dynamic]),
        case("llama", Llama(), ids),
        case("llama_dynamic", Llama(), ids, shapes=[dynamic]),
        case("many_outputs", ManyOutputs(), f32(4, 5), i32(4, low=0, high=6), boolean(4, 3)),
        case("integers", Integers(), i32(3, 5), i32(3, 5)),
        case("counter", Counter(), f32(2, 3)),
    ]

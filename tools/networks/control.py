"""Networks by hand with control flow and state."""

import mindspore as ms
import numpy as np
from mindir_fixtures.table import f32, i32, values
from mindspore import Parameter, Tensor, nn, ops

from networks.table import Network, by_hand


class Translator(nn.Cell):
    """Sequence to sequence: a GRU encoder, then a loop of attention and a GRU cell that stops at a length."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.encoder = nn.GRU(12, 16, batch_first=True)
        self.cell = nn.GRUCell(12 + 16, 16)
        self.head = nn.Dense(16, 30)

    def construct(self, ids, steps):
        memory, state = self.encoder(self.words(ids))
        state = state[0]
        token = ops.zeros((ids.shape[0],), ms.int32)
        total = ops.zeros((ids.shape[0],), ms.float32)
        i = ops.zeros((), ms.int32)
        while i < steps:
            weights = ops.softmax(ops.bmm(memory, state[:, :, None]).squeeze(-1), -1)
            context = ops.bmm(weights[:, None], memory).squeeze(1)
            state = self.cell(ops.concat((self.words(token), context), 1), state)
            logits = ops.log_softmax(self.head(state), -1)
            token = ops.argmax(logits, -1).astype(ms.int32)
            total = total + ops.max(logits, 1)[0]
            i = i + 1
        return state, token, total


class CachedDecoder(nn.Cell):
    """One layer of attention over keys and values of earlier calls, which two weights keep."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.query, self.key, self.value = (nn.Dense(16, 16) for _ in range(3))
        self.keys = Parameter(Tensor(np.zeros((1, 12, 16), np.float32)), name="kept_keys")
        self.values = Parameter(Tensor(np.zeros((1, 12, 16), np.float32)), name="kept_values")
        self.head = nn.Dense(16, 50)

    def construct(self, token, place):
        x = self.words(token)
        here = ops.one_hot(place, 12, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))[:, :, None]
        keys = ops.assign(self.keys, self.keys * (1 - here) + self.key(x) * here)
        kept = ops.assign(self.values, self.values * (1 - here) + self.value(x) * here)
        scores = ops.bmm(self.query(x), keys.swapaxes(1, 2)) * 0.25
        mask = (ops.arange(12)[None] > place[:, None]).astype(ms.float32)[:, None] * -1e9
        return self.head(ops.bmm(ops.softmax(scores + mask, -1), kept))


class RunningStatistics(nn.Cell):
    """Counts its calls and keeps a moving mean, both in weights."""

    def __init__(self):
        super().__init__()
        self.mean = Parameter(Tensor(np.zeros(4, np.float32)), name="kept_mean")
        self.calls = Parameter(Tensor(np.zeros((), np.int32)), name="kept_calls")

    def construct(self, x):
        count = ops.assign_add(self.calls, Tensor(1, ms.int32))
        ops.assign(self.mean, self.mean * 0.9 + x.mean(0) * 0.1)
        return (x - self.mean) * count, self.mean + 0


class BeamSearch(nn.Cell):
    """Keeps the three best sequences, and leaves the loop early once the best has ended."""

    def __init__(self):
        super().__init__()
        self.table = nn.Dense(8, 8)

    def construct(self, scores, tokens):
        i = ops.zeros((), ms.int32)
        while i < 6:
            steps = ops.log_softmax(self.table(ops.one_hot(tokens, 8, Tensor(1.0), Tensor(0.0))), -1)
            best, places = ops.topk((scores[:, None] + steps).reshape(-1), 3)
            scores = best
            tokens = places % 8
            i = i + 1
            if tokens[0] == 7:
                break
        return scores, tokens, i


class MixtureOfExperts(nn.Cell):
    """A run-time index picks the expert; all experts are also mixed by a gate."""

    def __init__(self):
        super().__init__()
        self.experts = nn.CellList(
            [
                nn.SequentialCell(nn.Dense(6, 12), nn.ReLU(), nn.Dense(12, 6)),
                nn.SequentialCell(nn.Dense(6, 12), nn.Tanh(), nn.Dense(12, 6)),
                nn.SequentialCell(nn.LayerNorm((6,)), nn.Dense(6, 6)),
            ]
        )
        self.gate = nn.Dense(6, 3)

    def construct(self, x, index):
        chosen = self.experts[index](x)
        weights = ops.softmax(self.gate(x), -1)
        mixed = ops.stack([expert(x) for expert in self.experts], -1)
        return chosen + (mixed * weights[:, None]).sum(-1)


class EarlyExit(nn.Cell):
    """Returns from the first classifier that is sure; else goes on through deeper layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(6, 6) for _ in range(3)])
        self.heads = nn.CellList([nn.Dense(6, 4) for _ in range(3)])

    def construct(self, x, limit):
        x = ops.relu(self.layers[0](x))
        y = ops.softmax(self.heads[0](x), -1)
        if y.max() > limit:
            return y
        x = ops.relu(self.layers[1](x))
        y = ops.softmax(self.heads[1](x), -1)
        if y.max() > limit:
            return y
        return ops.softmax(self.heads[2](ops.relu(self.layers[2](x))), -1)


class Equilibrium(nn.Cell):
    """Iterates a layer to a fixed point, the outer loop over two scales, with a condition inside."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(5, 5)

    def construct(self, x):
        scale = ops.ones((), ms.float32)
        y = ops.zeros_like(x)
        rounds = ops.zeros((), ms.int32)
        while scale > 0.3:
            change = ops.ones((), ms.float32)
            while change > 1e-2:
                new = ops.tanh(0.3 * self.layer(y) + x * scale)
                change = ops.abs(new - y).max()
                if rounds % 2 == 0:
                    y = new
                else:
                    y = 0.5 * (new + y)
                rounds = rounds + 1
            scale = scale * 0.5
        return y, rounds


def networks() -> list[Network]:
    index, limit = values(1, "int32"), values(0.9)
    tokens = [[values([[k * 7 % 50]], "int32"), values([k], "int32")] for k in range(4)]
    experts = [[f32(4, 6), index], [f32(4, 6), values(2, "int32")], [f32(4, 6), values(0, "int32")]]
    return [
        by_hand(Translator, [i32(2, 5, low=0, high=30), values(4, "int32")]),
        by_hand(CachedDecoder, *tokens),
        by_hand(RunningStatistics, [f32(3, 4)], [f32(3, 4)], [f32(3, 4)]),
        by_hand(BeamSearch, [f32(3), i32(3, low=0, high=8)]),
        by_hand(MixtureOfExperts, *experts),
        by_hand(EarlyExit, [f32(2, 6), limit], [f32(2, 6), values(0.1)], [f32(2, 6), values(2.0)]),
        by_hand(Equilibrium, [f32(3, 5)]),
    ]

"""Small networks: vision, language, recurrence, control flow, state."""

import mindspore as ms
import numpy as np
from mindir_fixtures.table import Case, case, f32, i32, values
from mindspore import Parameter, Tensor, nn, ops

X = f32(3, 5)

CONTROL = {
    "control_if": """
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return y
    """,
    "control_if_nested": """
        y = x
        if x.sum() > -1000:
            if x.max() > 3:
                y = x * 3
            else:
                y = x * 2
        return y, x
    """,
    "control_while": """
        y = x
        while ops.abs(y).sum() < 100:
            y = y * 2
        return y
    """,
    "control_while_break": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 10:
            y = y * 2
            if ops.abs(y).max() > 50:
                break
            i = i + 1
        return y, i
    """,
    "control_for": """
        y = x
        for i in range(3):
            if y.sum() < 20:
                y = y + i + 1
        return y
    """,
}


class Convolutions(nn.Cell):
    """Convolutions with normalisation, a residual connection, pooling and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(3, 8, 3, 2, "same"), nn.BatchNorm2d(8), nn.ReLU())
        self.depth = nn.SequentialCell(nn.Conv2d(8, 8, 3, 1, "pad", padding=1, group=8), nn.BatchNorm2d(8), nn.ReLU6())
        self.point = nn.SequentialCell(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
        self.pool = nn.MaxPool2d(2, 2)
        self.head = nn.Dense(8, 5)

    def construct(self, x):
        x = self.stem(x)
        x = self.pool(x + self.point(self.depth(x)))
        return ops.softmax(self.head(ops.mean(x, (2, 3))), -1)


class Transformer(nn.Cell):
    """Embedding, one pre-norm block with a causal mask, tied output matrix."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(13, 8)
        self.first = nn.LayerNorm((8,), epsilon=1e-5)
        self.second = nn.LayerNorm((8,), epsilon=1e-5)
        self.mixed = nn.Dense(8, 24)
        self.out = nn.Dense(8, 8)
        self.up = nn.Dense(8, 16, activation="gelu")
        self.down = nn.Dense(16, 8)

    def construct(self, ids):
        batch, length = ids.shape
        x = self.words(ids)
        parts = self.mixed(self.first(x)).reshape(batch, length, 3, 2, 4).transpose(2, 0, 3, 1, 4)
        scores = ops.matmul(parts[0], parts[1].swapaxes(-1, -2)) * 0.5
        mask = ops.triu(ops.ones((length, length), ms.float32), 1)
        y = ops.matmul(ops.softmax(scores - mask * 10000.0, -1), parts[2])
        x = x + self.out(y.transpose(0, 2, 1, 3).reshape(batch, length, 8))
        x = x + self.down(self.up(self.second(x)))
        return ops.matmul(x, self.words.embedding_table.T)


class Tagger(nn.Cell):
    """A bidirectional LSTM, then a GRU cell over the last state."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 4)
        self.lstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(6, 5)

    def construct(self, ids, state):
        y, (hidden, memory) = self.lstm(self.words(ids))
        return y, (hidden, memory), self.cell(y[:, -1], state)


class Autoencoder(nn.Cell):
    """Strided convolutions down, transposed ones up, a skip connection."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(2, 6, 3, 2, "pad", padding=1, has_bias=True)
        self.norm = nn.GroupNorm(3, 6)
        self.up = nn.Conv2dTranspose(6, 2, 4, 2, "pad", padding=1, has_bias=True)
        self.resize = nn.ResizeBilinear()

    def construct(self, x):
        y = self.up(ops.silu(self.norm(self.down(x))))
        return ops.concat((x, self.resize(y, size=(8, 6))), 1)


class Counter(nn.Cell):
    """Keeps a running sum in a weight between calls."""

    def __init__(self):
        super().__init__()
        self.total = Parameter(Tensor(np.zeros((2, 3), np.float32)), name="kept_total")

    def construct(self, x):
        ops.assign_add(self.total, x)
        return self.total * 2


class Swap(nn.Cell):
    """Returns the weight's old content, and stores the input."""

    def __init__(self):
        super().__init__()
        self.last = Parameter(Tensor(np.ones((2, 3), np.float32)), name="kept_last")

    def construct(self, x):
        before = self.last + 0
        self.last = x
        return before


class Chooser(nn.Cell):
    """Calls one of several layers, by an index that is known at run time only."""

    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.ReLU(), nn.Tanh(), nn.Dense(5, 5)])

    def construct(self, x, index):
        return self.layers[index](x)


def cases() -> list[Case]:
    return [
        case("net_convolutions", Convolutions(), f32(2, 3, 12, 10)),
        case("net_convolutions_dynamic", Convolutions(), f32(2, 3, 12, 10), shapes=[(None, 3, None, None)]),
        case("net_transformer", Transformer(), i32(2, 6, low=0, high=13)),
        case("net_tagger", Tagger(), i32(2, 3, low=0, high=11), f32(2, 5)),
        case("net_autoencoder", Autoencoder(), f32(1, 2, 8, 6)),
        case("state_counter", Counter(), f32(2, 3)),
        case("state_swap", Swap(), f32(2, 3)),
        case("control_switch_layer", Chooser(), X, values(2, "int32")),
        *[case(name, text, X) for name, text in CONTROL.items()],
    ]

"""Networks by hand: images and signals."""

import mindspore as ms
import numpy as np
from mindir_fixtures.table import f32, i32
from mindspore import Parameter, Tensor, nn, ops

from networks.table import Network, by_hand


def conv(channels: int, out: int, kernel: int = 3, stride: int = 1, **more) -> nn.SequentialCell:
    padding = (kernel - 1) * more.get("dilation", 1) // 2
    return nn.SequentialCell(
        nn.Conv2d(channels, out, kernel, stride, "pad", padding=padding, **more), nn.BatchNorm2d(out), nn.SiLU()
    )


class DiffusionUNet(nn.Cell):
    """Noise prediction with a sinusoidal time embedding, self-attention in the middle, skip connections."""

    def __init__(self):
        super().__init__()
        self.time = nn.SequentialCell(nn.Dense(32, 64), nn.SiLU(), nn.Dense(64, 48))
        self.enter = nn.Conv2d(3, 24, 3, 1, "pad", padding=1, has_bias=True)
        self.down = nn.Conv2d(24, 48, 3, 2, "pad", padding=1, has_bias=True)
        self.norms = nn.CellList([nn.GroupNorm(8, 24), nn.GroupNorm(8, 48), nn.GroupNorm(8, 48), nn.GroupNorm(8, 48)])
        self.mixed = nn.Conv2d(48, 144, 1, has_bias=True)
        self.out = nn.Conv2d(48, 48, 1, has_bias=True)
        self.up = nn.Conv2dTranspose(48, 24, 4, 2, "pad", padding=1, has_bias=True)
        self.leave = nn.Conv2d(48, 3, 3, 1, "pad", padding=1, has_bias=True)

    def embed(self, steps):
        frequencies = ops.exp(ops.arange(16).astype(ms.float32) * (-np.log(10000.0) / 16))
        angles = steps.astype(ms.float32)[:, None] * frequencies[None]
        return self.time(ops.concat((ops.sin(angles), ops.cos(angles)), -1))

    def attend(self, x):
        batch, channels, height, width = x.shape
        q, k, v = ops.split(self.mixed(self.norms[2](x)).reshape(batch, 3 * channels, height * width), channels, 1)
        weights = ops.softmax(ops.bmm(q.swapaxes(1, 2), k) * channels**-0.5, -1)
        return x + self.out(ops.bmm(v, weights.swapaxes(1, 2)).reshape(batch, channels, height, width))

    def construct(self, x, steps):
        first = self.enter(x)
        y = self.down(ops.silu(self.norms[0](first)))
        y = ops.silu(self.norms[1](y)) + self.embed(steps)[:, :, None, None]
        y = self.up(ops.silu(self.norms[3](self.attend(y))))
        return self.leave(ops.concat((first, y), 1))


class YoloDetector(nn.Cell):
    """Two scales, boxes decoded on a grid, then non-maximum suppression of the best ones."""

    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(conv(3, 16, 3, 2), conv(16, 32, 3, 2), conv(32, 32))
        self.deep = conv(32, 64, 3, 2)
        self.lateral = conv(64, 32, 1)
        self.small = nn.Conv2d(64, 7, 1, has_bias=True)
        self.large = nn.Conv2d(64, 7, 1, has_bias=True)
        self.nms = ops.NMSWithMask(0.5)

    def decode(self, y, stride):
        height, width = y.shape[2:]
        rows, columns = ops.meshgrid(ops.arange(height), ops.arange(width), indexing="ij")
        grid = ops.stack((columns, rows), 0).astype(ms.float32)[None]
        centres = (ops.sigmoid(y[:, :2]) + grid) * stride
        sizes = ops.exp(ops.clamp(y[:, 2:4], -4.0, 4.0)) * 6 * stride
        boxes = ops.concat((centres - sizes / 2, centres + sizes / 2, ops.sigmoid(y[:, 4:])), 1)
        return boxes.reshape(boxes.shape[0], 7, -1).swapaxes(1, 2)

    def construct(self, x):
        fine = self.stem(x)
        coarse = self.deep(fine)
        top = ops.interpolate(self.lateral(coarse), size=fine.shape[2:], mode="nearest")
        merged = ops.concat((fine, top), 1)
        found = ops.concat((self.decode(self.large(merged), 4), self.decode(self.small(coarse), 8)), 1)[0]
        scores = found[:, 4] * ops.max(found[:, 5:], 1)[0]
        best, places = ops.topk(scores, 20)
        boxes = ops.concat((ops.gather(found[:, :4], places, 0), best[:, None]), 1)
        kept, index, mask = self.nms(boxes)
        return found, kept, index, mask


class TextReader(nn.Cell):
    """CRNN: convolutions, columns as a sequence through two bidirectional LSTMs."""

    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(
            conv(1, 16), nn.MaxPool2d(2, 2), conv(16, 32), nn.MaxPool2d((2, 1), (2, 1)), conv(32, 32)
        )
        self.lstm = nn.LSTM(32 * 4, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Dense(48, 37)

    def construct(self, x):
        y = self.features(x)
        batch, channels, height, width = y.shape
        y, _ = self.lstm(y.transpose(0, 3, 1, 2).reshape(batch, width, channels * height))
        return ops.log_softmax(self.head(y), -1)


class SuperResolution(nn.Cell):
    """Residual blocks at low resolution, pixel shuffle, plus the enlarged input."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 24, 3, 1, "pad", padding=1, has_bias=True)
        self.blocks = nn.CellList([nn.SequentialCell(conv(24, 24), nn.Conv2d(24, 24, 3)) for _ in range(3)])
        self.act = nn.PReLU(24)
        self.up = nn.Conv2d(24, 3 * 9, 3, 1, "pad", padding=1, has_bias=True)

    def construct(self, x):
        y = self.act(self.enter(x))
        for block in self.blocks:
            y = y + 0.1 * block(y)
        y = ops.pixel_shuffle(self.up(y), 3)
        height, width = x.shape[2:]
        return y + ops.interpolate(x, size=(height * 3, width * 3), mode="bilinear", align_corners=False)


class Segmentation(nn.Cell):
    """Dilated convolutions, pooled pyramid, bilinear enlargement with aligned corners, class per pixel."""

    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(conv(3, 16, 3, 2), conv(16, 32, 3, 2))
        self.branches = nn.CellList([conv(32, 16, 1), conv(32, 16, 3, dilation=2), conv(32, 16, 3, dilation=4)])
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.squeeze = conv(32, 16, 1)
        self.head = nn.Conv2d(64, 5, 1, has_bias=True)

    def construct(self, x):
        y = self.stem(x)
        parts = [branch(y) for branch in self.branches]
        pooled = self.squeeze(self.pool(y))
        parts.append(ops.interpolate(pooled, size=y.shape[2:], mode="bilinear", align_corners=True))
        logits = ops.interpolate(self.head(ops.concat(parts, 1)), size=x.shape[2:], mode="bilinear", align_corners=True)
        return logits, ops.argmax(logits, 1)


class Generator(nn.Cell):
    """Transposed convolutions from a vector to an image."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(16, 64 * 4 * 4)
        up = nn.Conv2dTranspose
        self.layers = nn.SequentialCell(
            nn.BatchNorm2d(64),
            nn.ReLU(),
            up(64, 32, 4, 2, "pad", padding=1),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2),
            up(32, 16, 3, 2, "same"),
            nn.BatchNorm2d(16),
            nn.ELU(),
            up(16, 3, 5, 3, "valid", has_bias=True),
            nn.Tanh(),
        )

    def construct(self, z):
        return self.layers(self.enter(z).reshape(-1, 64, 4, 4))


class VariationalAutoencoder(nn.Cell):
    """Encoder to mean and spread, noise as an input, decoder."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.SequentialCell(conv(1, 8, 3, 2), conv(8, 16, 3, 2), nn.Flatten())
        self.mean = nn.Dense(16 * 7 * 7, 6)
        self.spread = nn.Dense(16 * 7 * 7, 6)
        self.decoder = nn.SequentialCell(nn.Dense(6, 64), nn.GELU(), nn.Dense(64, 784), nn.Sigmoid())

    def construct(self, x, noise):
        y = self.encoder(x)
        mean, log_variance = self.mean(y), ops.clamp(self.spread(y), -10, 2)
        z = mean + noise * ops.exp(0.5 * log_variance)
        divergence = -0.5 * ops.sum(1 + log_variance - mean.square() - log_variance.exp(), 1)
        return self.decoder(z).reshape(x.shape), divergence


class WaveNet(nn.Cell):
    """Gated dilated causal convolutions over time, skip sums."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1d(1, 16, 1, pad_mode="valid", has_bias=True)
        self.rates = [1, 2, 4, 8]
        self.both = nn.CellList(
            [nn.Conv1d(16, 32, 2, pad_mode="valid", dilation=rate, has_bias=True) for rate in self.rates]
        )
        self.out = nn.CellList([nn.Conv1d(16, 32, 1, pad_mode="valid", has_bias=True) for _ in self.rates])
        self.leave = nn.Conv1d(16, 10, 1, pad_mode="valid", has_bias=True)

    def construct(self, x):
        x = self.enter(x)
        total = ops.zeros_like(x)
        for k in range(4):
            y = self.both[k](ops.pad(x, (self.rates[k], 0)))
            y = self.out[k](ops.tanh(y[:, :16]) * ops.sigmoid(y[:, 16:]))
            x, total = x + y[:, :16], total + y[:, 16:]
        return self.leave(ops.relu(total))


class TemporalConvolutions(nn.Cell):
    """TCN: residual blocks of causal convolutions, last step classified; the length is dynamic."""

    def __init__(self):
        super().__init__()
        self.convs = nn.CellList(
            [nn.Conv1d(4 if k == 0 else 12, 12, 3, pad_mode="valid", dilation=2**k, has_bias=True) for k in range(3)]
        )
        self.norms = nn.CellList([nn.LayerNorm((12,)) for _ in range(3)])
        self.head = nn.Dense(12, 3)

    def construct(self, x):
        for k in range(3):
            y = self.convs[k](ops.pad(x, (2 * 2**k, 0)))
            y = ops.relu(self.norms[k](y.swapaxes(1, 2)).swapaxes(1, 2))
            x = y if k == 0 else x + y
        return self.head(x[:, :, -1])


class GraphNetwork(nn.Cell):
    """Messages along edges, gathered, summed at their targets, means by degree."""

    def __init__(self):
        super().__init__()
        self.message = nn.Dense(16, 12)
        self.update = nn.Dense(20, 8)
        self.head = nn.Dense(8, 3)

    def construct(self, x, edges):
        nodes = x.shape[0]
        for _ in range(2):
            sources, targets = ops.gather(x, edges[0], 0), ops.gather(x, edges[1], 0)
            messages = ops.relu(self.message(ops.concat((sources, targets), 1)))
            total = ops.tensor_scatter_add(ops.zeros((nodes, 12), ms.float32), edges[1][:, None], messages)
            degree = ops.unsorted_segment_sum(ops.ones_like(edges[1]).astype(ms.float32), edges[1], nodes)
            x = ops.tanh(self.update(ops.concat((x, total / ops.maximum(degree, 1.0)[:, None]), 1)))
        return self.head(x), self.head(x).mean(0)


class NormalisingFlow(nn.Cell):
    """Affine couplings with permutations between, the log-determinant, and the way back."""

    def __init__(self):
        super().__init__()
        self.nets = nn.CellList([nn.SequentialCell(nn.Dense(3, 16), nn.Tanh(), nn.Dense(16, 6)) for _ in range(3)])
        self.order = Tensor([2, 0, 5, 1, 4, 3], ms.int32)
        self.back = Tensor(np.argsort([2, 0, 5, 1, 4, 3]), ms.int32)

    def construct(self, x):
        total = 0
        for net in self.nets:
            a, b = ops.split(ops.gather(x, self.order, 1), 3, 1)
            scale, shift = ops.split(net(a), 3, 1)
            scale = ops.tanh(scale)
            x = ops.concat((a, b * ops.exp(scale) + shift), 1)
            total = total + scale.sum(1)
        y = x
        for k in range(2, -1, -1):
            a, b = ops.split(y, 3, 1)
            scale, shift = ops.split(self.nets[k](a), 3, 1)
            y = ops.gather(ops.concat((a, (b - shift) * ops.exp(-ops.tanh(scale))), 1), self.back, 1)
        return x, total, y


class Siamese(nn.Cell):
    """One encoder called on two images, cosine similarity and distances."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.SequentialCell(conv(3, 8, 3, 2), conv(8, 16, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.scale = Parameter(Tensor(2.5, ms.float32), name="scale")

    def construct(self, x, y):
        a, b = self.encoder(x), self.encoder(y)
        similarity = ops.cosine_similarity(a, b, 1) * self.scale
        return similarity, ops.norm(a - b, dim=1), ops.cdist(a, b)


class DynamicCnn(nn.Cell):
    """Batch and image size are dynamic."""

    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(
            conv(3, 12, 3, 2), nn.MaxPool2d(2, 2, "same"), conv(12, 24, 5, 2, group=12), nn.AvgPool2d(2, 1, "same")
        )
        self.head = nn.Dense(24, 7)

    def construct(self, x):
        y = self.features(x)
        flat = y.reshape(y.shape[0], y.shape[1], -1)
        return self.head(flat.mean(-1)), flat.max(-1)


def networks() -> list[Network]:
    return [
        by_hand(DiffusionUNet, [f32(2, 3, 16, 16), i32(2, low=0, high=1000)]),
        by_hand(YoloDetector, [f32(1, 3, 64, 96)]),
        by_hand(TextReader, [f32(2, 1, 16, 40)]),
        by_hand(SuperResolution, [f32(1, 3, 12, 10)]),
        by_hand(Segmentation, [f32(1, 3, 48, 40)]),
        by_hand(Generator, [f32(2, 16)]),
        by_hand(VariationalAutoencoder, [f32(2, 1, 28, 28), f32(2, 6)]),
        by_hand(WaveNet, [f32(2, 1, 40)]),
        by_hand(TemporalConvolutions, [f32(2, 4, 20)], [f32(3, 4, 11)], shapes=[(None, 4, None)]),
        by_hand(GraphNetwork, [f32(9, 8), i32(2, 20, low=0, high=9)]),
        by_hand(NormalisingFlow, [f32(4, 6)]),
        by_hand(Siamese, [f32(2, 3, 24, 24), f32(2, 3, 24, 24)]),
        by_hand(DynamicCnn, [f32(2, 3, 32, 24)], [f32(1, 3, 17, 40)], shapes=[(None, 3, None, None)]),
    ]

"""The convolutional networks of the network fixtures."""

import math

import mindspore as ms
from mindspore import nn, ops

from mindir_fixtures.table import Case, case, f16, f32, values


class Residual(nn.Cell):
    """Two convolutions and ``x += identity``, which MindSpore exports as an in-place addition."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, "pad", padding=1)
        self.first_norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, "pad", padding=1)
        self.second_norm = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.down = None
        if stride != 1 or channels != out:
            self.down = nn.SequentialCell(nn.Conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))

    def construct(self, x):
        identity = x
        x = self.relu(self.first_norm(self.first(x)))
        x = self.second_norm(self.second(x))
        if self.down is not None:
            identity = self.down(identity)
        x += identity
        return self.relu(x)


class ResidualNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, 2, "pad", padding=2)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, "same")
        self.blocks = nn.SequentialCell(Residual(8, 8, 1), Residual(8, 10, 2))
        self.head = nn.Dense(10, 5)

    def construct(self, x):
        x = self.pool(ops.relu(self.norm(self.stem(x))))
        return self.head(ops.mean(self.blocks(x), (2, 3)))


class SqueezeExcite(nn.Cell):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, 4, 1, has_bias=True)
        self.expand = nn.Conv2d(4, channels, 1, has_bias=True)
        self.gate = nn.HSigmoid()

    def construct(self, x):
        scale = ops.mean(x, (2, 3), keep_dims=True)
        return x * self.gate(self.expand(ops.relu(self.reduce(scale))))


class MobileBlockNet(nn.Cell):
    """Depthwise convolutions, hard swish, squeeze and excite."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, "pad", padding=1)
        self.stem_norm = nn.BatchNorm2d(8)
        self.act = nn.HSwish()
        self.expand = nn.Conv2d(8, 16, 1)
        self.expand_norm = nn.BatchNorm2d(16)
        self.depth = nn.Conv2d(16, 16, 5, 1, "pad", padding=2, group=16)
        self.depth_norm = nn.BatchNorm2d(16)
        self.excite = SqueezeExcite(16)
        self.project = nn.Conv2d(16, 8, 1)
        self.project_norm = nn.BatchNorm2d(8)
        self.last = nn.Conv2d(8, 12, 3, 2, "same", has_bias=True)
        self.drop = nn.Dropout(p=0.2)
        self.head = nn.Dense(12, 7)

    def construct(self, x):
        x = self.act(self.stem_norm(self.stem(x)))
        y = self.act(self.expand_norm(self.expand(x)))
        y = self.act(self.depth_norm(self.depth(y)))
        x = x + self.project_norm(self.project(self.excite(y)))
        x = ops.relu6(self.last(x))
        return ops.log_softmax(self.head(self.drop(x.mean((2, 3)))), 1)


class Mix(nn.Cell):
    """Spatial tokens attend to themselves, then to a context."""

    def __init__(self, channels: int, context: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.own = nn.Dense(channels, 3 * channels, has_bias=False)
        self.query = nn.Dense(channels, channels, has_bias=False)
        self.pair = nn.Dense(context, 2 * channels, has_bias=False)
        self.scale = channels**-0.5

    def attend(self, q, k, v):
        return ops.bmm(ops.softmax(ops.bmm(q, k.swapaxes(1, 2)) * self.scale, -1), v)

    def construct(self, x, context):
        batch, channels, height, width = x.shape
        tokens = self.norm(x).reshape(batch, channels, height * width).swapaxes(1, 2)
        q, k, v = ops.split(self.own(tokens), channels, -1)
        tokens = tokens + self.attend(q, k, v)
        k, v = ops.chunk(self.pair(context), 2, -1)
        tokens = tokens + self.attend(self.query(tokens), k, v)
        return x + tokens.swapaxes(1, 2).reshape(batch, channels, height, width)


class TimeBlock(nn.Cell):
    """Residual block with group normalisation that takes the time embedding."""

    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.first = nn.Conv2d(channels, out, 3, 1, "pad", padding=1, has_bias=True)
        self.time = nn.Dense(time, out)
        self.second_norm = nn.GroupNorm(4, out)
        self.second = nn.Conv2d(out, out, 3, 1, "same", has_bias=True)
        self.skip = nn.Conv2d(channels, out, 1, has_bias=True)
        self.act = nn.SiLU()

    def construct(self, x, time):
        y = self.first(self.act(self.norm(x)))
        y = y + self.time(self.act(time))[:, :, None, None]
        return self.second(self.act(self.second_norm(y))) + self.skip(x)


class UNet(nn.Cell):
    """One level down and up, cross attention in the middle, sinusoidal time embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Dense(8, 8)
        self.enter = nn.Conv2d(4, 4, 3, 1, "pad", padding=1, has_bias=True)
        self.down_block = TimeBlock(4, 4, 8)
        self.down = nn.Conv2d(4, 4, 3, 2, "pad", padding=1, has_bias=True)
        self.mix = Mix(4, 10)
        self.up_block = TimeBlock(8, 4, 8)
        self.leave_norm = nn.GroupNorm(4, 4)
        self.leave = nn.Conv2d(4, 4, 3, 1, "pad", padding=1, has_bias=True)

    def construct(self, x, time, context):
        frequencies = ops.exp(ops.arange(0, 4).astype(ms.float32) * (-math.log(10000.0) / 4))
        angles = time[:, None] * frequencies[None]
        embedding = self.time(ops.concat((ops.cos(angles), ops.sin(angles)), -1))
        x = self.enter(x)
        kept = self.down_block(x, embedding)
        x = self.mix(self.down(kept), context)
        x = ops.interpolate(x, size=(8, 6), mode="nearest")
        x = self.up_block(ops.concat((x, kept), 1), embedding)
        return self.leave(ops.silu(self.leave_norm(x)))


class CharacterReader(nn.Cell):
    """Convolutions that shrink the height, then a two-way LSTM over the width."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, 1, "same", has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.second = nn.Conv2d(4, 6, 3, 1, "same")
        self.norm = nn.BatchNorm2d(6)
        self.tall = nn.MaxPool2d((2, 1), (2, 1))
        self.lstm = nn.LSTM(12, 5, bidirectional=True)
        self.head = nn.Dense(10, 8)

    def construct(self, x):
        x = self.pool(ops.relu(self.first(x)))
        x = self.tall(ops.relu(self.norm(self.second(x))))
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels * height, width).transpose(2, 0, 1)
        x, _ = self.lstm(x)
        return ops.log_softmax(self.head(x), -1)


class NegativePoolNet(nn.Cell):
    """Zero padding followed by a max pooling without padding, on activations below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 1, "pad", padding=1)
        self.pad = nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1)))
        self.pool = nn.MaxPool2d(3, 2)

    def construct(self, x):
        y = self.pool(self.pad(-ops.exp(self.conv(x)) - 0.5))
        z = self.pool(ops.pad(-ops.abs(x) - 0.25, (1, 1, 1, 1)))
        return y, z


class Pooler(nn.Cell):
    """Convolutions with dynamic batch; reshapes by the static part of the shape."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, 2, "same", has_bias=True)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Dense(6 * 3 * 4, 5)

    def construct(self, x):
        x = ops.relu(self.norm(self.conv(x)))
        return ops.softmax(self.head(x.reshape(x.shape[0], -1)), -1)


def half_network() -> nn.Cell:
    return nn.SequentialCell(
        nn.Conv2d(3, 8, 3, 1, "pad", padding=1, has_bias=True),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Dense(8 * 4 * 3, 10),
        nn.Softmax(),
    )


def cases() -> list[Case]:
    image = f32(2, 3, 12, 10)
    return [
        case("resnet", ResidualNet(), image),
        case("resnet_dynamic", ResidualNet(), image, shapes=[(None, 3, None, None)]),
        case("mobile", MobileBlockNet(), image),
        case("unet", UNet(), f32(1, 4, 8, 6), values([37.0]), f32(1, 5, 10)),
        case("crnn", CharacterReader(), f32(1, 1, 8, 14)),
        case("negative_pool", NegativePoolNet(), f32(2, 3, 9, 7)),
        case("half", half_network(), f16(2, 3, 8, 6), dtype="float16"),
        case("dynamic_batch", Pooler(), f32(2, 3, 6, 8), shapes=[(None, 3, 6, 8)]),
    ]

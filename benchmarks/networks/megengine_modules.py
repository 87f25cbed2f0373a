"""The networks of the suite, for MegEngine 1.13."""

import megengine as mge
import megengine.functional as F  # noqa: N812 - as its documentation does
import megengine.module as M  # noqa: N812
import numpy as np


def conv(inside, outside, kernel=1, stride=1, groups=1, act=None):
    """A convolution, a batch norm, and perhaps an activation."""
    kind = M.ConvBnRelu2d if act is F.relu else M.ConvBn2d
    layers = [kind(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)]
    return M.Sequential(*layers, *([] if act in (None, F.relu) else [Act(act)]))


class Act(M.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Classifier(M.Module):
    """Features, their mean over the image, a linear layer."""

    def __init__(self, layers, width):
        super().__init__()
        self.features, self.head = M.Sequential(*layers), M.Linear(width, 1000)

    def forward(self, x):
        return self.head(F.mean(F.flatten(self.features(x), 2), axis=2))


class Inverted(M.Module):
    """An inverted residual of MobileNet v2; with a squeeze, of EfficientNet."""

    def __init__(self, inside, outside, kernel, stride, expand, act, squeeze):
        super().__init__()
        middle = inside * expand
        self.enter = conv(inside, middle, act=act) if expand > 1 else M.Identity()
        self.middle = conv(middle, middle, kernel, stride, middle, act)
        self.squeeze = Squeeze(middle, inside // 4) if squeeze else M.Identity()
        self.leave, self.same = conv(middle, outside), inside == outside and stride == 1

    def forward(self, x):
        y = self.leave(self.squeeze(self.middle(self.enter(x))))
        return x + y if self.same else y


class Squeeze(M.Module):
    """Squeeze and excitation."""

    def __init__(self, width, narrow):
        super().__init__()
        self.down, self.up = M.Conv2d(width, narrow, 1), M.Conv2d(narrow, width, 1)

    def forward(self, x):
        y = F.mean(F.mean(x, axis=3, keepdims=True), axis=2, keepdims=True)
        return x * F.sigmoid(self.up(F.nn.silu(self.down(y))))


def inverted(stages, first, act, squeeze):
    """The stages: expansion, channels, count, stride, kernel."""
    layers, inside = [conv(3, first, 3, 2, act=act)], first
    for expand, outside, count, stride, kernel in stages:
        for k in range(count):
            layers.append(Inverted(inside, outside, kernel, stride if k == 0 else 1, expand, act, squeeze))
            inside = outside
    return Classifier([*layers, conv(inside, 1280, act=act)], 1280)


def mobilenet_v2():
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    return inverted([(*stage, 3) for stage in stages], 32, F.relu6, squeeze=False)


def efficientnet_b0():
    stages = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5))
    return inverted([*stages, (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)], 32, F.nn.silu, squeeze=True)


class Shuffle(M.Module):
    """A unit of ShuffleNet v2."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        half, self.stride = outside // 2, stride
        enter = inside if stride == 2 else half
        self.branch = M.Sequential(
            conv(enter, half, act=F.relu), conv(half, half, 3, stride, half), conv(half, half, act=F.relu)
        )
        self.skip = M.Sequential(conv(inside, inside, 3, 2, inside), conv(inside, half, act=F.relu))

    def forward(self, x):
        one, two = (self.skip(x), x) if self.stride == 2 else F.split(x, 2, axis=1)
        x = F.concat([one, self.branch(two)], axis=1)
        batch, width, height, length = x.shape
        x = F.reshape(x, (batch, 2, width // 2, height, length))
        return F.reshape(F.transpose(x, (0, 2, 1, 3, 4)), (batch, width, height, length))


def shufflenet_v2():
    layers, inside = [conv(3, 24, 3, 2, act=F.relu), M.MaxPool2d(3, 2, 1)], 24
    for outside, count in ((116, 4), (232, 8), (464, 4)):
        for k in range(count):
            layers.append(Shuffle(inside, outside, 2 if k == 0 else 1))
            inside = outside
    return Classifier([*layers, conv(464, 1024, act=F.relu)], 1024)


class Bottleneck(M.Module):
    def __init__(self, inside, middle, stride):
        super().__init__()
        self.branch = M.Sequential(
            conv(inside, middle, act=F.relu), conv(middle, middle, 3, stride, act=F.relu), conv(middle, 4 * middle)
        )
        self.skip = M.Identity() if inside == 4 * middle else conv(inside, 4 * middle, 1, stride)

    def forward(self, x):
        return F.relu(self.branch(x) + self.skip(x))


def resnet50():
    layers, inside = [conv(3, 64, 7, 2, act=F.relu), M.MaxPool2d(3, 2, 1)], 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Bottleneck(inside, middle, stride if k == 0 else 1))
            inside = 4 * middle
    return Classifier(layers, 2048)


def attend(q, k, v, count):
    """Attention of several heads."""
    batch, length, width = q.shape
    q, k, v = (F.transpose(F.reshape(x, (batch, x.shape[1], count, -1)), (0, 2, 1, 3)) for x in (q, k, v))
    scores = F.matmul(q, k, transpose_b=True) * float(q.shape[3]) ** -0.5
    mixed = F.matmul(F.softmax(scores, axis=-1), v)
    return F.reshape(F.transpose(mixed, (0, 2, 1, 3)), (batch, length, width))


class Attention(M.Module):
    """Of a text to itself, or to a context."""

    def __init__(self, width, count, context=None, bias=True):
        super().__init__()
        self.count = count
        self.query, self.out = M.Linear(width, width, bias), M.Linear(width, width)
        self.key, self.value = M.Linear(context or width, width, bias), M.Linear(context or width, width, bias)

    def forward(self, x, context):
        return self.out(attend(self.query(x), self.key(context), self.value(context), self.count))


class Layer(M.Module):
    """A layer of a transformer, with the norms before (DeiT) or after (BERT) its parts."""

    def __init__(self, width, count, before, eps):
        super().__init__()
        self.attention, self.before = Attention(width, count), before
        self.first, self.second = M.LayerNorm(width, eps), M.LayerNorm(width, eps)
        self.up, self.down = M.Linear(width, 4 * width), M.Linear(4 * width, width)

    def forward(self, x):
        if self.before:
            y = self.first(x)
            x = x + self.attention(y, y)
            return x + self.down(F.gelu(self.up(self.second(x))))
        x = self.first(x + self.attention(x, x))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Bert(M.Module):
    """BERT-base on texts of 128 tokens."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = M.Embedding(30522, 768), M.LayerNorm(768, 1e-12)
        self.places = mge.Parameter(np.zeros((128, 768), np.float32))
        self.layers = [Layer(768, 12, before=False, eps=1e-12) for _ in range(12)]

    def forward(self, ids):
        x = self.norm(self.words(ids) + self.places)
        for layer in self.layers:
            x = layer(x)
        return x


class Deit(M.Module):
    """DeiT-tiny: patches of 16, 12 layers of width 192, 3 heads."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm, self.head = M.Conv2d(3, 192, 16, 16), M.LayerNorm(192, 1e-6), M.Linear(192, 1000)
        self.token = mge.Parameter(np.zeros((1, 1, 192), np.float32))
        self.places = mge.Parameter(np.zeros((1, 197, 192), np.float32))
        self.layers = [Layer(192, 3, before=True, eps=1e-6) for _ in range(12)]

    def forward(self, x):
        x = F.transpose(F.flatten(self.patches(x), 2), (0, 2, 1))
        x = F.concat([F.broadcast_to(self.token, (x.shape[0], 1, 192)), x], axis=1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class GroupNorm(M.Module):
    """By its parts: the operator runs on a reference kernel in megenginelite, and not at all in the tuned layout."""

    def __init__(self, groups, width):
        super().__init__()
        self.groups = groups
        self.weight = mge.Parameter(np.ones((1, width, 1, 1), np.float32))
        self.bias = mge.Parameter(np.zeros((1, width, 1, 1), np.float32))

    def forward(self, x):
        parts = F.reshape(x, (x.shape[0], self.groups, -1))
        parts = parts - F.mean(parts, axis=2, keepdims=True)
        parts = parts / F.sqrt(F.mean(parts * parts, axis=2, keepdims=True) + 1e-5)
        return F.reshape(parts, x.shape) * self.weight + self.bias


class UNetBlock(M.Module):
    """A block of Stable Diffusion's UNet: residual block with a time embedding, then a spatial transformer."""

    def __init__(self, width=320):
        super().__init__()
        self.time = M.Linear(1280, width)
        self.convs = [M.Conv2d(width, width, 3, padding=1) for _ in range(2)]
        self.groups = [GroupNorm(32, width) for _ in range(3)]
        self.enter, self.leave = M.Conv2d(width, width, 1), M.Conv2d(width, width, 1)
        self.norms = [M.LayerNorm(width) for _ in range(3)]
        self.itself, self.other = Attention(width, 8, bias=False), Attention(width, 8, 768, bias=False)
        self.gate, self.up = M.Linear(width, 4 * width), M.Linear(width, 4 * width)
        self.down = M.Linear(4 * width, width)

    def forward(self, x, time, context):
        silu = F.nn.silu
        y = self.convs[0](silu(self.groups[0](x))) + F.reshape(self.time(silu(time)), (x.shape[0], -1, 1, 1))
        x = x + self.convs[1](silu(self.groups[1](y)))
        y = F.transpose(F.flatten(self.enter(self.groups[2](x)), 2), (0, 2, 1))
        own = self.norms[0](y)
        y = y + self.itself(own, own)
        y = y + self.other(self.norms[1](y), context)
        own = self.norms[2](y)
        y = y + self.down(self.up(own) * F.gelu(self.gate(own)))
        return x + self.leave(F.reshape(F.transpose(y, (0, 2, 1)), x.shape))


class Lstm(M.Module):
    """Two layers, 128 to 256, over steps that come first."""

    def __init__(self):
        super().__init__()
        self.lstm = M.LSTM(128, 256, num_layers=2)

    def forward(self, x):
        return self.lstm(x)[0]


def mlp():
    """32-64-64-10."""
    return M.Sequential(M.Linear(32, 64), M.ReLU(), M.Linear(64, 64), M.ReLU(), M.Linear(64, 10))


BUILD = {
    "mobilenet_v2": mobilenet_v2,
    "shufflenet_v2": shufflenet_v2,
    "resnet50": resnet50,
    "efficientnet_b0": efficientnet_b0,
    "deit_tiny": Deit,
    "bert": Bert,
    "unet_block": UNetBlock,
    "lstm": Lstm,
    "mlp": mlp,
}

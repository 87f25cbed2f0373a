"""Networks that classify images."""

import megengine.functional as F
import megengine.module as M
from mge_fixtures.table import f32

from mge_networks.table import network


def conv(inside: int, outside: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> M.Module:
    return M.ConvBnRelu2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)


def conv_bn(inside: int, outside: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> M.Module:
    return M.ConvBn2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)


class Classifier(M.Module):
    """Features, their mean over the image, a linear layer."""

    def __init__(self, features: M.Module, width: int, classes: int = 20):
        super().__init__()
        self.features, self.fc = features, M.Linear(width, classes)

    def forward(self, x):
        x = F.flatten(F.avg_pool2d(self.features(x), 2), 2)
        return self.fc(F.mean(x, axis=2))


class Bottleneck(M.Module):
    def __init__(self, inside: int, middle: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.reduce, self.middle = conv(inside, middle, 1), conv(middle, middle, 3, stride, groups)
        self.expand = conv_bn(middle, middle * 4)
        same = inside == middle * 4 and stride == 1
        self.shortcut = M.Identity() if same else conv_bn(inside, middle * 4, 1, stride)

    def forward(self, x):
        return F.relu(self.expand(self.middle(self.reduce(x))) + self.shortcut(x))


def resnet(groups: int = 1) -> M.Module:
    layers = [conv(3, 16, 7, 2), M.MaxPool2d(3, 2, 1)]
    inside = 16
    for stage, count in enumerate((2, 3, 2)):
        for k in range(count):
            layers.append(Bottleneck(inside, 16 << stage, 2 if k == 0 and stage else 1, groups))
            inside = 64 << stage
    return Classifier(M.Sequential(*layers), inside)


class Shuffle(M.Module):
    """A unit of ShuffleNet v2: half of the channels pass, then all are shuffled."""

    def __init__(self, width: int):
        super().__init__()
        half = width // 2
        self.branch = M.Sequential(conv(half, half, 1), conv_bn(half, half, 3, groups=half), conv(half, half, 1))

    def forward(self, x):
        one, two = F.split(x, 2, axis=1)
        x = F.concat([one, self.branch(two)], axis=1)
        batch, width, height, length = x.shape
        x = F.reshape(x, (batch, 2, width // 2, height, length))
        return F.reshape(F.transpose(x, (0, 2, 1, 3, 4)), (batch, width, height, length))


def shufflenet() -> M.Module:
    return Classifier(M.Sequential(conv(3, 24, 3, 2), *[Shuffle(24) for _ in range(4)], conv(24, 48, 1, 2)), 48)


def mobilenet_v1() -> M.Module:
    layers, inside = [conv(3, 16, 3, 2)], 16
    for outside, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2)):
        layers += [conv(inside, inside, 3, stride, inside), conv(inside, outside, 1)]
        inside = outside
    return Classifier(M.Sequential(*layers), inside)


class Squeeze(M.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int, gate=F.nn.hsigmoid):
        super().__init__()
        self.down, self.up, self.gate = M.Conv2d(width, width // 4, 1), M.Conv2d(width // 4, width, 1), gate

    def forward(self, x):
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(M.Module):
    """An inverted residual with squeeze and excitation, of MobileNet v3 or EfficientNet."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, act, gate):
        super().__init__()
        middle = inside * 4
        self.expand, self.middle = conv_bn(inside, middle), conv_bn(middle, middle, kernel, stride, middle)
        self.squeeze, self.project = Squeeze(middle, gate), conv_bn(middle, outside)
        self.act, self.same = act, inside == outside and stride == 1

    def forward(self, x):
        y = self.act(self.middle(self.act(self.expand(x))))
        y = self.project(self.squeeze(y))
        return x + y if self.same else y


def inverted_network(act, gate) -> M.Module:
    sizes = ((16, 16, 3, 1), (16, 24, 3, 2), (24, 24, 5, 1), (24, 40, 5, 2), (40, 40, 3, 1))
    return Classifier(M.Sequential(conv_bn(3, 16, 3, 2), *[Inverted(*size, act, gate) for size in sizes]), 40)


def mobilenet_v3() -> M.Module:
    return inverted_network(F.nn.hswish, F.nn.hsigmoid)


def vgg() -> M.Module:
    layers, inside = [], 3
    for outside, count in ((16, 1), (32, 1), (64, 2), (64, 2)):
        for _ in range(count):
            layers.append(conv(inside, outside))
            inside = outside
        layers.append(M.MaxPool2d(2))
    head = M.Sequential(M.Linear(64 * 4, 64), M.ReLU(), M.Dropout(0.5), M.Linear(64, 20))
    return M.Sequential(*layers, M.AdaptiveAvgPool2d(2), Flatten(), head)


class Flatten(M.Module):
    def forward(self, x):
        return F.flatten(x, 1)


class Dense(M.Module):
    """A block of DenseNet: each layer sees all before it."""

    def __init__(self, inside: int, grow: int, count: int):
        super().__init__()
        self.layers = [
            M.Sequential(M.BatchNorm2d(inside + k * grow), M.ReLU(), M.Conv2d(inside + k * grow, grow, 3, padding=1))
            for k in range(count)
        ]

    def forward(self, x):
        for layer in self.layers:
            x = F.concat([x, layer(x)], axis=1)
        return x


def densenet() -> M.Module:
    def transition(inside, outside):
        return M.Sequential(M.BatchNorm2d(inside), M.ReLU(), M.Conv2d(inside, outside, 1), M.AvgPool2d(2))

    parts = [conv(3, 16, 3, 2), Dense(16, 8, 4), transition(48, 24), Dense(24, 8, 4), transition(56, 28)]
    return Classifier(M.Sequential(*parts), 28)


class Inception(M.Module):
    def __init__(self, inside: int, width: int):
        super().__init__()
        self.one, self.three = conv(inside, width, 1), M.Sequential(conv(inside, width, 1), conv(width, width))
        self.five = M.Sequential(conv(inside, width, 1), conv(width, width, 5))
        self.pool = conv(inside, width, 1)

    def forward(self, x):
        return F.concat([self.one(x), self.three(x), self.five(x), self.pool(F.max_pool2d(x, 3, 1, 1))], axis=1)


class LocalNorm(M.Module):
    def forward(self, x):
        return F.nn.local_response_norm(x, kernel_size=5, k=2, alpha=1e-2, beta=0.75)


def googlenet() -> M.Module:
    return Classifier(
        M.Sequential(conv(3, 16, 5, 2), LocalNorm(), M.MaxPool2d(3, 2, 1), Inception(16, 8), Inception(32, 12)), 48
    )


class ConvNext(M.Module):
    def __init__(self, width: int):
        super().__init__()
        self.spatial, self.norm = M.Conv2d(width, width, 7, padding=3, groups=width), M.LayerNorm(width)
        self.up, self.down = M.Linear(width, width * 4), M.Linear(width * 4, width)

    def forward(self, x):
        y = self.norm(F.transpose(self.spatial(x), (0, 2, 3, 1)))
        return x + F.transpose(self.down(F.gelu(self.up(y))), (0, 3, 1, 2))


def convnext() -> M.Module:
    return Classifier(M.Sequential(M.Conv2d(3, 24, 4, 4), ConvNext(24), M.Conv2d(24, 32, 2, 2), ConvNext(32)), 32)


class GroupNormBlock(M.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = M.Conv2d(width, width, 3, padding=1), M.Conv2d(width, width, 3, padding=1)
        self.norms = [M.GroupNorm(4, width), M.InstanceNorm(width)]

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


def group_norm_net() -> M.Module:
    return Classifier(M.Sequential(conv(3, 16, 3, 2), GroupNormBlock(16), conv(16, 32, 3, 2), GroupNormBlock(32)), 32)


SIZES = ([f32(1, 3, 64, 64)], [f32(2, 3, 96, 64)])
SMALL = ([f32(1, 3, 64, 64)], [f32(3, 3, 64, 64)])
FUSED = {"enable_fuse_conv_bias_nonlinearity": True}

network("resnet_bottleneck", "ResNet with bottlenecks", resnet, *SIZES)
network("resnext", "the same with grouped convolutions", lambda: resnet(4), *SIZES)
network("resnet_fused", "ResNet, biases and activations fused", resnet, *SIZES, **FUSED)
network("resnet_raw", "ResNet, not optimised", resnet, *SIZES, optimize_for_inference=False)
network("resnet_v1", "ResNet in the older container", resnet, *SIZES, dump_format="FBS")
network("mobilenet_v1", "depthwise convolutions", mobilenet_v1, *SIZES)
network("mobilenet_v3", "inverted residuals, squeeze and excitation, h-swish", mobilenet_v3, *SIZES)
network("mobilenet_v3_keep", "the same, newer operators kept", mobilenet_v3, *SIZES, no_change_graph=True)
network("efficientnet", "the same with SiLU and sigmoid", lambda: inverted_network(F.nn.silu, F.sigmoid), *SIZES)
network("vgg", "VGG with batch norms", vgg, *SIZES)
network("densenet", "DenseNet", densenet, *SIZES)
network("googlenet", "Inception with local response norm", googlenet, *SIZES)
network("shufflenet", "ShuffleNet v2 units", shufflenet, *SIZES)
network("convnext", "ConvNeXt", convnext, *SIZES)
network("group_norm_net", "group and instance norms", group_norm_net, *SIZES, no_change_graph=True)
for layout in ("nchw44", "nchw44_dot", "nchw88"):
    option = {f"enable_{layout}": True, "plain": layout != "nchw88"}  # on x86, lite dies on 1x1 convolutions of these
    network(f"resnet_{layout}", f"ResNet in the {layout} layout", resnet, *SIZES, **option, **FUSED)
    network(f"mobilenet_{layout}", f"MobileNet in the {layout} layout", mobilenet_v1, *SIZES, **option, **FUSED)
# On x86, lite's maximum pooling is wrong in half precision, and its other half kernels lose digits.
network("resnet_ioc16", "ResNet in half precision", resnet, *SIZES, enable_ioc16=True, plain=True)
network("resnet_io16xc32", "ResNet, half precision between operators", resnet, *SIZES, enable_io16xc32=True, plain=True)
network("mobilenet_v3_ioc16", "MobileNet v3 in half precision", mobilenet_v3, *SIZES, enable_ioc16=True, plain=True)

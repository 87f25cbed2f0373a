"""Networks on 8-bit data: fake quantisation is calibrated, then the network is converted."""

import megengine.functional as F
import megengine.module as M
from mge_fixtures.table import f32

from mge_networks.classifiers import conv, conv_bn
from mge_networks.table import network


class Block(M.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1):
        super().__init__()
        self.first, self.second = conv(inside, outside, 3, stride), conv_bn(outside, outside, 3)
        self.shortcut = M.Identity() if inside == outside and stride == 1 else conv_bn(inside, outside, 1, stride)
        self.add = M.Elemwise("FUSE_ADD_RELU")

    def forward(self, x):
        return self.add(self.second(self.first(x)), self.shortcut(x))


class Inverted(M.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1):
        super().__init__()
        middle = inside * 4
        self.expand, self.middle = conv(inside, middle, 1), conv(middle, middle, 3, stride, middle)
        self.project, self.add = conv_bn(middle, outside), M.Elemwise("ADD") if inside == outside else None

    def forward(self, x):
        y = self.project(self.middle(self.expand(x)))
        return self.add(y, x) if self.add else y


class Quantised(M.Module):
    def __init__(self, *layers: M.Module, width: int):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.layers, self.fc = M.Sequential(*layers), M.Linear(width, 10)

    def forward(self, x):
        x = F.avg_pool2d(self.layers(self.quant(x)), 4)
        return self.dequant(self.fc(F.flatten(x, 1)))


def resnet() -> M.Module:
    return Quantised(conv(3, 16, 3, 2), M.MaxPool2d(2), Block(16, 16), Block(16, 32, 2), Block(32, 32), width=32)


def mobilenet() -> M.Module:
    return Quantised(
        conv(3, 16, 3, 2), Inverted(16, 16), Inverted(16, 24, 2), Inverted(24, 24), Inverted(24, 32, 2), width=32
    )


SIZES = ([f32(1, 3, 32, 32)], [f32(4, 3, 32, 32)])
FUSED = {"enable_fuse_conv_bias_nonlinearity": True}
network("resnet_quantised", "ResNet on 8-bit data", resnet, *SIZES, quantised=True)
network("mobilenet_quantised", "MobileNet v2 on 8-bit data", mobilenet, *SIZES, quantised=True)
network(
    "resnet_quantised_v1", "ResNet on 8-bit data, older container", resnet, *SIZES, quantised=True, dump_format="FBS"
)
for layout in ("nchw44", "nchw44_dot", "nchw88"):
    network(
        f"resnet_quantised_{layout}",
        f"ResNet on 8-bit data in the {layout} layout",
        resnet,
        *SIZES,
        quantised=True,
        **{f"enable_{layout}": True},
        **FUSED,
    )
    network(
        f"mobilenet_quantised_{layout}",
        f"MobileNet v2 on 8-bit data in the {layout} layout",
        mobilenet,
        *SIZES,
        quantised=True,
        **{f"enable_{layout}": True},
        **FUSED,
    )

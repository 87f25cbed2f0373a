"""Dumps in blocked layouts: channels in groups of 4, 8 or 32 behind the others."""

import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin

from mge_fixtures.quantised import Small, quantised
from mge_fixtures.table import CASES, RAW, add, applied, f32, run_op, weight

CASES.clear()  # those of the quantised family

FUSED = {"enable_fuse_conv_bias_nonlinearity": True}
ADDEND = {"enable_fuse_conv_bias_with_z": True}


def block(channels, stride=1, groups=1, kernel=3):
    return M.ConvBnRelu2d(channels, channels, kernel, stride=stride, padding=kernel // 2, groups=groups)


class Residual(M.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.second, self.third = (
            block(channels),
            block(channels, groups=channels),
            block(channels, groups=2),
        )

    def forward(self, x):
        x = self.first(x)
        x = F.max_pool2d(F.relu(self.second(x) + x), 2)
        return F.avg_pool2d(self.third(x), 2, 1)


class Network(M.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.first = M.ConvBnRelu2d(3, channels, 3, stride=2, padding=1)
        self.second = Residual(channels)
        self.last = M.Linear(channels, classes)

    def forward(self, x):
        return self.last(F.mean(F.mean(self.second(self.first(x)), 3), 2))


class Mixed(M.Module):
    """Blocked and plain parts in turn."""

    def __init__(self, channels):
        super().__init__()
        self.first, self.second = M.Conv2d(4, channels, 1), M.Conv2d(4, channels, 1)

    def forward(self, x):
        up = F.vision.interpolate(self.first(x), scale_factor=2)
        return F.concat([up, self.second(F.vision.interpolate(x, scale_factor=2))], axis=1)


class Quantised(M.Module):
    """Dense, grouped and depthwise convolutions with pools between them, to be quantised."""

    def __init__(self, channels, width=None):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.first = M.ConvBnRelu2d(width or 3, channels, 3, stride=2, padding=1)
        self.dense, self.depthwise = (
            block(channels, kernel=1),
            M.ConvBn2d(channels, channels, 3, padding=1, groups=channels),
        )
        self.add = M.Elemwise("FUSE_ADD_RELU")

    def forward(self, x):
        x = self.dense(self.first(self.quant(x)))
        return self.dequant(F.avg_pool2d(self.add(self.depthwise(F.max_pool2d(x, 2)), F.max_pool2d(x, 2)), 2))


IMAGE = f32(1, 3, 12, 10)
for layout, channels in {"nchw44": 8, "nchw44_dot": 8, "nchw88": 8}.items():
    option = {f"enable_{layout}": True}
    inner = f32(1, channels, 5, 6)
    add(f"{layout}_conv", block(channels), inner, **option, **FUSED, resized=[f32(2, channels, 4, 4)])
    add(f"{layout}_conv_not_fused", M.Conv2d(channels, channels, 3), inner, **option)
    add(f"{layout}_first", M.ConvBnRelu2d(3, channels, 3, stride=2, padding=1), IMAGE, **option, **FUSED)
    add(f"{layout}_depthwise", block(channels, 2, channels), inner, **option, **FUSED)
    add(f"{layout}_grouped", block(channels * 2, 1, 2), f32(1, channels * 2, 4, 5), **option, **FUSED)
    pools = M.Sequential(block(channels), M.MaxPool2d(2), block(channels), M.AvgPool2d(2))
    add(f"{layout}_pool", pools, f32(1, channels, 8, 8), **option, **FUSED)
    add(f"{layout}_network", Network(channels, 4), IMAGE, **option, **FUSED, resized=[f32(2, 3, 10, 14)])
    add(f"{layout}_network_v1", Network(channels, 4), IMAGE, **option, **FUSED, dump_format="FBS")
    add(f"{layout}_mixed", Mixed(channels), f32(1, 4, 4, 5), **option)
# Only 8-bit data is blocked here.
for layout in ("nchw4", "nchw32", "chwn4", "hwcd4"):
    add(f"{layout}_network", Network(8, 4), IMAGE, **{f"enable_{layout}": True}, **FUSED)
for layout in ("nchw44", "nchw44_dot", "nchw88", "nchw4", "nchw32", "hwcd4"):
    option = {f"enable_{layout}": True}
    width = 32 if layout == "nchw32" else 8
    small, step = 0.035, 0.033 if layout == "nchw32" else 0.016
    if layout in ("nchw4", "nchw32"):
        # On x86, lite leaves out the addend of an 8-bit ConvBiasForward that is not blocked. In the dump that gives the
        # outputs it is a sum of its own, whose operands are rounded: two steps.
        option["reference"], small, step = {}, 2 * small, 2 * step
    options = {**option, **FUSED}
    image = (1, 3, 12, 10)
    add(f"{layout}_small_quantised", quantised(Small(), (2, 4, 6, 6)), f32(2, 4, 6, 6), **options, step=small)
    add(f"{layout}_network_quantised", quantised(Quantised(width), image), IMAGE, **options, step=step)
    if layout in ("nchw4", "nchw32"):
        add(f"{layout}_network_quantised_z", quantised(Quantised(width), image), IMAGE, **options, **ADDEND, step=step)

# The operators themselves, on blocked constants and inputs.
for form, size in {"NCHW44": 4, "NCHW88": 8}.items():
    kernel = weight(2, 1, 3, 3, size, size, scale=0.3)
    add(
        f"op_convolution_{form.lower()}",
        lambda x, f=form, k=kernel: run_op(builtin.Convolution(format=f, pad_h=1, pad_w=1), x, k),
        f32(1, 1, 5, 6, size),
        **RAW,
    )
for form, size in {"NCHW4": 4, "NCHW44": 4, "NCHW88": 8, "NCHW32": 32}.items():
    for mode in ("MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING"):
        op = builtin.Pooling(mode=mode, format=form, window_h=3, window_w=3, pad_h=1, pad_w=1)
        add(f"op_pooling_{mode.lower()}_{form.lower()}", applied(op), f32(1, 1, 5, 4, size), **RAW)

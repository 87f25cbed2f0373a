"""Pooling cases."""

from mindspore import nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, case, f16, f32

X = f32(1, 2, 9, 7)
X1 = f32(2, 3, 11)
X3 = f32(1, 1, 5, 6, 7)


def cases() -> list[Case]:
    return [*max_pool(), *average_pool(), *adaptive(), *other()]


def max_pool() -> list[Case]:
    return [
        case("max_pool2d_valid", nn.MaxPool2d(3, 2), X),
        case("max_pool2d_same", nn.MaxPool2d(3, 2, "same"), X),
        case("max_pool2d_same_even", nn.MaxPool2d((2, 4), (1, 3), "same"), X),
        case("max_pool2d_pad", nn.MaxPool2d(3, 2, "pad", padding=1), X),
        case("max_pool2d_pad_uneven_kernel", nn.MaxPool2d((4, 2), (2, 1), "pad", padding=(2, 1)), X),
        case("max_pool2d_ceil", nn.MaxPool2d(2, 2, "pad", padding=0, ceil_mode=True), X),
        case("max_pool2d_ceil_pad", nn.MaxPool2d(3, 2, "pad", padding=1, ceil_mode=True), f32(2, 3, 10, 8)),
        case("max_pool2d_dilation", nn.MaxPool2d(3, 1, "pad", padding=1, dilation=2), X),
        case("max_pool2d_indices", nn.MaxPool2d(3, 2, "pad", padding=1, return_indices=True), X),
        case("max_pool2d_function", "ops.max_pool2d(x, (3, 2), (2, 1), (1, 0), 1, False, False)", X),
        case("max_pool2d_function_indices", "ops.max_pool2d(x, 3, 2, 1, 1, True, True)", X),
        case("max_pool_with_argmax_v2", "self.op(x)", X, op=P.MaxPoolWithArgmaxV2(3, 2, (1, 1), 1, True)),
        case("max_pool2d_rank3", nn.MaxPool2d(3, 2), f32(3, 9, 7)),
        case("max_pool2d_float16", nn.MaxPool2d(3, 2, "same"), f16(2, 3, 9, 7)),
        case("max_pool2d_dynamic", nn.MaxPool2d(3, 2, "same"), X, shapes=[(None, 2, None, None)]),
        case("max_pool1d_valid", nn.MaxPool1d(3, 2), X1),
        case("max_pool1d_same", nn.MaxPool1d(4, 3, "same"), X1),
        case("max_pool1d_pad", nn.MaxPool1d(3, 2, "pad", padding=1), X1),
        case("max_pool3d_valid", nn.MaxPool3d((2, 3, 2), (1, 2, 2)), X3),
        case("max_pool3d_same", nn.MaxPool3d(3, 2, "same"), X3),
        case("max_pool3d_pad", nn.MaxPool3d(3, 2, "pad", padding=1), X3),
        case("max_pool3d_pad_ceil", nn.MaxPool3d(2, 2, "pad", padding=0, ceil_mode=True), X3),
        case("max_pool3d_function_indices", "ops.max_pool3d(x, 3, 2, 1, 1, False, True)", X3),
        case("max_pool3d_primitive_pad", "self.op(x)", X3, op=P.MaxPool3D(3, 2, "pad", (1, 0, 1, 1, 0, 1))),
        case("max_pool_primitive_same", "self.op(x)", X, op=P.MaxPool((3, 2), (2, 3), "same")),
        case(
            "max_unpool2d",
            "a, b = ops.max_pool2d(x, 2, 2, 0, 1, True, False)\nreturn ops.max_unpool2d(a, b, 2, 2)",
            f32(2, 3, 6, 4),
        ),
        case(
            "pad_then_max_pool",
            nn.SequentialCell(nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1))), nn.MaxPool2d(3, 2)),
            f32(2, 3, 9, 7, low=-3, high=-1),
        ),
    ]


def average_pool() -> list[Case]:
    return [
        case("avg_pool2d_valid", nn.AvgPool2d(3, 2), X),
        case("avg_pool2d_same", nn.AvgPool2d(3, 2, "same"), X),
        case("avg_pool2d_same_even", nn.AvgPool2d((2, 4), (1, 3), "same"), X),
        case("avg_pool2d_pad", nn.AvgPool2d(3, 2, "pad", padding=1), X),
        case("avg_pool2d_pad_exclude", nn.AvgPool2d(3, 2, "pad", padding=1, count_include_pad=False), X),
        case("avg_pool2d_ceil", nn.AvgPool2d(2, 2, "pad", padding=0, ceil_mode=True), X),
        case("avg_pool2d_ceil_pad", nn.AvgPool2d(3, 2, "pad", padding=1, ceil_mode=True), f32(2, 3, 10, 8)),
        case("avg_pool2d_ceil_pad_exclude", nn.AvgPool2d(3, 2, "pad", 1, True, False), f32(2, 3, 10, 8)),
        case("avg_pool2d_divisor", nn.AvgPool2d(3, 2, "pad", padding=1, divisor_override=5), X),
        case("avg_pool2d_function", "ops.avg_pool2d(x, (3, 2), (2, 1), (1, 1, 0, 0), False, True, 0)", X),
        case("avg_pool2d_primitive", "self.op(x)", X, op=P.AvgPool((3, 2), (2, 3), "same")),
        case("avg_pool2d_rank3", nn.AvgPool2d(3, 2), f32(3, 9, 7)),
        case("avg_pool2d_float16", nn.AvgPool2d(3, 2, "valid"), f16(2, 3, 9, 7)),
        case("avg_pool2d_dynamic", nn.AvgPool2d(3, 2, "same"), X, shapes=[(None, 2, None, None)]),
        case("avg_pool1d_valid", nn.AvgPool1d(3, 2), X1),
        case("avg_pool1d_same", nn.AvgPool1d(4, 3, "same"), X1),
        case("avg_pool1d_pad", nn.AvgPool1d(3, 2, "pad", padding=1), X1),
        case("avg_pool1d_function", "ops.avg_pool1d(x, 3, 2, 1, True, False)", X1),
        case("avg_pool3d_valid", nn.AvgPool3d((2, 3, 2), (1, 2, 2)), X3),
        case("avg_pool3d_same", nn.AvgPool3d(3, 2, "same"), X3),
        case("avg_pool3d_pad", nn.AvgPool3d(3, 2, "pad", padding=1), X3),
        case("avg_pool3d_pad_ceil_exclude", nn.AvgPool3d(3, 2, "pad", 1, True, False), X3),
        case("avg_pool3d_divisor", nn.AvgPool3d(2, 1, "pad", padding=1, divisor_override=3), X3),
    ]


def adaptive() -> list[Case]:
    return [
        case("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((4, 3)), X),
        case("adaptive_avg_pool2d_one", nn.AdaptiveAvgPool2d(1), X),
        case("adaptive_avg_pool2d_none", nn.AdaptiveAvgPool2d((None, 3)), X),
        case("adaptive_avg_pool2d_larger", nn.AdaptiveAvgPool2d((11, 8)), X),
        case("adaptive_avg_pool2d_rank3", nn.AdaptiveAvgPool2d((4, 3)), f32(3, 9, 7)),
        case("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(4), f32(2, 3, 12)),
        case("adaptive_avg_pool3d", nn.AdaptiveAvgPool3d((2, 3, 4)), X3),
        case("adaptive_avg_pool3d_one", nn.AdaptiveAvgPool3d(1), X3),
        case("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((4, 3)), X),
        case("adaptive_max_pool2d_one", nn.AdaptiveMaxPool2d(1), X),
        case("adaptive_max_pool2d_indices", nn.AdaptiveMaxPool2d((4, 3), return_indices=True), X),
        case("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(4), f32(2, 3, 12)),
        case("adaptive_max_pool3d", nn.AdaptiveMaxPool3d((2, 3, 4)), X3),
        case("adaptive_max_pool3d_indices", nn.AdaptiveMaxPool3d((2, 3, 4), return_indices=True), X3),
        case("global_avg_pool_reduce", "ops.mean(x, (2, 3))", X),
        case("global_avg_pool_keep", "ops.mean(x, (-2, -1), keep_dims=True)", X),
    ]


def other() -> list[Case]:
    return [
        case("lp_pool2d", nn.LPPool2d(2, 3, 2), f32(2, 3, 9, 7, low=0.1, high=2)),
        case("lp_pool1d", nn.LPPool1d(2, 3, 2), f32(2, 3, 11, low=0.1, high=2)),
    ]

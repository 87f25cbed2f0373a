"""Convolution cases."""

from mindspore import nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, case, f16, f32


def cases() -> list[Case]:
    return [*two_dimensional(), *one_and_three_dimensional(), *transposed(), *primitives()]


def two_dimensional() -> list[Case]:
    x = f32(2, 3, 7, 5)
    return [
        case("conv2d_valid", nn.Conv2d(3, 5, 3, pad_mode="valid"), x),
        case("conv2d_valid_bias_stride", nn.Conv2d(3, 5, (3, 2), (2, 1), "valid", has_bias=True), x),
        case("conv2d_same", nn.Conv2d(3, 5, 3, pad_mode="same"), x),
        case("conv2d_same_stride2", nn.Conv2d(3, 5, 3, 2, "same", has_bias=True), x),
        case("conv2d_same_even_kernel", nn.Conv2d(3, 5, (4, 2), (1, 3), "same"), x),
        case("conv2d_same_dilation", nn.Conv2d(3, 5, 3, 1, "same", dilation=2), x),
        case("conv2d_pad", nn.Conv2d(3, 5, 3, pad_mode="pad", padding=1), x),
        case("conv2d_pad_uneven", nn.Conv2d(3, 5, 3, 2, "pad", padding=(1, 2, 0, 3), has_bias=True), x),
        case("conv2d_dilation", nn.Conv2d(3, 5, (3, 2), 1, "pad", padding=(2, 2, 1, 1), dilation=(2, 3)), x),
        case("conv2d_group", nn.Conv2d(6, 9, 3, 1, "pad", padding=1, group=3, has_bias=True), f32(2, 6, 5, 7)),
        case("conv2d_depthwise", nn.Conv2d(5, 5, 3, 2, "pad", padding=1, group=5), f32(2, 5, 9, 7)),
        case("conv2d_depthwise_same", nn.Conv2d(5, 5, (3, 5), 1, "same", group=5), f32(2, 5, 9, 7)),
        case("conv2d_depthwise_multiplier", nn.Conv2d(3, 6, 3, 1, "valid", group=3), x),
        case("conv2d_pointwise", nn.Conv2d(3, 7, 1), x),
        case("conv2d_pointwise_stride", nn.Conv2d(3, 7, 1, 2, "valid", has_bias=True), x),
        case("conv2d_float16", nn.Conv2d(3, 5, 3, pad_mode="pad", padding=1), f16(2, 3, 7, 5), dtype="float16"),
        case(
            "conv2d_weight_as_input",
            "ops.conv2d(x, y, z, stride=(2, 1), pad_mode='pad', padding=(1, 2), dilation=1, groups=1)",
            x,
            f32(5, 3, 3, 2),
            f32(5),
        ),
        case("conv2d_function_same", "ops.conv2d(x, y, None, 2, 'same')", x, f32(5, 3, 3, 3)),
        case("conv2d_bias_add_rank2", "P.BiasAdd()(x, y)", f32(3, 5), f32(5)),
        case("conv2d_bias_add_rank3", "P.BiasAdd()(x, y)", f32(2, 5, 3), f32(5)),
        case("conv2d_bias_add_rank5", "P.BiasAdd('NCDHW')(x, y)", f32(2, 5, 3, 2, 3), f32(5)),
        case(
            "conv2d_batch_norm_relu",
            nn.SequentialCell(nn.Conv2d(3, 5, 3, 1, "pad", padding=1), nn.BatchNorm2d(5), nn.ReLU()),
            x,
        ),
        case("conv2d_dynamic_same", nn.Conv2d(3, 5, 3, 2, "same", has_bias=True), x, shapes=[(None, 3, None, None)]),
        case("conv2d_dynamic_pad", nn.Conv2d(3, 5, 3, 2, "pad", padding=1), x, shapes=[(None, 3, None, None)]),
        case("conv2d_dynamic_batch", nn.Conv2d(3, 5, 3, 2, "valid"), x, shapes=[(None, 3, 7, 5)]),
    ]


def one_and_three_dimensional() -> list[Case]:
    x1, x3 = f32(2, 3, 11), f32(1, 2, 4, 5, 6)
    return [
        case("conv1d_same", nn.Conv1d(3, 5, 3, 2, "same", has_bias=True), x1),
        case("conv1d_valid", nn.Conv1d(3, 5, 4, 1, "valid"), x1),
        case("conv1d_pad_dilation", nn.Conv1d(3, 5, 3, 1, "pad", padding=2, dilation=2, has_bias=True), x1),
        case("conv1d_group", nn.Conv1d(6, 4, 3, 1, "pad", padding=1, group=2), f32(2, 6, 11)),
        case("conv1d_function", "ops.conv1d(x, y, z, stride=2, pad_mode='pad', padding=1)", x1, f32(5, 3, 3), f32(5)),
        case("conv3d_same", nn.Conv3d(2, 3, (2, 3, 3), (1, 2, 1), "same", has_bias=True), x3),
        case("conv3d_valid", nn.Conv3d(2, 3, (3, 2, 3), 1, "valid"), x3),
        case("conv3d_pad_uneven", nn.Conv3d(2, 3, 3, 2, "pad", padding=(1, 2, 0, 1, 2, 0)), x3),
        case("conv3d_pad_dilation", nn.Conv3d(2, 3, (1, 2, 3), 1, "pad", padding=1, dilation=(1, 2, 2)), x3),
        case("conv3d_group", nn.Conv3d(4, 6, 3, 1, "valid", group=2, has_bias=True), f32(1, 4, 3, 5, 4)),
        case("conv3d_function", "ops.conv3d(x, y, None, (1, 2, 2), 'pad', (1, 0, 1))", x3, f32(3, 2, 2, 3, 3)),
    ]


def transposed() -> list[Case]:
    x, x1, x3 = f32(2, 3, 5, 4), f32(2, 3, 7), f32(1, 2, 2, 3, 4)
    t = nn.Conv2dTranspose
    return [
        case("conv2d_transpose_same", t(3, 5, 3, 2, "same", has_bias=True), x),
        case("conv2d_transpose_same_even", t(3, 5, (4, 2), (2, 3), "same"), x),
        case("conv2d_transpose_valid", t(3, 5, (3, 2), 2, "valid"), x),
        case("conv2d_transpose_pad", t(3, 5, 4, 2, "pad", padding=1), x),
        case("conv2d_transpose_pad_uneven", t(3, 5, (4, 3), 2, "pad", padding=(1, 2, 0, 1), has_bias=True), x),
        case("conv2d_transpose_output_padding", t(3, 5, 3, 2, "pad", padding=1, output_padding=1), x),
        case("conv2d_transpose_dilation", t(3, 5, 3, 2, "pad", padding=1, dilation=2), x),
        case("conv2d_transpose_group", t(4, 6, 3, 2, "pad", padding=1, group=2), f32(2, 4, 5, 3)),
        case("conv2d_transpose_stride1", t(3, 5, 3, 1, "same"), x),
        case("conv1d_transpose_same", nn.Conv1dTranspose(3, 5, 3, 2, "same", has_bias=True), x1),
        case("conv1d_transpose_pad", nn.Conv1dTranspose(3, 5, 4, 2, "pad", padding=1), x1),
        case("conv1d_transpose_valid", nn.Conv1dTranspose(3, 5, 3, 3, "valid"), x1),
        case("conv3d_transpose_same", nn.Conv3dTranspose(2, 3, 3, 2, "same", has_bias=True), x3),
        case("conv3d_transpose_valid", nn.Conv3dTranspose(2, 3, (2, 3, 2), (1, 2, 2), "valid"), x3),
        case(
            "conv3d_transpose_pad",
            nn.Conv3dTranspose(2, 3, 3, 2, "pad", padding=1, output_padding=1),
            x3,
        ),
        case("conv2d_transpose_dynamic_batch", t(3, 5, 4, 2, "pad", padding=1), x, shapes=[(None, 3, 5, 4)]),
    ]


def primitives() -> list[Case]:
    return [
        case(
            "conv2d_backprop_input",
            "self.op(x, y, (2, 5, 10, 8))",
            f32(2, 3, 5, 4),
            f32(3, 5, 4, 4),
            op=P.Conv2DBackpropInput(3, 4, pad_mode="pad", pad=1, stride=2),
        ),
        case(
            "deformable_conv2d",
            "ops.deformable_conv2d(x, y, z, (3, 3), (1, 1, 1, 1), (0, 0, 0, 0), deformable_groups=1)",
            f32(1, 2, 7, 6),
            f32(3, 2, 3, 3),
            f32(1, 27, 5, 4, low=-0.8, high=0.8),
        ),
    ]

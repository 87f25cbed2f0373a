"""Convolution cases: 1-D to 3-D, transposed, grouped, deformable, local, fused with bias and activation."""

import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, applied, case, f16, f32, i8, i32, run_op, weight

X = f32(1, 4, 7, 6)
OTHER = [f32(2, 4, 5, 7)]
FUSED = {"enable_fuse_conv_bias_nonlinearity": True}
FUSED_Z = {**FUSED, "enable_fuse_conv_bias_with_z": True}

SHAPES = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "dilation": {"dilation": 2, "padding": 2},
    "uneven": {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)},
}
for name, keywords in SHAPES.items():
    add(f"conv2d_{name}", M.Conv2d(4, 6, 3, **keywords), X, resized=OTHER)
    add(f"conv2d_{name}_grouped", M.Conv2d(4, 6, 3, groups=2, **keywords), X)
    add(f"conv2d_{name}_depthwise", M.Conv2d(4, 8, 3, groups=4, **keywords), X)
    add(f"conv_transpose2d_{name}", M.ConvTranspose2d(4, 6, 3, **keywords), X, resized=OTHER)
    add(f"conv_transpose2d_{name}_grouped", M.ConvTranspose2d(4, 6, 3, groups=2, **keywords), X)
    add(f"conv3d_{name}", M.Conv3d(2, 3, 3, **({} if name == "uneven" else keywords)), f32(1, 2, 5, 6, 5))
    line = {key: value if isinstance(value, int) else value[0] for key, value in keywords.items()}
    add(f"conv1d_{name}", M.Conv1d(4, 6, 3, **line), f32(2, 4, 9), resized=[f32(1, 4, 12)])
add("conv2d_1x1", M.Conv2d(4, 6, 1), X, resized=OTHER)
add("conv2d_kernel_3x5", M.Conv2d(4, 6, (3, 5), padding=(1, 2)), X)
add("conv2d_no_bias", M.Conv2d(4, 6, 3, bias=False), X)
add("conv2d_weight_input", lambda x, y: F.conv2d(x, y), X, f32(6, 4, 3, 3))
add("conv2d_weight_bias_inputs", lambda x, y, z: F.conv2d(x, y, z, padding=1), X, f32(6, 4, 3, 3), f32(1, 6, 1, 1))
for mode in ("reflect", "replicate"):
    add(f"conv2d_padding_{mode}", M.Conv2d(4, 6, 3, padding=2, padding_mode=mode), X)
add("conv2d_raw", M.Conv2d(4, 6, 3), X, **RAW)
add("conv2d_v1", M.Conv2d(4, 6, 3, groups=2), X, dump_format="FBS")
# MegEngine 1.13 cannot load such a file of its own.
add("conv2d_version_1", M.Conv2d(4, 6, 3), X, model_version=1, reference={})
add("conv2d_float16", lambda x: F.conv2d(x, weight(6, 4, 3, 3, dtype="float16")), f16(2, 4, 7, 6), relative=3e-3)
add("conv2d_flipped", lambda x: run_op(builtin.Convolution(mode="CONVOLUTION"), x, weight(6, 4, 3, 2)), X, **RAW)
add("conv2d_nhwc", lambda x: run_op(builtin.Convolution(format="NHWC"), x, weight(6, 3, 2, 4)), f32(1, 7, 6, 4), **RAW)

# Batch normalisation is folded into the weights.
add("conv_bn", M.ConvBn2d(4, 6, 3, padding=1), X, resized=OTHER)
add("conv_bn_relu", M.ConvBnRelu2d(4, 6, 3, stride=2, padding=1), X, resized=OTHER)
add("conv_bn_relu_raw", M.ConvBnRelu2d(4, 6, 3, stride=2, padding=1), X, **RAW)
add("conv_relu", M.ConvRelu2d(4, 6, 3), X)
add("conv_relu_fused", M.ConvRelu2d(4, 6, 3), X, **FUSED)
add("conv_bn_relu_fused", M.ConvBnRelu2d(4, 6, 3, padding=1), X, **FUSED, resized=OTHER)
add("conv_bn_relu_fused_grouped", M.ConvBnRelu2d(4, 6, 3, groups=2), X, **FUSED)
add("conv_bn_relu_fused_depthwise", M.ConvBnRelu2d(4, 4, 3, groups=4, padding=1, stride=2), X, **FUSED)
add("conv_bn_relu_fused_v1", M.ConvBnRelu2d(4, 6, 3), X, **FUSED, dump_format="FBS")
add("conv_bn_relu_fused_version_1", M.ConvBnRelu2d(4, 6, 3), X, **FUSED, model_version=1, reference={})
add("conv_bias_fused", M.Conv2d(4, 6, 3), X, **FUSED)
add("conv_sigmoid_fused", M.Sequential(M.Conv2d(4, 6, 3), M.Sigmoid()), X, **FUSED)
add("conv_hswish_fused", lambda x: F.nn.hswish(F.conv2d(x, weight(6, 4, 3, 3), weight(1, 6, 1, 1))), X, **FUSED)


@case(X, **FUSED_Z)
class conv_residual_fused(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv(x) + x)


ACTIVATIONS = {"IDENTITY": F.copy, "RELU": F.relu, "SIGMOID": F.sigmoid, "H_SWISH": F.nn.hswish}
for mode, function in ACTIVATIONS.items():
    op = builtin.ConvBias(nonlineMode=mode, pad_h=1, pad_w=1, dtype="float32")
    add(f"conv_bias_{mode.lower()}", lambda x, op=op: run_op(op, x, weight(6, 4, 3, 3), weight(1, 6, 1, 1)), X, **RAW)
    add(
        f"conv_bias_z_{mode.lower()}",
        lambda x, y, op=op: run_op(op, x, weight(6, 4, 3, 3), weight(1, 6, 1, 1), y),
        X,
        f32(1, 6, 7, 6),
        **RAW,
        # On x86, lite leaves out the addend.
        reference=lambda x, y, f=function: f(F.conv2d(x, weight(6, 4, 3, 3), weight(1, 6, 1, 1), padding=1) + y),
    )
add("conv_bias_without_bias", lambda x: run_op(builtin.ConvBias(dtype="float32"), x, weight(6, 4, 3, 3)), X, **RAW)

# Transposed.
add("conv_transpose2d_output_padding", M.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), X, resized=OTHER)
add("conv_transpose2d_kernel_2x4", M.ConvTranspose2d(4, 6, (2, 4), stride=2, padding=(0, 1)), X)
add("conv_transpose2d_depthwise", M.ConvTranspose2d(4, 4, 4, stride=2, padding=1, groups=4, bias=False), X)
add("conv_transpose2d_v1", M.ConvTranspose2d(4, 6, 3, stride=2), X, dump_format="FBS")
add("conv_transpose3d", M.ConvTranspose3d(2, 3, 3, stride=2, padding=1), f32(1, 2, 3, 4, 5))
add("conv_transpose3d_output_padding", M.ConvTranspose3d(2, 3, 3, stride=2, output_padding=1), f32(1, 2, 3, 4, 5))
add("conv_transpose3d_plain", M.ConvTranspose3d(2, 3, (1, 2, 3), bias=False), f32(1, 2, 3, 4, 5))
add("conv3d_grouped", M.Conv3d(4, 6, 3, groups=2, padding=1), f32(1, 4, 4, 5, 6))
add("conv3d_depthwise", M.Conv3d(4, 4, (1, 3, 3), groups=4), f32(1, 4, 3, 5, 6))
add("conv3d_uneven_kernel", M.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1)), f32(1, 2, 4, 7, 5))

# Deformable.
add(
    "deformable_conv2d",
    M.DeformableConv2d(4, 6, 3, padding=1),
    f32(1, 4, 7, 6),
    f32(1, 18, 7, 6),
    f32(1, 9, 7, 6, low=0, high=1),
    relative=2e-4,
)
add(
    "deformable_conv2d_stride",
    M.DeformableConv2d(4, 6, 3, stride=2),
    f32(2, 4, 7, 7),
    f32(2, 18, 3, 3),
    f32(2, 9, 3, 3, low=0, high=1),
    relative=2e-4,
)
add(
    "deformable_conv2d_offset_groups",
    M.DeformableConv2d(4, 6, 3, padding=1),
    f32(1, 4, 7, 6),
    f32(1, 36, 7, 6),
    f32(1, 18, 7, 6, low=0, high=1),
    relative=2e-4,
)
add(
    "deformable_conv2d_grouped",
    M.DeformableConv2d(4, 6, 3, padding=1, groups=2),
    f32(1, 4, 7, 6),
    f32(1, 18, 7, 6),
    f32(1, 9, 7, 6, low=0, high=1),
    relative=2e-4,
)
add(
    "deformable_conv2d_dilated",
    M.DeformableConv2d(4, 6, 3, dilation=2),
    f32(1, 4, 9, 9),
    f32(1, 18, 5, 5),
    f32(1, 9, 5, 5, low=0, high=1),
    relative=2e-4,
)

# Weights that are not shared, or not everywhere.
add("local_conv2d", M.LocalConv2d(2, 4, 5, 4, 3), f32(2, 2, 5, 4))
add("local_conv2d_padding", M.LocalConv2d(2, 4, 5, 4, 3, padding=1, stride=2), f32(2, 2, 5, 4))
add("local_conv2d_grouped", M.LocalConv2d(2, 4, 5, 4, 3, groups=2), f32(2, 2, 5, 4))
add(
    "region_restricted_conv",
    lambda x, y, z: F.nn.region_restricted_conv(x, weight(2, 1, 1, 3, 3), y, z, groups=2, padding=1),
    f32(1, 2, 6, 6),
    i32(1, 6, 6, low=0, high=2),
    i32(1, 6, 6, low=0, high=2),
    **KEEP,
)
add(
    "region_restricted_conv_op",
    lambda x, y, z: run_op(
        builtin.RegionRestrictedConvolution(pad_h=1, pad_w=1, sparse="GROUP"), x, weight(2, 1, 1, 3, 3), y, z
    ),
    f32(1, 2, 6, 6),
    i32(1, 6, 6, low=0, high=2),
    i32(1, 6, 6, low=0, high=2),
    **RAW,
)
add(
    "batch_conv_bias",
    applied(builtin.BatchConvBias(pad_h=1, pad_w=1, dtype="float32")),
    f32(2, 4, 6, 5),
    f32(2, 3, 4, 3, 3),
    f32(1, 3, 1, 1),
    **RAW,
)

# Other types, kernels that are turned round, channels last, batches whose size depends on the data.
# On x86, MegEngine leaves out the bias and the activation of this one.
HALF = {"dtype": "float16", "scale": 0.3}
add(
    "conv_bias_float16",
    lambda x: run_op(
        builtin.ConvBias(nonlineMode="RELU", pad_h=1, pad_w=1, dtype="float16"),
        x,
        weight(6, 4, 3, 3, **HALF),
        weight(1, 6, 1, 1, **HALF),
    ),
    f16(1, 4, 7, 6),
    **RAW,
    relative=3e-3,
    reference=lambda x: F.relu(F.conv2d(x, weight(6, 4, 3, 3, **HALF), padding=1) + weight(1, 6, 1, 1, **HALF)),
)
add(
    "conv_transpose2d_float16",
    lambda x: F.conv_transpose2d(x, weight(4, 6, 3, 3, dtype="float16", scale=0.3), stride=2),
    f16(1, 4, 5, 6),
    relative=3e-3,
)
add(
    "conv2d_int8",
    lambda x: run_op(builtin.Convolution(pad_h=1), x, weight(6, 4, 3, 3, dtype="int8", scale=20)),
    i8(2, 4, 7, 6),
    **RAW,
)
add(
    "conv_bias_int8",
    lambda x: run_op(
        builtin.ConvBias(nonlineMode="RELU", dtype="int32"),
        x,
        weight(6, 4, 3, 3, dtype="int8", scale=20),
        weight(1, 6, 1, 1, dtype="int32", scale=900),
    ),
    i8(2, 4, 7, 6),
    **RAW,
)
add(
    "conv_bias_full_bias",
    lambda x: run_op(builtin.ConvBias(nonlineMode="RELU", dtype="float32"), x, weight(6, 4, 3, 3), weight(1, 6, 5, 4)),
    X,
    **RAW,
)
add(
    "conv_transpose2d_flipped",
    lambda x: run_op(builtin.ConvolutionBackwardData(mode="CONVOLUTION", stride_h=2), weight(4, 6, 3, 2), x),
    X,
    **RAW,
)
add(
    "conv2d_flipped_grouped",
    lambda x: run_op(builtin.Convolution(mode="CONVOLUTION", sparse="GROUP"), x, weight(2, 3, 2, 3, 2)),
    X,
    **RAW,
)
add(
    "conv3d_flipped",
    lambda x: run_op(builtin.Convolution3D(mode="CONVOLUTION"), x, weight(3, 2, 2, 3, 2)),
    f32(1, 2, 4, 5, 6),
    **RAW,
)
add(
    "conv2d_nhwc_grouped",
    lambda x: run_op(builtin.Convolution(format="NHWC", sparse="GROUP", stride_h=2), x, weight(2, 3, 3, 2, 2)),
    f32(1, 7, 6, 4),
    **RAW,
)
add(
    "conv_bias_nhwc",
    lambda x: F.relu(
        run_op(builtin.ConvBias(format="NHWC", dtype="float32"), x, weight(6, 3, 2, 4), weight(1, 1, 1, 6))
    ),
    f32(1, 7, 6, 4),
    **RAW,
)
add(
    "region_restricted_conv_backward_data",
    lambda x, y, z: run_op(
        builtin.RegionRestrictedConvolutionBackwardData(pad_h=1, pad_w=1, sparse="GROUP"),
        weight(2, 1, 1, 3, 3),
        x,
        y,
        z,
    ),
    f32(1, 2, 6, 6),
    i32(1, 6, 6, low=0, high=2),
    i32(1, 6, 6, low=0, high=2),
    **RAW,
)

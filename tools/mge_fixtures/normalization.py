"""Normalisation over batches, layers, groups and single planes; dropout."""

import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, f16, f32, run_op, weight

X = f32(2, 4, 5, 6)
OTHER = [f32(3, 4, 7, 3)]
V1 = {"dump_format": "FBS"}

# Batch normalisation --------------------------------------------------------------------------------------------------

add("batch_norm", M.BatchNorm2d(4), X, resized=OTHER)
add("batch_norm_relu", M.Sequential(M.BatchNorm2d(4), M.ReLU()), X)
add("batch_norm_no_affine", M.BatchNorm2d(4, affine=False), X)
add("batch_norm_1d", M.BatchNorm1d(4), f32(5, 4))
add("batch_norm_1d_rank3", M.BatchNorm1d(4), f32(5, 4, 3))
add("batch_norm_raw", M.BatchNorm2d(4), X, resized=OTHER, **RAW)
add("batch_norm_raw_v1", M.BatchNorm2d(4), X, **RAW, **V1)
add("batch_norm_no_affine_raw", M.BatchNorm2d(4, affine=False), X, **RAW)
add("batch_norm_conv", M.Sequential(M.Conv2d(4, 3, 3), M.BatchNorm2d(3)), X, **RAW)


def batch_norm(*shape, dtype="float32", **kwargs):
    """The operator with its scale, bias, mean and variance in that shape; its last output."""
    op = builtin.BatchNorm(fwd_mode="INFERENCE", **kwargs)
    scale, bias, mean = (weight(*shape, dtype=dtype) * number for number in (1.0, 0.5, -0.25))
    variance = weight(*shape, dtype=dtype, low=0.5)
    return lambda x: run_op(op, x, scale, bias, mean, variance)[-1]


add("batch_norm_channels_last", batch_norm(1, 1, 1, 6, param_dim="DIM_111C"), X, **RAW)
add("batch_norm_each_place", batch_norm(1, 4, 5, 6, param_dim="DIM_1CHW"), X, **RAW)
add("batch_norm_plane", batch_norm(1, 1, 5, 6, param_dim="DIM_11HW"), f32(2, 1, 5, 6), **RAW)
add("batch_norm_epsilon", batch_norm(1, 4, 1, 1, param_dim="DIM_1C11", epsilon=0.25), X, **RAW)
add("batch_norm_float16", batch_norm(1, 4, 1, 1, param_dim="DIM_1C11", dtype="float16"), f16(1, 4, 3, 3), **RAW)
add("batch_norm_mixed", batch_norm(1, 4, 1, 1, param_dim="DIM_1C11"), f16(1, 4, 3, 3), **RAW)


# Over some axes of each sample ----------------------------------------------------------------------------------------
# MegEngine rounds the means of float16 numbers to float16, and returns them as float32: hence the limit of float16.


def outputs(op, *weights):
    """All outputs of the operator."""
    return lambda x: run_op(op, x, *weights)


def affine(*shape, dtype="float32"):
    return weight(*shape, dtype=dtype), weight(*shape, dtype=dtype) * 0.5


def layer(*sizes, **kwargs):
    size = 1
    for each in sizes:
        size *= each
    return builtin.LayerNorm(normalized_dim=len(sizes), normalized_size=size, **kwargs)


add("layer_norm", M.LayerNorm(6), X, resized=[f32(1, 4, 2, 6)])
add("layer_norm_keep", M.LayerNorm(6), X, **KEEP)
add("layer_norm_v1", M.LayerNorm(6), X, **V1)
add("layer_norm_no_affine", M.LayerNorm(6, affine=False), X)
add("layer_norm_two_axes", M.LayerNorm((5, 6)), X)
add("layer_norm_all", M.LayerNorm((2, 4, 5, 6)), X)
add("layer_norm_rank2", M.LayerNorm(6), f32(3, 6))
add("layer_norm_rank1", M.LayerNorm(6), f32(6))
add("layer_norm_epsilon", M.LayerNorm(6, eps=0.5), X)
add("layer_norm_large", M.LayerNorm(6), f32(3, 6, low=1000, high=1001))
add("layer_norm_statistics", outputs(layer(6), *affine(6)), X, **RAW)
add("layer_norm_statistics_two_axes", outputs(layer(5, 6, affine=False)), X, resized=[f32(3, 2, 5, 6)], **RAW)
add("layer_norm_flat_weights", lambda x: run_op(layer(5, 6), x, *affine(30))[0], X, **RAW)
add(
    "layer_norm_float16", lambda x: run_op(layer(6), x, *affine(6, dtype="float16")), f16(2, 3, 6), relative=1e-3, **RAW
)

add("general_norm", M.GeneralNorm((5, 6), (2, 3)), X, **KEEP)
add("general_norm_default", M.GeneralNorm((5, 6), (2, 3)), X)
add("general_norm_middle", M.GeneralNorm((4, 5), (1, 2)), X, resized=[f32(3, 4, 5, 2)], **KEEP)
add("general_norm_apart", M.GeneralNorm((4, 6), (1, 3)), X, **KEEP)
add("general_norm_no_affine", lambda x: F.general_norm(x, [1], False), X, resized=OTHER, **KEEP)
add("general_norm_first", M.GeneralNorm((2,), (0,), eps=0.5), X, **KEEP)
for name, start, end in (("", 1, 3), ("_last", 2, 4), ("_all", 0, 4)):
    op = builtin.GeneralNorm(axis_start=start, axis_end=end)
    add(f"general_norm_statistics{name}", outputs(op, *affine(*(2, 4, 5, 6)[start:end])), X, **RAW)
op = builtin.GeneralNorm(axis_start=1, axis_end=2)
add("general_norm_float16", outputs(op, *affine(3, dtype="float16")), f16(2, 3, 6), **RAW)

add("group_norm", M.GroupNorm(2, 4), X, resized=OTHER, **KEEP)
add("group_norm_default", M.GroupNorm(2, 4), X)
add("group_norm_v1", M.GroupNorm(2, 4), X, **V1)
add("group_norm_one", M.GroupNorm(1, 4), X, **KEEP)
add("group_norm_each", M.GroupNorm(4, 4), X, **KEEP)
add("group_norm_no_affine", M.GroupNorm(2, 4, affine=False), X, **KEEP)
add("group_norm_no_affine_default", M.GroupNorm(2, 4, affine=False), X)
add("group_norm_rank3", M.GroupNorm(2, 4), f32(2, 4, 5), **KEEP)
add("group_norm_rank5", M.GroupNorm(2, 4), f32(2, 4, 5, 2, 3), **KEEP)
add("group_norm_statistics", outputs(builtin.GroupNorm(group=2), *affine(4)), X, **RAW)
add(
    "group_norm_statistics_epsilon", outputs(builtin.GroupNorm(group=2, eps=0.5, affine=False)), X, resized=OTHER, **RAW
)
add(
    "group_norm_float16",
    outputs(builtin.GroupNorm(group=2), *affine(4, dtype="float16")),
    f16(2, 4, 3, 3),
    relative=1e-3,
    **RAW,
)

add("instance_norm", M.InstanceNorm(4), X, resized=OTHER, **KEEP)
add("instance_norm_v1", M.InstanceNorm(4), X, **V1)
add("instance_norm_no_affine", M.InstanceNorm(4, affine=False), X, **KEEP)
add("instance_norm_no_affine_default", M.InstanceNorm(4, affine=False), X)
add("instance_norm_rank3", M.InstanceNorm(4), f32(2, 4, 5), **KEEP)
add("instance_norm_rank5", M.InstanceNorm(4), f32(2, 4, 5, 2, 3), **KEEP)
add("instance_norm_statistics", outputs(builtin.InstanceNorm(), *affine(4)), X, **RAW)
add("instance_norm_statistics_epsilon", outputs(builtin.InstanceNorm(eps=0.5, affine=False)), X, resized=OTHER, **RAW)
add(
    "instance_norm_float16",
    outputs(builtin.InstanceNorm(), *affine(4, dtype="float16")),
    f16(2, 4, 3, 3),
    relative=1e-3,
    **RAW,
)

add("local_response_norm", M.LocalResponseNorm(), f32(2, 8, 3, 4))
add("local_response_norm_3", M.LocalResponseNorm(3, 1.5, 0.5, 0.6), f32(2, 8, 3, 4))

# Dropout --------------------------------------------------------------------------------------------------------------

add("dropout_inference", lambda x: F.dropout(x, 0.5, training=False) + 1, X)
add("dropout_module", M.Sequential(M.ReLU(), M.Dropout(0.3)), X)
add("dropout_nothing", lambda x: run_op(builtin.Dropout(drop_prob=0.0), x)[0], X, **RAW)
add("dropout_training", lambda x: F.dropout(x, 0.5, training=True), X)

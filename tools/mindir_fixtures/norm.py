"""Normalisation cases."""

from mindspore import nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, case, f16, f32

X = f32(2, 6, 3, 4)


def cases() -> list[Case]:
    return [*batch(), *layer_and_group(), *other()]


def batch() -> list[Case]:
    return [
        case("batch_norm2d", nn.BatchNorm2d(6), X),
        case("batch_norm2d_eps", nn.BatchNorm2d(6, eps=1e-2, momentum=0.5), X),
        case("batch_norm2d_not_affine", nn.BatchNorm2d(6, affine=False), X),
        case("batch_norm2d_no_running", nn.BatchNorm2d(6, use_batch_statistics=True), X),
        case("batch_norm1d_rank2", nn.BatchNorm1d(6), f32(5, 6)),
        case("batch_norm1d_rank3", nn.BatchNorm1d(6), f32(2, 6, 5)),
        case("batch_norm3d", nn.BatchNorm3d(6), f32(2, 6, 2, 2, 3)),
        case("batch_norm2d_float16", nn.BatchNorm2d(6), f16(2, 6, 3, 4)),
        case("batch_norm2d_dynamic", nn.BatchNorm2d(6), X, shapes=[(None, 6, None, None)]),
        case(
            "batch_norm_function",
            "ops.batch_norm(x, y, z, w, v, False, 0.1, 1e-3)",
            X,
            f32(6),
            f32(6, low=0.5, high=2),
            f32(6),
            f32(6),
        ),
        case("sync_batch_norm_inference", nn.SyncBatchNorm(6), X),
    ]


def layer_and_group() -> list[Case]:
    return [
        case("layer_norm", nn.LayerNorm((7,)), f32(2, 5, 7)),
        case("layer_norm_eps", nn.LayerNorm((7,), epsilon=1e-2), f32(2, 5, 7)),
        case("layer_norm_two_axes", nn.LayerNorm((5, 7), begin_norm_axis=2, begin_params_axis=2), f32(2, 3, 5, 7)),
        case("layer_norm_axis1", nn.LayerNorm((3, 5, 7), begin_norm_axis=1, begin_params_axis=1), f32(2, 3, 5, 7)),
        case(
            "layer_norm_channels_first",
            "ops.transpose(self.norm(ops.transpose(x, (0, 2, 3, 1))), (0, 3, 1, 2))",
            X,
            norm=nn.LayerNorm((6,)),
        ),
        case("layer_norm_float16", nn.LayerNorm((7,)), f16(2, 5, 7), dtype="float16"),
        case(
            "layer_norm_primitive_stats", "self.op(x, y, z)", f32(2, 5, 7), f32(7), f32(7), op=P.LayerNorm(-1, -1, 1e-3)
        ),
        case("group_norm", nn.GroupNorm(3, 6), X),
        case("group_norm_eps_no_affine", nn.GroupNorm(2, 6, eps=1e-2, affine=False), X),
        case("group_norm_one_group", nn.GroupNorm(1, 6), X),
        case("group_norm_instance", nn.GroupNorm(6, 6), X),
        case("group_norm_function_rank3", "ops.group_norm(x, 3, y, z, 1e-4)", f32(2, 6, 5), f32(6), f32(6)),
        case("group_norm_mint", "mint.nn.functional.group_norm(x, 3, y, z)", X, f32(6), f32(6)),
        case("group_norm_dynamic", nn.GroupNorm(3, 6), X, shapes=[(None, 6, None, None)]),
    ]


def other() -> list[Case]:
    return [
        case("rms_norm_composed", "x * ops.rsqrt(ops.mean(ops.square(x), -1, True) + 1e-5) * y", f32(2, 5, 7), f32(7)),
        case("l2_normalize", "self.op(x)", X, op=P.L2Normalize(axis=1, epsilon=1e-4)),
        case("l2_normalize_last", "self.op(x)", f32(3, 5, 7), op=P.L2Normalize(axis=-1)),
        case(
            "l2_normalize_epsilon",
            "self.op(x)",
            f32(3, 5, low=-1e-3, high=1e-3),
            op=P.L2Normalize(axis=1, epsilon=1e-4),
        ),
        case("normalize_function", "ops.L2Normalize(axis=0)(x)", f32(3, 5)),
        case("lp_norm_2", "self.op(x)", f32(3, 5, 7), op=P.LpNorm(axis=[1], p=2, keep_dims=False)),
        case("lp_norm_1_keep", "self.op(x)", f32(3, 5, 7), op=P.LpNorm(axis=[0, 2], p=1, keep_dims=True)),
        case("lp_norm_3", "self.op(x)", f32(3, 5, 7), op=P.LpNorm(axis=[2], p=3)),
        case("norm_function", "ops.norm(x, ord=2, dim=1)", f32(3, 5, 7)),
        case("norm_function_frobenius", "ops.norm(x)", f32(3, 5)),
        case("norm_function_inf", "ops.norm(x, ord=float('inf'), dim=1, keepdim=True)", f32(3, 5)),
        case("norm_vector_mint", "ops.vector_norm(x, 3, 1)", f32(3, 5, 7)),
        case("lrn", "self.op(x)", f32(2, 7, 3, 5), op=P.LRN(2, 1.5, 0.3, 0.6)),
        case("lrn_function", "ops.lrn(x, 3, 2.0, 0.5, 0.75)", f32(2, 9, 3, 5)),
        case("local_response_norm_long", "self.op(x)", f32(1, 3, 2, 2), op=P.LRN(5, 1.0, 0.2, 0.5)),
    ]

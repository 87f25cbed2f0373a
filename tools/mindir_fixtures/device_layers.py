"""Layers that MindSpore exports but has no CPU kernel for (``mint`` on Ascend, attention, some GPU operators).

The outputs come from a network that says the same with other operators, given as ``reference``.
"""

import numpy as np
from mindspore import nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, case, f32, values

IMAGE = f32(2, 3, 9, 7)


def cases() -> list[Case]:
    return [*convolution_and_pooling(), *normalisation(), *linear(), *attention()]


def convolution_and_pooling() -> list[Case]:
    f = "mint.nn.functional"
    weight = f32(5, 3, 3, 3)
    transpose = P.Conv2DBackpropInput(3, 3, pad_mode="pad", pad=1, stride=2)
    return [
        case(
            "device_conv2d_ext",
            f"{f}.conv2d(x, y, z, 2, 1)",
            IMAGE,
            weight,
            f32(5),
            reference="ops.conv2d(x, y, z, 2, 'pad', 1)",
        ),
        case(
            "device_conv2d_ext_no_bias",
            f"{f}.conv2d(x, y, None, (2, 1), (1, 2), (1, 2))",
            IMAGE,
            weight,
            reference="ops.conv2d(x, y, None, (2, 1), 'pad', (1, 2), (1, 2))",
        ),
        case(
            "device_conv2d_ext_groups",
            f"{f}.conv2d(x, y, None, 1, 0, 1, 3)",
            IMAGE,
            f32(6, 1, 3, 2),
            reference="ops.conv2d(x, y, None, 1, 'valid', 0, 1, 3)",
        ),
        case(
            "device_convolution_same",
            f"{f}.conv2d(x, y, None, 1, 'same')",
            IMAGE,
            weight,
            reference="ops.conv2d(x, y, None, 1, 'same')",
        ),
        case(
            "device_conv1d_ext",
            f"{f}.conv1d(x, y, None, 1, 1)",
            f32(2, 3, 9),
            f32(5, 3, 3),
            reference="ops.conv1d(x, y, None, 1, 'pad', 1)",
        ),
        case(
            "device_conv3d_ext",
            f"{f}.conv3d(x, y, None, 1, 1)",
            f32(1, 2, 4, 5, 6),
            f32(3, 2, 3, 3, 3),
            reference="ops.conv3d(x, y, None, 1, 'pad', 1)",
        ),
        case(
            "device_conv_transpose2d",
            f"{f}.conv_transpose2d(x, y, None, 2, 1)",
            f32(2, 3, 5, 4),
            f32(3, 5, 3, 3),
            reference="self.op(x, y, (2, 5, 9, 7))",
            op=transpose,
        ),
        case(
            "device_conv_transpose2d_output_padding",
            f"{f}.conv_transpose2d(x, y, None, 2, 1, 1)",
            f32(2, 3, 5, 4),
            f32(3, 5, 3, 3),
            reference="self.op(x, y, (2, 5, 10, 8))",
            op=P.Conv2DBackpropInput(3, 3, pad_mode="pad", pad=(1, 1, 1, 1), stride=2),
        ),
        case("device_max_pool_with_mask", f"{f}.max_pool2d(x, 3, 2, 1)", IMAGE, reference="ops.max_pool2d(x, 3, 2, 1)"),
        case("device_avg_pool2d", f"{f}.avg_pool2d(x, 3, 2, 1)", IMAGE, reference="ops.avg_pool2d(x, 3, 2, 1)"),
        case(
            "device_avg_pool2d_exclude",
            f"{f}.avg_pool2d(x, 3, 2, 1, False, False)",
            IMAGE,
            reference="ops.avg_pool2d(x, 3, 2, 1, False, False)",
        ),
        case(
            "device_avg_pool2d_divisor",
            f"{f}.avg_pool2d(x, (3, 2), (2, 1), 0, True, True, 4)",
            IMAGE,
            reference="ops.avg_pool2d(x, (3, 2), (2, 1), 0, True, True, 4)",
        ),
        case(
            "device_avg_pool1d",
            f"{f}.avg_pool1d(x, 3, 2, 1)",
            f32(2, 3, 11),
            reference="ops.avg_pool1d(x, 3, 2, 1, False, True)",
        ),
        case(
            "device_adaptive_avg_pool2d",
            f"{f}.adaptive_avg_pool2d(x, (4, 3))",
            IMAGE,
            reference="ops.adaptive_avg_pool2d(x, (4, 3))",
        ),
        case(
            "device_adaptive_avg_pool1d",
            f"{f}.adaptive_avg_pool1d(x, 4)",
            f32(2, 3, 12),
            reference="ops.adaptive_avg_pool1d(x, 4)",
        ),
    ]


def normalisation() -> list[Case]:
    f = "mint.nn.functional"
    x = f32(2, 6, 5, 7)
    layer = "(x - x.mean(-1, True)) * ops.rsqrt(x.var(-1, keepdims=True) + 1e-5)"
    instance = (
        "(x - x.mean((2, 3), True)) * ops.rsqrt(x.var((2, 3), keepdims=True) + 1e-5)"
        " * self.norm.gamma.reshape(1, 6, 1, 1) + self.norm.beta.reshape(1, 6, 1, 1)"
    )
    return [
        case(
            "device_batch_norm_ext",
            f"{f}.batch_norm(x, y, z, w, v, False)",
            x,
            f32(6),
            f32(6, low=0.5, high=2),
            f32(6),
            f32(6),
            reference="ops.batch_norm(x, y, z, w, v, False, 0.1, 1e-5)",
        ),
        case("device_instance_norm", "self.norm(x)", x, reference=instance, norm=nn.InstanceNorm2d(6)),
        case(
            "device_layer_norm_ext",
            f"{f}.layer_norm(x, (7,), y, z)",
            f32(2, 5, 7),
            f32(7),
            f32(7),
            reference=f"{layer} * y + z",
        ),
        case("device_layer_norm_ext_no_affine", f"{f}.layer_norm(x, (7,))", f32(2, 5, 7), reference=layer),
        case(
            "device_layer_norm_two_axes",
            "ops.layer_norm(x, (5, 7), y, z, 1e-3)",
            f32(2, 3, 5, 7),
            f32(5, 7),
            f32(5, 7),
            reference="P.LayerNorm(2, 2, 1e-3)(x, y, z)[0]",
        ),
        case(
            "device_rms_norm",
            "ops.rms_norm(x, y)",
            f32(2, 5, 7),
            f32(7),
            reference="r = ops.rsqrt(ops.mean(ops.square(x), -1, True) + 1e-6)\nreturn x * r * y, r",
        ),
        case(
            "device_vector_norm", "mint.norm(x, p=2, dim=1)", f32(3, 5, 7), reference="ops.sqrt(ops.square(x).sum(1))"
        ),
        case(
            "device_vector_norm_1",
            "mint.norm(x, p=1, dim=(0, 2), keepdim=True)",
            f32(3, 5, 7),
            reference="P.ReduceSum(True)(ops.abs(x), (0, 2))",
        ),
    ]


def linear() -> list[Case]:
    return [
        case("device_mm", "mint.mm(x, y)", f32(3, 5), f32(5, 7), reference="ops.matmul(x, y)"),
        case("device_dot", "mint.dot(x, y)", f32(5), f32(5), reference="ops.matmul(x, y)"),
        case("device_outer", "mint.outer(x, y)", f32(3), f32(5), reference="ops.outer(x, y)"),
        case(
            "device_addmm",
            "mint.addmm(x, y, z, beta=0.5, alpha=2)",
            f32(3, 7),
            f32(3, 5),
            f32(5, 7),
            reference="x * 0.5 + ops.matmul(y, z) * 2",
        ),
        case(
            "device_einsum_matmul", "P.Einsum('ij,jk->ik')((x, y))", f32(3, 5), f32(5, 7), reference="ops.matmul(x, y)"
        ),
        case(
            "device_einsum_attention",
            "P.Einsum('bqhd,bkhd->bhqk')((x, y))",
            f32(2, 3, 4, 5),
            f32(2, 7, 4, 5),
            reference="ops.matmul(x.transpose(0, 2, 1, 3), y.transpose(0, 2, 3, 1))",
        ),
        case("device_einsum_trace", "P.Einsum('ii->')((x,))", f32(5, 5), reference="ops.trace(x).reshape(1)"),
        case("device_einsum_transpose", "P.Einsum('abc->cab')((x,))", f32(2, 3, 5), reference="x.transpose(2, 0, 1)"),
        case(
            "device_einsum_ellipsis",
            "P.Einsum('...i,ij->...j')((x, y))",
            f32(2, 3, 5),
            f32(5, 7),
            reference="ops.matmul(x, y)",
        ),
        case(
            "device_einsum_outer",
            "ops.einsum('bi,bj->bij', x, y)",
            f32(3, 5),
            f32(3, 2),
            reference="x.expand_dims(2) * y.expand_dims(1)",
        ),
    ]


def attention() -> list[Case]:
    def product(heads: int, mask: str) -> str:
        split = f".reshape(2, -1, {heads}, 4).transpose(0, 2, 1, 3)"
        return (
            f"q, k, v = x{split}, y{split}, z{split}\n"
            f"scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) * 0.5{mask}\n"
            f"return ops.matmul(ops.softmax(scores, -1), v).transpose(0, 2, 1, 3).reshape(2, -1, {heads * 4})"
        )

    q, k = f32(2, 5, 12), f32(2, 7, 12)
    mask = values(np.triu(np.ones((5, 7)), 3)[None, None].repeat(2, 0), "bool")
    masked = " + w.astype(mstype.float32) * -10000.0"
    return [
        case(
            "device_flash_attention",
            "ops.flash_attention_score(x, y, z, 3, scalar_value=0.5)",
            q,
            k,
            k,
            reference=product(3, ""),
        ),
        case(
            "device_flash_attention_mask",
            "ops.flash_attention_score(x, y, z, 3, attn_mask=w, scalar_value=0.5)",
            q,
            k,
            k,
            mask,
            reference=product(3, masked),
        ),
        case(
            "device_flash_attention_bnsd",
            "ops.flash_attention_score(x, y, z, 3, scalar_value=0.5, input_layout='BNSD')",
            f32(2, 3, 5, 4),
            f32(2, 3, 7, 4),
            f32(2, 3, 7, 4),
            reference="ops.matmul(ops.softmax(ops.matmul(x, y.transpose(0, 1, 3, 2)) * 0.5, -1), z)",
        ),
        case(
            "device_rotary",
            "G.RotaryPositionEmbedding()(x, y, z, 0)",
            f32(1, 2, 5, 8),
            f32(1, 1, 5, 8),
            f32(1, 1, 5, 8),
            reference="x * y + ops.concat((-x[..., 4:], x[..., :4]), -1) * z",
        ),
        case(
            "device_add_rms_norm",
            "G.AddRmsNorm()(x, y, z, 1e-6)",
            f32(2, 5, 7),
            f32(2, 5, 7),
            f32(7),
            reference="a = x + y\nr = ops.rsqrt(ops.mean(ops.square(a), -1, True) + 1e-6)\nreturn a * r * z, r, a",
        ),
    ]

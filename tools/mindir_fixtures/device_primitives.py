"""Primitives called directly, in forms that the Python functions of MindSpore 2.10 seldom produce on CPU.

``(name, network, equivalent network, inputs)``; the equivalent gives the outputs, most of these have no CPU kernel.
"""

from mindspore import nn

from mindir_fixtures.table import Case, Draw, boolean, case, f32, i32, values

X = f32(3, 5)
Y = f32(2, 3, 5)
IMAGE = f32(2, 3, 9, 7)
POSITIVE = f32(3, 5, low=0.2, high=3)

ONE_INPUT: list[tuple[str, str, str, Draw]] = [
    (
        "adaptive_avg_pool3d",
        "G.AdaptiveAvgPool3DExt()(x, (2, 3, 4))",
        "P.AdaptiveAvgPool3D((2, 3, 4))(x)",
        f32(1, 2, 5, 6, 7),
    ),
    ("avg_pool3d", "G.AvgPool3DExt()(x, 2, 2, 0, False, True, None)", "ops.avg_pool3d(x, 2, 2, 0)", f32(1, 2, 5, 6, 7)),
    ("any", "G.AnyExt()(x, 1, False)", "ops.any(x, 1)", boolean(3, 5)),
    ("arange", "G.Arange()(1, 11, 2, None) + x", "ops.arange(1, 11, 2) + x", X),
    ("clone", "G.Clone()(x) + 1", "x + 1", X),
    ("contiguous", "G.Contiguous()(x) + 1", "x + 1", X),
    ("diag", "G.DiagExt()(x, 1)", "ops.pad(ops.diag(x), (1, 0, 0, 1))", f32(4)),
    ("div_mods", "G.DivMods()(x, 2, 'floor')", "ops.floor(x / 2)", X),
    ("div_mods_trunc", "G.DivMods()(x, 2, 'trunc')", "ops.trunc(x / 2)", X),
    ("fill_tensor", "G.FillTensor()((2, 3), x.sum(), None)", "ops.broadcast_to(x.sum(), (2, 3))", X),
    (
        "index_fill_scalar",
        "G.IndexFillScalar()(x, 1, ms.Tensor([0, 3]), 2.5)",
        "x[:, 0] = 2.5\nx[:, 3] = 2.5\nreturn x",
        X,
    ),
    (
        "median_dim",
        "G.MedianDim()(x, 1, False)",
        "a, b = ops.sort(x, 1)\nreturn a[:, 2], b[:, 2].astype(mstype.int64)",
        X,
    ),
    ("nansum", "G.Nansum()(x, (1,), True, None)", "P.ReduceSum(True)(x, 1)", X),
    ("narrow", "G.Narrow()(x, 1, 1, 3)", "x[:, 1:4]", X),
    ("new_full", "G.NewFull()(x, (2, 3), 2.5, None)", "ops.ones((2, 3), mstype.float32) * 2.5", X),
    ("pixel_shuffle", "G.PixelShuffle()(x, 2)", "ops.pixel_shuffle(x, 2)", f32(2, 12, 3, 5)),
    ("reflection_pad1d", "G.ReflectionPad1D()(x, (1, 2))", "ops.pad(x, (1, 2), 'reflect')", Y),
    ("reflection_pad2d", "G.ReflectionPad2D()(x, (1, 2, 3, 0))", "ops.pad(x, (1, 2, 3, 0), 'reflect')", IMAGE),
    ("replication_pad1d", "G.ReplicationPad1D()(x, (1, 2))", "ops.pad(x, (1, 2), 'replicate')", Y),
    ("replication_pad2d", "G.ReplicationPad2D()(x, (1, 2, 3, 0))", "ops.pad(x, (1, 2, 3, 0), 'replicate')", IMAGE),
    (
        "replication_pad3d",
        "G.ReplicationPad3D()(x, (1, 1, 0, 1, 2, 0))",
        "ops.pad(x, (1, 1, 0, 1, 2, 0), 'replicate')",
        f32(1, 2, 3, 3, 4),
    ),
    ("slice_ext_view", "G.SliceExtView()(x, 1, 1, 5, 2) * 2", "x[:, 1:5:2] * 2", X),
    ("split_tensor", "G.SplitTensor()(x, 2, 1)", "x[:, 0:2], x[:, 2:4], x[:, 4:5]", X),
    ("split_with_size", "G.SplitWithSize()(x, (1, 3, 1), 1)", "x[:, 0:1], x[:, 1:4], x[:, 4:5]", X),
    ("trace", "G.TraceExt()(x)", "ops.trace(x)", f32(4, 4)),
    (
        "upsample_nearest1d",
        "mint.nn.functional.interpolate(x, size=9, mode='nearest')",
        "ops.interpolate(x, size=9, mode='nearest')",
        Y,
    ),
    (
        "im2col_ext",
        "G.Im2ColExt()(x, (3, 2), (1, 2), (1, 0), (2, 1))",
        "P.Im2Col((3, 2), (2, 1), (1, 2), (1, 0))(x).reshape(2, 18, 25)",
        IMAGE,
    ),
    ("max_pool_with_indices", "G.MaxPoolWithIndices(3, 2, 1)(x)[0]", "ops.max_pool2d(x, 3, 2, 1)", IMAGE),
    ("adaptive_max_pool1d", "G.AdaptiveMaxPool1D()(x, 4)[0]", "ops.adaptive_max_pool1d(x, 4)", f32(2, 3, 12)),
    ("xlogy_scalar_self", "G.XLogYScalarSelf()(2.0, x)", "2.0 * ops.log(x)", POSITIVE),
    ("xlogy_scalar_other", "G.XLogYScalarOther()(x, 2.0)", "x * 0.6931471805599453", POSITIVE),
    ("bitwise_xor_scalar", "mint.bitwise_xor(x, 6)", "ops.bitwise_xor(x, ops.full_like(x, 6))", i32(3, 5)),
    ("cummin", "mint.cummin(x, 1)[0]", "ops.cummin(x, 1)[0]", X),
    ("inplace_silu", "z = x * 1\nmint.nn.functional.silu(z, inplace=True)\nreturn z", "ops.silu(x)", X),
    ("inplace_threshold", "z = x * 1\nG.InplaceThreshold()(z, 0.1, -3.0)\nreturn z", "ops.where(x > 0.1, x, -3.0)", X),
    ("inplace_hardtanh", "z = x * 1\nG.InplaceHardtanh()(z, -0.5, 0.75)\nreturn z", "ops.clamp(x, -0.5, 0.75)", X),
    ("inplace_elu", "z = x * 1\nG.InplaceElu()(z, 1.0)\nreturn z", "ops.elu(x, 1.0)", X),
    ("inplace_log", "z = x * 1\nz.log_()\nreturn z", "ops.log(x)", POSITIVE),
    ("inplace_floor", "z = x * 1\nG.InplaceFloor()(z)\nreturn z", "ops.floor(x)", X),
    ("ones_like", "P.OnesLike()(x)", "ops.ones_like(x)", X),
    ("zeros_like", "P.ZerosLike()(x)", "ops.zeros_like(x)", X),
    ("tuple_to_tensor", "G.TupleToTensor()(x.shape, mstype.int64), x + 1", "ms.Tensor([3, 5]), x + 1", X),
]

MORE_INPUTS: list[tuple[str, str, str, tuple]] = [
    (
        "addbmm",
        "G.Addbmm()(x, y, z, 0.5, 2)",
        "x * 0.5 + ops.bmm(y, z).sum(0) * 2",
        (f32(3, 7), f32(2, 3, 5), f32(2, 5, 7)),
    ),
    ("addmv", "G.Addmv()(x, y, z, 0.5, 2)", "x * 0.5 + ops.matmul(y, z) * 2", (f32(3), f32(3, 5), f32(5))),
    ("mv", "G.Mv()(x, y)", "ops.matmul(x, y)", (X, f32(5))),
    ("expand_as", "G.ExpandAs()(x, y) * 2", "ops.broadcast_to(x, (3, 5)) * 2", (f32(1, 5), X)),
    ("index", "G.Index()(x, (y, z))", "x[y, z]", (X, values([0, 2], "int64"), values([1, 4], "int64"))),
    ("logaddexp2", "G.LogAddExp2()(x, y)", "ops.log(2**x + 2**y) / 0.6931471805599453", (X, X)),
    (
        "masked_scatter",
        "G.MaskedScatter()(x, y, z)",
        "a = ops.concat((z[0:1], x[0, 1:2], z[1:2])).reshape(1, 3)\nreturn ops.concat((a, x[1:]))",
        (f32(2, 3), values([[True, False, True], [False, False, False]], "bool"), f32(2)),
    ),
    ("select_v2", "G.SelectV2()(x, y, z)", "ops.where(x, y, z)", (boolean(3, 1), X, f32(5))),
    ("lerp_scalar", "G.LerpScalar()(x, y, 0.3)", "x + 0.3 * (y - x)", (X, X)),
    (
        "repeat_interleave_tensor",
        "G.RepeatInterleaveTensor()(x, ms.Tensor([2, 1, 3]), 0, 6)",
        "ops.concat((x[0:1], x[0:1], x[1:2], x[2:], x[2:], x[2:]))",
        (X,),
    ),
    (
        "inplace_scatter_add",
        "a = x * 1\nG.InplaceScatterAdd()(a, 1, y, z)\nreturn a",
        "ops.tensor_scatter_elements(x, y, z, 1, 'add')",
        (f32(2, 5), values([[4, 0, 1], [2, 2, 3]], "int64"), f32(2, 3)),
    ),
    (
        "inplace_index_add",
        "a = x * 1\na.index_add_(0, y, z)\nreturn a",
        "ops.concat((x[0:1] + z[0:1], x[1:2], x[2:] + z[1:]))",
        (X, values([0, 2], "int64"), f32(2, 5)),
    ),
    (
        "inplace_masked_fill_tensor",
        "a = x * 1\nG.InplaceMaskedFillTensor()(a, y, z)\nreturn a",
        "ops.where(y, z, x)",
        (X, boolean(3, 5), values(2.5)),
    ),
    (
        "inplace_clamp_tensor",
        "a = x * 1\nG.InplaceClampTensor()(a, y, z)\nreturn a",
        "ops.minimum(ops.maximum(x, y), z)",
        (X, f32(3, 5, low=-1, high=0), f32(3, 5, low=0, high=1)),
    ),
    ("inplace_div_mod", "a = x * 1\nG.InplaceDivMod()(a, y, 'floor')\nreturn a", "ops.floor(x / y)", (X, POSITIVE)),
    (
        "inplace_addmm",
        "a = x * 1\nG.InplaceAddmm()(a, y, z, 0.5, 2)\nreturn a",
        "x * 0.5 + ops.matmul(y, z) * 2",
        (f32(3, 7), f32(3, 5), f32(5, 7)),
    ),
    (
        "inplace_index_put",
        "a = x * 1\nG.InplaceIndexPut()(a, (y,), z, False)\nreturn a",
        "ops.concat((z[0:1], x[1:2], z[1:]))",
        (X, values([0, 2], "int64"), f32(2, 5)),
    ),
]


def cases() -> list[Case]:
    return [
        *[case(f"primitive_{name}", text, draw, reference=same) for name, text, same, draw in ONE_INPUT],
        *[case(f"primitive_{name}", text, *draws, reference=same) for name, text, same, draws in MORE_INPUTS],
        case(
            "primitive_reflection_pad3d",
            "G.ReflectionPad3D()(x, (1, 1, 0, 1, 1, 0))",
            f32(1, 2, 3, 3, 4),
            reference="self.pad(x)",
            pad=nn.ReflectionPad3d((1, 1, 0, 1, 1, 0)),
        ),
    ]

"""Shape, joining, splitting, padding and creation cases."""

from mindspore import nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, boolean, case, f16, f32, i32, i64, u8, values

X = f32(2, 3, 5, 7)
Y = f32(2, 3, 5)


def cases() -> list[Case]:
    return [*reshape(), *permute(), *join(), *split(), *repeat(), *pad(), *create(), *rearrange(), *dynamic()]


def reshape() -> list[Case]:
    texts = {
        "reshape": "ops.reshape(x, (3, 70))",
        "reshape_minus_one": "x.reshape(2, -1, 7)",
        "reshape_rank1": "x.view(-1)",
        "reshape_from_shape": "x.reshape(x.shape[0], -1)",
        "expand_dims_0": "ops.expand_dims(x, 0)",
        "expand_dims_last": "ops.expand_dims(x, -1)",
        "expand_dims_2": "x.expand_dims(2)",
        "unsqueeze": "ops.unsqueeze(x, 1)",
        "unsqueeze_mint": "mint.unsqueeze(x, 1)",
        "flatten": "ops.flatten(x)",
        "flatten_start": "ops.flatten(x, start_dim=2)",
        "flatten_range": "ops.flatten(x, start_dim=1, end_dim=2)",
        "flatten_mint": "mint.flatten(x, 1, 2)",
        "flatten_primitive": "P.Flatten()(x)",
        "ravel": "ops.ravel(x)",
        "shape_as_output": "ops.shape(x)",
        "rank_as_output": "ops.rank(x)",
        "size_as_output": "ops.size(x)",
        "identity": "P.Identity()(x)",
    }
    squeezable = f32(2, 1, 3, 1)
    return [
        *[case(f"shape_{name}" if not name.startswith("shape") else name, text, X) for name, text in texts.items()],
        case("shape_squeeze_all", "ops.squeeze(x)", squeezable),
        case("shape_squeeze_axis", "ops.squeeze(x, 1)", squeezable),
        case("shape_squeeze_negative", "ops.squeeze(x, -1)", squeezable),
        case("shape_squeeze_two", "ops.squeeze(x, (1, 3))", squeezable),
        case("shape_squeeze_mint", "mint.squeeze(x, 1)", squeezable),
        case("shape_reshape_int32", "x.reshape(5, 3)", i32(3, 5)),
        case("shape_reshape_bool", "x.reshape(5, 3)", boolean(3, 5)),
        case("shape_reshape_to_rank0", "x.reshape(())", values([3.5])),
        case("shape_flatten_rank1", "ops.flatten(x)", f32(5)),
        case("shape_nn_flatten", nn.Flatten(), X),
        case("shape_nn_unflatten", nn.Unflatten(3, (7, 1)), X),
        case("shape_atleast_2d", "ops.atleast_2d(x)", f32(5)),
        case("shape_tensor_shape", "P.TensorShape()(x)", X),
    ]


def permute() -> list[Case]:
    texts = {
        "transpose": "ops.transpose(x, (0, 2, 3, 1))",
        "transpose_negative": "ops.transpose(x, (-1, 0, -2, 1))",
        "permute": "ops.permute(x, (3, 1, 0, 2))",
        "permute_mint": "mint.permute(x, (3, 1, 0, 2))",
        "transpose_mint": "mint.transpose(x, 1, 3)",
        "swapaxes": "ops.swapaxes(x, 1, 2)",
        "swapdims_negative": "ops.swapdims(x, -1, -3)",
        "movedim": "ops.movedim(x, 0, 2)",
        "movedims": "ops.movedim(x, (0, 1), (2, 3))",
        "method_transpose": "x.transpose(1, 0, 3, 2)",
        "method_t_property": "x.T",
        "rot90": "ops.rot90(x, 1, (1, 3))",
    }
    return [
        *[case(f"permute_{name}", text, X) for name, text in texts.items()],
        case("permute_t", "ops.t(x)", f32(3, 5)),
        case("permute_int8", "x.transpose(1, 0)", values([[1, 2, 3], [4, 5, 6]], "int8")),
        case("permute_adjoint", "ops.adjoint(x)", f32(3, 5)),
    ]


def join() -> list[Case]:
    return [
        case("concat", "ops.concat((x, y), 1)", f32(2, 3, 5), f32(2, 4, 5)),
        case("concat_negative_axis", "ops.cat((x, y, x), -1)", f32(2, 3), f32(2, 5)),
        case("concat_axis0_int32", "ops.concat((x, y))", i32(2, 3), i32(1, 3)),
        case("concat_mixed_types", "ops.concat((x, y))", i32(2, 3), f32(1, 3)),
        case("concat_list", "ops.cat([x, y], axis=0)", f32(2, 3), f32(1, 3)),
        case("concat_mint", "mint.cat((x, y), 1)", f32(2, 3), f32(2, 5)),
        case("concat_bool", "ops.concat((x, y))", boolean(2, 3), boolean(1, 3)),
        case("concat_uint8", "ops.concat((x, y))", u8(2, 3), u8(1, 3)),
        case("concat_self", "ops.concat((x, x * 2, x), 2)", Y),
        case("stack", "ops.stack((x, y), 1)", Y, Y),
        case("stack_last", "ops.stack([x, y, x], -1)", Y, Y),
        case("stack_primitive", "self.op((x, y))", Y, Y, op=P.Stack(axis=2)),
        case("stack_rank0", "ops.stack((x, y))", values(1.5), values(-2.5)),
        case("hstack", "ops.hstack((x, y))", f32(2, 3), f32(2, 5)),
        case("vstack", "ops.vstack((x, y))", f32(2, 3), f32(1, 3)),
        case("dstack", "ops.dstack((x, y))", f32(2, 3), f32(2, 3)),
        case("column_stack", "ops.column_stack((x, y))", f32(3), f32(3, 2)),
        case("block_diag", "ops.block_diag(x, y)", f32(2, 3), f32(1, 2)),
        case("meshgrid_xy", "ops.meshgrid(x, y)", f32(3), f32(5)),
        case("meshgrid_ij", "ops.meshgrid(x, y, z, indexing='ij')", f32(3), f32(5), f32(2)),
        case("meshgrid_xy_three", "ops.meshgrid(x, y, z, indexing='xy')", f32(3), f32(5), f32(2)),
        case("meshgrid_mint", "mint.meshgrid(x, y, indexing='ij')", f32(3), f32(5)),
        case("cartesian_prod", "ops.cartesian_prod(x, y)", f32(3), f32(2)),
    ]


def split() -> list[Case]:
    x = f32(2, 6, 5)
    texts = {
        "split_primitive": "P.Split(1, 3)(x)",
        "split_size": "ops.split(x, 2, 1)",
        "split_uneven_size": "ops.split(x, 4, 1)",
        "split_sizes": "ops.split(x, (1, 3, 2), 1)",
        "split_sizes_negative": "ops.split(x, [2, 3], -1)",
        "split_mint": "mint.split(x, 2, 1)",
        "split_sizes_mint": "mint.split(x, (1, 3, 2), 1)",
        "chunk": "ops.chunk(x, 4, 1)",
        "chunk_mint": "mint.chunk(x, 3, 1)",
        "unstack": "ops.unstack(x, 0)",
        "unstack_axis": "ops.unstack(x, 2)",
        "unbind": "ops.unbind(x, 1)",
        "tensor_split": "ops.tensor_split(x, 4, 1)",
        "tensor_split_indices": "ops.tensor_split(x, (1, 4), 1)",
        "hsplit": "ops.hsplit(x, 2)",
        "split_one_used": "ops.split(x, 2, 1)[1] * 2",
        "unpack_in_python": "a, b = x[0], x[1]\nreturn a - b",
        "iterate_over_tensor": "y = x[0] * 0\nfor part in x:\n    y = y + part\nreturn y",
    }
    return [case(f"split_{name.removeprefix('split_')}", text, x) for name, text in texts.items()]


def repeat() -> list[Case]:
    return [
        case("tile", "ops.tile(x, (2, 1, 3))", Y),
        case("tile_longer", "ops.tile(x, (2, 1, 3, 2))", f32(3, 2)),
        case("tile_shorter_method", "x.tile((1, 2))", f32(3, 5)),
        case("tile_int32", "ops.tile(x, (2, 2))", i32(2, 3)),
        case("tile_mint", "mint.tile(x, (1, 2))", f32(2, 3)),
        case("repeat_elements", "ops.repeat_elements(x, 2, 1)", Y),
        case("repeat_interleave", "ops.repeat_interleave(x, 3, 1)", Y),
        case("broadcast_to", "ops.broadcast_to(x, (4, 3, 5))", f32(3, 1)),
        case("broadcast_to_minus_one", "ops.broadcast_to(x, (2, -1, 5))", f32(1, 3, 1)),
        case("broadcast_to_primitive", "self.op(x)", f32(3, 1), op=P.BroadcastTo((2, -1, 4))),
        case("broadcast_to_mint", "mint.broadcast_to(x, (2, 3, 5))", f32(3, 1)),
        case("expand_as", "x.expand_as(y)", f32(1, 5), f32(3, 5)),
        case("broadcast_int32", "ops.broadcast_to(x, (3, 5))", i32(5)),
    ]


def pad() -> list[Case]:
    texts = {
        "primitive": "P.Pad(((0, 1), (2, 0), (1, 3)))(x)",
        "constant": "ops.pad(x, (1, 2), 'constant', 1.5)",
        "constant_two": "ops.pad(x, (1, 2, 0, 3))",
        "constant_three": "ops.pad(x, (1, 2, 0, 3, 2, 1), value=-2.0)",
        "constant_negative": "ops.pad(x, (-1, 2))",
        "reflect_last": "ops.pad(x, (1, 2), 'reflect')",
        "replicate_last": "ops.pad(x, (1, 2), 'replicate')",
        "circular_last": "ops.pad(x, (1, 2), 'circular')",
        "mint_constant": "mint.nn.functional.pad(x, (1, 2, 0, 1), 'constant', 2.0)",
    }
    layers = {
        "nn_constant": nn.Pad(((0, 0), (0, 0), (1, 2), (3, 0))),
        "nn_reflect": nn.Pad(((0, 0), (0, 0), (1, 2), (3, 0)), "REFLECT"),
        "nn_symmetric": nn.Pad(((0, 0), (1, 0), (1, 2), (3, 0)), "SYMMETRIC"),
        "nn_constant2d": nn.ConstantPad2d((1, 2, 3, 0), 1.25),
        "nn_zero2d": nn.ZeroPad2d((1, 2, 3, 0)),
        "nn_zero2d_negative": nn.ZeroPad2d((1, -2, 0, 1)),
        "nn_reflection2d": nn.ReflectionPad2d((1, 2, 3, 0)),
        "nn_replication2d": nn.ReplicationPad2d((1, 2, 3, 0)),
    }
    return [
        *[case(f"pad_{name}", text, Y) for name, text in texts.items()],
        *[case(f"pad_{name}", layer, X) for name, layer in layers.items()],
        case("pad_nn_constant1d", nn.ConstantPad1d((1, 2), -0.5), Y),
        case("pad_nn_constant3d", nn.ConstantPad3d((1, 2, 0, 1, 2, 0), 0.5), f32(1, 2, 3, 2, 3)),
        case("pad_nn_reflection1d", nn.ReflectionPad1d((1, 2)), Y),
        case("pad_nn_reflection3d", nn.ReflectionPad3d((1, 1, 0, 1, 1, 0)), f32(1, 2, 3, 3, 4)),
        case("pad_nn_replication1d", nn.ReplicationPad1d((1, 2)), Y),
        case("pad_nn_replication3d", nn.ReplicationPad3d((1, 1, 0, 1, 2, 0)), f32(1, 2, 3, 3, 4)),
        case("pad_reflect_2d", "ops.pad(x, (1, 2, 3, 0), 'reflect')", X),
        case("pad_replicate_2d", "ops.pad(x, (1, 2, 3, 0), 'replicate')", X),
        case("pad_circular_2d", "ops.pad(x, (1, 2, 3, 0), 'circular')", X),
        case("pad_int32", "ops.pad(x, (1, 2), value=7)", i32(3, 5)),
        case("pad_float16", "ops.pad(x, (1, 2))", f16(3, 5)),
        case(
            "pad_mirror_reflect",
            "self.op(x, y)",
            f32(4, 5),
            values([[1, 2], [3, 0]], "int64"),
            op=P.MirrorPad("REFLECT"),
        ),
        case(
            "pad_mirror_symmetric",
            "self.op(x, y)",
            f32(4, 5),
            values([[1, 2], [3, 0]], "int32"),
            op=P.MirrorPad("SYMMETRIC"),
        ),
        case("pad_v3_primitive_edge", "self.op(x, (1, 2, 0, 1))", X, op=P.PadV3("edge")),
        case("pad_v3_not_contiguous", "self.op(x, (1, 0, 2, 1), 0.5)", X, op=P.PadV3("constant", False)),
    ]


def create() -> list[Case]:
    texts = {
        "ones": "ops.ones((2, 3), mstype.float32) + x[0, 0]",
        "zeros": "ops.zeros((2, 3), mstype.int32), x + 0",
        "full": "ops.full((2, 3), 2.5), x * 1",
        "full_int": "ops.full((2, 3), 7, dtype=mstype.int64), x * 1",
        "fill_v2": "P.FillV2()((2, 3), x[0, 0])",
        "eye": "ops.eye(3, 5, mstype.float32) + x",
        "eye_square_int": "ops.eye(3, dtype=mstype.int32), x * 1",
        "linspace": "ops.linspace(-1.0, 2.0, 5) + x",
        "arange": "ops.arange(5) + x",
        "arange_step": "ops.arange(1, 11, 2) + x",
        "arange_float": "ops.arange(0.0, 2.5, 0.5) + x",
        "arange_mint": "mint.arange(0, 5) + x",
        "ones_like": "ops.ones_like(x) * 3",
        "zeros_like": "ops.zeros_like(x) - 1",
        "full_like": "ops.full_like(x, 2.5)",
        "ones_mint": "mint.ones((3, 5)) + x",
        "zeros_mint": "mint.zeros((3, 5)) + x",
        "full_mint": "mint.full((3, 5), 2.0) + x",
        "ones_like_mint": "mint.ones_like(x)",
        "zeros_like_mint": "mint.zeros_like(x)",
        "eye_mint": "mint.eye(3, 5) + x",
        "new_ones": "x.new_ones((2, 3))",
        "new_zeros": "x.new_zeros((2, 3))",
        "scalar_to_tensor": "ops.scalar_to_tensor(2.5, mstype.float32) + x",
        "tensor_constant": "ms.Tensor([[1.0], [2.0], [-3.0]], mstype.float32) * x",
        "tril_indices": "ops.tril_indices(3, 4), x * 1",
        "range": "ops.range(0, 6, 2), x * 1",
        "logspace": "ops.logspace(0.0, 2.0, 3, 10), x * 1",
    }
    return [
        *[case(f"create_{name}", text, f32(3, 5)) for name, text in texts.items()],
        case("create_linspace_inputs", "P.LinSpace()(x, y, 5)", values(-1.0), values(3.0)),
        case("create_range_inputs", "P.Range()(x, y, z)", values(1, "int32"), values(9, "int32"), values(3, "int32")),
        case("create_one_hot", "ops.one_hot(x, 5)", i32(2, 3, low=0, high=5)),
        case("create_one_hot_values", "ops.one_hot(x, 5, 2.5, -1.5)", i32(2, 3, low=0, high=5)),
        case("create_one_hot_axis0", "ops.one_hot(x, 5, 1.0, 0.0, 0)", i32(2, 3, low=0, high=5)),
        case("create_one_hot_axis1", "ops.one_hot(x, 5, 1, 0, 1)", i64(2, 3, low=0, high=5)),
        case("create_one_hot_out_of_range", "ops.one_hot(x, 3, 1.0, 0.0)", values([0, 5, -1, 2], "int32")),
        case("create_one_hot_primitive", "P.OneHot()(x, 4, y, z)", i32(3, low=0, high=4), values(2.0), values(-1.0)),
        case("create_one_hot_nn", nn.OneHot(depth=4), i32(3, low=0, high=4)),
        case("create_one_hot_mint", "mint.nn.functional.one_hot(x, 5)", i64(2, 3, low=0, high=5)),
    ]


def rearrange() -> list[Case]:
    texts = {
        "reverse_v2": "P.ReverseV2(axis=[0, 2])(x)",
        "flip": "ops.flip(x, (1, 3))",
        "flip_mint": "mint.flip(x, (1,))",
        "fliplr": "ops.fliplr(x)",
        "flipud": "ops.flipud(x)",
        "roll_numpy": "mnp.roll(x, -1, 2)",
        "tril": "ops.tril(x)",
        "tril_diagonal": "ops.tril(x, 1)",
        "triu": "ops.triu(x)",
        "triu_negative": "ops.triu(x, -2)",
        "triu_mint": "mint.triu(x, 1)",
        "tril_primitive": "P.Tril(-1)(x)",
        "channel_shuffle_reshape": "x.reshape(2, 3, 1, 5, 7).transpose(0, 2, 1, 3, 4).reshape(2, 3, 5, 7)",
    }
    blocks = f32(2, 4, 6, 4)
    return [
        *[case(f"rearrange_{name}", text, X) for name, text in texts.items()],
        case("rearrange_tril_bool", "ops.tril(x)", boolean(3, 5)),
        case("rearrange_tril_int32", "ops.tril(x)", i32(3, 5)),
        case("rearrange_depth_to_space", "P.DepthToSpace(2)(x)", f32(2, 12, 3, 5)),
        case("rearrange_space_to_depth", "P.SpaceToDepth(2)(x)", f32(2, 3, 4, 6)),
        case("rearrange_pixel_shuffle", "ops.pixel_shuffle(x, 2)", f32(2, 12, 3, 5)),
        case("rearrange_pixel_unshuffle", "ops.pixel_unshuffle(x, 2)", f32(2, 3, 4, 6)),
        case("rearrange_nn_pixel_shuffle", nn.PixelShuffle(2), f32(2, 12, 3, 5)),
        case("rearrange_channel_shuffle", "ops.channel_shuffle(x, 2)", blocks),
        case("rearrange_channel_shuffle_nn", nn.ChannelShuffle(2), blocks),
        case("rearrange_space_to_batch_nd", "ops.space_to_batch_nd(x, [2, 2], [[0, 0], [1, 1]])", blocks),
        case("rearrange_batch_to_space_nd", "ops.batch_to_space_nd(x, [2, 2], [[0, 1], [1, 0]])", f32(8, 3, 3, 2)),
        case("rearrange_unfold", "ops.unfold(x, (3, 2), 1, (1, 0), (2, 1))", blocks),
        case("rearrange_im2col", "P.Im2Col((3, 2), (2, 1), (1, 1), (1, 0))(x)", blocks),
        case("rearrange_im2col_dilated", "P.Im2Col([2, 2], 1, 2, 1)(x)", blocks),
        case(
            "rearrange_fold", "ops.fold(x, y, [2, 2], [1, 1], [0, 0], [2, 2])", f32(2, 12, 6), values([4, 6], "int32")
        ),
        case(
            "rearrange_col2im",
            "P.Col2Im([2, 2], [1, 1], [0, 0], [2, 2])(x, y)",
            f32(2, 3, 4, 6),
            values([4, 6], "int32"),
        ),
        case(
            "rearrange_col2im_overlap",
            "P.Col2Im([3, 2], [1, 1], [1, 0], [2, 1])(x, y)",
            f32(2, 3, 6, 9),
            values([6, 4], "int32"),
        ),
        case(
            "rearrange_extract_volume_patches",
            "P.ExtractVolumePatches((1, 1, 2, 2, 2), (1, 1, 1, 2, 2), 'valid')(x)",
            f32(1, 2, 3, 4, 4),
        ),
        case(
            "rearrange_reverse_sequence", "ops.reverse_sequence(x, y, 1, 0)", f32(3, 5, 2), values([2, 5, 1], "int64")
        ),
        case(
            "rearrange_matrix_band_part",
            "ops.matrix_band_part(x, y, z)",
            f32(4, 5),
            values(1, "int64"),
            values(2, "int64"),
        ),
        case("rearrange_invert_permutation", "P.InvertPermutation()((2, 0, 1)), x + 1", f32(3)),
    ]


def dynamic() -> list[Case]:
    return [
        case(
            "dynamic_reshape_by_shape",
            "b, c, h, w = x.shape\nreturn x.reshape(b, c, h * w)",
            X,
            shapes=[(None, 3, None, None)],
        ),
        case(
            "dynamic_reshape_split_heads",
            "b, s, _ = x.shape\nreturn x.reshape(b, s, 2, 3).transpose(0, 2, 1, 3)",
            f32(2, 5, 6),
            shapes=[(None, None, 6)],
        ),
        case("dynamic_flatten", "ops.flatten(x)", X, shapes=[(None, 3, 5, 7)]),
        case(
            "dynamic_broadcast_to",
            "ops.broadcast_to(y, (x.shape[0], 3, 5))",
            Y,
            f32(3, 1),
            shapes=[(None, 3, 5), (3, 1)],
        ),
        case("dynamic_tile", "ops.tile(y, (x.shape[0], 1))", f32(2, 3), f32(1, 5), shapes=[(None, 3), (1, 5)]),
        case("dynamic_zeros", "ops.zeros((x.shape[0], 4), mstype.float32) + x.sum()", f32(2, 3), shapes=[(None, 3)]),
        case(
            "dynamic_ones_mask",
            "ops.tril(ops.ones((x.shape[1], x.shape[1]), mstype.float32)) * x",
            f32(2, 3, 3),
            shapes=[(None, None, None)],
        ),
        case("dynamic_slice_by_shape", "y[:, : x.shape[1]] + x", f32(2, 3), f32(1, 7), shapes=[(None, None), (1, 7)]),
        case(
            "dynamic_shape_arithmetic", "x.reshape(x.shape[0] // 2, x.shape[1] * 2)", f32(4, 3), shapes=[(None, None)]
        ),
        case("dynamic_concat", "ops.concat((x, y), 1)", f32(2, 3), f32(2, 5), shapes=[(None, None), (None, None)]),
        case(
            "dynamic_stack_split", "a, b = ops.split(x, 3, 1)\nreturn ops.stack((a, b))", f32(2, 6), shapes=[(None, 6)]
        ),
        case("dynamic_rank", "ops.exp(x) + 1", f32(2, 3), shapes=[None]),
        case("dynamic_transpose", "x.swapaxes(1, 2)", Y, shapes=[(None, None, None)]),
        case("dynamic_arange", "ops.arange(x.shape[1]) + x", f32(2, 5), shapes=[(None, None)]),
        case("dynamic_shape_output", "x.shape[0], x.shape[1] * 2, x + 1", f32(2, 5), shapes=[(None, None)]),
        case("dynamic_squeeze_expand", "ops.expand_dims(x, 1).squeeze(1) * 2", f32(2, 5), shapes=[(None, None)]),
    ]

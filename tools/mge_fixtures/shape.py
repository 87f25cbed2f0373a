"""Shape cases: reshape, transpose, axes, joining, splitting, padding, creation."""

import megengine as mge
import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, applied, boolean, f16, f32, i8, i16, i32, run_op, u8, values, weight

X = f32(2, 3, 5, 7)
BIGGER = [f32(3, 3, 5, 7)]

# Reshape. The axis of the operator is the one to infer.
add("reshape", lambda x: F.reshape(x, (3, 70)), X)
add("reshape_minus_one", lambda x: F.reshape(x, (2, -1, 7)), X)
add("reshape_minus_one_first", lambda x: F.reshape(x, (-1, 15, 7)), X, resized=BIGGER)
add("reshape_rank1", lambda x: F.reshape(x, -1), X, resized=BIGGER)
add("reshape_from_shape", lambda x: F.reshape(x, (x.shape[0], -1)), X, resized=BIGGER)
add(
    "reshape_from_shape_arithmetic",
    lambda x: F.reshape(x, (x.shape[0] * x.shape[1], x.shape[2] * 7)),
    X,
    resized=BIGGER,
)
add("reshape_like", lambda x, y: F.reshape(x, y.shape), X, f32(6, 35))
add("reshape_by_input", lambda x, y: F.reshape(x, y), X, values([10, 21], "int32"))
add("reshape_int32", lambda x: F.reshape(x, (-1, 3)), i32(3, 5))
add("reshape_uint8", lambda x: F.reshape(x, (-1, 3)), u8(3, 5))
add("reshape_float16", lambda x: F.reshape(x, (-1, 3)), f16(3, 5))
add("reshape_bool", lambda x: F.reshape(x, (-1, 3)), boolean(3, 5))
add("reshape_raw", lambda x: F.reshape(x, (-1, 21)), X, **RAW)
add("flatten", lambda x: F.flatten(x, 1), X, resized=BIGGER)
add("flatten_range", lambda x: F.flatten(x, 1, 2), X, resized=BIGGER)
add("flatten_all", F.flatten, X, resized=BIGGER)

# Axes.
add("transpose", lambda x: F.transpose(x, (0, 2, 3, 1)), X)
add("transpose_rank2", lambda x: x.T, f32(3, 5))
add("transpose_swapaxes", lambda x: F.swapaxes(x, 1, 3), X)
add("transpose_int32", lambda x: F.transpose(x, (1, 0)), i32(3, 5))
add("transpose_rank6", lambda x: F.transpose(x, (5, 3, 1, 0, 2, 4)), f32(2, 3, 1, 4, 2, 3))
add("transpose_new_axis", lambda x: F.transpose(x, ("x", 1, "x", 0)), f32(3, 5))
add("dimshuffle_drop_axis", applied(builtin.Dimshuffle(pattern=[3, 0, -1])), f32(2, 1, 1, 4), **RAW)
add("expand_dims_0", lambda x: F.expand_dims(x, 0), X)
add("expand_dims_last", lambda x: F.expand_dims(x, -1), X)
add("expand_dims_several", lambda x: F.expand_dims(x, (0, 2, -1)), f32(3, 5))
add("squeeze_all", F.squeeze, f32(1, 3, 1, 5), **KEEP)
add("squeeze_axis", lambda x: F.squeeze(x, 1), f32(2, 1, 3, 1))
add("squeeze_negative", lambda x: F.squeeze(x, -1), f32(2, 1, 3, 1))
add("squeeze_two", lambda x: F.squeeze(x, (1, 3)), f32(2, 1, 3, 1))
add("squeeze_to_scalar", lambda x: F.squeeze(x, (0, 1)), f32(1, 1))
add("remove_axis_only", applied(builtin.RemoveAxis(axis=[0])), f32(1), **RAW)

# Broadcast.
add("broadcast_to", lambda x: F.broadcast_to(x, (2, 3, 5, 7)), f32(3, 1, 7))
add("broadcast_to_scalar", lambda x: F.broadcast_to(x, (3, 4)), f32(1))
add("broadcast_like", lambda x, y: F.broadcast_to(x, y.shape), f32(1, 5), f32(4, 5), resized=[f32(1, 6), f32(3, 6)])
add("broadcast_by_input", lambda x, y: F.broadcast_to(x, y), f32(1, 5), values([4, 3, 5], "int32"))
add("broadcast_bool", lambda x: F.broadcast_to(x, (4, 5)), boolean(1, 5))
add("broadcast_int8", lambda x: F.broadcast_to(x, (4, 5)), i8(1, 5))
add("repeat", lambda x: F.repeat(x, 3, axis=1), f32(2, 3, 4))
add("repeat_flat", lambda x: F.repeat(x, 2), f32(2, 3))
add("tile", lambda x: F.tile(x, (2, 3)), f32(2, 3))
add("tile_rank3", lambda x: F.tile(x, (2, 1, 3)), f32(2, 3, 2))

# Shapes as values.
add("shape_of", lambda x: F.reshape(x, -1)[:2] * x.shape[0], X, resized=BIGGER)
add("shape_output", applied(builtin.GetVarShape()), X, **RAW, resized=[f32(3, 4, 5, 6)])
add("shape_one_axis", applied(builtin.GetVarShape(axis=2)), X, **RAW, resized=[f32(3, 4, 5, 6)])
add("shape_negative_axis", applied(builtin.GetVarShape(axis=-1)), X, **RAW)
add("shape_of_two", applied(builtin.GetVarShape()), f32(3, 1, 5), f32(4, 1), **RAW)
add("shape_of_two_axis", applied(builtin.GetVarShape(axis=1)), f32(3, 1, 5), f32(4, 1), **RAW)
add("shape_as_float", lambda x: x / x.shape[3], X, resized=[f32(2, 3, 5, 9)])
add("shape_property", lambda x: x.shape.astype("float32") * 0.5, X, resized=BIGGER)

# Joining and splitting.
add("concat", lambda x, y: F.concat([x, y], axis=1), f32(2, 3, 4), f32(2, 5, 4))
add("concat_negative", lambda x, y: F.concat([x, y, x], axis=-1), f32(2, 3), f32(2, 4))
add("concat_int32", lambda x, y: F.concat([x, y], axis=0), i32(2, 3), i32(1, 3))
add("concat_bool", lambda x, y: F.concat([x, y], axis=0), boolean(2, 3), boolean(1, 3))
add("concat_constant", lambda x: F.concat([weight(2, 3), x], axis=0), f32(4, 3), resized=[f32(5, 3)])
add("stack", lambda x, y: F.stack([x, y], axis=1), f32(2, 3), f32(2, 3))
add("stack_last", lambda x, y: F.stack([x, y], axis=-1), f32(2, 3), f32(2, 3))
add("split_sections", lambda x: F.split(x, 3, axis=1), f32(2, 6, 4))
add("split_indices", lambda x: F.split(x, [2, 5], axis=1), f32(2, 7, 4))
add("split_one_used", lambda x: F.split(x, 2, axis=-1)[1], f32(2, 3, 8))
add("split_raw", lambda x: F.split(x, 2, axis=0), f32(4, 3), **RAW)
add("split_resized", lambda x: F.split(x, 2, axis=2), f32(1, 2, 6), resized=[f32(3, 4, 6)])
add("roll", lambda x: F.roll(x, 2, axis=1), f32(2, 5, 3))
add("roll_negative", lambda x: F.roll(x, -1, axis=0), f32(5, 3))
add("roll_two_axes", lambda x: F.roll(x, (1, 2), axis=(0, 1)), f32(4, 5))
add("roll_flat", lambda x: F.roll(x, 3, axis=None), f32(4, 5))
add("meshgrid", lambda x, y: F.meshgrid(x, y), f32(3), f32(4))
add("meshgrid_ij", lambda x, y: F.meshgrid(x, y, indexing="ij"), f32(3), f32(4))

# Padding.
for mode in ("constant", "replicate", "reflect"):
    add(f"pad_{mode}", lambda x, mode=mode: F.nn.pad(x, ((0, 0), (0, 0), (1, 2), (3, 1)), mode=mode), X)
    add(f"pad_{mode}_all_axes", lambda x, mode=mode: F.nn.pad(x, ((1, 1), (2, 0), (0, 2)), mode=mode), f32(3, 4, 5))
add("pad_value", lambda x: F.nn.pad(x, ((1, 2), (0, 3)), constant_value=2.5), f32(3, 4))
add("pad_int32", lambda x: F.nn.pad(x, ((1, 2), (0, 3)), constant_value=7), i32(3, 4))
add("pad_uint8", lambda x: F.nn.pad(x, ((1, 2), (0, 3)), constant_value=7), u8(3, 4))
add("pad_rank1", lambda x: F.nn.pad(x, ((2, 3),), mode="reflect"), f32(6))
add("pad_resized", lambda x: F.nn.pad(x, ((0, 0), (1, 2)), mode="replicate"), f32(3, 4), resized=[f32(2, 6)])

# Creation.
add("zeros_like", lambda x: F.zeros_like(x) + 1, X, resized=BIGGER)
add("ones_like", lambda x: F.ones_like(x) + x, X, resized=BIGGER)
add("full_like", lambda x: F.full_like(x, 2.5) * x, X, **KEEP)
add("full_by_shape", lambda x: F.full((x.shape[0], 4), 1.5), X, resized=BIGGER)
add("fill_op", applied(builtin.Fill(value=2.5, dtype="float32")), values([2, 3], "int32"), **RAW)
add("fill_like_op", applied(builtin.FillLike(value=2.5)), X, **RAW)
add("arange_by_shape", lambda x: F.arange(x.shape[1]) + x, f32(2, 5), resized=[f32(2, 7)])
add("arange_step", lambda x: F.arange(1, x.shape[1], 2), f32(2, 6), resized=[f32(2, 9)])
add("arange_int", lambda x: F.arange(x.shape[1], dtype="int32"), f32(2, 6), resized=[f32(2, 9)])
add("linspace", lambda x, y: F.linspace(x, y, 5), f32(1), f32(1))
add(
    "linspace_by_count",
    applied(builtin.Linspace(endpoint=True, comp_node="xpux"), mge.Tensor([0.0]), mge.Tensor([1.0])),
    values([7], "int32"),
    **RAW,
)
add(
    "linspace_no_endpoint",
    applied(builtin.Linspace(endpoint=False, comp_node="xpux"), mge.Tensor([0.0]), mge.Tensor([1.0])),
    values([7], "int32"),
    **RAW,
)
add(
    "linspace_one",
    lambda x, y: run_op(builtin.Linspace(endpoint=True, comp_node="xpux"), x, y, mge.Tensor([1], dtype="int32")),
    f32(1),
    f32(1),
    **RAW,
)
add("eye_by_shape", applied(builtin.Eye(k=1, dtype="float32", comp_node="xpux")), values([3, 5], "int32"), **RAW)
add("eye_constant", lambda x: x + F.eye(4, 5), f32(4, 5))
add("eye_int32", applied(builtin.Eye(k=-1, dtype="int32", comp_node="xpux")), values([4, 4], "int32"), **RAW)
add("diag_of_matrix", lambda x: F.diag(x, 0), f32(4, 5), **KEEP)
add("diag_above", lambda x: F.diag(x, 2), f32(4, 5), **KEEP)
add("diag_below", lambda x: F.diag(x, -1), f32(4, 5), **KEEP)
add("diag_of_vector", lambda x: F.diag(x, 1), f32(4), **KEEP)
add("diag_of_vector_below", lambda x: F.diag(x, -2), f32(4), **KEEP)
add("one_hot", lambda x: F.nn.one_hot(x, 5), i32(2, 3, low=0, high=5))
add("pixel_shuffle", lambda x: F.nn.pixel_shuffle(x, 2), f32(2, 8, 3, 5))
add("pixel_shuffle_op", applied(builtin.PixelShuffle(factor=2)), f32(2, 8, 3, 5), **RAW)
add("copy", lambda x: F.copy(x) + 1, X)
add("copy_raw", applied(builtin.Copy(comp_node="cpux")), f32(2, 3), **RAW)
add("identity_raw", applied(builtin.Identity()), f32(2, 3), **RAW)
add("identity_function", lambda x: x, f32(2, 3))
add("masked_fill", applied(builtin.MaskedFill(value=-2.5)), f32(3, 5), boolean(3, 5), **RAW)
add("masked_fill_lower_rank", applied(builtin.MaskedFill(value=0.5)), f32(3, 4, 5), boolean(3, 4), **RAW)
add("check_non_finite", applied(builtin.CheckNonFinite(scale=1.0)), values([1, np.inf, 2]), **RAW)

# Types, for operators that only move numbers.
for name, draw in (("int8", i8), ("uint8", u8), ("int16", i16), ("float16", f16), ("bool", boolean)):
    add(f"split_{name}", lambda x: F.split(x, [1, 3], axis=1), draw(3, 5))
    add(f"stack_{name}", lambda x, y: F.stack([x, y], axis=-1), draw(3, 5), draw(3, 5))
    add(f"diag_{name}", lambda x: F.diag(x, 1), draw(3, 4), **KEEP)
    add(f"diag_of_vector_{name}", lambda x: F.diag(x, -1), draw(3), **KEEP)
    if name != "bool":
        add(f"pad_{name}_constant", lambda x: F.nn.pad(x, ((1, 2), (0, 3)), constant_value=3.0), draw(3, 4), **KEEP)
        add(f"pad_{name}_reflect", lambda x: F.nn.pad(x, ((1, 2), (0, 3)), mode="reflect"), draw(3, 4), **KEEP)
        add(f"pad_{name}_replicate", lambda x: F.nn.pad(x, ((1, 2), (0, 3)), mode="replicate"), draw(3, 4), **KEEP)
add("eye_by_size", applied(builtin.Eye(k=0, dtype="float16", comp_node="xpux")), values([3], "int32"), **RAW)
add(
    "linspace_int32",
    applied(builtin.Linspace(endpoint=True, comp_node="xpux")),
    *(values([number], "int32") for number in (2, 9, 4)),
    **RAW,
)
add("arange_long", lambda x: F.arange(x.shape[0] * 1000) * 0.5, f32(5), resized=[f32(7)])
add("assert_equal", applied(builtin.AssertEqual(maxerr=1e3)), f32(2, 3), f32(2, 3), **RAW)
add("inplace_add", applied(builtin.InplaceAdd()), f32(2, 3), f32(2, 3), f32(1), f32(1), **RAW)
add("param_pack_split", applied(builtin.ParamPackSplit(offsets=[0, 6, 6, 10], shapes=[[2, 3], [4]])), f32(10), **RAW)

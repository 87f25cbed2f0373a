"""Indexing cases: slices, index arrays, masks, and their writing forms."""

import megengine as mge
import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import RAW, add, applied, boolean, case, f16, f32, i8, i16, i32, run_op, u8, values, weight

X = f32(4, 5, 6)
OTHER = [f32(5, 7, 6)]

# Slices.
add("slice", lambda x: x[1:3, :, 2:], X, resized=OTHER)
add("slice_steps", lambda x: x[::2, 1::3], X, resized=OTHER)
add("slice_negative_step", lambda x: x[::-1, :, 4:1:-2], X, resized=OTHER)
add("slice_negative_bounds", lambda x: x[-3:-1, :-2], X, resized=OTHER)
add("slice_whole", lambda x: x[0:4, -5:5], X)
add("slice_ellipsis", lambda x: x[..., 1:4], X)
add("slice_and_index", lambda x: x[1, 1:4, -1], X, resized=OTHER)
add("index_scalar_first", lambda x: x[2], X)
add("index_scalar_last", lambda x: x[..., -2], X)
add("index_all_axes", lambda x: x[1, 2, 3], X)
add("index_new_axis", lambda x: x[:, None, 1], X)
add("slice_int32", lambda x: x[1:, ::2], i32(4, 5))
add("slice_uint8", lambda x: x[1:, ::-1], u8(4, 5))
add("slice_bool", lambda x: x[1:, ::2], boolean(4, 5))
add("slice_by_shape", lambda x: x[: x.shape[1] // 2, x.shape[0] - 2 :], X, resized=OTHER)
add("slice_by_input", lambda x, y: x[y[0] : y[1]], X, values([1, 3], "int32"))
add("index_by_input", lambda x, y: x[:, y], X, values([2], "int32"))
add("slice_raw", lambda x: x[1:3, 2], X, **RAW)
add(
    "subtensor_begin_only",
    applied(builtin.Subtensor(items=[(1, True, False, False, False)])),
    X,
    values([2], "int32"),
    **RAW,
)
add(
    "subtensor_step_only",
    applied(builtin.Subtensor(items=[(1, False, False, True, False)])),
    X,
    values([-2], "int32"),
    **RAW,
)
add(
    "subtensor_negative_axis",
    applied(builtin.Subtensor(items=[(-1, True, True, False, False)])),
    X,
    values([1], "int32"),
    values([-1], "int32"),
    **RAW,
)
add(
    "subtensor_axes_in_order",
    applied(builtin.Subtensor(items=[(0, False, False, False, True), (2, True, False, False, False)])),
    X,
    values([-1], "int32"),
    values([3], "int32"),
    **RAW,
)

# Index arrays.
add("take_rows", lambda x, y: x[y], X, i32(3, low=0, high=4))
add("take_rows_2d", lambda x, y: x[y], X, i32(2, 3, low=-4, high=4))
add("take_columns", lambda x, y: x[:, y], X, i32(3, low=-5, high=5))
add("take_last", lambda x, y: x[..., y], X, i32(7, low=0, high=6))
add("take_two_adjacent", lambda x, y, z: x[:, y, z], X, i32(3, low=0, high=5), i32(3, low=0, high=6))
add("take_two_apart", lambda x, y, z: x[y, :, z], X, i32(3, low=0, high=4), i32(3, low=0, high=6))
add("take_two_broadcast", lambda x, y, z: x[y, z], X, i32(3, 1, low=0, high=4), i32(1, 2, low=0, high=5))
add("take_and_slice", lambda x, y: x[1:, y, ::2], X, i32(3, low=0, high=5))
add("take_and_negative_step", lambda x, y: x[::-1, y], X, i32(3, low=0, high=5))
add("take_and_scalar", lambda x, y: x[y, 2], X, i32(3, low=0, high=4))
add("take_constant", lambda x: x[:, [0, 3, 1]], X, resized=OTHER)
add("take_int8", lambda x, y: x[y], i8(4, 5), i32(3, low=0, high=4))
add("take_float16", lambda x, y: x[y], f16(4, 5), i32(3, low=0, high=4))
add(
    "embedding",
    lambda x: F.nn.embedding(x, weight(10, 4)),
    i32(2, 3, low=0, high=10),
    resized=[i32(3, 5, low=0, high=10)],
)
add("gather", lambda x, y: F.gather(x, 1, y), f32(4, 5), i32(4, 3, low=0, high=5))
add("gather_axis0", lambda x, y: F.gather(x, 0, y), f32(4, 5), i32(2, 5, low=0, high=4))
add("gather_rank3", lambda x, y: F.gather(x, 2, y), X, i32(4, 5, 2, low=0, high=6))
add("indexing_one_hot", lambda x, y: F.nn.indexing_one_hot(x, y, axis=1), f32(4, 5), i32(4, low=0, high=5))
add(
    "indexing_one_hot_keep",
    lambda x, y: F.nn.indexing_one_hot(x, y, axis=0, keepdims=True),
    X,
    i32(5, 6, low=0, high=4),
)

# Masks: sizes depend on the data.
add("mask", lambda x: x[x > 0], f32(4, 5))
add("mask_other", lambda x, y: x[y > 0], f32(4, 5), f32(4, 5))
add("mask_rows", lambda x, y: x[y > 0], f32(4, 5), f32(4))
add("mask_nothing", lambda x: x[x > 100], f32(4, 5))
add("mask_int32", lambda x: x[x > 2], i32(4, 5))
add("cond_take", lambda x, y: F.cond_take(y > 0.5, x), f32(4, 5), f32(4, 5))
add("cond_take_bool", lambda x, y: F.cond_take(y, x), f32(4, 5), boolean(4, 5))
add("cond_take_raw", lambda x, y: F.cond_take(y > 0, x), f32(3, 4, 5), f32(3, 4, 5), **RAW)


# Writing.
@case(X, f32(2, 5, 6))
def set_slice(x, y):
    x[1:3] = y
    return x


@case(X, resized=OTHER)
def set_slice_scalar(x):
    x[:, 1:3, ::2] = 7
    return x


@case(X, f32(5, 6))
def set_row(x, y):
    x[-1] = y
    return x


@case(X, f32(6))
def set_slice_broadcast(x, y):
    x[1:3, ::2] = y
    return x


@case(X, i32(3, low=0, high=2), f32(3, 5, 6))
def set_rows(x, y, z):
    x[F.arange(3, dtype="int32") + y * 0] = z
    return x


@case(X)
def set_rows_scalar(x):
    x[:, [0, 3]] = -1
    return x


@case(X)
def set_points(x):
    x[[0, 2, 3], [1, 4, 0]] = 5
    return x


@case(i32(4, 5))
def set_slice_int32(x):
    x[1:, :2] = 9
    return x


@case(f32(4, 5))
def set_mask(x):
    x[x > 0] = 0
    return x


@case(X, f32(2, 5, 6))
def add_to_slice(x, y):
    x[1:3] += y
    return x


add(
    "scatter",
    lambda x, y, z: F.scatter(x, 0, y, z),
    f32(4, 5),
    values([[0, 2, 1, 3, 0], [1, 0, 2, 0, 3]], "int32"),
    f32(2, 5),
)
add(
    "scatter_axis1",
    lambda x, y, z: F.scatter(x, 1, y, z),
    f32(3, 5),
    values([[0, 4], [2, 1], [3, 0]], "int32"),
    f32(3, 2),
)
add(
    "set_one_hot",
    applied(builtin.IndexingSetOneHot(axis=1, ndim=2)),
    f32(4, 5),
    i32(4, low=0, high=5),
    f32(4, 1),
    **RAW,
)

# Operators that no function emits: an item is (axis, begin, end, step, index).
SLICE, INDEX = (0, True, True, False, False), (0, False, False, False, True)
FROM, TO, ROWS = values([1], "int32"), values([3], "int32"), values([0, 2, 2], "int32")
add("incr_subtensor", applied(builtin.IncrSubtensor(items=[SLICE])), X, f32(2, 5, 6), FROM, TO, **RAW)
add("set_subtensor", applied(builtin.SetSubtensor(items=[SLICE])), X, f32(2, 5, 6), FROM, TO, **RAW)
add("incr_rows_repeated", applied(builtin.IndexingIncrMultiAxisVec(items=[INDEX])), X, f32(3, 5, 6), ROWS, **RAW)
add(
    "incr_points",
    applied(builtin.IndexingIncrMultiAxisVec(items=[INDEX, (2, False, False, False, True)])),
    X,
    f32(3, 5),
    ROWS,
    values([1, 5, 5], "int32"),
    **RAW,
)
add(
    "set_rows_op",
    applied(builtin.IndexingSetMultiAxisVec(items=[INDEX])),
    X,
    f32(2, 5, 6),
    values([3, 0], "int32"),
    **RAW,
)
MESH = [INDEX, (2, False, False, False, True)]
COLUMNS = values([5, 0], "int32")
add("mesh_indexing", applied(builtin.MeshIndexing(items=MESH)), X, ROWS, COLUMNS, **RAW)
add(
    "mesh_indexing_slice",
    applied(builtin.MeshIndexing(items=[INDEX, (1, True, False, False, False)])),
    X,
    ROWS,
    FROM,
    **RAW,
)
add("incr_mesh_indexing", applied(builtin.IncrMeshIndexing(items=MESH)), X, f32(3, 5, 2), ROWS, COLUMNS, **RAW)
add(
    "set_mesh_indexing",
    applied(builtin.SetMeshIndexing(items=MESH)),
    X,
    f32(2, 5, 2),
    values([3, 1], "int32"),
    COLUMNS,
    **RAW,
)
BATCHED = [(1, False, False, False, True)]
add("batched_mesh_indexing", applied(builtin.BatchedMeshIndexing(items=BATCHED)), X, i32(4, 3, low=0, high=5), **RAW)
add(
    "batched_mesh_indexing_two",
    applied(builtin.BatchedMeshIndexing(items=[*BATCHED, (2, False, False, False, True)])),
    X,
    i32(4, 3, low=0, high=5),
    i32(4, 2, low=0, high=6),
    **RAW,
)
add(
    "batched_incr_mesh_indexing",
    applied(builtin.BatchedIncrMeshIndexing(items=BATCHED)),
    X,
    f32(4, 2, 6),
    values([[0, 1], [2, 2], [4, 0], [3, 1]], "int32"),
    **RAW,
)
add(
    "batched_set_mesh_indexing",
    applied(builtin.BatchedSetMeshIndexing(items=BATCHED)),
    X,
    f32(4, 2, 6),
    values([[0, 1], [2, 3], [4, 0], [3, 1]], "int32"),
    **RAW,
)

# Bounds, steps and places, both as constants and as inputs.
BOUNDED = (0, True, True, True, False)
MIXED = [(2, True, True, False, False), (1, False, False, False, True), (0, False, False, True, False)]
PLACE = [(axis, False, False, False, True) for axis in (2, 1, 0)]


def numbered(op, *numbers):
    """The operator with these constants behind its inputs."""
    return lambda *inputs: run_op(op, *inputs, *(mge.Tensor(np.array([number], np.int32)) for number in numbers))


def given(*numbers):
    """The same as inputs."""
    return [values([number], "int32") for number in numbers]


for begin, end, step in ((3, 0, -1), (3, -4, -2), (-1, 0, -2), (0, 4, 2), (0, 9, 1), (1, -1, 1)):
    count = len(range(*slice(begin, end, step).indices(4)))
    name = f"{begin}_{end}_{step}".replace("-", "minus")
    add(f"subtensor_{name}", applied(builtin.Subtensor(items=[BOUNDED])), X, *given(begin, end, step), **RAW)
    add(
        f"set_subtensor_{name}",
        numbered(builtin.SetSubtensor(items=[BOUNDED]), begin, end, step),
        X,
        f32(count, 5, 6),
        **RAW,
    )
    add(
        f"set_subtensor_{name}_given",
        applied(builtin.SetSubtensor(items=[BOUNDED])),
        X,
        f32(count, 5, 6),
        *given(begin, end, step),
        **RAW,
    )
    add(
        f"incr_subtensor_{name}",
        numbered(builtin.IncrSubtensor(items=[BOUNDED]), begin, end, step),
        X,
        f32(count, 5, 6),
        **RAW,
    )
for name, items, numbers, shape in (
    ("mixed", MIXED, (1, 4, -2, -2), (2, 3)),
    ("place", PLACE, (1, -1, -2), (1,)),
    ("row", PLACE[2:], (-2,), (5, 6)),
    ("column", PLACE[:1], (-2,), (4, 5)),
):
    add(f"subtensor_{name}", applied(builtin.Subtensor(items=items)), X, *given(*numbers), **RAW)
    add(f"set_subtensor_{name}", numbered(builtin.SetSubtensor(items=items), *numbers), X, f32(*shape), **RAW)
    add(
        f"set_subtensor_{name}_given",
        applied(builtin.SetSubtensor(items=items)),
        X,
        f32(*shape),
        *given(*numbers),
        **RAW,
    )
    add(
        f"incr_subtensor_{name}_given",
        applied(builtin.IncrSubtensor(items=items)),
        X,
        f32(*shape),
        *given(*numbers),
        **RAW,
    )
add("set_subtensor_only_place", numbered(builtin.SetSubtensor(items=PLACE[2:]), 2), f32(5), f32(1), **RAW)
add("subtensor_step_given", applied(builtin.Subtensor(items=[(2, False, True, True, False)])), X, *given(2, 3), **RAW)

# Several index arrays.
add("take_two_of_four", lambda x, y, z: x[:, y, :, z], f32(2, 3, 4, 5), i32(3, low=-3, high=3), i32(3, low=-5, high=5))
add(
    "take_two_of_a_slice",
    lambda x, y, z: x[1:, y, z],
    f32(2, 3, 4, 5),
    i32(2, 1, low=-3, high=3),
    i32(3, low=-4, high=4),
)
add("take_and_scalars", lambda x, y: x[y, 2, :, 1], f32(4, 3, 4, 5), i32(3, low=-4, high=4))
BOTH = [(2, False, False, False, True), (0, False, False, False, True)]
add(
    "set_points_apart",
    applied(builtin.IndexingSetMultiAxisVec(items=BOTH)),
    X,
    f32(3, 5),
    values([0, 1, 5], "int32"),
    values([3, 0, -3], "int32"),
    **RAW,
)
add(
    "set_columns_of_slice",
    applied(builtin.IndexingSetMultiAxisVec(items=[(2, True, False, False, False), (1, False, False, False, True)])),
    X,
    f32(4, 3, 4),
    values([2], "int32"),
    values([3, 0, -4], "int32"),
    **RAW,
)
add(
    "set_columns_2d",
    applied(builtin.IndexingSetMultiAxisVec(items=BATCHED)),
    X,
    f32(4, 2, 2, 6),
    values([[0, 1], [2, 3]], "int32"),
    **RAW,
)
add("mesh_indexing_negative", applied(builtin.MeshIndexing(items=BOTH)), X, values([-1, 0], "int32"), ROWS, **RAW)
add("incr_mesh_repeated", applied(builtin.IncrMeshIndexing(items=BOTH)), X, f32(3, 5, 2), FROM.repeat(2), ROWS, **RAW)
add(
    "batched_mesh_indexing_last",
    applied(builtin.BatchedMeshIndexing(items=[(2, False, False, False, True), (1, True, False, False, False)])),
    X,
    i32(4, 3, low=-6, high=6),
    values([2], "int32"),
    **RAW,
)
add(
    "batched_incr_mesh_indexing_two",
    applied(builtin.BatchedIncrMeshIndexing(items=PLACE[:2])),
    X,
    f32(4, 2, 3),
    i32(4, 3, low=-6, high=6),
    i32(4, 2, low=0, high=5),
    **RAW,
)

# Types.
for name, draw in (("int8", i8), ("uint8", u8), ("int16", i16), ("float16", f16), ("bool", boolean)):
    add(f"slice_{name}_rank3", lambda x: x[1:, ::-1, 2], draw(3, 4, 5))
    add(f"take_two_{name}", lambda x, y, z: x[y, :, z], draw(3, 4, 5), i32(3, low=-3, high=3), i32(3, low=-5, high=5))
    add(f"set_slice_{name}", numbered(builtin.SetSubtensor(items=BATCHED), 2), draw(3, 4, 5), draw(3, 5), **RAW)
    columns = values([-1, 1], "int32")
    add(
        f"set_columns_{name}",
        applied(builtin.IndexingSetMultiAxisVec(items=BATCHED)),
        draw(3, 4, 5),
        draw(3, 2, 5),
        columns,
        **RAW,
    )
    add(f"masked_fill_{name}", applied(builtin.MaskedFill(value=2.75)), draw(3, 4), boolean(3, 4), **RAW)
    add(f"cond_take_of_{name}", applied(builtin.CondTake()), draw(3, 4), boolean(3, 4), **RAW)
    if name == "bool":
        continue
    add(f"incr_slice_{name}", numbered(builtin.IncrSubtensor(items=BATCHED), 2), draw(3, 4, 5), draw(3, 5), **RAW)
    repeated = values([-1, 1, 1], "int32")
    add(
        f"incr_columns_{name}",
        applied(builtin.IndexingIncrMultiAxisVec(items=BATCHED)),
        draw(3, 4, 5),
        draw(3, 3, 5),
        repeated,
        **RAW,
    )
    add(
        f"one_hot_of_{name}",
        applied(builtin.IndexingOneHot(axis=1, ndim=3)),
        draw(3, 4, 5),
        i32(3, 5, low=0, high=4),
        **RAW,
    )

# What follows a mask: its size is only known when the model runs.
add("mask_then_concat", lambda x: F.concat([x[x > 0], x[x < -0.5]]), f32(6, 5))
add("mask_then_slice", lambda x: x[x > 0][1:4], f32(6, 5))
add("mask_then_take", lambda x, y: x[x > 0][y], f32(6, 5), values([0, 2], "int32"))
add("mask_then_mean", lambda x: x[x > 0] - x[x > 0].mean(), f32(6, 5))
add("mask_then_product", lambda x: F.expand_dims(x[x > 0], 1) * F.expand_dims(x[x < 0], 0), f32(6, 5))
add("mask_then_softmax", lambda x, y: F.softmax(x[y > 0], axis=1), f32(6, 5), f32(6))
add("mask_then_cumsum", lambda x, y: F.cumsum(x[y > 0], axis=0), f32(6, 5), f32(6))
add("mask_then_transpose", lambda x, y: F.transpose(x[y > 0], (1, 0)), f32(6, 5), f32(6))
add("mask_then_stack", lambda x, y: F.stack([x[y > 0], x[y > 0] * 2], axis=1), f32(6, 5), f32(6))
add("mask_then_pad", lambda x, y: F.nn.pad(x[y > 0], ((1, 1), (0, 2))), f32(6, 5), f32(6))
add("mask_then_reshape", lambda x, y: F.nn.relu(x[y > 0]).reshape(-1, 2, 3), f32(6, 6), f32(6))
add("mask_then_arange", lambda x: F.arange(x[x > 0].shape[0]), f32(6, 5))
add("mask_then_zeros", lambda x: F.broadcast_to(F.zeros((1,)), x[x > 0].shape), f32(6, 5))
add("mask_columns", lambda x, y: x[:, y > 0], f32(6, 5), f32(5))
add("mask_2d_of_3d", lambda x, y: x[y > 0], f32(4, 5, 3), f32(4, 5))


@case(f32(6, 5), f32(6))
def set_mask_rows(x, y):
    x[y > 0] = x[y > 0] * 2
    return x


@case(f32(6, 5), f32(5))
def set_mask_columns(x, y):
    x[:, y > 0] = 1
    return x

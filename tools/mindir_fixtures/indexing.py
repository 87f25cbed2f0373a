"""Python indexing, gather and scatter cases."""

from mindspore import Parameter, Tensor, nn

from mindir_fixtures.table import Case, boolean, case, f16, f32, i32, i64, values

X = f32(3, 5, 7)

INDEX = {
    "int": "x[1]",
    "int_negative": "x[-1]",
    "int_middle": "x[:, 2]",
    "int_last_axis": "x[..., -2]",
    "two_ints": "x[1, 3]",
    "all_ints": "x[1, 3, 6]",
    "slice": "x[1:3]",
    "slice_two": "x[:, 1:4]",
    "slice_negative": "x[:, -3:-1]",
    "slice_open_end": "x[:, :, 2:]",
    "slice_open_begin": "x[:, :-2]",
    "slice_past_end": "x[:, 2:100]",
    "step": "x[:, ::2]",
    "step_offset": "x[:, 1::3, 1:6:2]",
    "reversed": "x[:, ::-1]",
    "reversed_range": "x[:, 4:1:-2]",
    "reversed_to_begin": "x[:, :, 3::-1]",
    "reversed_negative": "x[:, -2:-5:-1]",
    "ellipsis": "x[..., 1:3]",
    "ellipsis_middle": "x[1, ..., 2:4]",
    "newaxis_front": "x[None]",
    "newaxis_middle": "x[:, None, 1:3]",
    "newaxis_last": "x[..., None]",
    "newaxis_int": "x[1, None, :, 2]",
    "newaxis_ellipsis_int": "x[None, ..., 0]",
    "int_slice_int": "x[0, 1:4, -1]",
    "empty_result": "x[:, 2:2]",
    "true_index": "x[True]",
    "chained": "x[1:][0][:, 3]",
    "list": "x[[2, 0]]",
    "list_negative": "x[:, [0, -1, 2]]",
    "list_pair": "x[[0, 2], [1, 4]]",
    "tuple_with_list": "x[1, [4, 0], 2:5]",
    "boolean_constant": "x[:, ms.Tensor([True, False, True, True, False])]",
}

ASSIGN = {
    "set_slice_scalar": "x[:, 1:3] = 0",
    "set_int": "x[1] = 2.5",
    "set_slice_tensor": "x[:, 1:3] = y[:, :2]",
    "set_ellipsis": "x[..., 0] = -1",
    "set_step": "x[:, ::2] = 7",
    "set_two_ints": "x[1, 2] = y[0, 0]",
    "set_mask": "x[x > 0] = 0",
    "set_list": "x[[0, 2]] = 1.5",
    "set_negative": "x[-1, -2:] = 3",
}


def cases() -> list[Case]:
    return [*python_indexing(), *slices(), *gather(), *scatter(), *stateful_scatter(), *searching()]


def python_indexing() -> list[Case]:
    result = [case(f"index_{name}", text, X) for name, text in INDEX.items()]
    result += [case(f"index_{name}", f"x = x * 1\n{text}\nreturn x", X, f32(3, 5, 7)) for name, text in ASSIGN.items()]
    index = values([2, 0, 1, -1], "int32")
    return [
        *result,
        case("index_tensor", "x[y]", X, index),
        case("index_tensor_axis1", "x[:, y]", X, values([2, 0, 4], "int32")),
        case("index_tensor_rank2", "x[y]", X, i32(2, 4, low=0, high=3)),
        case("index_two_tensors", "x[y, z]", X, i32(4, low=0, high=3), i32(4, low=0, high=5)),
        case("index_tensors_around_slice", "x[y, :, z]", X, i32(4, low=0, high=3), i32(4, low=0, high=5)),
        case("index_tensor_int64", "x[y]", X, values([2, 0], "int64")),
        case("index_tensor_rank0", "x[y]", X, values(2, "int32")),
        case("index_bool_tensor", "x[y]", f32(3, 5), values([True, False, True], "bool")),
        case("index_bool_tensor_full", "x[y]", f32(3, 5), boolean(3, 5)),
        case("index_int32_values", "x[:, 1:3]", i32(3, 5)),
        case("index_bool_values", "x[:, 1:3]", boolean(3, 5)),
        case("index_slice_dynamic", "x[:, 1:-1]", f32(3, 5), shapes=[(None, None)]),
        case("index_last_dynamic", "x[:, -1]", f32(3, 5), shapes=[(None, None)]),
        case("index_reversed_dynamic", "x[:, ::-1]", f32(3, 5), shapes=[(None, None)]),
        case("index_set_by_tensor", "x = x * 1\nx[y] = 4\nreturn x", X, values([2, 0], "int32")),
        case(
            "index_patches_space_to_depth",
            "ops.cat((x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]), 1)",
            f32(2, 3, 4, 6),
        ),
    ]


def slices() -> list[Case]:
    texts = {
        "slice": "ops.slice(x, (0, 1, 2), (2, 3, 4))",
        "slice_to_end": "P.Slice()(x, (1, 1, 1), (-1, 2, -1))",
        "strided": "ops.strided_slice(x, (0, 1, 0), (3, 5, 7), (1, 2, 3))",
        "strided_negative": "ops.strided_slice(x, (2, 4, 6), (0, 0, 1), (-1, -2, -1))",
        "strided_begin_mask": "ops.strided_slice(x, (1, 1, 1), (3, 4, 5), (1, 1, 2), begin_mask=5)",
        "strided_end_mask": "ops.strided_slice(x, (1, 1, 1), (2, 2, 2), (1, 1, 1), end_mask=6)",
        "strided_ellipsis_mask": "ops.strided_slice(x, (0, 1, 2), (1, 3, 6), (1, 1, 2), ellipsis_mask=2)",
        "strided_shrink_mask": "ops.strided_slice(x, (1, 2, 0), (2, 3, 7), (1, 1, 1), shrink_axis_mask=3)",
        "strided_shrink_negative": "ops.strided_slice(x, (-1, 0, 0), (0, 5, 7), (1, 1, 1), shrink_axis_mask=1)",
        "strided_short": "ops.strided_slice(x, (1,), (3,), (1,))",
        "narrow": "ops.narrow(x, 1, 2, 3)",
        "narrow_mint": "mint.narrow(x, 1, 2, 3)",
        "select_mint": "mint.select(x, 1, 2)",
        "index_select": "ops.index_select(x, 1, ms.Tensor([3, 0, 2]))",
    }
    return [case(f"slice_{name.removeprefix('slice_')}", text, X) for name, text in texts.items()]


def gather() -> list[Case]:
    index = i32(2, 4, low=0, high=3)
    return [
        case("gather_axis0", "ops.gather(x, y, 0)", X, index),
        case("gather_axis1", "ops.gather(x, y, 1)", X, index),
        case("gather_axis_negative", "ops.gather(x, y, -1)", X, index),
        case("gather_rank0_index", "ops.gather(x, y, 1)", X, values(2, "int32")),
        case("gather_negative_index", "ops.gather(x, y, 1)", X, values([-1, 0, -3], "int32")),
        case("gather_batch_dims", "ops.gather(x, y, 1, 1)", X, values([[4, 0], [1, 1], [2, 3]], "int32")),
        case("gather_batch_dims_axis2", "ops.gather(x, y, 2, 1)", X, values([[4, 0], [1, 6], [2, 3]], "int32")),
        case("gather_int64", "ops.gather(x, y, 0)", i64(3, 5), i64(4, low=0, high=3)),
        case("gather_float16", "ops.gather(x, y, 1)", f16(3, 5), i32(4, low=0, high=5)),
        case(
            "gather_axis_as_python_int_weight",
            "ops.gather(self.table, x, 0)",
            i32(2, 3, low=0, high=11),
            table=Parameter(Tensor([[float(i), -0.5 * i] for i in range(11)]), name="table"),
        ),
        case("gather_d", "ops.gather_d(x, 1, y)", f32(3, 5), i32(3, 4, low=0, high=5)),
        case("gather_d_axis0", "ops.gather_d(x, 0, y)", f32(3, 5), i64(2, 5, low=0, high=3)),
        case("gather_d_negative", "ops.gather_d(x, -1, y)", f32(3, 5), values([[-1, 0], [2, -5], [4, 1]], "int32")),
        case("gather_elements", "ops.gather_elements(x, 1, y)", X, i32(3, 2, 7, low=0, high=5)),
        case("gather_mint", "mint.gather(x, 1, y)", f32(3, 5), i64(3, 4, low=0, high=5)),
        case("gather_nd", "ops.gather_nd(x, y)", X, values([[0, 1], [2, 4], [1, 0]], "int32")),
        case("gather_nd_full", "ops.gather_nd(x, y)", X, values([[[0, 1, 6], [2, 4, 3]]], "int64")),
        case("gather_nd_negative", "ops.gather_nd(x, y)", X, values([[-1, 1], [2, -2]], "int32")),
        case("index_select_function", "ops.index_select(x, 1, y)", X, values([3, 0, 2], "int32")),
        case("index_select_axis2", "ops.index_select(x, 2, y)", X, values([6, 0, 2, 2], "int64")),
        case("take", "x.take(y, 1)", X, values([3, 0, 2], "int32")),
        case("take_along_axis", "mnp.take_along_axis(x, y, 1)", f32(3, 5), values([[4, 0], [1, 1], [2, 3]], "int32")),
        case("gather_dynamic", "ops.gather(x, y, 0)", X, index, shapes=[(3, 5, 7), (None, None)]),
        case("embedding_table", nn.Embedding(7, 3), i64(2, 5, low=0, high=7)),
    ]


def scatter() -> list[Case]:
    index = values([[0, 1], [2, 4], [0, 1]], "int32")
    unique = values([[0, 1], [2, 4], [1, 0]], "int32")
    update = f32(3, 7)
    result = [
        case(f"tensor_scatter_{name}", f"ops.tensor_scatter_{name}(x, y, z)", X, index, update)
        for name in ("add", "sub", "mul", "div", "max", "min")
    ]
    element_index = values([[4, 0, 1], [2, 2, 3]], "int32")
    return [
        *result,
        case("tensor_scatter_update", "P.TensorScatterUpdate()(x, y, z)", X, unique, update),
        case("tensor_scatter_update_int32", "P.TensorScatterUpdate()(x, y, z)", i32(3, 5), unique, i32(3)),
        case("scatter_nd", "ops.scatter_nd(x, y, (3, 5, 7))", unique, update),
        case("scatter_nd_duplicates", "ops.scatter_nd(x, y, (3, 5, 7))", index, update),
        case("scatter_nd_rank1", "ops.scatter_nd(x, y, (8,))", values([[1], [6], [3]], "int32"), f32(3)),
        case(
            "tensor_scatter_elements",
            "ops.tensor_scatter_elements(x, y, z, 1)",
            f32(2, 5),
            values([[4, 0, 1], [2, 1, 3]], "int32"),
            f32(2, 3),
        ),
        case(
            "tensor_scatter_elements_add",
            "ops.tensor_scatter_elements(x, y, z, 1, 'add')",
            f32(2, 5),
            element_index,
            f32(2, 3),
        ),
        case(
            "tensor_scatter_elements_axis0",
            "ops.tensor_scatter_elements(x, y, z, 0)",
            f32(4, 3),
            values([[3, 0, 1], [1, 2, 3]], "int64"),
            f32(2, 3),
        ),
        case(
            "tensor_scatter_elements_negative",
            "ops.tensor_scatter_elements(x, y, z, -1)",
            f32(2, 5),
            values([[-1, 0], [2, -3]], "int32"),
            f32(2, 2),
        ),
        case(
            "scatter_function", "ops.scatter(x, 1, y, z)", f32(2, 5), values([[4, 0, 1], [2, 1, 3]], "int64"), f32(2, 3)
        ),
        case("scatter_mint", "mint.scatter(x, 1, y, z)", f32(2, 5), values([[4, 0, 1], [2, 1, 3]], "int64"), f32(2, 3)),
        case("scatter_mint_value", "mint.scatter(x, 1, y, 2.5)", f32(2, 5), values([[4, 0, 1], [2, 1, 3]], "int64")),
        case("index_fill", "ops.index_fill(x, 1, y, 2.5)", X, values([3, 0], "int32")),
        case(
            "masked_scatter",
            "x.masked_scatter(y, z)",
            f32(2, 3),
            values([[True, False, True], [False, True, True]], "bool"),
            f32(4),
        ),
        case("select_scatter", "ops.select_scatter(x, y, 1, 2)", X, f32(3, 7)),
        case("slice_scatter", "ops.slice_scatter(x, y, 1, 1, 3)", X, f32(3, 2, 7)),
        case("fill_diagonal", "P.FillDiagonal(2.5)(x)", f32(4, 4)),
        case("inplace_update_function", "ops.inplace_update(x, y, (0, 2))", f32(3, 5), f32(2, 5)),
        case("inplace_add_function", "ops.inplace_add(x, y, (0, 2))", f32(3, 5), f32(2, 5)),
        case("segment_sum", "ops.unsorted_segment_sum(x, y, 4)", f32(5, 3), values([0, 2, 0, 3, 2], "int32")),
        case("segment_max", "ops.unsorted_segment_max(x, y, 4)", f32(5, 3), values([0, 2, 0, 3, 2], "int32")),
        case("segment_min", "ops.unsorted_segment_min(x, y, 3)", f32(5, 3), values([0, 2, 0, 1, 2], "int32")),
        case("segment_prod", "ops.unsorted_segment_prod(x, y, 3)", f32(5, 3), values([0, 2, 0, 1, 2], "int32")),
    ]


def stateful_scatter() -> list[Case]:
    def table() -> Parameter:
        return Parameter(Tensor([[float(i + j) for j in range(3)] for i in range(5)]), name="kept_table")

    index = values([3, 0], "int32")
    result = [
        case(f"scatter_weight_{name}", f"ops.scatter_{name}(self.table, x, y)", index, f32(2, 3), table=table())
        for name in ("update", "add", "mul", "div", "max", "min")
    ]
    rows = values([[3, 1], [0, 2]], "int32")
    result += [
        case(f"scatter_nd_weight_{name}", f"ops.scatter_nd_{name}(self.table, x, y)", rows, f32(2), table=table())
        for name in ("update", "add", "sub", "mul", "div", "max", "min")
    ]
    return [
        *result,
        case("index_add_weight", "ops.index_add(self.table, x, y, 0)", index, f32(2, 3), table=table()),
    ]


def searching() -> list[Case]:
    sparse = values([[0, 1.5, 0], [-2, 0, 3]])
    return [
        case("nonzero", "ops.nonzero(x)", sparse),
        case("nonzero_bool", "ops.nonzero(x)", boolean(3, 5)),
        case("nonzero_int32", "ops.nonzero(x)", values([0, 3, 0, -1], "int32")),
        case("nonzero_mint", "mint.nonzero(x)", sparse),
        case("argwhere", "ops.argwhere(x)", sparse),
        case("where_indices", "ops.nonzero(x > 0)", sparse),
        case("masked_select_positive", "ops.masked_select(x, x > 0)", sparse),
        case("isin", "(x.expand_dims(-1) == y).any(-1)", i32(3, 5), values([1, 2, 3], "int32")),
        case("sequence_mask", "ops.sequence_mask(x, 6)", values([2, 0, 5], "int32")),
        case("population_count", "ops.population_count(x)", values([3, 7, 255], "int16")),
    ]

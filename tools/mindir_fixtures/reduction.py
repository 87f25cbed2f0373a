"""Reduction, ordering and cumulative cases."""

from mindspore.ops import operations as P

from mindir_fixtures.table import Case, boolean, case, f16, f32, f64, i8, i32, i64, u8, values

X = f32(2, 3, 5)
DISTINCT = values(
    [
        [[5, -1, 3.5, 0, 2], [9, 8, -7, 6, -5], [0.5, 4, 1, -2, 3]],
        [[-3, 2.5, 7, 1.5, -8], [6.5, -4, 0.25, 11, 10], [-6, -9, 12, 13, -10]],
    ]
)

MASK = values([[[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 1, 0]]], "bool")


def cases() -> list[Case]:
    return [*reduce(), *booleans(), *statistics(), *arguments(), *ordering(), *cumulative()]


def reduce() -> list[Case]:
    result: list[Case] = []
    for name, op in {
        "sum": "ReduceSum",
        "mean": "ReduceMean",
        "max": "ReduceMax",
        "min": "ReduceMin",
        "prod": "ReduceProd",
    }.items():
        primitive = getattr(P, op)
        result += [
            case(f"reduce_{name}", "self.op(x, 1)", X, op=primitive()),
            case(f"reduce_{name}_keep", "self.op(x, (0, -1))", X, op=primitive(keep_dims=True)),
            case(f"reduce_{name}_all", "self.op(x, ())", X, op=primitive()),
            case(f"reduce_{name}_default", "self.op(x)", X, op=primitive(keep_dims=True)),
            case(f"reduce_{name}_int32", "self.op(x, 1)", i32(2, 3, 5, low=1, high=5), op=primitive()),
            case(f"reduce_{name}_int64", "self.op(x, (1, 2))", i64(2, 3, 5, low=1, high=3), op=primitive()),
            case(f"reduce_{name}_float16", "self.op(x, -1)", f16(2, 3, 5), op=primitive()),
            case(f"reduce_{name}_float64", "self.op(x, -1)", f64(2, 3, 5), op=primitive()),
            case(f"reduce_{name}_dynamic", "self.op(x, 1)", X, shapes=[(None, None, 5)], op=primitive()),
        ]
    functions = {
        "sum": "x.sum(1)",
        "sum_keep": "ops.sum(x, dim=(0, 2), keepdim=True)",
        "sum_none": "ops.sum(x)",
        "sum_dtype": "ops.sum(x, 1, dtype=mstype.float16)",
        "mean_none": "ops.mean(x)",
        "mean_keep": "ops.mean(x, 1, True)",
        "max_all": "ops.max(x)",
        "min_all": "ops.min(x)",
        "max_axis": "ops.max(x, 1)",
        "min_axis_keep": "ops.min(x, -1, True)",
        "amax": "ops.amax(x, (0, 1))",
        "amin": "ops.amin(x, 2, True)",
        "prod": "ops.prod(x, 1)",
        "prod_all": "ops.prod(x)",
        "logsumexp": "ops.logsumexp(x, 1)",
        "norm_l1": "ops.ReduceSum()(ops.abs(x), 1)",
        "nansum": "ops.nansum(x, 1)",
        "count_nonzero": "ops.count_nonzero(ops.relu(x), (1,))",
        "euclidean": "P.EuclideanNorm()(x, ms.Tensor([1]))",
        "square_sum_all": "P.SquareSumAll()(x, x)",
        "l2_loss": "P.L2Loss()(x)",
        "mint_sum": "mint.sum(x)",
        "mint_sum_dim": "mint.sum(x, 1, True)",
        "mint_sum_dtype": "mint.sum(x, 1, dtype=mstype.float64)",
        "mint_mean": "mint.mean(x)",
        "mint_mean_dim": "mint.mean(x, (0, 2), True)",
        "mint_prod": "mint.prod(x, 1)",
        "mint_prod_all": "mint.prod(x)",
        "mint_max": "mint.max(x)",
        "mint_min": "mint.min(x)",
        "mint_max_dim": "mint.max(x, 1)",
        "mint_min_dim": "mint.min(x, 1, True)",
        "mint_amax": "mint.amax(x, 1)",
    }
    result += [case(f"reduce_function_{name}", text, X) for name, text in functions.items()]
    return [
        *result,
        case("reduce_sum_skip_mode", "self.op(x, ())", X, op=P.ReduceSum(skip_mode=True)),
        case("reduce_sum_list_axis", "self.op(x, [0, 1])", X, op=P.ReduceSum()),
        case("reduce_function_sum_int_tensor", "ops.sum(x)", i32(3, 5)),
        case("reduce_function_mint_sum_int32", "mint.sum(x, 1)", i32(3, 5)),
        case("reduce_function_sum_bool", "ops.sum(x, 1)", boolean(3, 5)),
        case("reduce_max_uint8", "ops.amax(x, 1)", u8(3, 5)),
        case("reduce_max_int8", "ops.amax(x, 1)", i8(3, 5)),
        case("reduce_sum_rank1", "ops.sum(x)", f32(7)),
        case("reduce_max_two_tensors", "mint.max(x, y)", X, X),
    ]


def booleans() -> list[Case]:
    return [
        case("reduce_all", "ops.ReduceAll()(x, 1)", MASK),
        case("reduce_any", "ops.ReduceAny()(x, 1)", MASK),
        case("reduce_all_keep", "ops.ReduceAll(keep_dims=True)(x, (0, 1))", boolean(2, 3, 5)),
        case("reduce_any_everything", "ops.ReduceAny()(x)", boolean(2, 3, 5)),
        case("reduce_all_method", "x.all()", boolean(2, 3)),
        case("reduce_any_method_axis", "x.any(axis=1, keep_dims=True)", boolean(2, 3)),
        case("reduce_all_float", "ops.all(x, 1)", values([[1.5, 0, 2], [1, -1, 3]])),
        case("reduce_any_mint", "mint.any(x, 1)", boolean(2, 3)),
        case("reduce_all_mint", "mint.all(x)", boolean(2, 3)),
    ]


def statistics() -> list[Case]:
    texts = {
        "std": "ops.std(x, 1)",
        "std_all": "ops.std(x)",
        "std_unbiased_keep": "ops.std(x, (0, 2), 1, True)",
        "var": "ops.var(x, 1)",
        "var_ddof": "ops.var(x, (0, 2), 1, True)",
        "var_mean": "ops.var_mean(x, 1)",
        "std_mean": "ops.std_mean(x, 1)",
        "std_method": "x.std(axis=1)",
        "var_method": "x.var(axis=1, ddof=1)",
        "reduce_std": "P.ReduceStd(axis=1, unbiased=True, keep_dims=True)(x)",
        "reduce_std_biased": "P.ReduceStd(axis=(0, 2), unbiased=False)(x)",
        "median": "ops.median(x)",
        "median_axis": "ops.median(x, 1)",
        "quantile": "ops.quantile(x, 0.4, 1)",
        "cov": "ops.cov(x[0])",
        "moments": "ops.var_mean(x, (1, 2))",
    }
    return [case(f"statistics_{name}", text, X) for name, text in texts.items()]


def arguments() -> list[Case]:
    texts = {
        "argmax": "ops.argmax(x, 1)",
        "argmax_all": "ops.argmax(x)",
        "argmax_keep": "ops.argmax(x, 1, True)",
        "argmax_primitive": "P.Argmax(axis=1, output_type=mstype.int32)(x)",
        "argmax_primitive_int64": "P.Argmax(axis=-1, output_type=mstype.int64)(x)",
        "argmin": "ops.argmin(x, 1)",
        "argmin_primitive": "P.Argmin(axis=0, output_type=mstype.int32)(x)",
        "arg_max_with_value": "P.ArgMaxWithValue(axis=1)(x)",
        "arg_max_with_value_keep": "P.ArgMaxWithValue(axis=-1, keep_dims=True)(x)",
        "arg_min_with_value": "P.ArgMinWithValue(axis=1)(x)",
        "arg_min_with_value_keep": "P.ArgMinWithValue(axis=0, keep_dims=True)(x)",
        "argmax_method": "x.argmax(axis=1)",
        "argmin_method": "x.argmin(axis=1)",
        "argmax_mint": "mint.argmax(x, 1)",
        "argmax_mint_all": "mint.argmax(x)",
        "max_index_used": "ops.gather_elements(x, 1, P.ArgMaxWithValue(axis=1, keep_dims=True)(x)[0])",
    }
    result = [case(f"arg_{name.removeprefix('arg_')}", text, DISTINCT) for name, text in texts.items()]
    ties = values([[1, 3, 3, 2], [5, 5, 0, 0]])
    return [
        *result,
        case("arg_ties_max", "P.Argmax(axis=1)(x)", ties),
        case("arg_ties_min", "P.Argmin(axis=1)(x)", ties),
        case("arg_ties_with_value", "P.ArgMaxWithValue(axis=1)(x)", ties),
        case("arg_argmax_float16", "P.Argmax(axis=1)(x)", f16(3, 5)),
        case("arg_with_value_int32", "P.ArgMaxWithValue(axis=1)(x)", values([[5, -3, 9], [7, 8, -1]], "int32")),
    ]


def ordering() -> list[Case]:
    texts = {
        "topk": "ops.topk(x, 3)",
        "topk_dim": "ops.topk(x, 2, dim=1)",
        "topk_smallest": "ops.topk(x, 2, dim=-1, largest=False)",
        "topk_unsorted_flag": "P.TopK(sorted=True)(x, 4)",
        "sort": "ops.sort(x)",
        "sort_axis_descending": "ops.sort(x, axis=1, descending=True)",
        "sort_primitive": "P.Sort(axis=0, descending=False)(x)",
        "argsort": "ops.argsort(x, 1)",
        "argsort_descending": "ops.argsort(x, -1, descending=True)",
        "msort": "ops.msort(x)",
    }
    result = [case(f"order_{name}", text, DISTINCT) for name, text in texts.items()]
    return [
        *result,
        case("order_topk_int32", "ops.topk(x, 2)", values([[5, -3, 9], [7, 8, -1]], "int32")),
        case("order_topk_float16", "ops.topk(x, 2)", f16(3, 5)),
        case("order_sort_int32", "ops.sort(x)", values([[5, -3, 9], [7, 8, -1]], "int32")),
        case("order_searchsorted", "ops.searchsorted(x, y)", values([[1, 3, 5, 7]]), values([[0, 3, 6, 9]])),
        case(
            "order_searchsorted_right",
            "ops.searchsorted(x, y, right=True)",
            values([[1, 3, 5, 7]]),
            values([[0, 3, 6, 9]]),
        ),
        case("order_bucketize", "ops.bucketize(x, [0.0, 1.0, 2.0])", values([-1, 0, 0.5, 1, 5])),
        case("order_unique", "ops.unique(x)", values([3, 1, 3, 2, 1], "int32")),
        case("order_unique_consecutive", "ops.unique_consecutive(x, True, True)", values([3, 3, 1, 2, 2], "int32")),
        case("order_in_top_k", "ops.intopk(x, y, 2)", f32(3, 5), values([1, 0, 4], "int32")),
        case("order_histc", "ops.histc(x, 4, -2.0, 2.0)", f32(3, 5)),
        case("order_bincount", "ops.bincount(x)", values([1, 3, 3, 0, 5], "int32")),
    ]


def cumulative() -> list[Case]:
    texts = {
        "sum": "ops.cumsum(x, 1)",
        "sum_last": "ops.cumsum(x, -1)",
        "sum_exclusive": "P.CumSum(exclusive=True)(x, 1)",
        "sum_reverse": "P.CumSum(reverse=True)(x, 1)",
        "sum_exclusive_reverse": "P.CumSum(True, True)(x, 2)",
        "prod": "ops.cumprod(x, 1)",
        "prod_exclusive": "P.CumProd(exclusive=True)(x, 1)",
        "prod_reverse": "P.CumProd(reverse=True)(x, 1)",
        "prod_exclusive_reverse": "P.CumProd(True, True)(x, 1)",
        "max": "ops.cummax(x, 1)",
        "min": "ops.cummin(x, 1)",
        "max_mint": "mint.cummax(x, 1)",
        "logsumexp": "P.CumulativeLogsumexp()(x, ms.Tensor(1))",
        "diff": "ops.diff(x, axis=1)",
        "trapz": "ops.trapz(x, dim=1)",
    }
    result = [case(f"cumulative_{name}", text, X) for name, text in texts.items()]
    return [
        *result,
        case("cumulative_sum_int32", "ops.cumsum(x, 0)", i32(3, 5)),
        case("cumulative_sum_float16", "ops.cumsum(x, 0)", f16(3, 5)),
        case("cumulative_prod_int32", "ops.cumprod(x, 0)", i32(3, 5, low=1, high=4)),
        case(
            "cumulative_sum_bool_mask", "ops.cumsum(x.astype(mstype.int32), 1) * x.astype(mstype.int32)", boolean(3, 5)
        ),
    ]

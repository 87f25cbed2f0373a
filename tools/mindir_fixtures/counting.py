"""Counting, searching, segments, sets, and other operators that few networks use."""

import numpy as np
from mindspore import nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, case, f16, f32, i32, values

IDS = values([0, 0, 1, 3, 3, 3], "int32")
BOUNDS = values([[1.0, 2, 2, 5], [0, 3, 4, 4]]), values([[2.0, 5, 6], [-1, 4, 3]])
GAPS = values([[1.0, np.nan, 3.0, 2.0], [4.0, 5.0, 6.0, np.nan], [np.nan, np.nan, np.nan, np.nan]])


def cases() -> list[Case]:
    return [*counting(), *searching(), *segments(), *arrays(), *others()]


def counting() -> list[Case]:
    five, six = values([1, 3, 3, 0, 5], "int32"), values([1, 3, 3, 0, 5, 9], "int32")
    counts = "P.Bincount()(x, ms.Tensor(4, mstype.int32), y)"
    return [
        case("count_bincount_minlength", "ops.bincount(x, None, 8)", five),
        case("count_bincount_weights", "ops.bincount(x, y)", six, f32(6)),
        case("count_bincount_primitive", counts, values([1, 3, 3, 0, 2, 9], "int32"), f32(6)),
        case("count_bincount_int32", counts, values([1, 3, 3, 0, 2, 9], "int32"), i32(6)),
        case("count_histc_all", "ops.histc(x, 6)", f32(3, 5)),
        case("count_histc_same", "ops.histc(x, 4)", values([2.0, 2.0, 2.0])),
        case("count_histc_int32", "ops.histc(x, 5, -4.0, 6.0)", i32(4, 5)),
        case("count_histogram", "P.Histogram(6, -2.0, 2.0)(x)", f32(4, 6)),
        case("count_equal", "P.EqualCount()(x, y)", values([1, 2, 3, 4], "int32"), values([1, 0, 3, 3], "int32")),
        case("count_logcumsumexp", "ops.logcumsumexp(x, 1)", f32(3, 5)),
        case("count_logcumsumexp_reverse", "P.CumulativeLogsumexp(False, True)(x, ms.Tensor(0))", f32(4, 3)),
        case("count_logcumsumexp_exclusive", "P.CumulativeLogsumexp(True, True)(x, ms.Tensor(0))[:3]", f32(4, 3)),
        case(
            "count_logcumsumexp_large", "P.CumulativeLogsumexp()(x, ms.Tensor(0))", values([900.0, -900.0, 0.0, 901.0])
        ),
        case("count_nanmedian", "ops.nanmedian(x, 1)[0]", GAPS),
        case("count_nanmedian_place", "ops.nanmedian(x, 0, True)", GAPS[:2]),
        case("count_nanmean", "ops.nanmean(x, 1)", GAPS[:2]),
        case("count_trapz", "ops.trapz(x, dx=0.5)", f32(3, 5)),
        case("count_cov", "ops.cov(x)", f32(3, 5)),
        case("count_corrcoef", "mnp.corrcoef(x)", f32(3, 5)),
    ]


def searching() -> list[Case]:
    return [
        case("search_bucketize", "ops.bucketize(x, [-1.0, 0.0, 1.5])", f32(3, 5)),
        case(
            "search_bucketize_right", "ops.bucketize(x, [0.0, 1.0, 2.0], right=True)", values([0, 0.5, 1.0, 2.0, 3.0])
        ),
        case(
            "search_bucketize_primitive",
            "P.math_ops.Bucketize([0.0, 1.0, 2.0])(x)",
            values([-1, 0, 0.5, 1.0, 2.0, 3.0]),
        ),
        case("search_lower_bound", "P.LowerBound()(x, y)", *BOUNDS),
        case("search_upper_bound", "P.UpperBound()(x, y)", *BOUNDS),
        case("search_nth_element", "P.NthElement()(x, 2)", f32(3, 5)),
        case("search_nth_element_reverse", "P.NthElement(True)(x, 1)", f32(3, 5)),
        case("search_list_diff", "P.ListDiff()(x, y)", values([1, 2, 3, 4, 5, 2], "int32"), values([1, 3, 5], "int32")),
        case("search_unique_pad", "ops.unique_with_pad(x, 0)", values([3, 1, 2, 2, 3, 1], "int32")),
        case("search_unravel_index", "P.UnravelIndex()(x, y)", values([3, 7, 11], "int32"), values([3, 4], "int32")),
        case("search_unravel_index_scalar", "P.UnravelIndex()(x, y)", values(17, "int64"), values([2, 3, 4], "int64")),
    ]


def segments() -> list[Case]:
    kinds = ("Max", "Min", "Mean", "Prod", "Sum")
    result = [case(f"segments_{name.lower()}", f"P.Segment{name}()(x, y)", f32(6, 3), IDS) for name in kinds]
    places, numbers = values([[0, 1], [1, 2]], "int32"), f32(2)
    return [
        *result,
        case("segments_sum_int32", "P.SegmentSum()(x, y)", i32(6, 2), IDS),
        case("segments_max_float16", "P.SegmentMax()(x, y)", f16(6, 2), IDS),
        case("segments_mean_vector", "P.SegmentMean()(x, y)", f32(6), values([0, 0, 0, 1, 1, 1], "int64")),
        case("sparse_to_dense", "P.SparseToDense()(x, y, (3, 4))", places, numbers),
        case("sparse_matmul", "P.SparseTensorDenseMatmul()(x, y, (3, 4), z)", places, numbers, f32(4, 2)),
        case(
            "sparse_matmul_adjoint",
            "P.SparseTensorDenseMatmul(True, True)(x, y, (3, 4), z)",
            places,
            numbers,
            f32(2, 3),
        ),
    ]


def arrays() -> list[Case]:
    rows = f32(3, 5), f32(2, 5)
    places = values([[0, 1], [2, 2], [3, 0]], "int32")
    return [
        case("array_padding", "P.Padding(5)(x)", f32(3, 1)),
        case("array_identity_n", "P.IdentityN()([x, y])", f32(2, 3), i32(3)),
        case("array_parallel_concat", "P.ParallelConcat()((x, y))", f32(1, 3), f32(1, 3)),
        case("array_conjugate_transpose", "P.ConjugateTranspose()(x, (1, 0))", f32(2, 3)),
        case("array_matrix_diag", "ops.matrix_diag(x)", f32(2, 3)),
        case("array_matrix_set_diag", "ops.matrix_set_diag(x, y)", f32(2, 3, 3), f32(2, 3)),
        case("array_data_format_map", "P.DataFormatDimMap()(x)", values([0, 1, 2, 3, -1], "int32")),
        case("array_data_format_permute", "P.DataFormatVecPermute()(x)", values([1, 2, 3, 4], "int32")),
        case("array_inplace_sub", "ops.inplace_sub(x, y, (0, 2))", *rows),
        case("array_inplace_update", "P.InplaceUpdateV2()(x, ms.Tensor([2, 0]), y)", *rows),
        case("array_inplace_index_add", "ops.inplace_index_add(x, ms.Tensor([0, 2], mstype.int32), y, 0)", *rows),
        case("array_scatter_add_axis", "P.ScatterAddWithAxis(1)(x, y, z)", f32(3, 4), places, f32(3, 2)),
        case("array_check_numerics", "P.CheckNumerics()(x)", f32(3)),
        case("array_trace_v2", "G.TraceV2()(x, 1, 0, 1, None)", f32(3, 4)),
        case("array_trace_v2_int32", "G.TraceV2()(x, -1, 1, 2, None)", i32(2, 3, 4)),
        case("array_eps", "P.Eps()(x)", f32(3)),
        case("array_concat_float_first", "ops.concat((x, y))", f32(2, 3), i32(1, 3)),
        case("array_concat_half", "ops.concat((x, y), 1)", f16(2, 3), f32(2, 2)),
        case("array_fills", "P.Fills()(x, 2.5)", f32(3, 5), reference="ops.full_like(x, 2.5)"),
    ]


def others() -> list[Case]:
    # Each column is highest elsewhere than its neighbour, the last class is the blank.
    texts = np.eye(4, dtype=np.float32)[[[0, 1], [0, 3], [3, 1], [0, 1], [2, 2]]] * 2 + np.linspace(0, 1, 40).reshape(
        5, 2, 4
    )
    unpooled = f32(1, 1, 1, 1, 2), values(np.array([[[[[3, 9]]]]]), "int64")
    return [
        case("decode_ctc", "P.CTCGreedyDecoder()(x, y)", f32(5, 2, 4), values([5, 4], "int32")),
        case("decode_ctc_repeats", "P.CTCGreedyDecoder(True)(x, y)", values(texts), values([5, 5], "int32")),
        case("decode_ctc_all", "P.CTCGreedyDecoder(False)(x, y)", values(texts), values([4, 5], "int32")),
        case("pool_max_unpool3d", "ops.max_unpool3d(x, y, 2)", *unpooled),
        case(
            "pool_max_pad_dynamic",
            "self.pool(x)",
            f32(2, 3, 8, 6),
            shapes=[(None, 3, None, None)],
            pool=nn.MaxPool2d(3, 2, pad_mode="pad", padding=1),
        ),
        case("debug_print", "y = x * 2\nself.show('value', y)\nreturn y + 1", f32(2, 3), show=P.Print()),
        case("debug_summary", "self.record('value', x)\nreturn x + 1", f32(2, 3), record=P.TensorSummary()),
        case("debug_assert", "self.check(x.sum() < 1e9, [x])\nreturn x + 1", f32(2, 3), check=P.Assert(1)),
    ]

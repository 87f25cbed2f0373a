"""Matrix products, inverses, decompositions."""

import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, applied, f16, f32, i8, i16, values, weight

add("matmul", lambda x, y: F.matmul(x, y), f32(4, 5), f32(5, 3))
add("matmul_transposed_left", lambda x, y: F.matmul(x, y, transpose_a=True), f32(5, 4), f32(5, 3))
add("matmul_transposed_right", lambda x, y: F.matmul(x, y, transpose_b=True), f32(4, 5), f32(3, 5))
add("matmul_transposed_both", lambda x, y: F.matmul(x, y, transpose_a=True, transpose_b=True), f32(5, 4), f32(3, 5))
add("matmul_batched", lambda x, y: F.matmul(x, y), f32(2, 4, 5), f32(2, 5, 3))
add(
    "matmul_batched_transposed",
    lambda x, y: F.matmul(x, y, transpose_a=True, transpose_b=True),
    f32(2, 5, 4),
    f32(2, 3, 5),
)
add("matmul_batch_broadcast", lambda x, y: F.matmul(x, y), f32(2, 1, 4, 5), f32(3, 5, 3))
add("matmul_3d_2d", lambda x, y: F.matmul(x, y), f32(2, 4, 5), f32(5, 3), resized=[f32(3, 6, 5), f32(5, 3)])
add("matmul_2d_3d", lambda x, y: F.matmul(x, y), f32(4, 5), f32(2, 5, 3))
add("matmul_4d", lambda x, y: F.matmul(x, y), f32(2, 3, 4, 5), f32(2, 3, 5, 6))
add("matmul_vector_matrix", lambda x, y: F.matmul(x, y), f32(5), f32(5, 3))
add("matmul_matrix_vector", lambda x, y: F.matmul(x, y), f32(4, 5), f32(5))
add("matmul_vectors", lambda x, y: F.matmul(x, y), f32(5), f32(5))
add("matmul_float16", lambda x, y: F.matmul(x, y), f16(4, 5), f16(5, 3), relative=2e-3)
add("matmul_float16_batched", lambda x, y: F.matmul(x, y), f16(2, 4, 5), f16(2, 5, 3), relative=2e-3)
add("matmul_float16_compute32", lambda x, y: F.matmul(x, y, compute_mode="float32"), f16(4, 5), f16(5, 3))
add("matmul_int8", lambda x, y: F.matmul(x, y), i8(4, 5), i8(5, 3))
add("matmul_int16", lambda x, y: F.matmul(x, y), i16(4, 5), i16(5, 3))
add(
    "matmul_op_transposed",
    applied(builtin.MatrixMul(transposeA=True, transposeB=True, dimA=2, dimB=2)),
    f32(5, 4),
    f32(3, 5),
    **RAW,
)
add(
    "batched_matmul_op",
    applied(builtin.BatchedMatrixMul(transposeB=True, dimA=3, dimB=3)),
    f32(2, 4, 5),
    f32(2, 3, 5),
    **RAW,
)
add("matmul_int8_batched", lambda x, y: F.matmul(x, y, transpose_b=True), i8(2, 4, 5), i8(2, 3, 5))
add("matmul_int8_long", lambda x, y: F.matmul(x, y), i8(2, 2000), i8(2000, 3))
add("dot_int8", lambda x, y: F.dot(x, y), i8(9), i8(9))
add("dot_one", applied(builtin.Dot()), f32(7), f32(1), **RAW)
add("dot", lambda x, y: F.dot(x, y), f32(7), f32(7))
add("linear", M.Linear(5, 3), f32(4, 5), resized=[f32(7, 5)])
add("linear_no_bias", M.Linear(5, 3, bias=False), f32(4, 5))
add("linear_3d", M.Linear(5, 3), f32(2, 4, 5), resized=[f32(3, 2, 5)])
add("linear_relu", lambda x: F.relu(F.linear(x, weight(3, 5), weight(3))), f32(4, 5))
add("linear_raw", M.Linear(5, 3), f32(4, 5), **RAW)
add("linear_v1", M.Linear(5, 3), f32(4, 5), dump_format="FBS")
add("mlp", M.Sequential(M.Linear(6, 8), M.ReLU(), M.Linear(8, 4), M.Sigmoid()), f32(3, 6), resized=[f32(5, 6)])
add("matinv", F.matinv, f32(3, 3))
add("matinv_zero_pivot", F.matinv, values([[0, 1, 2], [1, 0, 3], [4, -3, 8]]))
add("matinv_5", F.matinv, f32(5, 5), relative=1e-3)
add("matinv_batched", F.matinv, f32(2, 4, 4), relative=1e-3)
add("svd_values", lambda x: F.svd(x)[1], f32(4, 3), **KEEP)
add("svd_product", lambda x: F.matmul(F.svd(x)[0] * F.svd(x)[1], F.svd(x)[2]), f32(4, 3), **KEEP)

"""Linear algebra: factors, solutions, powers."""

import numpy as np

from mindir_fixtures.table import Case, case, f32, f64, values

RANDOM = np.random.default_rng(5)
# The exponential of a matrix: the series for a part of it, then squares.
EXPONENTIAL = """a = x / {0}
t = ops.eye(x.shape[-1], x.shape[-1], x.dtype).expand_as(x)
s = t
for k in range(1, 20):
    t = ops.matmul(t, a) / k
    s = s + t
for k in range({1}):
    s = ops.matmul(s, s)
return s"""


def positive(*shape: int) -> np.ndarray:
    """Symmetric matrices with positive eigenvalues."""
    roots = RANDOM.standard_normal(shape)
    return (roots @ np.swapaxes(roots, -1, -2) + np.eye(shape[-1])).round(3).astype(np.float32)


def triangle(size: int, lower: bool = True) -> np.ndarray:
    """A triangular matrix that is far from singular."""
    whole = RANDOM.uniform(0.3, 1.0, (size, size)) + np.eye(size)
    return (np.tril(whole) if lower else np.triu(whole)).round(3).astype(np.float32)


def cases() -> list[Case]:
    return [*factors(), *solutions(), *powers()]


def factors() -> list[Case]:
    tall, wide = f32(5, 3), f32(3, 5)
    return [
        case("matrix_cholesky", "ops.cholesky(x)", positive(4, 4)),
        case("matrix_cholesky_upper", "ops.cholesky(x, True)", positive(2, 3, 3)),
        case("matrix_cholesky_float64", "ops.cholesky(x)", positive(3, 3).astype(np.float64)),
        case("matrix_cholesky_inverse", "ops.cholesky_inverse(x)", triangle(3)),
        case("matrix_cholesky_inverse_upper", "ops.cholesky_inverse(x, True)", triangle(3, False)),
        case("matrix_qr", "ops.qr(x)", f32(4, 4)),
        case("matrix_qr_tall", "ops.qr(x)", tall),
        case("matrix_qr_tall_complete", "ops.qr(x, 'complete')", tall),
        case("matrix_qr_wide", "ops.qr(x)", wide),
        case("matrix_qr_batch", "P.Qr(False)(x)", f32(2, 4, 3)),
        case("matrix_slogdet", "ops.slogdet(x)", f32(2, 3, 3)),
        case("matrix_logdet", "ops.logdet(x)", positive(2, 3, 3)),
    ]


def solutions() -> list[Case]:
    square, right = values(RANDOM.standard_normal((4, 4)).round(3)), f32(4, 2)
    return [
        case("matrix_solve", "P.MatrixSolve()(x, y)", square, right),
        case("matrix_solve_adjoint", "P.MatrixSolve(True)(x, y)", square, right),
        case("matrix_solve_pivot", "P.MatrixSolve()(x, y)", values([[0, 2, 1], [1, 0, 3], [2, 1, 0]]), f32(3, 2)),
        case("matrix_solve_batch", "P.MatrixSolve()(x, y)", f32(2, 3, 3), f32(2, 3, 1)),
        case("matrix_inverse_pivot", "ops.inverse(x)", values([[0, 2, 1], [1, 0, 3], [2, 1, 0]])),
        case("matrix_inverse_large", "ops.inverse(x)", positive(12, 12)),
        case("matrix_inverse_dynamic", "ops.inverse(x)", positive(2, 5, 5), shapes=[(None, None, None)]),
        case("matrix_triangular_lower", "P.MatrixTriangularSolve(True, False)(x, y)", triangle(4), right),
        case("matrix_triangular_adjoint", "P.MatrixTriangularSolve(False, True)(x, y)", triangle(4, False), right),
        case("matrix_solve_triangular", "G.SolveTriangular()(x, y, 0, True, False)", triangle(4), right),
        case("matrix_solve_triangular_unit", "G.SolveTriangular()(x, y, 1, False, True)", triangle(4, False), right),
        case("matrix_solve_triangular_vector", "G.SolveTriangular()(x, y, 0, True, False)", triangle(4), f32(4)),
        case("matrix_cholesky_solve", "ops.cholesky_solve(x, y)", right, triangle(4)),
        case("matrix_cholesky_solve_upper", "ops.cholesky_solve(x, y, True)", right, triangle(4, False)),
        case(
            "matrix_lu_solve",
            "ops.lu_solve(x, y, z)",
            right,
            triangle(4) + triangle(4, False),
            values([2, 2, 3, 4], "int32"),
        ),
        case(
            "matrix_lu_unpack", "ops.lu_unpack(x, y)", triangle(4) + triangle(4, False), values([2, 2, 4, 4], "int32")
        ),
        case("matrix_lstsq", "ops.lstsq(x, y)", f32(5, 3), f32(5, 2)),
        case(
            "matrix_tridiagonal_product",
            "P.TridiagonalMatMul()(x, y, z, w)",
            f32(1, 4),
            f32(1, 4),
            f32(1, 4),
            f32(4, 2),
        ),
    ]


def powers() -> list[Case]:
    return [
        case("matrix_exp", "ops.matrix_exp(x)", f32(2, 4, 4, low=-1, high=1), reference=EXPONENTIAL.format(1, 0)),
        case("matrix_exp_large", "ops.matrix_exp(x)", f32(3, 3, low=-4, high=4), reference=EXPONENTIAL.format(64, 6)),
        case("matrix_exp_float64", "ops.matrix_exp(x)", f64(3, 3), reference=EXPONENTIAL.format(16, 4)),
        case("matrix_power_0", "ops.matrix_power(x, 0)", f32(2, 3, 3)),
        case("matrix_power_5", "ops.matrix_power(x, 5)", f32(3, 3, low=-1, high=1)),
        case("matrix_power_minus_2", "ops.matrix_power(x, -2)", positive(3, 3)),
        case("matrix_renorm", "ops.renorm(x, 2, 0, 1.5)", f32(3, 4)),
        case("matrix_renorm_1", "ops.renorm(x, 1, 1, 2.5)", f32(2, 3, 4)),
        case("matrix_norm_fro", "ops.norm(x, 'fro')", f32(3, 4)),
        case("matrix_det_large", "ops.det(x)", f32(2, 5, 5)),
        case("matrix_vander", "ops.vander(x, 4)", f32(5)),
        case("matrix_kron", "ops.kron(x, y)", f32(2, 3), f32(3, 2)),
        case("matrix_multi_dot", "ops.matmul(ops.matmul(x, y), z)", f32(2, 3), f32(3, 4), f32(4, 2)),
    ]

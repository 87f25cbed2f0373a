"""Triangular matrices: solutions, and what has them as factors."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import int64_op, positions, size_along
from litehouse.formats.mindir.ops.matrix import Matrices
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64


def _substituted(m: Matrices, a: ir.Value, b: ir.Value, lower: bool, unit: bool = False) -> ir.Value:
    """The solution for a triangle, row by row; the other half of the matrix is not looked at."""
    t, count = m.t, m.size(a)
    a = m.made("Trilu", a, t.constant(0, INT64), upper=int(not lower))
    last = int64_op(t, "Sub", count, 1)

    def step(place: ir.Value, solved: ir.Value) -> Sequence[ir.Value]:
        place = place if lower else int64_op(t, "Sub", last, place)
        here = m.unit(place, count, -2)
        row = m.sum(m("Mul", a, here), -2)
        rest = m("Sub", m.sum(m("Mul", b, here), -2), m.product(row, solved))
        if not unit:
            rest = m("Div", rest, m.sum(m("Mul", row, m.unit(place, count, -1)), -1))
        return [m("Add", solved, m("Mul", here, rest))]

    (solved,) = m.each(count, [m.zeros(b)], step)
    return solved


def _triangular(t: MindirTape, a: ir.Value, b: Any, lower: bool, turned: bool, unit: bool) -> ir.Value:
    m = Matrices(t, a)
    matrix, right = m.operands(a, b)
    vector = t.rank(right) < m.rank
    if vector:
        right = m.made("Unsqueeze", right, t.ints(-1))
    matrix, lower = (m.transposed(matrix), not lower) if turned else (matrix, lower)
    solved = _substituted(m, matrix, right, lower, unit)
    return m.result(t.op("Squeeze", [solved, t.ints(-1)], dtype=m.dtype) if vector else solved)


@op("SolveTriangular")
def solve_triangular(
    t: MindirTape, a: ir.Value, b: Any, trans: Any = 0, lower: Any = False, unit_diagonal: Any = False
) -> Any:
    turned = t.literal(trans) not in (0, "N")
    return _triangular(t, a, b, bool(t.literal(lower)), turned, bool(t.literal(unit_diagonal)))


@op("MatrixTriangularSolve")
def matrix_triangular_solve(
    t: MindirTape, matrix: ir.Value, rhs: Any, *, lower: Any = True, adjoint: Any = False
) -> Any:
    return _triangular(t, matrix, rhs, bool(t.literal(lower)), bool(t.literal(adjoint)), False)


@op("TriangularSolve")
def triangular_solve(
    t: MindirTape, b: Any, matrix: ir.Value, upper: Any = True, transpose: Any = False, unitriangular: Any = False
) -> Any:
    """The solution, and a copy of the matrix."""
    turned, unit = bool(t.literal(transpose)), bool(t.literal(unitriangular))
    return _triangular(t, matrix, b, not t.literal(upper), turned, unit), t.op("Identity", [matrix])


# Factors -----------------------------------------------------------------------------------------------------------


@op("Cholesky")
def cholesky(t: MindirTape, input_x: ir.Value, upper: Any = False) -> Any:
    """A triangle whose product with its own transpose is the matrix."""
    m = Matrices(t, input_x)
    (x,) = m.operands(input_x)
    count = m.size(x)
    places = positions(t, count)

    def step(place: ir.Value, root: ir.Value) -> Sequence[ir.Value]:
        here, across = m.unit(place, count, -2), m.unit(place, count, -1)
        known = m.product(root, m.transposed(m.sum(m("Mul", root, here), -2)))
        column = m("Sub", m.sum(m("Mul", x, across), -1), known)
        below = t.op("Unsqueeze", [t.op("GreaterOrEqual", [places, place]), t.ints(1)])
        column = m("Div", m.where(below, column, 0), m("Sqrt", m.sum(m("Mul", column, here), -2)))
        return [m("Add", root, m("Mul", column, across))]

    (root,) = m.each(count, [m.zeros(x)], step)
    return m.result(m.transposed(root) if t.literal(upper) else root)


def _square_solution(m: Matrices, factor: ir.Value, b: ir.Value, upper: bool) -> ir.Value:
    """The solution for the matrix that a triangle is the root of."""
    first, second = (m.transposed(factor), factor) if upper else (factor, m.transposed(factor))
    return _substituted(m, second, _substituted(m, first, b, True), False)


@op("CholeskySolve")
def cholesky_solve(t: MindirTape, x1: Any, x2: ir.Value, *, upper: Any = False) -> Any:
    m = Matrices(t, x2)
    right, factor = m.operands(x1, x2)
    return m.result(_square_solution(m, factor, right, bool(t.literal(upper))))


@op("CholeskyInverse")
def cholesky_inverse(t: MindirTape, input_x: ir.Value, upper: Any = False) -> Any:
    m = Matrices(t, input_x)
    (factor,) = m.operands(input_x)
    return m.result(_square_solution(m, factor, m.identity(factor), bool(t.literal(upper))))


def _reflected(m: Matrices, matrix: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """An orthogonal matrix and an upper triangle, by Householder's reflections, and the number of these."""
    t = m.t
    rows, columns = m.size(matrix), m.size(matrix, -1)
    places = positions(t, rows)

    def step(place: ir.Value, q: ir.Value, r: ir.Value) -> Sequence[ir.Value]:
        here = m.unit(place, rows, -2)
        below = t.op("Unsqueeze", [t.op("Greater", [places, place]), t.ints(1)])
        column = m.sum(m("Mul", r, m.unit(place, columns, -1)), -1)
        head, tail = m.sum(m("Mul", column, here), -2), m.where(below, column, 0)
        rest = m.sum(m("Mul", tail, tail), -2)
        norm = m("Sqrt", m("Add", m("Mul", head, head), rest))
        # Away from the head, so that no digits are lost. A column that is done already stays.
        moved = m("Add", head, m.where(m("Less", head, 0), m("Neg", norm), norm))
        mirror = m("Add", tail, m("Mul", here, moved))
        size = m("Add", m("Mul", moved, moved), rest)
        factor = m.where(m("Equal", rest, 0), 0, m("Div", 2, m.where(m("Equal", size, 0), 1, size)))
        across = m("Mul", factor, m.transposed(mirror))
        return [
            m("Sub", q, m.product(m.product(q, mirror), across)),
            m("Sub", r, m.product(mirror, m.product(across, r))),
        ]

    steps = int64_op(t, "Min", rows, columns)
    q, r = m.each(steps, [m.identity(matrix), matrix], step)
    return q, m.made("Trilu", r, t.constant(0, INT64), upper=1), steps


@op("Qr")
def qr(t: MindirTape, x: ir.Value, full_matrices: Any = False) -> Any:
    m = Matrices(t, x)
    q, r, steps = _reflected(m, *m.operands(x))
    if not t.literal(full_matrices):
        kept = t.op("Reshape", [steps, t.ints(1)])
        q = m.made("Slice", q, t.ints(0), kept, t.ints(-1))
        r = m.made("Slice", r, t.ints(0), kept, t.ints(-2))
    return m.result(q), m.result(r)


@op("Lstsq")
def least_squares(t: MindirTape, x: ir.Value, a: ir.Value, *, fast: Any = True, l2_regularizer: Any = 0.0) -> Any:
    """The solution with the smallest error, of a matrix with as many rows as columns or more."""
    rows, columns = t.known_sizes(x)
    if rows is None or columns is None or rows < columns:
        t.refuse("fewer equations than unknowns")
    m = Matrices(t, x)
    matrix, right = m.operands(x, a)
    vector = t.rank(right) == 1
    right = m.made("Unsqueeze", right, t.ints(1)) if vector else right
    q, r, _ = _reflected(m, matrix)
    # Below the triangle are the equations that cannot all be met.
    square = m.made("Slice", r, t.ints(0), t.ints(columns), t.ints(0))
    turned = m.made("Slice", m.product(m.transposed(q), right), t.ints(0), t.ints(columns), t.ints(0))
    solved = _substituted(m, square, turned, False)
    return m.result(t.op("Squeeze", [solved, t.ints(1)], dtype=m.dtype) if vector and t.result_rank() == 1 else solved)


# Factors with exchanged rows -----------------------------------------------------------------------------------------


def _exchanged(m: Matrices, x: ir.Value, pivots: ir.Value, back: bool = False) -> ir.Value:
    """The matrix after each of its rows, one by one, was exchanged with another; or before that."""
    t, count = m.t, size_along(m.t, pivots, 0)
    others = t.op("Sub", [t.cast(pivots, INT64), t.ints(1)], dtype=INT64)
    last = int64_op(t, "Sub", count, 1)

    def step(place: ir.Value, rows: ir.Value) -> Sequence[ir.Value]:
        place = int64_op(t, "Sub", last, place) if back else place
        here = m.unit(place, m.size(x), -2)
        there = m.unit(t.op("Gather", [others, place], dtype=INT64), m.size(x), -2)
        distance = m("Sub", m.sum(m("Mul", rows, there), -2), m.sum(m("Mul", rows, here), -2))
        return [m("Add", rows, m("Mul", m("Sub", here, there), distance))]

    (rows,) = m.each(count, [x], step)
    return rows


@op("LuSolve")
def lu_solve(t: MindirTape, x: ir.Value, lu_data: ir.Value, lu_pivots: ir.Value) -> Any:
    if t.rank(lu_data) != 2:
        t.refuse("stacks of matrices")
    m = Matrices(t, lu_data)
    right, factors = m.operands(x, lu_data)
    solved = _substituted(m, factors, _exchanged(m, right, lu_pivots), True, unit=True)
    return m.result(_substituted(m, factors, solved, False))


@op("LuUnpack")
def lu_unpack(
    t: MindirTape, lu_data: ir.Value, lu_pivots: ir.Value, *, unpack_data: Any = True, unpack_pivots: Any = True
) -> Any:
    """The order of the rows as a matrix, the lower triangle and the upper one, of a square matrix."""
    sizes = t.known_sizes(lu_data)
    if len(sizes) != 2 or sizes[0] is None or sizes[0] != sizes[1]:
        t.refuse("matrices that are not square, and stacks of them")
    m = Matrices(t, lu_data)
    (factors,) = m.operands(lu_data)
    identity = m.identity(factors)
    lower = m("Add", m.made("Trilu", factors, t.constant(-1, INT64), upper=0), identity)
    upper = m.made("Trilu", factors, t.constant(0, INT64), upper=1)
    return tuple(m.result(value) for value in (_exchanged(m, identity, lu_pivots, back=True), lower, upper))

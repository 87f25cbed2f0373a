"""Matrices as wholes: solutions, determinants, powers. A loop goes through the columns, so they may have any size."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import axis_of, int64_op, positions, repeated, size_along
from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
TAYLOR_TERMS = 18  # of the exponential, for matrices whose norm is at most a half
Step = Callable[..., Sequence[ir.Value]]


class Matrices(Formula):
    """A formula of matrices: stacks of them in the last two axes, all of one rank.

    Attributes:
        rank: How many axes the values have.
    """

    def __init__(self, t: MindirTape, operand: ir.Value) -> None:
        """Write on this tape, for values of the operand's rank."""
        super().__init__(t)
        self.rank = t.rank(operand)

    def __call__(self, op_type: str, *operands: ir.Value | float) -> ir.Value:
        """The result of an elementwise op."""
        return self._ranked(super().__call__(op_type, *operands))

    def where(self, condition: ir.Value, x: ir.Value | float, other: ir.Value | float) -> ir.Value:
        """One operand where the condition holds, the other elsewhere."""
        return self._ranked(super().where(condition, x, other))

    def _ranked(self, value: ir.Value) -> ir.Value:
        value.shape = ir.Shape([None] * self.rank)
        return value

    def made(self, op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """The result of an op that is not elementwise."""
        return self._ranked(self.t.op(op_type, inputs, dtype=self.dtype, **attributes))

    def size(self, x: ir.Value, axis: int = -2) -> ir.Value:
        """The number of rows, or of columns."""
        return size_along(self.t, x, self.rank + axis)

    def transposed(self, x: ir.Value) -> ir.Value:
        """Rows for columns."""
        return self.made("Transpose", x, perm=[*range(self.rank - 2), self.rank - 1, self.rank - 2])

    def product(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The matrix product."""
        return self.made("MatMul", a, b)

    def sum(self, x: ir.Value, axis: int) -> ir.Value:
        """The sum over rows or columns, which stay as one."""
        return self.made("ReduceSum", x, self.t.ints(axis))

    def unit(self, place: ir.Value, count: ir.Value, axis: int) -> ir.Value:
        """1 at one place of a column (axis -2) or a row (axis -1), and 0 elsewhere."""
        t = self.t
        line = t.op("Cast", [t.op("Equal", [positions(t, count), place])], to=int(self.dtype))
        made: ir.Value = t.op("Unsqueeze", [line, t.ints(1 if axis == -2 else 0)], dtype=self.dtype)
        return made

    def identity(self, x: ir.Value) -> ir.Value:
        """As many rows as the matrix has, as an identity matrix in every place of the stack."""
        t, count = self.t, self.size(x)
        places = positions(t, count)
        same = t.op("Equal", [t.op("Unsqueeze", [places, t.ints(1)]), places])
        number = t.op("Reshape", [count, t.ints(1)])
        shape = t.op("Concat", [t.op("Shape", [x], end=-2), number, number], axis=0)
        return self.made("Expand", t.op("Cast", [same], to=int(self.dtype)), shape)

    def filled(self, number: float, shape: ir.Value) -> ir.Value:
        """A number in every place of a shape."""
        return self.made("Expand", self.t.constant(number, self.dtype), shape)

    def zeros(self, like: ir.Value) -> ir.Value:
        """As many zeros."""
        return self.filled(0, self.t.op("Shape", [like]))

    def each(self, count: ir.Value, states: Sequence[ir.Value], step: Step) -> Sequence[ir.Value]:
        """What the states are after a step for every number below the count."""
        t = self.t

        def numbered(place: ir.Value, *values: ir.Value) -> tuple[ir.Value, Sequence[ir.Value]]:
            further = int64_op(t, "Add", place, 1)
            return t.op("Less", [further, count]), [further, *step(place, *values)]

        first = t.op("Identity", [t.constant(0, INT64)], dtype=INT64, shape=[])
        return repeated(t, [first, *states], numbered, count)[1:]


# Elimination ---------------------------------------------------------------------------------------------------------


def _eliminated(m: Matrices, a: ir.Value, b: ir.Value, guarded: bool = False) -> Sequence[ir.Value]:
    """Gauss and Jordan's elimination; the pivot is the largest number of a column in a row that was none yet.

    Gives the right side, whose rows are in the order of the pivots; the matrix that orders them; the product of the
    pivots; and the sum of the logarithms of their sizes.
    """
    t, count = m.t, m.size(a)
    corner = t.op("Concat", [t.op("Shape", [a], end=-2), t.ints((1, 1))], axis=0)
    places = t.op("Unsqueeze", [positions(t, count), t.ints(1)])

    def step(
        place: ir.Value,
        left: ir.Value,
        right: ir.Value,
        free: ir.Value,
        order: ir.Value,
        product: ir.Value,
        log: ir.Value,
    ) -> Sequence[ir.Value]:
        here = m.unit(place, count, -1)
        column = m.sum(m("Mul", left, here), -1)
        best = t.op("ArgMax", [m.where(m("Greater", free, 0.5), m("Abs", column), -1)], axis=-2)
        chosen = t.op("Cast", [t.op("Equal", [places, best])], to=int(m.dtype), dtype=m.dtype)
        pivot = m.sum(m("Mul", chosen, column), -2)
        divisor = m.where(m("Equal", pivot, 0), 1, pivot) if guarded else pivot
        return [
            _cleared(m, left, chosen, column, divisor),
            _cleared(m, right, chosen, column, divisor),
            m("Sub", free, chosen),
            m("Add", order, m("Mul", chosen, here)),
            m("Mul", product, pivot),
            m("Add", log, m("Log", m("Abs", pivot))),
        ]

    free = m.filled(1, t.op("Concat", [t.op("Shape", [a], end=-1), t.ints(1)], axis=0))
    one, zero = m.filled(1, corner), m.filled(0, corner)
    _, right, _, order, product, log = m.each(count, [a, b, free, m.zeros(a), one, zero], step)
    return right, order, product, log


def _cleared(m: Matrices, matrix: ir.Value, chosen: ir.Value, column: ir.Value, divisor: ir.Value) -> ir.Value:
    """The matrix with its chosen row divided, and as much of that taken from the others as clears the column."""
    row = m("Div", m.sum(m("Mul", chosen, matrix), -2), divisor)
    return m("Sub", matrix, m("Mul", m("Sub", column, chosen), row))


def solution(m: Matrices, a: ir.Value, b: ir.Value) -> ir.Value:
    """What the matrix must be multiplied with to give the right side."""
    right, order, _, _ = _eliminated(m, a, b)
    return m.product(m.transposed(order), right)


def _parity(m: Formula, order: ir.Value) -> ir.Value:
    """1 for an even order of rows, -1 for an odd one, by the pairs that stand the wrong way round."""
    t = m.t
    rows = t.op("ArgMax", [order], axis=-2, keepdims=0)
    after, before = t.op("Unsqueeze", [rows, t.ints(-2)]), t.op("Unsqueeze", [rows, t.ints(-1)])
    wrong = t.op("Cast", [t.op("Greater", [before, after])], to=int(m.dtype))
    wrong = t.op("Trilu", [wrong, t.constant(1, INT64)], upper=1)
    count = t.op("ReduceSum", [wrong, t.ints((-2, -1))], keepdims=0)
    odd = m("Sub", count, m("Mul", m("Floor", m("Mul", count, 0.5)), 2))
    return m("Sub", 1, m("Mul", odd, 2))


def _determined(t: MindirTape, input: ir.Value) -> tuple[Formula, ir.Value, ir.Value, ir.Value]:
    """The parity of the pivots' rows, their product and the logarithm of its size."""
    matrices, m = Matrices(t, input), Formula(t)
    (x,) = m.operands(input)
    _, order, product, log = _eliminated(matrices, x, x, guarded=True)
    product, log = (t.op("Squeeze", [value, t.ints((-2, -1))], dtype=m.dtype) for value in (product, log))
    return m, _parity(m, order), product, log


@op("MatrixDeterminant")
def matrix_determinant(t: MindirTape, input: ir.Value) -> Any:
    m, parity, product, _ = _determined(t, input)
    return m.result(m("Mul", parity, product))


@op("LogMatrixDeterminant")
def log_matrix_determinant(t: MindirTape, input: ir.Value) -> Any:
    """The sign of the determinant, and the logarithm of its size."""
    m, parity, product, log = _determined(t, input)
    return m.result(m("Mul", parity, m("Sign", product))), m.result(log)


@op("MatrixInverse", "MatrixInverseExt")
def matrix_inverse(t: MindirTape, input: ir.Value, *, adjoint: Any = False) -> Any:
    m = Matrices(t, input)
    (x,) = m.operands(input)
    x = m.transposed(x) if t.literal(adjoint) else x
    return m.result(solution(m, x, m.identity(x)))


@op("MatrixSolve")
def matrix_solve(t: MindirTape, matrix: ir.Value, rhs: Any, *, adjoint: Any = False) -> Any:
    m = Matrices(t, matrix)
    a, b = m.operands(matrix, rhs)
    return m.result(solution(m, m.transposed(a) if t.literal(adjoint) else a, b))


# Powers --------------------------------------------------------------------------------------------------------------


@op("MatrixPower")
def matrix_power(t: MindirTape, x: ir.Value, *, n: Any) -> Any:
    m, exponent = Matrices(t, x), int(t.literal(n))
    (power,) = m.operands(x)
    result = m.identity(power)
    if exponent < 0:
        power = solution(m, power, result)
    rest = abs(exponent)
    while rest:
        result = m.product(result, power) if rest % 2 else result
        rest //= 2
        power = m.product(power, power) if rest else power
    return m.result(result)


@op("MatrixExp")
def matrix_exp(t: MindirTape, input: ir.Value) -> Any:
    """The series of the exponential, for the matrix over a power of 2; then squares."""
    m = Matrices(t, input)
    (x,) = m.operands(input)
    norm = m.made("ReduceMax", m.sum(m("Abs", x), -2), t.ints((-2, -1)))
    halvings = m("Max", m("Ceil", m("Add", m("Div", m("Log", m("Max", norm, 1e-30)), math.log(2)), 1)), 0)
    small = m("Div", x, m("Pow", 2, halvings))
    total = one = m.identity(x)
    for term in range(TAYLOR_TERMS, 0, -1):
        total = m("Add", m("Div", m.product(small, total), term), one)

    def step(place: ir.Value, power: ir.Value) -> Sequence[ir.Value]:
        further = t.op("Less", [t.cast(place, m.dtype), halvings])
        return [m.where(further, m.product(power, power), power)]

    most = t.op("ReduceMax", [halvings], keepdims=0, dtype=m.dtype)
    (power,) = m.each(t.cast(most, INT64), [total], step)
    return m.result(power)


@op("Renorm")
def renorm(t: MindirTape, x: ir.Value, *, p: Any, dim: Any, maxnorm: Any) -> Any:
    """The slices along an axis, scaled down to a norm where theirs is larger."""
    m, power, limit = Matrices(t, x), float(t.literal(p)), float(t.literal(maxnorm))
    (values,) = m.operands(x)
    kept = axis_of(t, dim, m.rank)
    others = t.ints([axis for axis in range(m.rank) if axis != kept])
    norm = m("Pow", m.made("ReduceSum", m("Pow", m("Abs", values), power), others), 1 / power)
    return m.result(m.where(m("Greater", norm, limit), m("Mul", values, m("Div", limit, norm)), values))


@op("TridiagonalMatMul")
def tridiagonal_product(t: MindirTape, superdiag: Any, maindiag: Any, subdiag: Any, rhs: ir.Value) -> Any:
    """A matrix with three diagonals times another one."""
    m = Matrices(t, rhs)
    above, main, below, right = m.operands(superdiag, maindiag, subdiag, rhs)

    def row_of(line: ir.Value, shift: int) -> ir.Value:
        """The numbers of a diagonal, each with the row of the right side that it meets."""
        pads = [0] * (2 * m.rank)
        pads[m.rank - 2], pads[2 * m.rank - 2] = -shift, shift
        moved = m.made("Pad", right, t.ints(pads)) if shift else right
        return m("Mul", m.transposed(line), moved)

    return m.result(m("Add", m("Add", row_of(main, 0), row_of(above, 1)), row_of(below, -1)))

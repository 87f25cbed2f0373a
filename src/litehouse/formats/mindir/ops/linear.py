"""Matrix products and other linear algebra."""

import itertools
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import CHANNELS_FIRST, SUMMABLE, narrowed, size_guard, widened
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

LARGEST_PAIRING = 1024


def _is_true(t: MindirTape, flag: Any) -> bool:
    return bool(t.literal(flag))


def _transposed(t: MindirTape, value: ir.Value, wanted: bool = True) -> ir.Value:
    """The value with its last two axes swapped where wanted."""
    if not wanted:
        return value
    axes = list(range(t.rank(value)))
    axes[-2:] = axes[-1], axes[-2]
    swapped: ir.Value = t.op("Transpose", [value], dtype=value.dtype, perm=axes)
    return swapped


def matrix_product(t: MindirTape, a: ir.Value, b: ir.Value, transpose_a: bool, transpose_b: bool) -> ir.Value:
    """A matrix product of widened operands.

    Gemm reads a transposed weight where it is; a Transpose before MatMul would be folded into a second copy of it.
    """
    flat = t.rank(a) == t.rank(b) == 2
    made: ir.Value
    if flat and (transpose_a or transpose_b) and t.result_dtype().is_floating_point():
        made = t.op("Gemm", [a, b], transA=int(transpose_a), transB=int(transpose_b))
    else:
        made = t.op("MatMul", [_transposed(t, a, transpose_a), _transposed(t, b, transpose_b)])
    return made


@op("MatMul", "BatchMatMul", "BatchMatMulV2", "MatMulV2")
def matmul(
    t: MindirTape,
    input: Any,
    mat2: Any,
    transpose_a: Any = False,
    transpose_b: Any = False,
    *,
    transpose_x1: Any = False,
    transpose_x2: Any = False,
) -> Any:
    a, b = widened(t, input, mat2)
    left = _is_true(t, transpose_a) or _is_true(t, transpose_x1)
    right = _is_true(t, transpose_b) or _is_true(t, transpose_x2)
    return narrowed(t, matrix_product(t, a, b, left, right))


@op("MatMulExt", "BatchMatMulExt", "Mm", "Mv", "Dot", "Vdot")
def matmul_ext(t: MindirTape, input: Any, other: Any) -> Any:
    return narrowed(t, t.op("MatMul", widened(t, input, other)))


@op("Dense")
def dense(t: MindirTape, input: Any, weight: Any, bias: Any = None) -> Any:
    x, w = widened(t, input, weight)
    if t.rank(w) == 1:
        product = t.op("MatMul", [x, w])
    elif t.rank(x) == 2 and t.result_dtype().is_floating_point():
        return narrowed(t, t.op("Gemm", [x, w, *widened(t, *([] if bias is None else [bias]))], transB=1))
    else:
        product = t.op("MatMul", [x, _transposed(t, w)])
    return narrowed(t, product if bias is None else t.op("Add", [product, *widened(t, bias)]))


@op("BiasAdd")
def bias_add(t: MindirTape, input_x: Any, bias: Any, data_format: Any = "NCHW", *, format: Any = None) -> Any:
    x, b = widened(t, input_x, bias)
    layout = t.literal(data_format if format is None else format)
    rank = t.rank(x)
    if rank > 2 and layout in CHANNELS_FIRST:
        ones = (1,) * (rank - 2)
        shape = None if b.shape is None else (1, *b.shape, *ones)  # which passes look for
        b = t.op("Reshape", [b, t.ints((1, -1, *ones))], dtype=b.dtype, shape=shape)
    elif rank > 2 and layout not in ("NHWC", "NDHWC", "NWC", 1, 15, 17):
        t.refuse(f"layout {layout!r} is not supported")
    producer = x.producer()
    # ONNX Runtime takes a Sum after a Gemm into it, but not an Add.
    return narrowed(t, t.op("Sum" if producer is not None and producer.op_type == "Gemm" else "Add", [x, b]))


# Products that are added ---------------------------------------------------------------------------------------------


def _added(t: MindirTape, summand: ir.Value, product: ir.Value, beta: Any, alpha: Any) -> ir.Value:
    """`beta` times the summand plus `alpha` times the product."""
    if t.literal(alpha) != 1:
        product = t.op("Mul", [product, *widened(t, alpha)])
    if t.literal(beta) != 1:
        summand = t.op("Mul", [summand, *widened(t, beta)])
    return narrowed(t, t.op("Add", [summand, product]))


@op("InplaceAddmm", writes=True)
@op("Addmm")
def addmm(t: MindirTape, input: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    c, a, b = widened(t, input, mat1, mat2)
    if t.result_dtype().is_floating_point():
        return narrowed(t, t.op("Gemm", [a, b, c], alpha=float(t.literal(alpha)), beta=float(t.literal(beta))))
    return _added(t, c, t.op("MatMul", [a, b]), beta, alpha)


@op("Baddbmm", "Addmv")
def baddbmm(t: MindirTape, input: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    c, a, b = widened(t, input, batch1, batch2)
    return _added(t, c, t.op("MatMul", [a, b]), beta, alpha)


@op("Addbmm")
def addbmm(t: MindirTape, input: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    c, a, b = widened(t, input, batch1, batch2)
    product = t.op("ReduceSum", [t.op("MatMul", [a, b]), t.ints(0)], keepdims=0)
    return _added(t, c, product, beta, alpha)


def _outer(t: MindirTape, a: ir.Value, b: ir.Value) -> ir.Value:
    product: ir.Value = t.op("Mul", [t.op("Unsqueeze", [a, t.ints(1)]), t.op("Unsqueeze", [b, t.ints(0)])])
    return product


@op("Outer", "Ger")
def outer(t: MindirTape, input: Any, vec2: Any) -> Any:
    return narrowed(t, _outer(t, *widened(t, input, vec2)))


@op("InplaceAddr", writes=True)
def inplace_addr(t: MindirTape, input: Any, vec1: Any, vec2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    c, a, b = widened(t, input, vec1, vec2)
    return _added(t, c, _outer(t, a, b), beta, alpha)


# Others --------------------------------------------------------------------------------------------------------------


@op("Einsum")
def einsum(t: MindirTape, x: Any, *, equation: Any) -> Any:
    result = narrowed(t, t.op("Einsum", widened(t, *x), equation=t.literal(equation)))
    # MindSpore gives a sum over everything as one number in a vector.
    scalar = str(t.literal(equation)).replace(" ", "").endswith("->")
    return t.op("Reshape", [result, t.ints(1)]) if scalar and t.result_rank() == 1 else result


@op("EinsumExt")
def einsum_ext(t: MindirTape, equation: Any, operands: Any) -> Any:
    return einsum(t, operands, equation=equation)


@op("Cross")
def cross(t: MindirTape, input: Any, other: Any, dim: Any = -65530) -> Any:
    a, b = widened(t, input, other)
    axis = t.literal(dim)
    if axis == -65530:  # MindSpore's mark for: the first axis of size 3
        axis = t.result_shape().index(3)

    def rolled(value: ir.Value, order: tuple[int, ...]) -> Any:
        return t.op("Gather", [value, t.ints(order)], axis=axis)

    there = t.op("Mul", [rolled(a, (1, 2, 0)), rolled(b, (2, 0, 1))])
    back = t.op("Mul", [rolled(a, (2, 0, 1)), rolled(b, (1, 2, 0))])
    return narrowed(t, t.op("Sub", [there, back]))


def _norm(t: MindirTape, distance: ir.Value, p: Any) -> ir.Value:
    """The p-norm along the last axis."""
    power, axis = float(t.literal(p)), t.ints(-1)
    norms = {1.0: "ReduceL1", 2.0: "ReduceL2"}
    if power in norms:
        return narrowed(t, t.op(norms[power], [distance, axis], keepdims=0))
    sizes = t.op("Abs", [distance])
    if power == 0:
        return narrowed(t, t.op("ReduceSum", [t.op("Sign", [sizes]), axis], keepdims=0))
    if power == float("inf"):
        return narrowed(t, t.op("ReduceMax", [sizes, axis], keepdims=0))
    total = t.op("ReduceSum", [t.op("Pow", [sizes, *widened(t, power)]), axis], keepdims=0)
    return narrowed(t, t.op("Pow", [total, *widened(t, 1 / power)]))


@op("Cdist")
def cdist(t: MindirTape, x1: Any, x2: Any, p: Any = 2.0) -> Any:
    """The distances between all pairs of a row here and a row there."""
    a, b = widened(t, x1, x2)
    return _norm(t, t.op("Sub", [t.op("Unsqueeze", [a, t.ints(-2)]), t.op("Unsqueeze", [b, t.ints(-3)])]), p)


@op("Pdist")
def pdist(t: MindirTape, x: Any, *, p: Any = 2.0) -> Any:
    """The distances between all pairs of rows."""
    (rows,) = widened(t, x)
    place = t.rank(rows) - 2
    count = rows.shape[place] if rows.shape is not None else None
    if not isinstance(count, int):
        t.refuse("a number of rows that is only known when the model runs")
    if count > LARGEST_PAIRING:
        t.refuse(f"the distances between {count} rows; at most {LARGEST_PAIRING} are supported")
    pairs = list(itertools.combinations(range(count), 2))
    guard = size_guard(t, rows, [place])
    places = [t.op("Add", [t.ints(tuple(pair[k] for pair in pairs)), guard]) for k in (0, 1)]
    first, second = (t.op("Gather", [rows, each], axis=-2) for each in places)
    return _norm(t, t.op("Sub", [first, second]), p)


@op("Trace", "TraceExt")
def trace(t: MindirTape, input: Any) -> Any:
    dtype = t.result_dtype()
    x = t.tensor(input, SUMMABLE.get(dtype, dtype))
    # Not the product with an identity matrix: what is infinite beside the diagonal does not count.
    diagonal = t.op("Cast", [t.op("EyeLike", [t.cast(x, ir.DataType.INT32)])], to=int(ir.DataType.BOOL))
    kept = t.op("Where", [diagonal, x, t.constant(0, x.dtype)])
    return t.cast(t.op("ReduceSum", [kept, t.ints((0, 1))], keepdims=0, dtype=x.dtype), dtype)

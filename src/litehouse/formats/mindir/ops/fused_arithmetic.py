"""Arithmetic of MindSpore Lite's dialect: elementwise ops and matrix products, with bias and activation inside."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import axis_of, narrowed, widened
from litehouse.formats.mindir.ops.fused_activation import activate
from litehouse.formats.mindir.ops.linear import matrix_product
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

ELEMENTWISE = {"AddFusion": "Add", "SubFusion": "Sub", "MulFusion": "Mul", "DivFusion": "Div"}
ELTWISE_MODES = {0: "Mul", 1: "Add", 2: "Max"}


def _elementwise(onnx_op: str) -> Callable[..., Any]:
    def convert(t: MindirTape, x: Any, y: Any, *, activation_type: Any = 0) -> Any:
        return activate(t, _combined(t, onnx_op, (x, y)), activation_type)

    return convert


def _combined(t: MindirTape, onnx_op: str, values: tuple[Any, ...]) -> ir.Value:
    operands = widened(t, *values)
    inside = operands[0].dtype
    return narrowed(t, reduce(lambda total, value: t.op(onnx_op, [total, value], dtype=inside), operands))


for _name, _onnx_op in ELEMENTWISE.items():
    op(_name)(_elementwise(_onnx_op))


@op("Eltwise")
def eltwise(t: MindirTape, *tensors: Any, mode: Any = 0) -> Any:
    if t.literal(mode) not in ELTWISE_MODES:
        t.refuse(f"mode {mode!r} is not supported")
    return _combined(t, ELTWISE_MODES[t.literal(mode)], tensors)


@op("PowFusion")
def pow_fusion(t: MindirTape, x: Any, power: Any, *, scale: Any = 1.0, shift: Any = 0.0) -> Any:
    base, exponent = widened(t, x, power)
    base = _scaled(t, base, scale, shift)
    return narrowed(t, t.op("Pow", [base, exponent], dtype=base.dtype))


@op("ExpFusion")
def exp_fusion(t: MindirTape, x: ir.Value, *, base: Any = -1.0, scale: Any = 1.0, shift: Any = 0.0) -> Any:
    """A base of -1 stands for e."""
    if base != -1 and base <= 0:
        t.refuse(f"base {base} is not supported")
    factor = 1.0 if base == -1 else math.log(base)
    return t.op("Exp", [_scaled(t, x, scale * factor, shift * factor)])


def _scaled(t: MindirTape, x: ir.Value, scale: float, shift: float) -> ir.Value:
    """The value times a number, plus a number, where they change anything."""
    if scale != 1:
        x = t.op("Mul", [x, t.constant(scale, t.dtype(x))], like=x)
    return x if shift == 0 else t.op("Add", [x, t.constant(shift, t.dtype(x))], like=x)


@op("ScaleFusion")
def scale_fusion(
    t: MindirTape,
    x: ir.Value,
    scale: ir.Value,
    offset: ir.Value | None = None,
    *,
    axis: Any = -1,
    activation_type: Any = 0,
) -> Any:
    """The axes of scale and offset are those of the operand from `axis` on."""
    first = axis_of(t, axis, t.rank(x))
    y = t.op("Mul", [x, _from_axis(t, scale, first, t.rank(x))], like=x)
    if offset is not None:
        y = t.op("Add", [y, _from_axis(t, offset, first, t.rank(x))], like=x)
    return activate(t, y, activation_type)


def _from_axis(t: MindirTape, vector: ir.Value, axis: int, rank: int) -> ir.Value:
    behind = rank - axis - t.rank(vector)
    if t.rank(vector) == 0 or behind <= 0:
        return vector
    places = tuple(range(t.rank(vector), t.rank(vector) + behind))
    aligned: ir.Value = t.op("Unsqueeze", [vector, t.ints(places)], dtype=vector.dtype)
    return aligned


# Matrix products ------------------------------------------------------------------------------------------------------


@op("MatMulFusion")
def mat_mul_fusion(
    t: MindirTape,
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    transpose_a: Any = False,
    transpose_b: Any = False,
    activation_type: Any = 0,
) -> Any:
    left, right = widened(t, a, b)
    y = matrix_product(t, left, right, bool(t.literal(transpose_a)), bool(t.literal(transpose_b)))
    y.dtype = t.dtype(left)
    return activate(t, narrowed(t, _with_bias(t, y, bias)), activation_type)


def _with_bias(t: MindirTape, y: ir.Value, bias: Any) -> ir.Value:
    if bias is None:
        return y
    producer = y.producer()
    # ONNX Runtime takes a Sum after a Gemm into it, but not an Add.
    op_type = "Sum" if producer is not None and producer.op_type == "Gemm" else "Add"
    total: ir.Value = t.op(op_type, [y, *widened(t, bias)], dtype=t.result_dtype())
    return total


@op("FullConnection")
def full_connection(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    bias: Any = None,
    *,
    use_axis: Any = False,
    axis: Any = 1,
    activation_type: Any = 0,
) -> Any:
    """The operand is a matrix whose rows are as long as the weight's, or its axes from `axis` on are one."""
    values, factors = widened(t, x, weight)
    depth = t.op("Shape", [factors], start=1, end=2)
    if not t.literal(use_axis):
        values = t.op("Reshape", [values, t.op("Concat", [t.ints(-1), depth], axis=0)], dtype=values.dtype)
    elif axis_of(t, axis, t.rank(x)) < t.rank(x) - 1:
        outer = t.op("Shape", [x], start=0, end=axis_of(t, axis, t.rank(x)))
        values = t.op("Reshape", [values, t.op("Concat", [outer, depth], axis=0)], dtype=values.dtype)
    turned = t.op("Transpose", [factors], perm=(1, 0), dtype=factors.dtype)
    y = t.op("MatMul", [values, turned], dtype=factors.dtype)
    return activate(t, narrowed(t, _with_bias(t, y, bias)), activation_type)

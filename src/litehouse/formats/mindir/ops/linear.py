"""Matrix products."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op("MatMul", "BatchMatMul")
def matmul(t: MindirTape, input: Any, mat2: Any, transpose_a: Any = False, transpose_b: Any = False) -> Any:
    a, b = t.promote(input, mat2)
    if t.rank(a) == t.rank(b) == 2 and (t.literal(transpose_a) or t.literal(transpose_b)):
        return t.op("Gemm", [a, b], transA=int(t.literal(transpose_a)), transB=int(t.literal(transpose_b)))
    return t.op("MatMul", [_transposed(t, a, transpose_a), _transposed(t, b, transpose_b)])


def _transposed(t: MindirTape, value: ir.Value, wanted: Any) -> ir.Value:
    """The value with its last two axes swapped where wanted."""
    if not t.literal(wanted):
        return value
    axes = list(range(t.rank(value)))
    axes[-2:] = axes[-1], axes[-2]
    swapped: ir.Value = t.op("Transpose", [value], perm=axes)
    return swapped


@op("BiasAdd")
def bias_add(t: MindirTape, input_x: ir.Value, bias: ir.Value, data_format: Any = "NCHW") -> Any:
    rank = t.rank(input_x)
    if rank > 2:
        bias = t.op("Reshape", [bias, t.ints((1, -1) + (1,) * (rank - 2))])
    return t.op("Add", [input_x, bias])

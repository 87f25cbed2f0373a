"""Rare ops of MindSpore Lite's dialect: speech (splice, affine), adder nets, ragged ranges, lookups."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import (
    convolution_geometry,
    int64_op,
    last,
    positions,
    same_pads,
)
from litehouse.formats.mindir.ops.fused_activation import activate
from litehouse.formats.mindir.ops.layout import as_format, channels_first, kernel_first
from litehouse.formats.mindir.ops.patches import cut_windows
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64

# Speech ---------------------------------------------------------------------------------------------------------------


@op("Splice")
def splice(t: MindirTape, x: ir.Value, *, context: Any, forward_indexes: Any) -> Any:
    """Rows of (batch, time, features) side by side: so many for each row of the result as the context has."""
    return _beside(t, x, t.ints(t.literal(forward_indexes)), len(t.literal(context)))


def _beside(t: MindirTape, x: ir.Value, rows: ir.Value, count: int) -> ir.Value:
    picked = t.op("Gather", [x, rows], axis=1, dtype=x.dtype)
    width = t.op("Mul", [t.op("Shape", [x], start=2), t.ints(count)])
    shape = t.op("Concat", [t.ints((0, -1)), width], axis=0)
    made: ir.Value = t.op("Reshape", [picked, shape], dtype=x.dtype, shape=[None, None, None])
    return made


@op("Affine")
def affine(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    *,
    context: Any,
    activation_type: Any = 0,
    transpose_b: Any = False,
    transpose_a: Any = False,
) -> Any:
    """A matrix product of rows with their neighbours: those at the distances that the context names."""
    near: Sequence[int] = t.literal(context)
    if t.literal(transpose_a):
        t.refuse("a transposed first operand")
    before, behind = min(near), max(near)
    count = int64_op(t, "Sub", t.op("Shape", [x], start=1, end=2), behind - before)
    starts = t.op("Unsqueeze", [positions(t, t.op("Squeeze", [count], dtype=INT64)), t.ints(1)])
    rows = t.op("Add", [starts, t.constant([[place - before for place in near]], INT64)], dtype=INT64)
    wide = _beside(t, x, t.op("Reshape", [rows, t.ints(-1)], dtype=INT64), len(near))
    factors = t.op("Transpose", [weight], perm=(1, 0), dtype=weight.dtype) if t.literal(transpose_b) else weight
    y = t.op("MatMul", [wide, factors], dtype=x.dtype)
    y = y if bias is None else t.op("Add", [y, bias], dtype=x.dtype)
    return activate(t, y, activation_type)


# Adder nets -----------------------------------------------------------------------------------------------------------


@op("AdderFusion")
def adder_fusion(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    *,
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    pad_mode: Any = 0,
    pad_list: Any = (0, 0, 0, 0),
    activation_type: Any = 0,
    format: Any = 0,
) -> Any:
    """Like a convolution, with the distance of window and kernel, negative, in place of their product."""
    images, filters = channels_first(t, x, format), kernel_first(t, weight, format)
    kernel = t.sizes(filters)[2:]
    geometry = convolution_geometry(t, kernel, pad_mode, pad_list, last(t, stride, 2), last(t, dilation, 2))
    steps, spread = geometry["strides"], geometry["dilations"]
    pads = t.ints(geometry["pads"]) if "pads" in geometry else same_pads(t, images, kernel, steps, spread)
    patches = cut_windows(t, images, kernel, steps, spread, pads)  # batch, channel, height, width of a window, windows
    one = t.op("Unsqueeze", [patches, t.ints(1)])
    kernels = t.op("Unsqueeze", [filters, t.ints((0, 5, 6))])
    distance = t.op("ReduceSum", [t.op("Abs", [t.op("Sub", [one, kernels])]), t.ints((2, 3, 4))], keepdims=0)
    y = t.op("Neg", [distance], dtype=x.dtype)
    if bias is not None:
        y = t.op("Add", [y, t.op("Reshape", [bias, t.ints((-1, 1, 1))])], dtype=x.dtype)
    return as_format(t, activate(t, y, activation_type), format)


# Lookups and ranges ---------------------------------------------------------------------------------------------------


@op("EmbeddingLookupFusion")
def embedding_lookup_fusion(t: MindirTape, *operands: ir.Value, max_norm: Any = 0.0) -> Any:
    """Rows of all tables together; the indices come last."""
    if t.literal(max_norm):
        t.refuse("rows that are scaled to a norm")
    *tables, places = operands
    rows = tables[0] if len(tables) == 1 else t.op("Concat", tables, axis=0, dtype=tables[0].dtype)
    return t.op("Gather", [rows, places], axis=0)


@op("RaggedRange")
def ragged_range(t: MindirTape, starts: ir.Value, limits: ir.Value, deltas: ir.Value) -> Any:
    """Ranges one behind the other, and before them where each begins, with the end of the last."""
    dtype = t.dtype(starts)
    first, end, step = (t.op("Reshape", [value, t.ints(-1)], dtype=dtype) for value in (starts, limits, deltas))
    reach = t.cast(t.op("Sub", [end, first], dtype=dtype), FLOAT)
    counts = t.op("Relu", [t.op("Ceil", [t.op("Div", [reach, t.cast(step, FLOAT)])])])
    ends = t.op("CumSum", [t.op("Cast", [counts], to=int(INT64)), t.constant(0, INT64)], dtype=INT64)
    borders = t.op("Concat", [t.ints(0), ends], axis=0, dtype=INT64)
    place = positions(t, t.op("ReduceMax", [borders], keepdims=0, dtype=INT64))
    passed = t.op("LessOrEqual", [t.op("Unsqueeze", [ends, t.ints(1)]), place])
    row = t.op("ReduceSum", [t.op("Cast", [passed], to=int(INT64)), t.ints(0)], keepdims=0)
    rows = t.op("Shape", [ends])
    within = t.cast(int64_op(t, "Sub", place, t.op("Gather", [borders, row])), dtype)
    begin, stride = (t.op("Gather", [t.op("Expand", [value, rows]), row]) for value in (first, step))
    values = t.op("Add", [begin, t.op("Mul", [within, stride])], dtype=dtype)
    return t.cast(borders, t.result_dtype(0)), values

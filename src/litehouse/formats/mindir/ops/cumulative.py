"""Running sums, products and extremes along an axis."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import SUMMABLE, axis_of
from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.ops.reduction import require_orderable
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
Step = Callable[..., tuple[Sequence[ir.Value], Sequence[ir.Value]]]


@op("CumSum")
def cum_sum(t: MindirTape, input: ir.Value, axis: Any, exclusive: Any = False, reverse: Any = False) -> Any:
    dtype = t.result_dtype()
    inside = SUMMABLE.get(dtype, dtype)
    values, along = t.tensor(input, inside), t.constant(int(t.literal(axis)), INT64)
    before, backwards = int(t.literal(exclusive)), int(t.literal(reverse))
    return t.cast(t.op("CumSum", [values, along], dtype=inside, exclusive=before, reverse=backwards), dtype)


@op("CumsumExt")
def cumsum_ext(t: MindirTape, input: ir.Value, dim: Any, dtype: Any = None) -> Any:
    return cum_sum(t, input, dim)


def _scan(t: MindirTape, x: ir.Value, axis: int, reverse: bool, states: Sequence[ir.Value], step: Step) -> Any:
    """Walk along an axis: `step` takes the states and a slice, and gives the next states and the outputs there."""
    start = len(t.nodes)
    inside = [ir.Value(name=t.name(), type=ir.TensorType(t.dtype(value))) for value in (*states, x)]
    following, outputs = step(*inside)
    # What a body gives out must be made there, each once.
    results = [t.op("Identity", [value], dtype=t.dtype(value)) for value in (*following, *outputs)]
    body = ir.Graph(inside, results, nodes=t.nodes[start:], name=t.name())
    del t.nodes[start:]
    made = t.op(
        "Scan",
        [*states, x],
        outputs=len(results),
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis] * len(outputs),
        scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)] * len(outputs),
    )
    return made[len(following) :]


def _filled(t: MindirTape, x: ir.Value, axis: int, value: float, dtype: ir.DataType) -> ir.Value:
    """A number as often as a slice of `x` across the axis has places."""
    slice_ = t.op("Gather", [x, t.constant(0, INT64)], axis=axis)
    made: ir.Value = t.op("Expand", [t.constant(value, dtype), t.op("Shape", [slice_])], dtype=dtype)
    return made


@op("CumProd")
def cum_prod(t: MindirTape, x: ir.Value, axis: Any, exclusive: Any = False, reverse: Any = False) -> Any:
    dtype = t.result_dtype()
    inside = SUMMABLE.get(dtype, dtype)
    along = int(t.literal(axis))

    def step(product: ir.Value, item: ir.Value) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        following = t.op("Mul", [product, item], dtype=inside)
        return [following], [product if t.literal(exclusive) else following]

    values = t.tensor(x, inside)
    ones = _filled(t, values, along, 1, inside)
    (products,) = _scan(t, values, along, bool(t.literal(reverse)), [ones], step)
    products.dtype = inside
    return t.cast(products, dtype)


def _running_extreme(t: MindirTape, x: ir.Value, axis: Any, comparison: str) -> tuple[ir.Value, ir.Value]:
    """The extreme so far and its place, the last of equal ones. What is no number is more extreme than all others."""
    dtype = t.dtype(x)
    require_orderable(t, dtype)
    inside = SUMMABLE.get(dtype, dtype)
    along = int(t.literal(axis))

    def step(
        extreme: ir.Value, place: ir.Value, here: ir.Value, item: ir.Value
    ) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        better = t.op(comparison, [item, extreme])
        if inside.is_floating_point():
            better = t.op("Or", [better, t.op("IsNaN", [item])])
        extreme = t.op("Where", [better, item, extreme], dtype=inside)
        place = t.op("Where", [better, here, place], dtype=INT64)
        return [extreme, place, t.op("Add", [here, t.ints(1)], dtype=INT64)], [extreme, place]

    values = t.tensor(x, inside)
    first = t.op("Gather", [values, t.constant(0, INT64)], axis=along, dtype=inside)
    zeros = _filled(t, values, along, 0, INT64)
    extremes, places = _scan(t, values, along, False, [first, zeros, t.ints(0)], step)
    extremes.dtype, places.dtype = inside, INT64
    return t.cast(extremes, dtype), t.cast(places, t.result_dtype(1))


@op("Cummax")
def cummax(t: MindirTape, input: ir.Value, axis: Any) -> Any:
    return _running_extreme(t, input, axis, "GreaterOrEqual")


@op("Cummin", "CumminExt")
def cummin(t: MindirTape, input: ir.Value, axis: Any) -> Any:
    return _running_extreme(t, input, axis, "LessOrEqual")


@op("CumulativeLogsumexp")
def cumulative_log_sum_exp(
    t: MindirTape, x: ir.Value, axis: Any, *, exclusive: Any = False, reverse: Any = False
) -> Any:
    """The logarithm of the sum of the exponentials so far; the lowest float stands for that of no numbers."""
    m, along = Formula(t), axis_of(t, axis, t.rank(x))

    def step(total: ir.Value, item: ir.Value) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
        distance = m.where(m("Equal", total, item), 0, m("Abs", m("Sub", total, item)))
        grown = m("Add", m("Max", total, item), m("Log", m("Add", m("Exp", m("Neg", distance)), 1)))
        return [grown], [total if t.literal(exclusive) else grown]

    (values,) = m.operands(x)
    lowest = _filled(t, values, along, float(np.finfo(m.dtype.numpy()).min), m.dtype)
    (totals,) = _scan(t, values, along, bool(t.literal(reverse)), [lowest], step)
    totals.dtype = m.dtype
    return m.result(totals)

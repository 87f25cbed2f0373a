"""Reductions."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


def reduce(t: MindirTape, op_type: str, x: ir.Value, axis: Any, keep_dims: Any) -> ir.Value:
    """An ONNX reduction; an empty axis tuple, or None, means all axes."""
    everything = axis is None or axis == ()
    axes = None if everything else t.ints(axis)
    reduced: ir.Value = t.op(op_type, [x, axes], keepdims=int(t.literal(keep_dims)))
    return reduced


@op("ReduceMean")
def reduce_mean(t: MindirTape, x: ir.Value, axis: Any = (), keep_dims: Any = False) -> Any:
    return reduce(t, "ReduceMean", x, axis, keep_dims)

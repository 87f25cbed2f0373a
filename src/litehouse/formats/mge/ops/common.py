"""What several operator families share."""

from __future__ import annotations

import onnx_ir as ir

# Dtypes that an engine lacks kernels for, or computes in its own way (8-bit sums saturate), and what to compute in.
WIDER: dict[ir.DataType, ir.DataType] = {
    ir.DataType.BOOL: ir.DataType.INT32,
    ir.DataType.INT8: ir.DataType.INT32,
    ir.DataType.INT16: ir.DataType.INT32,
    ir.DataType.UINT8: ir.DataType.INT32,
    ir.DataType.UINT16: ir.DataType.INT32,
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
}


def wider(dtype: ir.DataType) -> ir.DataType:
    """The dtype to compute in: the dtype itself, or one for its numbers that every engine has kernels for."""
    return WIDER.get(dtype, dtype)


def bools_behind(value: ir.Value) -> ir.Value | None:
    """The bools that a value has as 0 and 1: files turn comparisons into numbers and back. None for other values."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    return source if source is not None and source.dtype == ir.DataType.BOOL else None

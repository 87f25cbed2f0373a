"""Tensors made from numbers: filled, counted up, grids."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import int64_op, positions
from litehouse.formats.mindir.ops.diagonal import on_diagonal
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
# Not int32, in which ONNX Runtime refuses a limit that is computed from a shape.
COUNTS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, INT64)

# Filled ---------------------------------------------------------------------------------------------------------------


def filled(t: MindirTape, shape: ir.Value, value: Any) -> ir.Value:
    """A tensor of that shape with the same number everywhere, in the dtype that the file records for the result."""
    number = t.tensor(value, t.result_dtype())
    full: ir.Value = t.op("Expand", [number, shape], dtype=number.dtype)
    return full


@op("FillV2", "FillScalar", "FillTensor")
def fill(t: MindirTape, shape: Any, value: Any, dtype: Any = None) -> Any:
    return filled(t, t.ints(shape), value)


@op("Fill")
def fill_old(t: MindirTape, type: Any, shape: Any, value: Any = None) -> Any:
    """The operands are dtype, shape and value; in converted files value and shape."""
    return filled(t, t.ints(shape), type if value is None else value)


@op("Ones")
def ones(t: MindirTape, shape: Any, dtype: Any = None) -> Any:
    return filled(t, t.ints(shape), 1)


@op("Zeros")
def zeros(t: MindirTape, shape: Any, dtype: Any = None) -> Any:
    return filled(t, t.ints(shape), 0)


@op("NewOnes")
def new_ones(t: MindirTape, input: Any, size: Any, dtype: Any = None) -> Any:
    return filled(t, t.ints(size), 1)


@op("NewZeros")
def new_zeros(t: MindirTape, input: Any, size: Any, dtype: Any = None) -> Any:
    return filled(t, t.ints(size), 0)


@op("NewFull")
def new_full(t: MindirTape, input: Any, size: Any, fill_value: Any, dtype: Any = None) -> Any:
    return filled(t, t.ints(size), fill_value)


@op("OnesLike", "OnesLikeExt")
def ones_like(t: MindirTape, input: Any, dtype: Any = None) -> Any:
    return filled(t, t.op("Shape", [t.tensor(input)]), 1)


@op("InplaceZero", writes=True)
@op("ZerosLike", "ZerosLikeExt")
def zeros_like(t: MindirTape, input: Any, dtype: Any = None) -> Any:
    return filled(t, t.op("Shape", [t.tensor(input)]), 0)


@op("InplaceFillScalar", "InplaceFillTensor", writes=True)
@op("FullLike")
def full_like(t: MindirTape, input: Any, fill_value: Any, dtype: Any = None) -> Any:
    return filled(t, t.op("Shape", [t.tensor(input)]), fill_value)


@op("InplaceCopy", writes=True)
def inplace_copy(t: MindirTape, input: ir.Value, src: Any, non_blocking: Any = False) -> Any:
    return filled(t, t.op("Shape", [input]), src)


# Counted up -----------------------------------------------------------------------------------------------------------


@op("Range", "Arange")
def arange(t: MindirTape, start: Any, end: Any, step: Any = 1, dtype: Any = None, *, maxlen: Any = None) -> Any:
    """The fourth operand of Range, the most elements that MindSpore makes room for, has no meaning here."""
    dtype = t.result_dtype()
    inside = dtype if dtype in COUNTS else ir.DataType.FLOAT if dtype.is_floating_point() else INT64
    counted = t.op("Range", [_scalar(t, number, inside) for number in (start, end, step)], dtype=inside)
    return t.cast(counted, dtype)


def _scalar(t: MindirTape, number: Any, dtype: ir.DataType) -> ir.Value:
    """A number of rank 0."""
    value = t.tensor(number, dtype)
    if value.shape is not None and value.shape.rank() == 0:
        return value
    scalar: ir.Value = t.op("Squeeze", [value], dtype=dtype)
    return scalar


@op("LinSpace", "LinSpaceExt")
def linspace(t: MindirTape, start: Any, stop: Any, num: Any, dtype: Any = None) -> Any:
    dtype = t.result_dtype()
    inside = dtype if dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE) else ir.DataType.FLOAT
    first, last = _scalar(t, start, inside), _scalar(t, stop, inside)
    count = _scalar(t, num, INT64)
    gaps = t.cast(int64_op(t, "Max", int64_op(t, "Sub", count, 1), 1), inside)
    step = t.op("Div", [t.op("Sub", [last, first]), gaps])
    places = t.cast(positions(t, count), inside)
    return t.cast(t.op("Add", [first, t.op("Mul", [places, step])], dtype=inside), dtype)


@op("LogSpace")
def logspace(t: MindirTape, start: Any, end: Any, *, steps: Any = 10, base: Any = 10, dtype: Any = None) -> Any:
    powers = linspace(t, start, end, steps)
    return t.op("Pow", [t.tensor(base, powers.dtype), powers])


@op("TrilIndices")
def tril_indices(t: MindirTape, *, row: Any, col: Any, offset: Any = 0, dtype: Any = None) -> Any:
    t.bounded(row * col)
    return t.constant(np.array(np.tril_indices(row, offset, col)), t.result_dtype())


@op("TriuIndices")
def triu_indices(t: MindirTape, *, row: Any, col: Any, offset: Any = 0, dtype: Any = None) -> Any:
    t.bounded(row * col)
    return t.constant(np.array(np.triu_indices(row, offset, col)), t.result_dtype())


@op("Meshgrid")
def meshgrid(t: MindirTape, inputs: tuple[ir.Value, ...], indexing: Any = "xy") -> Any:
    count = len(inputs)
    axes = list(range(count))
    if t.literal(indexing) in (1, "xy") and count > 1:
        axes[0], axes[1] = 1, 0
    elif t.literal(indexing) not in (0, "ij", 1, "xy"):
        t.refuse(f"indexing {indexing!r}")
    order = sorted(range(count), key=lambda item: axes[item])
    shape = t.op("Concat", [t.op("Shape", [inputs[item]]) for item in order], axis=0)
    lines = [
        t.op("Reshape", [value, t.ints((-1, *(1,) * (count - 1 - axis)))])
        for value, axis in zip(inputs, axes, strict=True)
    ]
    return tuple(t.op("Expand", [line, shape]) for line in lines)


@op("Eye")
def eye(t: MindirTape, n: Any, m: Any = None, dtype: Any = None) -> Any:
    rows = _scalar(t, n, INT64)
    columns = rows if m is None else _scalar(t, m, INT64)
    return t.op("Cast", [on_diagonal(t, rows, columns)], to=int(t.result_dtype()))


# From Python numbers --------------------------------------------------------------------------------------------------


@op("ScalarToTensor")
def scalar_to_tensor(t: MindirTape, input_scalar: Any, dtype: Any = None) -> Any:
    return t.tensor(input_scalar, t.result_dtype())


@op("TupleToTensor", "ListToTensor", "TupleToArray")
def tuple_to_tensor(t: MindirTape, input_tuple: Any, dtype: Any = None) -> Any:
    return t.tensor(input_tuple, t.result_dtype())


@op("Fills")
def fills(t: MindirTape, x: ir.Value, value: Any) -> Any:
    return filled(t, t.op("Shape", [x]), value)


@op("Eps")
def eps(t: MindirTape, x: ir.Value) -> Any:
    """The distance from 1 to the next number of the dtype."""
    return filled(t, t.op("Shape", [x]), float(np.finfo(t.dtype(x).numpy()).eps))

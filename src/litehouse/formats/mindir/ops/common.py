"""What several op families share: padding, axes, layouts."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.tape import MindirTape

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
CHANNELS_FIRST = ("NCHW", "NCDHW", "NCW", "DEFAULT", "DefaultFormat", "", None, 0, 14, 16, -1)
PAD_MODES = {0: "pad", 1: "same", 2: "valid"}
PAD_MODE_WORDS = {"calculated": "pad"}


def require_channels_first(t: MindirTape, format: Any) -> None:
    """Refuse any layout but channels first."""
    if t.literal(format) not in CHANNELS_FIRST:
        t.refuse(f"layout {format!r} is not supported, only channels first")


def pad_mode_name(t: MindirTape, mode: Any) -> str:
    """A pad mode, given as text of any case or as a number, as `pad`, `same` or `valid`."""
    mode = t.literal(mode)
    name = PAD_MODES.get(mode, "") if isinstance(mode, int) else str(mode).lower()
    name = PAD_MODE_WORDS.get(name, name)
    if name not in PAD_MODES.values():
        t.refuse(f"pad mode {mode!r} is not supported")
    return name


def last(t: MindirTape, sizes: Any, count: int) -> tuple[int, ...]:
    """The last `count` entries of a spatial argument, which may carry batch and channel; one number stands for all."""
    sizes = t.literal(sizes)
    sizes = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,) * count
    return tuple(int(size) for size in (sizes * count if len(sizes) == 1 else sizes)[-count:])


def onnx_pads(pairs: Sequence[int]) -> tuple[int, ...]:
    """ONNX's order (all begins, then all ends) from MindSpore's (begin and end, axis by axis)."""
    return (*pairs[::2], *pairs[1::2])


def convolution_geometry(
    t: MindirTape, kernel: Sequence[int], pad_mode: Any, pad_list: Any, stride: Any, dilation: Any = 1
) -> dict[str, Any]:
    """The ONNX attributes for a window that moves over as many axes as its kernel has."""
    axes = len(kernel)
    strides, dilations = last(t, stride, axes), last(t, dilation, axes)
    geometry: dict[str, Any] = {"strides": strides, "dilations": dilations}
    mode = pad_mode_name(t, pad_mode)
    if mode == "same" and set(strides) == {1}:
        surplus = [(size - 1) * step for size, step in zip(kernel, dilations, strict=True)]
        return {**geometry, "pads": (*(size // 2 for size in surplus), *(size - size // 2 for size in surplus))}
    if mode == "same":
        # Also where the file states the sizes: they hold for the exported input size alone.
        return {**geometry, "auto_pad": "SAME_UPPER"}
    pads = t.literal(pad_list) if mode == "pad" else (0,) * (2 * axes)
    return {**geometry, "pads": onnx_pads(pads)}


# What both engines have kernels for: float32 and float16 always, other dtypes for these ops alone.
INTEGER_KERNELS = frozenset({"Max", "Min", "Clip"})
DOUBLE_KERNELS = INTEGER_KERNELS | {"Relu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Shrink", "MaxPool"}
DOUBLE_KERNELS |= {"BatchNormalization", "LayerNormalization"}
INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.INT64)


def kernel_dtype(t: MindirTape, op_type: str, dtype: ir.DataType) -> ir.DataType:
    """The dtype in which both engines can run an op on operands of this dtype."""
    if dtype.is_floating_point():
        if dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16) or (
            dtype == ir.DataType.DOUBLE and op_type in DOUBLE_KERNELS
        ):
            return dtype
        return ir.DataType.FLOAT
    if op_type in INTEGER_KERNELS:
        return dtype if dtype in INTEGERS else ir.DataType.INT64
    if op_type in DOUBLE_KERNELS and dtype.is_integer() and dtype.bitwidth <= 32:
        return ir.DataType.DOUBLE
    t.refuse(f"{dtype.name} operands are not supported")


def through(t: MindirTape, op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
    """A node whose inputs share the dtype of the first; where an engine lacks a kernel for it, cast around it."""
    first = inputs[0]
    assert first is not None
    dtype = t.dtype(first)
    inside = kernel_dtype(t, op_type, dtype)
    cast = [value if value is None else t.cast(value, inside) for value in inputs]
    while cast[-1] is None:
        cast.pop()
    made: ir.Value = t.op(op_type, cast, dtype=inside, **attributes)
    return t.cast(made, dtype)


# Dtypes that an engine lacks kernels for, or computes in its own way (8-bit sums saturate), and what to compute in.
WIDER: dict[ir.DataType, ir.DataType] = {
    ir.DataType.BOOL: ir.DataType.INT32,
    ir.DataType.INT8: ir.DataType.INT32,
    ir.DataType.INT16: ir.DataType.INT32,
    ir.DataType.UINT8: ir.DataType.INT32,
    ir.DataType.UINT16: ir.DataType.INT32,
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
}
# Sums and products exist for fewer dtypes than other arithmetic does. In 64 bits the sign does not matter to them.
SUMMABLE = {**WIDER, ir.DataType.UINT32: ir.DataType.INT64, ir.DataType.UINT64: ir.DataType.INT64}


def widened(t: MindirTape, *values: Any) -> tuple[ir.Value, ...]:
    """The values in the result's dtype, or in the wider one that every engine computes in; `narrowed` undoes it."""
    dtype = t.result_dtype()
    return tuple(t.tensor(value, WIDER.get(dtype, dtype)) for value in values)


def narrowed(t: MindirTape, value: ir.Value, index: int = 0) -> ir.Value:
    """A result (or item of it) that was computed from `widened` values, in its recorded dtype; integers wrap around."""
    dtype = t.result_dtype(index)
    if dtype not in WIDER:
        return value
    cast: ir.Value = t.op("Cast", [value], dtype=dtype, to=int(dtype))
    return cast


# Sizes and positions that are computed when the model runs, and so hold for inputs of any size.


def axis_of(t: MindirTape, axis: Any, rank: int) -> int:
    """A literal axis, counted from the front; converted files state it as a tensor of one number."""
    axis = t.literal(axis)
    if isinstance(axis, tuple) and len(axis) == 1:
        (axis,) = axis
    if not -rank <= axis < rank:
        t.refuse(f"axis {axis} of a value of rank {rank}")
    return int(axis) % rank


def int64_op(t: MindirTape, op_type: str, *values: ir.Value | int) -> ir.Value:
    """An op on int64 values and literals."""
    operands = [t.constant(value, ir.DataType.INT64) if isinstance(value, int) else value for value in values]
    made: ir.Value = t.op(op_type, operands, dtype=ir.DataType.INT64)
    return made


def size_along(t: MindirTape, x: ir.Value, axis: int) -> ir.Value:
    """The size of one axis, as a rank-0 int64 value."""
    size: ir.Value = t.op("Gather", [t.op("Shape", [x]), t.constant(axis, ir.DataType.INT64)], dtype=ir.DataType.INT64)
    return size


def positions(t: MindirTape, count: ir.Value | int) -> ir.Value:
    """0, 1, 2, … as a 1-D int64 value."""
    return int64_op(t, "Range", 0, count, 1)


def cast_around(
    t: MindirTape,
    lacking: Mapping[ir.DataType, ir.DataType],
    op_type: str,
    x: ir.Value,
    *others: ir.Value | None,
    **attributes: Any,
) -> ir.Value:
    """An op that only moves values, cast to another dtype and back where an engine lacks its kernel."""
    dtype = t.dtype(x)
    inside = lacking.get(dtype, dtype)
    inputs = [t.cast(value, inside) if value is not None and value.dtype == dtype else value for value in (x, *others)]
    return t.cast(t.op(op_type, inputs, dtype=inside, **attributes), dtype)


LACKS_WHERE = {
    ir.DataType.INT16: ir.DataType.INT32,
    ir.DataType.UINT16: ir.DataType.INT32,
    ir.DataType.UINT64: ir.DataType.INT64,
    ir.DataType.BOOL: ir.DataType.UINT8,
}


def choose(t: MindirTape, condition: ir.Value, x: ir.Value, other: Any) -> ir.Value:
    """Where the condition holds the first value, elsewhere the other, in the first one's dtype."""
    dtype = t.dtype(x)
    inside = LACKS_WHERE.get(dtype, dtype)
    inputs = [condition, t.cast(x, inside), t.cast(t.tensor(other, dtype), inside)]
    return t.cast(t.op("Where", inputs, dtype=inside), dtype)


def matrix_along(t: MindirTape, x: ir.Value, axis: int, matrix: ir.Value) -> ir.Value:
    """The product of a matrix and each line of a value along an axis, which is counted from the end."""
    if axis == -2:
        made: ir.Value = t.op("MatMul", [matrix, x], like=x)
        return made
    order = list(range(t.rank(x)))
    order[axis], order[-1] = order[-1], order[axis]
    turned = x if axis == -1 else t.op("Transpose", [x], perm=order)
    made = t.op("MatMul", [turned, t.op("Transpose", [matrix], perm=(1, 0))], like=x)
    return made if axis == -1 else t.op("Transpose", [made], perm=order, like=x)


def same_pads(
    t: MindirTape, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> ir.Value:
    """The padding of all axes but batch and channel that lets a window begin at every step, in ONNX's order."""
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    sizes, stride = t.op("Shape", [x], start=2), t.ints(strides)
    steps = t.op("Div", [t.op("Sub", [sizes, t.ints(1)]), stride])
    needed = t.op("Add", [t.op("Mul", [steps, stride]), t.ints(extents)])
    missing = t.op("Max", [t.op("Sub", [needed, sizes]), t.ints(0)])
    begin = t.op("Div", [missing, t.ints(2)])
    pads: ir.Value = t.op("Concat", [begin, t.op("Sub", [missing, begin])], axis=0, dtype=ir.DataType.INT64)
    return pads


def spread(t: MindirTape, *values: ir.Value) -> list[ir.Value]:
    """The values broadcast to the shape of the result."""
    shape = t.op("Shape", [reduce(lambda a, b: t.op("Add", [a, b]), values)])
    sizes = [None] * t.result_rank()
    return [t.op("Expand", [value, shape], dtype=value.dtype, shape=sizes) for value in values]


def repeated(
    t: MindirTape,
    states: Sequence[ir.Value],
    step: Callable[..., tuple[ir.Value, Sequence[ir.Value]]],
    most: int | ir.Value,
) -> tuple[ir.Value, ...]:
    """A loop: `step` takes the states and gives whether to go on, and the next states. It runs at least once.

    The states keep their dtypes and shapes.
    """
    counter, further = (ir.Value(name=t.name(), type=ir.TensorType(d), shape=ir.Shape(())) for d in (INT64, BOOL))
    inside = [ir.Value(name=t.name(), type=ir.TensorType(t.dtype(value)), shape=value.shape) for value in states]
    with t.into([]) as nodes:
        again, following = step(*inside)
        # What a body gives out must be made there, each once.
        results = [t.op("Identity", [again], dtype=BOOL, shape=[])]
        results += [t.op("Identity", [value], like=state) for value, state in zip(following, states, strict=True)]
    body = ir.Graph([counter, further, *inside], results, nodes=nodes, name=t.name())
    made = t.op("Loop", [t.tensor(most, INT64), None, *states], outputs=len(states), body=body)
    made = made if isinstance(made, tuple) else (made,)
    for value, state in zip(made, states, strict=True):
        value.dtype, value.shape = state.dtype, state.shape
    return made


def any_true(t: MindirTape, condition: ir.Value) -> ir.Value:
    """Whether a condition holds anywhere, as a rank-0 bool; False for a tensor without places."""
    count = t.op("ReduceSum", [t.op("Cast", [condition], to=int(ir.DataType.INT32))], keepdims=0)
    found: ir.Value = t.op("Greater", [count, t.constant(0, ir.DataType.INT32)], dtype=BOOL, shape=[])
    return found


def pad_planes(t: MindirTape, x: ir.Value, pads: ir.Value, axes: int) -> ir.Value:
    """Zeros around the last axes, batch and channel left out; `pads` as ONNX orders them.

    The node names all axes: where it names some, behind a Transpose, ONNX Runtime 1.31 mixes them up.
    """
    none = (0, 0)
    if pads.const_value is not None:
        sizes = t.literal(pads)
        amounts = t.ints((*none, *sizes[:axes], *none, *sizes[axes:]))
    else:
        begins, ends = (t.op("Slice", [pads, t.ints(first), t.ints(first + axes)]) for first in (0, axes))
        amounts = t.op("Concat", [t.ints(none), begins, t.ints(none), ends], axis=0)
    padded: ir.Value = t.op("Pad", [x, amounts], dtype=x.dtype)
    return padded


def size_guard(t: MindirTape, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """A zero for each axis, to add to a number that the op needs.

    An engine cannot compute it where the axis has another size than the file states: so a translation that holds for
    these sizes alone leaves the other axes free.
    """
    zeros = []
    for axis in axes:
        size = None if x.shape is None else x.shape[axis]
        assert isinstance(size, int)
        stated = t.constant(np.zeros(t.bounded(size), np.int64))
        actual = t.op("Shape", [x], start=axis, end=axis + 1)
        zeros.append(t.op("ReduceSum", [t.op("Reshape", [stated, actual]), t.ints(0)], dtype=INT64))
    joined: ir.Value = t.op("Concat", zeros, axis=0, dtype=INT64, shape=[len(zeros)])
    return joined


def length(t: MindirTape, value: ir.Value) -> int:
    """How many numbers a list of sizes or places has; that follows from ranks, so it holds for other sizes too."""
    if value.shape is None or not isinstance(value.shape[0], int):
        t.refuse("a list whose length is only known when the model runs")
    return t.bounded(value.shape[0])

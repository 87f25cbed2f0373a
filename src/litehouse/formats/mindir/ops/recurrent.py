"""Recurrent layers."""

import itertools
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import kernel_dtype
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

# ONNX's order of gates, as places in MindSpore's: input, output, forget, cell; for a GRU update, reset, new.
FROM_IFCO, FROM_ICFO, FROM_RZN, FROM_ZRN = (0, 3, 1, 2), (0, 3, 2, 1), (1, 0, 2), (0, 1, 2)


def _gates(t: MindirTape, weight: ir.Value, order: tuple[int, ...], size: int) -> ir.Value:
    """A weight whose first axis goes through the gates, in ONNX's order and with an axis for the direction in front."""
    parts = t.op("Reshape", [weight, t.ints((len(order), size, -1))])
    ordered = t.op("Gather", [parts, t.ints(order)], axis=0)
    made: ir.Value = t.op("Reshape", [ordered, t.ints((1, len(order) * size, -1))], dtype=weight.dtype)
    return made


def _biases(t: MindirTape, first: ir.Value, second: ir.Value, order: tuple[int, ...], size: int) -> ir.Value:
    """Both biases in one, as ONNX has them."""
    parts = [_gates(t, bias, order, size) for bias in (first, second)]
    flat = [t.op("Reshape", [part, t.ints((1, -1))]) for part in parts]
    made: ir.Value = t.op("Concat", flat, axis=1, dtype=first.dtype)
    return made


@op("LSTM")
def lstm(
    t: MindirTape,
    input: ir.Value,
    *operands: ir.Value,
    input_size: int = 0,
    hidden_size: int = 0,
    num_layers: int = 1,
    has_bias: bool = True,
    bidirectional: bool = False,
    proj_size: int = 0,
) -> Any:
    """In converted files the weights are operands one by one, as ONNX has them; else all lie in one."""
    if len(operands) == 5:
        return _onnx_lstm(t, input, *operands)
    if (num_layers or 1) != 1 or bidirectional or proj_size:
        t.refuse("several layers, two directions or a projection in one LSTM op are not supported")
    return _packed_lstm(t, input, *operands, input_size=input_size, hidden_size=hidden_size, has_bias=has_bias)


def _onnx_lstm(
    t: MindirTape, x: ir.Value, w: ir.Value, r: ir.Value, b: ir.Value, h: ir.Value, c: ir.Value
) -> tuple[ir.Value, ...]:
    """The states of all steps with an axis for the directions, then the last states and cells."""
    directions, _, size = _sizes(t, r)
    dtype = kernel_dtype(t, "LSTM", t.dtype(x))
    operands = [value if value is None else t.cast(value, dtype) for value in (x, w, r, b, None, h, c)]
    direction = "bidirectional" if directions == 2 else "forward"
    results = t.op("LSTM", operands, outputs=3, hidden_size=size, direction=direction)
    for value in results:
        value.dtype = dtype
    return tuple(t.cast(value, t.dtype(x)) for value in results)


def _sizes(t: MindirTape, weight: ir.Value) -> tuple[int, ...]:
    """The sizes of a weight, which do not depend on the inputs' sizes."""
    sizes = () if weight.shape is None else tuple(weight.shape)
    if not all(isinstance(size, int) for size in sizes):
        t.refuse("a weight of dynamic shape is not supported")
    return tuple(int(size) for size in sizes)  # type: ignore[arg-type]


def _packed_lstm(
    t: MindirTape,
    input: ir.Value,
    h: ir.Value,
    c: ir.Value,
    w: ir.Value,
    *,
    input_size: int,
    hidden_size: int,
    has_bias: bool,
) -> tuple[ir.Value | None, ...]:
    """One layer in one direction, whose weight holds those for the input, for the state, then the biases."""
    rows = 4 * hidden_size
    ends = [rows * input_size, rows * (input_size + hidden_size)]
    flat = t.op("Reshape", [w, t.ints(-1)])
    places = [0, *ends, *((ends[1] + rows, ends[1] + 2 * rows) if has_bias else ())]
    parts = [
        t.op("Slice", [flat, t.ints(start), t.ints(end)], dtype=w.dtype) for start, end in itertools.pairwise(places)
    ]
    bias = None
    if has_bias:
        # On CPU the two biases are added up before; a file for GPU has both.
        second = parts[3] if _count(w) == places[4] else t.constant([0.0] * rows, t.dtype(w))
        bias = _biases(t, parts[2], second, FROM_IFCO, hidden_size)
    x_weight, h_weight = (_gates(t, part, FROM_IFCO, hidden_size) for part in parts[:2])
    y, last_h, last_c = _lstm(t, input, x_weight, h_weight, bias, h, c, hidden_size)
    return (y, last_h, last_c, None, None)  # the rest is for training


def _count(w: ir.Value) -> int | None:
    size = None if w.shape is None else w.shape[0]
    return size if isinstance(size, int) else None


def _lstm(
    t: MindirTape,
    x: ir.Value,
    x_weight: ir.Value,
    h_weight: ir.Value,
    bias: ir.Value | None,
    h: ir.Value,
    c: ir.Value,
    size: int,
) -> tuple[ir.Value, ...]:
    """The states of all steps, then the last state and cell."""
    dtype = kernel_dtype(t, "LSTM", t.dtype(x))
    operands = [value if value is None else t.cast(value, dtype) for value in (x, x_weight, h_weight, bias, None, h, c)]
    y, last_h, last_c = t.op("LSTM", operands, outputs=3, hidden_size=size)
    y = t.op("Squeeze", [y, t.ints(1)])
    for value in (y, last_h, last_c):
        value.dtype = dtype
    return tuple(t.cast(value, t.dtype(x)) for value in (y, last_h, last_c))


@op("GRU")
def gru(t: MindirTape, x: ir.Value, w: ir.Value, r: ir.Value, b: ir.Value, h: ir.Value) -> Any:
    """A GRU of converted files, with weights as ONNX has them: the states of all steps, then the last ones."""
    directions, _, size = _sizes(t, r)
    dtype = kernel_dtype(t, "GRU", t.dtype(x))
    operands = [value if value is None else t.cast(value, dtype) for value in (x, w, r, b, None, h)]
    direction = "bidirectional" if directions == 2 else "forward"
    results = t.op("GRU", operands, outputs=2, hidden_size=size, direction=direction)
    for value in results:
        value.dtype = dtype
    return tuple(t.cast(value, t.dtype(x)) for value in results)


@op("DynamicRNN")
def dynamic_rnn(
    t: MindirTape,
    x: ir.Value,
    w: ir.Value,
    b: ir.Value,
    seq_length: Any,
    init_h: ir.Value,
    init_c: ir.Value,
    *,
    cell_type: str = "LSTM",
    direction: str = "UNIDIRECTIONAL",
    use_peephole: bool = False,
    cell_clip: float = -1.0,
    num_proj: int = 0,
    time_major: bool = True,
    activation: str = "tanh",
    forget_bias: float = 0.0,
) -> Any:
    """An LSTM with weights (input and state, gates), the gates in the order input, cell, forget, output."""
    plain = (cell_type, direction, activation, time_major) == ("LSTM", "UNIDIRECTIONAL", "tanh", True)
    if not plain or seq_length is not None or use_peephole or cell_clip > 0 or num_proj or forget_bias:
        t.refuse("only a plain LSTM in one direction, without sequence lengths, is supported")
    width, rows = _sizes(t, w)
    size = rows // 4
    turned = t.op("Transpose", [w], perm=(1, 0))
    parts = t.op("Split", [turned, t.ints((width - size, size))], axis=1, outputs=2)
    for part in parts:
        part.dtype = w.dtype
    x_weight, h_weight = (_gates(t, part, FROM_ICFO, size) for part in parts)
    bias = _biases(t, b, t.constant([0.0] * rows, t.dtype(b)), FROM_ICFO, size)
    y, _, _ = _lstm(t, x, x_weight, h_weight, bias, init_h, init_c, size)
    cells = _cells(t, x, y, w, b, init_h, init_c)
    wide = (t.cast(value, t.result_dtype(index)) for index, value in enumerate((y, y, cells)))
    return (*wide, None, None, None, None, None)  # the gates are for training


def _cells(
    t: MindirTape, x: ir.Value, y: ir.Value, w: ir.Value, b: ir.Value, init_h: ir.Value, init_c: ir.Value
) -> ir.Value:
    """The cells of all steps, of which ONNX's LSTM gives the last alone. The states of all steps are known by now."""
    floats = ir.DataType.FLOAT
    x, y, w, b, init_h, init_c = (t.cast(value, floats) for value in (x, y, w, b, init_h, init_c))
    before = t.op("Concat", [init_h, t.op("Slice", [y, t.ints(0), t.ints(-1), t.ints(0)])], axis=0)
    gates = t.op("Add", [t.op("MatMul", [t.op("Concat", [x, before], axis=2), w]), b])
    take, new, keep, _ = t.op("Split", [gates], axis=2, num_outputs=4, outputs=4)
    added = t.op("Mul", [t.op("Sigmoid", [take]), t.op("Tanh", [new])])
    cell, kept, more = (ir.Value(name=t.name(), type=ir.TensorType(floats)) for _ in range(3))
    scaled = ir.node("Mul", [cell, kept])
    total = ir.node("Add", [scaled.outputs[0], more])
    copy = ir.node("Identity", [total.outputs[0]])
    for node in (scaled, total, copy):
        node.outputs[0].name, node.outputs[0].type = t.name(), ir.TensorType(floats)
    step = ir.Graph([cell, kept, more], [total.outputs[0], copy.outputs[0]], nodes=[scaled, total, copy], name="step")
    start = t.op("Squeeze", [init_c, t.ints(0)])
    _, cells = t.op("Scan", [start, t.op("Sigmoid", [keep]), added], outputs=2, body=step, num_scan_inputs=2)
    cells.dtype = floats
    return cells  # type: ignore[no-any-return]


@op("DynamicGRUV2")
def dynamic_gru(
    t: MindirTape,
    x: ir.Value,
    weight_input: ir.Value,
    weight_hidden: ir.Value,
    bias_input: ir.Value | None,
    bias_hidden: ir.Value | None,
    seq_length: Any,
    init_h: ir.Value,
    *,
    direction: str = "UNIDIRECTIONAL",
    cell_clip: float = -1.0,
    num_proj: int = 0,
    time_major: bool = True,
    activation: str = "tanh",
    gate_order: str = "rzh",
    reset_after: bool = True,
) -> Any:
    """A GRU with weights (input or state, gates)."""
    plain = (direction, activation, time_major) == ("UNIDIRECTIONAL", "tanh", True)
    if not plain or seq_length is not None or cell_clip > 0 or num_proj or gate_order not in ("rzh", "zrh"):
        t.refuse("only a plain GRU in one direction, without sequence lengths, is supported")
    size, rows = _sizes(t, weight_hidden)
    order = FROM_RZN if gate_order == "rzh" else FROM_ZRN
    dtype = kernel_dtype(t, "GRU", t.dtype(x))
    weights = []
    for weight in (weight_input, weight_hidden):
        turned = t.op("Transpose", [weight], perm=(1, 0), dtype=weight.dtype)
        weights.append(t.cast(_gates(t, turned, order, size), dtype))
    zeros = t.constant([0.0] * rows, dtype)
    first, second = (zeros if bias is None else t.cast(bias, dtype) for bias in (bias_input, bias_hidden))
    start = init_h if t.rank(init_h) == 3 else t.op("Unsqueeze", [init_h, t.ints(0)], dtype=init_h.dtype)
    operands = [t.cast(x, dtype), *weights, _biases(t, first, second, order, size), None, t.cast(start, dtype)]
    y = t.op("GRU", operands, hidden_size=size, linear_before_reset=int(reset_after))
    states = t.op("Squeeze", [y, t.ints(1)], dtype=dtype)
    return (*(t.cast(states, t.result_dtype(index)) for index in (0, 1)), None, None, None, None)

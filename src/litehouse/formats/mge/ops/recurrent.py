"""Recurrent layers and cells. On CPU, MegEngine drops nothing between layers and knows no projection: nor do we."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.ops.flat_weights import FlatWeights
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT = ir.DataType.FLOAT
# MegEngine's order of gates is input, forget, cell, output; ONNX's is input, output, forget, cell.
LSTM_GATES, RNN_GATES = (0, 3, 1, 2), (0,)
RNN_ACTIVATIONS = {"RELU": "Relu", "TANH": "Tanh"}


@dataclass(frozen=True, slots=True)
class Layers:
    """What the layers of one operator have in common.

    Attributes:
        kind: The ONNX op of one layer.
        gates: The gates in ONNX's order, as places in MegEngine's.
        count: How many layers there are.
        directions: Two where the steps are also gone through backwards.
        hidden: The size of the state.
        bias: Whether there are biases.
        attributes: What else the ONNX op is told.
    """

    kind: str
    gates: tuple[int, ...]
    count: int
    directions: int
    hidden: int
    bias: bool
    attributes: dict[str, Any]


@op("LSTM")
def lstm(
    t: MgeTape,
    x: ir.Value,
    h: ir.Value,
    c: ir.Value,
    weights: ir.Value,
    *,
    num_layers: int,
    bidirectional: bool,
    bias: bool,
    hidden_size: int,
) -> Any:
    """The states of all steps, the last states and cells, then what only training wants."""
    layers = Layers("LSTM", LSTM_GATES, num_layers, 1 + bidirectional, hidden_size, bias, {})
    return (*run_layers(t, layers, x, [h, c], weights), None)


@op("RNN")
def rnn(
    t: MgeTape,
    x: ir.Value,
    h: ir.Value,
    weights: ir.Value,
    *,
    num_layers: int,
    bidirectional: bool,
    bias: bool,
    hidden_size: int,
    nonline_mode: str,
) -> Any:
    """The states of all steps, the last states, then what only training wants."""
    directions = 1 + bidirectional
    attributes: dict[str, Any] = {"activations": [RNN_ACTIVATIONS.get(nonline_mode, "Affine")] * directions}
    if nonline_mode == "IDENTITY":
        attributes |= {"activation_alpha": [1.0] * directions, "activation_beta": [0.0] * directions}
    layers = Layers("RNN", RNN_GATES, num_layers, directions, hidden_size, bias, attributes)
    return (*run_layers(t, layers, x, [h], weights), None)


def run_layers(
    t: MgeTape, layers: Layers, x: ir.Value, states: Sequence[ir.Value], weights: ir.Value
) -> list[ir.Value]:
    """What the last layer gives for all steps; then the last states of all layers, for each kind of state."""
    if t.rank(x) != 3:
        t.refuse(f"an operand of rank {t.rank(x)}")
    for state in states:
        if t.known_sizes(state)[::2] != (layers.count * layers.directions, layers.hidden):
            t.refuse(f"a state of sizes {t.known_sizes(state)} for {layers.count} layers of size {layers.hidden}")
    flat = FlatWeights(t, t.cast(weights, FLOAT))
    y, states = t.cast(x, FLOAT), [t.cast(state, FLOAT) for state in states]
    lasts = []
    for layer in range(t.bounded(layers.count)):
        operands = _layer_weights(t, layers, flat, t.known_sizes(y)[2])
        y, *last = t.op(
            layers.kind,
            [y, *operands, None, *(_states_of(t, state, layer, layers) for state in states)],
            outputs=1 + len(states),
            hidden_size=layers.hidden,
            direction="bidirectional" if layers.directions == 2 else "forward",
            **layers.attributes,
        )
        y = _joined(t, y, layers.directions)
        lasts.append(last)
    flat.finish()
    joined = [found[0] if len(found) == 1 else t.op("Concat", found, axis=0) for found in zip(*lasts, strict=True)]
    return [t.cast(value, t.dtype(x)) for value in (y, *joined)]


def _layer_weights(
    t: MgeTape, layers: Layers, flat: FlatWeights, input_size: int | None
) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """The weights of a layer for its input and for its state, and the biases, as ONNX has them."""
    if input_size is None:
        t.refuse("the size of a step depends on the data")
    rows = len(layers.gates) * layers.hidden
    parts: list[tuple[ir.Value, ...]] = []
    for _ in range(layers.directions):
        matrices = [_gates(t, flat.take(rows, columns), layers) for columns in (input_size, layers.hidden)]
        biases = [_gates(t, flat.take(rows, 1), layers) for _ in range(2 * layers.bias)]
        flat_biases = [t.op("Reshape", [t.op("Concat", biases, axis=1), t.ints((1, -1))])] if biases else []
        parts.append((*matrices, *flat_biases))
    w, r, *b = (found[0] if len(found) == 1 else t.op("Concat", found, axis=0) for found in zip(*parts, strict=True))
    return w, r, b[0] if b else None


def _gates(t: MgeTape, weight: ir.Value, layers: Layers) -> ir.Value:
    """A weight whose rows go through the gates, in ONNX's order and with an axis for the direction in front."""
    rows, columns = t.sizes(weight)
    if len(layers.gates) > 1:
        parts = t.op("Reshape", [weight, t.ints((len(layers.gates), layers.hidden, columns))])
        weight = t.op("Gather", [parts, t.ints(layers.gates)], axis=0)
    made: ir.Value = t.op("Reshape", [weight, t.ints((1, rows, columns))])
    return made


def _states_of(t: MgeTape, states: ir.Value, layer: int, layers: Layers) -> ir.Value:
    """The states of one layer."""
    if layers.count == 1:
        return states
    start, end = layer * layers.directions, (layer + 1) * layers.directions
    made: ir.Value = t.op("Slice", [states, t.ints(start), t.ints(end), t.ints(0)])
    return made


def _joined(t: MgeTape, y: ir.Value, directions: int) -> ir.Value:
    """The states of all steps, those of both directions one behind the other."""
    if directions == 1:
        joined: ir.Value = t.op("Squeeze", [y, t.ints(1)])
        return joined
    turned = t.op("Transpose", [y], perm=[0, 2, 1, 3])
    made: ir.Value = t.op("Reshape", [turned, t.ints((0, 0, -1))])
    return made


# Single steps ---------------------------------------------------------------------------------------------------------


@op("LSTMCell")
def lstm_cell(
    t: MgeTape,
    x: ir.Value,
    w_x: ir.Value,
    b_x: ir.Value,
    h: ir.Value,
    w_h: ir.Value,
    b_h: ir.Value,
    c: ir.Value,
) -> Any:
    """The next state and cell; and the gates before their activation, which MegEngine leaves one behind the other."""
    summed = _summed(t, x, w_x, b_x, h, w_h, b_h)
    gate_i, gate_f, gate_g, gate_o = t.op("Split", [summed], outputs=4, axis=1, num_outputs=4)
    kept = t.op("Mul", [t.op("Sigmoid", [gate_f]), c])
    new_c = t.op("Add", [kept, t.op("Mul", [t.op("Sigmoid", [gate_i]), t.op("Tanh", [gate_g])])])
    new_h = t.op("Mul", [t.op("Sigmoid", [gate_o]), t.op("Tanh", [new_c])])
    gates = t.op("Concat", [gate_i, gate_f, gate_g, gate_o], axis=0)
    return new_h, new_c, t.op("Reshape", [gates, t.op("Shape", [summed])])


@op("RNNCell")
def rnn_cell(
    t: MgeTape,
    x: ir.Value,
    w_x: ir.Value,
    b_x: ir.Value,
    h: ir.Value,
    w_h: ir.Value,
    b_h: ir.Value,
    *,
    nonline_mode: str,
) -> Any:
    """The next state."""
    summed = _summed(t, x, w_x, b_x, h, w_h, b_h)
    return summed if nonline_mode == "IDENTITY" else t.op(RNN_ACTIVATIONS[nonline_mode], [summed])


def _summed(
    t: MgeTape, x: ir.Value, w_x: ir.Value, b_x: ir.Value, h: ir.Value, w_h: ir.Value, b_h: ir.Value
) -> ir.Value:
    """What goes into the gates."""
    of_x = t.op("Gemm", [x, w_x, b_x], transB=1)
    of_h = t.op("Gemm", [h, w_h, b_h], transB=1)
    made: ir.Value = t.op("Add", [of_x, of_h])
    return made

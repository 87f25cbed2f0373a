"""Joins the steps of an LSTM that were written out one by one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.passes.cells import Chain, Product, find_chains
from litehouse.passes.sketch import Sketch, folds_weights, has_graphs, ints_of, static_shape

OLDEST_OPSET = 13
MAX_VISITED = 1 << 20  # values that all chains together are followed back to: about a second


class JoinCellsPass(ir.passes.InPlacePass):
    """Writes one LSTM for steps that follow one another.

    MindSpore writes a loop over an LSTMCell out, step by step: some 15 small nodes each. As one op it takes about half
    the time on both engines (measured with 64 steps of 256 units).
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Join every chain of steps whose inputs do not depend on its states, in the main graph."""
        replaced: dict[ir.Value, ir.Value] = {}
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET and folds_weights(model):
            chains = find_chains(model.graph)
            for chain in chains:
                if _is_closed(chain) and not _is_fed_back(chain, replaced, MAX_VISITED // len(chains)):
                    _join(model.graph, chain, replaced)
        if replaced:
            model.graph.sort()
        return ir.passes.PassResult(model, bool(replaced))


def _is_closed(chain: Chain) -> bool:
    """Whether nothing but the next step uses a cell, except for the last one; and all sizes are as they must be."""
    batch, units = static_shape(chain.cells[0].state) or (0, 0)
    first, last = chain.cells[0], chain.cells[-1]
    start = chain.parts(first)[1].operand
    if static_shape(first.before) != (batch, units) or static_shape(start) != (batch, units):
        return False
    inputs = {static_shape(chain.parts(cell)[0].operand) for cell in chain.cells}
    if first.state.dtype != ir.DataType.FLOAT or len(inputs) > 1 or (inputs.pop() or (0,))[0] != batch:
        return False
    # Smaller ones would be spread when they are added.
    if any(each.columns != 4 * units for each in first.products):
        return False
    if any(static_shape(bias) != (4 * units,) for bias in first.biases):
        return False
    return all(
        len(cell.after.uses()) == 2 and not cell.after.is_graph_output() for cell in chain.cells if cell is not last
    )


def _is_fed_back(chain: Chain, replaced: dict[ir.Value, ir.Value], limit: int) -> bool:
    """Whether an input of a step may depend on a state of the chain.

    Args:
        chain: The steps.
        replaced: What stands for the states of the chains that are one op already.
        limit: How many values to look at.
    """
    own = {value for cell in chain.cells for value in (cell.after, cell.state)}
    left = [chain.parts(cell)[0].operand for cell in chain.cells]
    seen: set[ir.Value] = set()
    while left:
        value = left.pop()
        if value in own:
            return True
        node = replaced.get(value, value).producer()
        if value not in seen and node is not None:
            if has_graphs(node) or len(seen) > limit:
                return True  # what those graphs depend on is not among the inputs
            left += [each for each in node.inputs if each is not None]
        seen.add(value)
    return False


def _join(graph: ir.Graph, chain: Chain, replaced: dict[ir.Value, ir.Value]) -> None:
    """Write the op, and note what stands for the states and cells, which other chains may go over."""
    first, last = chain.cells[0], chain.cells[-1]
    node = first.after.producer()
    assert node is not None
    sketch = Sketch(graph, node)
    entering, recurrent = chain.parts(first)
    units = (static_shape(first.state) or (0, 0))[1]
    zero, one = sketch.ints(0), sketch.ints(1)
    inputs = [chain.parts(cell)[0].operand for cell in chain.cells]
    operands = [
        _sequence(sketch, [replaced.get(x, x) for x in inputs]),
        _weight(sketch, entering, first.gates, units),
        _weight(sketch, recurrent, first.gates, units),
        _bias(sketch, chain, units),
        None,
        *(sketch.op("Unsqueeze", [replaced.get(x, x), zero]) for x in (recurrent.operand, first.before)),
    ]
    states, _, final = sketch.op("LSTM", operands, outputs=3, hidden_size=units)
    states = sketch.op("Squeeze", [states, one])
    states.shape = ir.Shape([len(chain.cells), *(static_shape(first.state) or ())])
    for concat, axis in _stacks([cell.state for cell in chain.cells]):
        whole = sketch.op("Identity", [states]) if axis == 0 else sketch.op("Transpose", [states], perm=(1, 0, 2))
        sketch.replace(concat, whole)
    for step, cell in enumerate(chain.cells):
        replaced[cell.state] = sketch.op("Gather", [states, sketch.constant(np.array(step))], axis=0)
        sketch.replace(cell.state, replaced[cell.state])
    replaced[last.after] = sketch.op("Squeeze", [final, zero])
    sketch.replace(last.after, replaced[last.after])


def _stacks(states: list[ir.Value]) -> list[tuple[ir.Value, int]]:
    """Where the states of all steps are put together in order, along the first or the second of three axes."""
    found = []
    for unsqueeze in states[0].consumers():
        axes = ints_of(unsqueeze, 1) if unsqueeze.op_type == "Unsqueeze" and not unsqueeze.domain else None
        for concat in unsqueeze.outputs[0].consumers() if axes in ([0], [1]) else ():
            makers = [None if value is None else value.producer() for value in concat.inputs]
            sources = [None if maker is None or ints_of(maker, 1) != axes else maker.inputs[0] for maker in makers]
            axis = concat.attributes.get("axis")
            is_stack = concat.op_type == "Concat" and all(m is not None and m.op_type == "Unsqueeze" for m in makers)
            is_stack &= concat.graph is states[0].graph  # not in the body of a loop
            if is_stack and axis is not None and [axis.as_int()] == axes and sources == states:
                found.append((concat.outputs[0], axis.as_int()))
    return found


def _sequence(sketch: Sketch, inputs: list[ir.Value]) -> ir.Value:
    """The inputs of all steps, steps first."""
    whole = _source(inputs)
    if whole is None:
        return sketch.op("Concat", [sketch.op("Unsqueeze", [x, sketch.ints(0)]) for x in inputs], axis=0)  # type: ignore[no-any-return]
    source, axis = whole
    if (static_shape(source) or ())[axis] != len(inputs):
        source = sketch.op("Slice", [source, sketch.ints(0), sketch.ints(len(inputs)), sketch.ints(axis)])
    return source if axis == 0 else sketch.op("Transpose", [source], perm=(1, 0, 2))


def _source(inputs: list[ir.Value]) -> tuple[ir.Value, int] | None:
    """The value of three axes that the inputs are all the slices of, in order, and along which axis."""
    found = {_slice(x, step) for step, x in enumerate(inputs)}
    whole = next(iter(found))
    shape = None if whole is None else static_shape(whole[0])
    return whole if whole is not None and len(found) == 1 and shape is not None and len(shape) == 3 else None


def _slice(x: ir.Value, step: int) -> tuple[ir.Value, int] | None:
    """The value that a step's input is the slice of, and along which axis."""
    node = x.producer()
    if node is None or node.domain or node.op_type != "Gather":
        return None
    index, axis, source = node.inputs[1], node.attributes.get("axis"), node.inputs[0]
    if source is None or index is None or index.const_value is None or index.const_value.shape.rank() != 0:
        return None
    maker = source.producer()
    while maker is not None and maker.op_type == "Identity" and maker.inputs[0] is not None:
        source, maker = maker.inputs[0], maker.inputs[0].producer()
    along = 0 if axis is None else axis.as_int()
    return (source, along) if along in (0, 1) and int(index.const_value.numpy()) == step else None


def _weight(sketch: Sketch, product: Product, gates: tuple[int, ...], units: int) -> ir.Value:
    """A weight with its gates in the order of the op."""
    weight = product.weight if product.is_turned else sketch.shared("Transpose", [product.weight], perm=(1, 0))
    return _ordered(sketch, weight, gates, units)


def _ordered(sketch: Sketch, weight: ir.Value, gates: tuple[int, ...], units: int) -> ir.Value:
    apart = sketch.shared("Reshape", [weight, sketch.ints(4, units, -1)])
    ordered = sketch.shared("Gather", [apart, sketch.ints(*gates)], axis=0)
    return sketch.shared("Reshape", [ordered, sketch.ints(1, 4 * units, -1)])  # type: ignore[no-any-return]


def _bias(sketch: Sketch, chain: Chain, units: int) -> ir.Value | None:
    """The sum of all biases, and zeros for the second bias of the op."""
    biases = chain.cells[0].biases
    if not biases:
        return None
    total = biases[0] if len(biases) == 1 else sketch.shared("Sum", biases)
    flat = sketch.shared("Reshape", [_ordered(sketch, total, chain.cells[0].gates, units), sketch.ints(1, -1)])
    return sketch.shared("Concat", [flat, sketch.constant(np.zeros((1, 4 * units), np.float32))], axis=1)  # type: ignore[no-any-return]

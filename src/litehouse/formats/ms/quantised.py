"""Values that a `.ms` file stores in few bits between nodes. Here they stay real numbers, rounded to the same steps.

The rounding is written as plain arithmetic. ONNX's own pair of ops for it makes ONNX Runtime quantise the weights of
the nodes between as well, in its own way, which gives other numbers. MindSpore Lite computes with whole numbers, so its
results may be one step away.
"""

from __future__ import annotations

import onnx_ir as ir

from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.ms.meta import INT8, UINT8, Quantisation, TensorRecord

FLOAT = ir.DataType.FLOAT
QUANTISED_NODES = range(1, 7)  # every quantisation of a node but none
QUANTISED = {INT8: (ir.DataType.INT8, -128, 127), UINT8: (ir.DataType.UINT8, 0, 255)}


def dequantised(tape: MindirTape, value: ir.Value, tensor: TensorRecord) -> ir.Value:
    """The real numbers of an input that comes quantised; any other input as it is."""
    return _real(tape, tape.cast(value, FLOAT), _step(tape, tensor)) if _is_quantised(tensor) else value


def quantised(tape: MindirTape, value: ir.Value, tensor: TensorRecord) -> ir.Value:
    """What an output stores; a quantised one is made of real numbers here."""
    if not _is_quantised(tensor) or value.dtype != FLOAT:
        return value
    return tape.cast(_stored(tape, value, tensor), QUANTISED[tensor.type_id][0])


def rounded(tape: MindirTape, value: ir.Value, tensor: TensorRecord) -> ir.Value:
    """The value in the steps that its quantised tensor can store; any other value as it is."""
    if not _is_quantised(tensor) or value.dtype != FLOAT:
        return value
    return _real(tape, _stored(tape, value, tensor), _step(tape, tensor))


def _is_quantised(tensor: TensorRecord) -> bool:
    return tensor.place is None and tensor.type_id in QUANTISED and bool(tensor.quantisation)


def _stored(tape: MindirTape, value: ir.Value, tensor: TensorRecord) -> ir.Value:
    """The whole numbers that are stored, as floats."""
    step = _step(tape, tensor)
    _, low, high = QUANTISED[tensor.type_id]
    steps = tape.op("Div", [value, tape.constant(step.scale, FLOAT)], like=value)
    moved = tape.op("Add", [tape.op("Round", [steps], like=value), tape.constant(step.zero_point, FLOAT)], like=value)
    made: ir.Value = tape.op("Clip", [moved, tape.constant(low, FLOAT), tape.constant(high, FLOAT)], like=value)
    return made


def _real(tape: MindirTape, stored: ir.Value, step: Quantisation) -> ir.Value:
    steps = tape.op("Sub", [stored, tape.constant(step.zero_point, FLOAT)], like=stored)
    made: ir.Value = tape.op("Mul", [steps, tape.constant(step.scale, FLOAT)], like=stored)
    return made


def _step(tape: MindirTape, tensor: TensorRecord) -> Quantisation:
    if len(tensor.quantisation) > 1:
        tape.refuse("values between nodes are quantised in channels")
    step = tensor.quantisation[0]
    _, low, high = QUANTISED[tensor.type_id]
    if not low <= step.zero_point <= high or not step.scale > 0:
        tape.refuse(f"a value is quantised with scale {step.scale} and zero point {step.zero_point}")
    return step

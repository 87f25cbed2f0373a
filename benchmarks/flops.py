"""Counts the floating-point operations of a graph: those of convolutions, matrix products and LSTMs."""

from math import prod

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass


def count(model: ir.Model) -> int:
    """Two for every multiplication with its addition. Shapes must be static."""
    inferred = ShapeInferencePass()(model.clone()).model
    return sum(COUNTS[node.op_type](node) for node in inferred.graph if node.op_type in COUNTS)


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    assert value is not None
    if value.shape is None or not value.shape.is_static():
        raise ValueError(f"the shape of {value.name} is not known, so its operations cannot be counted")
    return tuple(value.shape.numpy())


def _conv(node: ir.Node) -> int:
    return 2 * prod(_shape(node.outputs[0])) * prod(_shape(node.inputs[1])[1:])


def _matmul(node: ir.Node) -> int:
    return 2 * prod(_shape(node.outputs[0])) * _shape(node.inputs[0])[-1]


def _gemm(node: ir.Node) -> int:
    turned = node.attributes.get_int("transA", 0)
    return 2 * prod(_shape(node.outputs[0])) * _shape(node.inputs[0])[0 if turned else 1]


def _lstm(node: ir.Node) -> int:
    steps, batch, _ = _shape(node.inputs[0])
    return 2 * steps * batch * (prod(_shape(node.inputs[1])) + prod(_shape(node.inputs[2])))


COUNTS = {"Conv": _conv, "MatMul": _matmul, "Gemm": _gemm, "LSTM": _lstm}

"""Keeps OpenVINO from computing Gelu inside of a matrix product."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, number_of, only_user

PASSED = ("Add", "Identity", "Reshape", "Sum")  # what may be between the product and the Gelu
MAX_STEPS = 8
SHARPNESS = 1e-3  # relative; how far a stored root may be from the true one


class GeluPass(ir.passes.InPlacePass):
    """Writes a Gelu behind a matrix product as x/2 + x/2 * erf(x / sqrt(2)), or with tanh where that form is meant.

    OpenVINO (seen in 2026.4.1) joins a Gelu of any usual form with the product before it, and then takes a slower
    kernel for the product: 8.4 ms instead of 7.3 for 128 rows, 768 columns and 3072 results on a CPU with AVX2.
    This form it does not recognise, so that the product stays by itself.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite every Gelu behind a product, in the main graph."""
        modified = False
        for node in list(model.graph):
            if node.domain or node.op_type not in ("Gelu", "Erf"):
                continue
            found = _whole(node) if node.op_type == "Gelu" else _by_steps(node)
            if found is not None and found[0].dtype == ir.DataType.FLOAT and _is_product(found[0]):
                _rewrite(model.graph, *found)
                modified = True
        return ir.passes.PassResult(model, modified)


def find_steps(erf: ir.Node, sharpness: float) -> tuple[ir.Value, ir.Node] | None:
    """The operand of a Gelu that is written out around an Erf, and the node that gives its result.

    Args:
        erf: The Erf.
        sharpness: How far the root may be from the true one, as a part of it.
    """
    found = _by_steps(erf, sharpness)
    return None if found is None else found[:2]


def _whole(node: ir.Node) -> tuple[ir.Value, ir.Node, ir.Value | None] | None:
    """The operand, the node that gives the result, and the value of erf, if that is computed already."""
    x = node.inputs[0]
    return None if x is None else (x, node, None)


def _by_steps(erf: ir.Node, sharpness: float = SHARPNESS) -> tuple[ir.Value, ir.Node, ir.Value | None] | None:
    """The same of x * (erf(x / sqrt(2)) + 1) / 2, with its factors in any order."""
    x = _divided(erf.inputs[0], sharpness)
    plus = only_user(erf.outputs[0], "Add")
    if x is None or plus is None or not any(number_of(value) == 1 for value in plus.inputs):
        return None
    last, missing = plus, {"x", "half"}
    while missing:
        product = only_user(last.outputs[0], "Mul")
        if product is None:
            return None
        other = product.inputs[1] if product.inputs[0] is last.outputs[0] else product.inputs[0]
        taken = _factors(other, x)
        if not taken or not taken <= missing:
            return None
        last, missing = product, missing - taken
    return x, last, erf.outputs[0]


def _factors(value: ir.Value | None, x: ir.Value) -> set[str]:
    """Which of x and a half a value is the product of; nothing if it is another."""
    if value is x:
        return {"x"}
    if number_of(value) == 0.5:
        return {"half"}
    node = None if value is None else value.producer()
    if node is not None and node.op_type == "Mul" and not node.domain and x in node.inputs:
        other = node.inputs[1] if node.inputs[0] is x else node.inputs[0]
        return {"x", "half"} if number_of(other) == 0.5 else set()
    return set()


def _divided(value: ir.Value | None, sharpness: float) -> ir.Value | None:
    """What was divided by the root of two."""
    node = None if value is None else value.producer()
    if node is None or node.domain or node.op_type not in ("Mul", "Div"):
        return None
    for x, number in (node.inputs, node.inputs[::-1]) if node.op_type == "Mul" else (node.inputs,):
        factor = number_of(number)
        if factor and math.isclose(factor if node.op_type == "Div" else 1 / factor, math.sqrt(2), rel_tol=sharpness):
            return x
    return None


def _is_product(value: ir.Value) -> bool:
    """Whether a value is a matrix product, or one with a bias or in another shape."""
    node = value.producer()
    for _ in range(MAX_STEPS):
        if node is None or node.domain or node.op_type not in PASSED or node.inputs[0] is None:
            break
        node = node.inputs[0].producer()
    return node is not None and node.op_type in ("Gemm", "MatMul") and not node.domain


def _rewrite(graph: ir.Graph, x: ir.Value, last: ir.Node, curve: ir.Value | None) -> None:
    sketch, form = Sketch(graph, last), last.attributes.get("approximate")

    def times(value: ir.Value, factor: float) -> ir.Value:
        return sketch.op("Mul", [value, sketch.constant(np.array(factor, np.float32))])  # type: ignore[no-any-return]

    half = times(x, 0.5)
    if form is not None and form.as_string() == "tanh":
        cube = sketch.op("Mul", [sketch.op("Mul", [x, x]), times(x, 0.044715)])
        curve = sketch.op("Tanh", [times(sketch.op("Add", [x, cube]), math.sqrt(2 / math.pi))])
    elif curve is None:
        curve = sketch.op("Erf", [times(x, math.sqrt(0.5))])
    sketch.replace(last.outputs[0], sketch.op("Add", [half, sketch.op("Mul", [half, curve])]))
    graph.remove(last, safe=True)

"""Joins the steps of a Gelu that were written out one by one."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.gelu import find_steps
from litehouse.passes.sketch import Sketch

MICROSOFT = "com.microsoft"
SHARPNESS = 2e-5  # as files have it that state four digits; the op has the root itself


class JoinGeluPass(ir.passes.InPlacePass):
    """Writes one Gelu for x * (erf(x / sqrt(2)) + 1) / 2: on a GPU every step is a kernel by itself.

    It is ONNX Runtime's op of that name: the standard one needs opset 20, which files with the steps do not have.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Join every Gelu in the main graph."""
        modified = False
        for node in list(model.graph):
            found = find_steps(node, SHARPNESS) if node.op_type == "Erf" and not node.domain else None
            if found is not None and _is_usual(found[0]):
                x, last = found
                sketch = Sketch(model.graph, last)
                sketch.replace(last.outputs[0], sketch.op("Gelu", [x], domain=MICROSOFT))
                model.graph.remove(last, safe=True)
                modified = True
        if modified:
            model.graph.opset_imports[MICROSOFT] = 1
        return ir.passes.PassResult(model, modified)


def _is_usual(x: ir.Value) -> bool:
    """Whether an operand is of 32 bits, and has axes: to a single number, the steps may give one."""
    return x.dtype == ir.DataType.FLOAT and x.shape is not None and len(x.shape) > 0

"""Joins the steps of a Gelu that were written out one by one."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.gelu import find_steps
from litehouse.passes.sketch import Sketch

MICROSOFT = "com.microsoft"


class JoinGeluPass(ir.passes.InPlacePass):
    """Writes one Gelu for x * (erf(x / sqrt(2)) + 1) / 2: on a GPU every step is a kernel by itself.

    It is ONNX Runtime's op of that name: the standard one needs opset 20, which files with the steps do not have.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Join every Gelu in the main graph."""
        modified = False
        for node in list(model.graph):
            found = find_steps(node) if node.op_type == "Erf" and not node.domain else None
            if found is not None and found[0].dtype == ir.DataType.FLOAT:
                x, last = found
                sketch = Sketch(model.graph, last)
                sketch.replace(last.outputs[0], sketch.op("Gelu", [x], domain=MICROSOFT))
                model.graph.remove(last, safe=True)
                modified = True
        if modified:
            model.graph.opset_imports[MICROSOFT] = 1
        return ir.passes.PassResult(model, modified)

"""Gives convolutions a number of channels that ONNX Runtime's fast layout takes."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.channels import OLDEST_OPSET, ZERO, is_mixing, region_of, reorder, reorder_results
from litehouse.passes.sketch import static_shape

MULTIPLE = 4
FEWEST = 8  # fewer channels are read from the plain layout in any case


class PadChannelsPass(ir.passes.InPlacePass):
    """Adds channels of zeros between convolutions until their number is a multiple of four.

    ONNX Runtime (seen in 1.31.1) keeps images in blocks of channels from one convolution to the next, but runs those
    that take another number of channels in the plain layout: a depthwise one with 58 channels takes five times as long
    as one with 60.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Widen all images between convolutions, in the main graph."""
        modified = False
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET:
            for node in model.graph:
                modified |= is_mixing(node) and _widen(model.graph, node)
        if modified:
            model.graph.sort()
        return ir.passes.PassResult(model, modified)


def _widen(graph: ir.Graph, maker: ir.Node) -> bool:
    shape = static_shape(maker.inputs[1])
    assert shape is not None
    missing = -shape[0] % MULTIPLE
    if shape[0] < FEWEST or not missing:
        return False
    region = region_of(maker.outputs[0])
    if region is None or not region.mixing:
        return False
    order = [*range(shape[0]), *[ZERO] * missing]
    reorder_results(graph, maker, order)
    reorder(graph, region, order)
    return True

"""Makes a graph ready to be cut: shapes are told, constants are weights."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.distributed.slicing.probes import fold_all, settle_sizes
from litehouse.distributed.slicing.shape_reads import shorten_reads
from litehouse.errors import LitehouseError
from litehouse.model import Model


def prepared(model: Model) -> ir.Model:
    """A copy of a model's graph over the same weights, with the shapes of all values that can be told.

    Raises:
        LitehouseError: The model is a part of a job already.
    """
    if exchanges := model.exchanges:
        op, name = exchanges[0]
        raise LitehouseError(
            f"{model.path}: {op} (node {name}) exchanges data with other ranks: the model is one rank's part already, "
            "and only a whole one can be sliced"
        )
    graph = model.graph.clone()
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(graph)
    # ONNX has no rule for the shape of its result, but has one for this, which is the same.
    groups = [node for node in graph.graph.all_nodes() if node.op_type == "GroupNormalization" and not node.domain]
    for node in groups:
        node.op_type = "InstanceNormalization"
    fold_all(graph)
    shorten_reads(graph)  # before sizes are guessed: a guess takes the place of nothing
    settle_sizes(graph)
    common.RemoveUnusedNodesPass()(graph)
    for node in groups:
        node.op_type = "GroupNormalization"
    graph.graph.sort()
    return graph

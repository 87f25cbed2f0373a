"""Graph passes, one per file.

`prepare` runs those that every model needs when it is read; `speed_up` those that make one engine faster.
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.model import Model
from litehouse.passes.attention import AttentionPass
from litehouse.passes.channels_last import ChannelsLastPass
from litehouse.passes.drop_identities import DropIdentitiesPass
from litehouse.passes.fold_batch_norm import FoldBatchNormPass
from litehouse.passes.fold_shapes import FoldShapesPass
from litehouse.passes.gelu import GeluPass
from litehouse.passes.guard_constant_abs import GuardConstantAbsPass
from litehouse.passes.guard_old_softmax import GuardOldSoftmaxPass
from litehouse.passes.guard_pad_pool import GuardPadPoolPass
from litehouse.passes.guard_scalar_reshape import GuardScalarReshapePass
from litehouse.passes.guard_split_convolutions import GuardSplitConvolutionsPass
from litehouse.passes.halve import HalvePass
from litehouse.passes.join_cells import JoinCellsPass
from litehouse.passes.join_gelu import JoinGeluPass
from litehouse.passes.join_linear import JoinLinearPass
from litehouse.passes.move_bias import MoveBiasPass
from litehouse.passes.move_shuffles import MoveShufflesPass
from litehouse.passes.pad_channels import PadChannelsPass
from litehouse.passes.pool_images import PoolImagesPass
from litehouse.passes.pool_in_steps import PoolInStepsPass
from litehouse.passes.rows import RowsPass
from litehouse.passes.sink_transposes import SinkTransposesPass
from litehouse.passes.spread_gates import SpreadGatesPass
from litehouse.passes.tell_types import TellTypesPass
from litehouse.passes.winograd import WinogradPass
from litehouse.passes.write_clips import WriteClipsPass

__all__ = [
    "GuardConstantAbsPass",
    "GuardOldSoftmaxPass",
    "GuardPadPoolPass",
    "GuardScalarReshapePass",
    "GuardSplitConvolutionsPass",
    "halve",
    "prepare",
    "speed_up",
]

GUARDS = (
    GuardPadPoolPass(),
    GuardConstantAbsPass(),
    GuardScalarReshapePass(),
    GuardOldSoftmaxPass(),
    GuardSplitConvolutionsPass(),
)

# What each engine gains from, in the order in which they run. A pass that gains on one engine alone is in one list.
SPEED_PASSES: dict[str, tuple[ir.passes.PassBase, ...]] = {
    "onnxruntime": (
        FoldShapesPass(),
        JoinCellsPass(),
        WriteClipsPass(),
        MoveBiasPass(),
        MoveShufflesPass(),
        PadChannelsPass(),
        PoolImagesPass(),
        SpreadGatesPass(),
        PoolInStepsPass(),
        ChannelsLastPass(),
        AttentionPass(),
        RowsPass(),
        WinogradPass(),
    ),
    "openvino": (
        FoldShapesPass(),
        JoinCellsPass(),
        SinkTransposesPass(),
        MoveShufflesPass(),
        GuardSplitConvolutionsPass(),  # of the parts that the pass before makes
        ChannelsLastPass(),
        GeluPass(),
        WinogradPass(),
    ),
    "torch": (
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        DropIdentitiesPass(),
        FoldShapesPass(),
        FoldBatchNormPass(),
        AttentionPass(),
        JoinGeluPass(),
        JoinLinearPass(),
    ),
}


def prepare(model: Model) -> Model:
    """Run the passes that keep a model small and its numbers right, in place; also when it is translated anew."""
    ir.passes.Sequential(*GUARDS, common.RemoveUnusedNodesPass())(model.graph)
    if model.translate is not None:
        translate = model.translate
        model.translate = lambda *arguments, **options: prepare(translate(*arguments, **options))
    return model


def halve(graph: ir.Model) -> None:
    """Let a graph compute in half precision where that is as good, in place."""
    ir.passes.Sequential(FoldShapesPass(), TellTypesPass(), HalvePass(), common.RemoveUnusedNodesPass())(graph)


def speed_up(graph: ir.Model, engine: str) -> bool:
    """Run the passes that make a graph faster on an engine, in place: on a copy, since the names of values change.

    Returns:
        Whether anything changed.
    """
    passes = SPEED_PASSES[engine]
    return ir.passes.Sequential(*passes, common.RemoveUnusedNodesPass())(graph).modified if passes else False

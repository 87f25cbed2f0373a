"""Graph passes, one per file. `prepare` runs those that every model needs before an engine sees it."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from litehouse.model import Model
from litehouse.passes.guard_constant_abs import GuardConstantAbsPass
from litehouse.passes.guard_pad_pool import GuardPadPoolPass
from litehouse.passes.guard_scalar_reshape import GuardScalarReshapePass

__all__ = ["GuardConstantAbsPass", "GuardPadPoolPass", "GuardScalarReshapePass", "prepare"]

GUARDS = (GuardPadPoolPass(), GuardConstantAbsPass(), GuardScalarReshapePass())


def prepare(model: Model) -> Model:
    """Run the passes that keep a model small and its numbers right, in place; also when it is translated anew."""
    ir.passes.Sequential(*GUARDS, common.RemoveUnusedNodesPass())(model.graph)
    if model.translate is not None:
        translate = model.translate
        model.translate = lambda *arguments, **options: prepare(translate(*arguments, **options))
    return model

"""Normalisation ops."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import require_channels_first
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op("BatchNorm")
def batch_norm(
    t: MindirTape,
    input: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
    is_training: Any = False,
    epsilon: Any = 1e-5,
    momentum: Any = 0.1,
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    if t.literal(is_training):
        t.refuse("batch statistics (the network was exported in training mode); export it after set_train(False)")
    y = t.op("BatchNormalization", [input, scale, bias, mean, variance], epsilon=t.literal(epsilon))
    return (y, None, None, None, None)

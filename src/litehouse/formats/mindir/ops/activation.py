"""Activation functions."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op("ReLU", "ReLUV2")
def relu(t: MindirTape, input: ir.Value) -> Any:
    return t.op("Relu", [input])


@op("ReLU6")
def relu6(t: MindirTape, x: ir.Value) -> Any:
    return t.op("Clip", [x, t.constant(0, t.dtype(x)), t.constant(6, t.dtype(x))])

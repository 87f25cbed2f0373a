"""Convolutions."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import convolution_geometry, require_channels_first
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op("Conv2D")
def conv2d(
    t: MindirTape,
    x: ir.Value,
    weight: ir.Value,
    *,
    pad_mode: Any = "valid",
    pad_list: Any = (0, 0, 0, 0),
    stride: Any = (1, 1),
    dilation: Any = (1, 1),
    group: int = 1,
    format: Any = "NCHW",
) -> Any:
    require_channels_first(t, format)
    return t.op("Conv", [x, weight], group=group, **convolution_geometry(t, 2, pad_mode, pad_list, stride, dilation))

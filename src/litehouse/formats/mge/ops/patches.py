"""Windows of planes, and sums over neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

Pair = Sequence[int]


def pair(params: dict[str, int], name: str) -> list[int]:
    """The numbers of a parameter for height and width."""
    return [params[f"{name}_{axis}"] for axis in "hw"]


def windows(t: MgeTape, x: ir.Value, size: Pair, *, strides: Pair, dilations: Pair, pads: Pair) -> ir.Value:
    """All windows of the planes [N, C, H, W], zeros around them, as [N, C, rows, height, columns, width]."""
    batch, channels, *planes = t.sizes(x)
    if 0 in (*size, *strides, *dilations):
        t.refuse(f"windows of {list(size)}, {list(strides)} apart, their numbers {list(dilations)} apart")
    if any(pads):
        x = t.op("Pad", [x, t.ints([0, 0, *pads, 0, 0, *pads])])
    shape = [batch, channels]
    for axis in range(2):
        count = (planes[axis] + 2 * pads[axis] - dilations[axis] * (size[axis] - 1) - 1) // strides[axis] + 1
        if count < 1:
            t.refuse(f"a window of {list(size)} on planes of {planes}")
        places = np.arange(count)[:, None] * strides[axis] + np.arange(size[axis]) * dilations[axis]
        x = t.op("Gather", [x, t.constant(places.reshape(-1))], axis=2 + axis)
        shape += [count, size[axis]]
    made: ir.Value = t.op("Reshape", [x, t.ints(shape)])
    return made


@op("Images2Neibs")
def images2neibs(t: MgeTape, x: ir.Value, **params: int) -> Any:
    """The windows of planes, as [N, C, rows, columns, height, width]."""
    if t.rank(x) != 4:
        t.refuse(f"an operand of rank {t.rank(x)} is not supported")
    parts = windows(
        t,
        x,
        pair(params, "window"),
        strides=pair(params, "stride"),
        dilations=pair(params, "dilate"),
        pads=pair(params, "pad"),
    )
    return t.op("Transpose", [parts], perm=[0, 1, 2, 4, 3, 5])


@op("SlidingWindowTranspose")
def sliding_window_transpose(t: MgeTape, x: ir.Value, *, out_h: int, out_w: int, **params: int) -> Any:
    """Planes from their windows; where these overlap, they add up."""
    batch, channels, rows, columns, height, width = t.sizes(x)
    moved = t.op("Transpose", [x], perm=[0, 1, 4, 5, 2, 3])
    flat = t.op("Reshape", [moved, t.ints([batch, channels * height * width, rows * columns])])
    pads = pair(params, "pad")
    return t.op(
        "Col2Im",
        [flat, t.ints([out_h, out_w]), t.ints([height, width])],
        strides=pair(params, "stride"),
        dilations=pair(params, "dilate"),
        pads=pads + pads,
        shape=[batch, channels, out_h, out_w],
    )


@op("LRN")
def lrn(t: MgeTape, x: ir.Value, *, n: int, k: float, alpha: float, beta: float) -> Any:
    """Numbers divided by a power of the sum of squares over neighbouring channels."""
    if n % 2 == 0:
        t.refuse(f"a sum over {n} channels, which is not an odd number")
    if k == int(k):
        return t.op("LRN", [x], size=n, bias=k, alpha=alpha * n, beta=beta, like=x)
    if k < 0:
        t.refuse(f"a summand of {k}")
    # OpenVINO cuts the summand off to an integer (seen in 2026.4), so one that is none becomes a factor.
    made = t.op("LRN", [x], size=n, bias=1.0, alpha=alpha * n / k, beta=beta, like=x)
    return t.op("Mul", [made, t.constant(k**-beta, t.dtype(x))], like=x)

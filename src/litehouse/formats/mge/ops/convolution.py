"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.blocked import arranged, layout_of, plain
from litehouse.formats.mge.ops.layouts import convolution_layouts, plain_weight
from litehouse.formats.mge.quantised import FLOAT, real, settle
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

INT32 = ir.DataType.INT32
ACTIVATIONS = {"RELU": "Relu", "SIGMOID": "Sigmoid", "H_SWISH": "HardSwish"}
SAME_SCALE = 1e-3  # relative
# The heights of kernels, and the strides, for which MegEngine has 8-bit convolutions of single channels.
SINGLE_HEIGHTS, SINGLE_STRIDES = (2, 3, 5, 7), ((1, 1), (2, 2))
Params = Mapping[str, Any]


@op("Convolution", quantised=True)
def convolution(t: MgeTape, x: ir.Value, w: ir.Value, *, format: str, **params: Any) -> Any:
    """A convolution without a bias."""
    return conv_bias(t, x, w, nonline_mode="IDENTITY", format=format, **params)


@op("ConvBias", quantised=True)
def conv_bias(
    t: MgeTape,
    x: ir.Value,
    w: ir.Value,
    bias: ir.Value | None = None,
    z: ir.Value | None = None,
    *,
    nonline_mode: str,
    format: str,
    **params: Any,
) -> Any:
    """A convolution, a bias for each channel or each number, another summand, and an activation."""
    source, taken, given = convolution_layouts(t, format, x)
    scale = product_scale(t, x, w, bias)
    weight, group = plain_weight(t, w, source, params["sparse"])
    operands = [computable(t, plain(t, x, taken)), flipped(t, computable(t, weight), params["mode"])]
    summands = [plain(t, value, given) for value in (bias, z) if value is not None]
    of_channels = bool(summands) and _is_for_channels(t, summands[0], weight)
    steps = _steps(t, x, weight, group, format, params) if of_channels or format != "NCHW" else "JOINT"
    if of_channels and steps != "APART" and _adds_up(t, summands[0], scale):
        operands.append(t.op("Reshape", [computable(t, summands.pop(0)), t.ints(-1)]))
    total = t.op("Conv", operands, group=group, **geometry(params, "hw"))
    return arranged(t, finished(t, total, t.dtype(x), scale, summands, nonline_mode, steps), given)


@op("BatchConvBias", quantised=True)
def batch_conv_bias(
    t: MgeTape,
    x: ir.Value,
    w: ir.Value,
    bias: ir.Value | None = None,
    z: ir.Value | None = None,
    *,
    nonline_mode: str,
    format: str,
    **params: Any,
) -> Any:
    """A convolution with weights of its own for each sample."""
    source, taken, given = convolution_layouts(t, format, x)
    scale, dtype = product_scale(t, x, w, bias), t.dtype(x)
    weight, groups = plain_weight(t, w, source, params["sparse"], batched=True)
    x = plain(t, x, taken)
    batch, channels, *plane = t.sizes(x)
    joined = t.op("Reshape", [computable(t, x), t.ints([1, batch * channels, *plane])])
    kernel = flipped(t, computable(t, weight), params["mode"])
    total = t.op("Conv", [joined, kernel], group=groups, **geometry(params, "hw"))
    _, outputs, *plane = t.sizes(total)
    total = t.op("Reshape", [total, t.ints([batch, outputs // batch, *plane])])
    summands = [plain(t, value, given) for value in (bias, z) if value is not None]
    return arranged(t, finished(t, total, dtype, scale, summands, nonline_mode, "DIVIDED"), given)


@op("Convolution3D")
def convolution_3d(t: MgeTape, x: ir.Value, w: ir.Value, *, format: str, **params: Any) -> Any:
    """A convolution of volumes."""
    weight, group = _weight_3d(t, w, format, params)
    return t.op("Conv", [x, weight], group=group, **geometry(params, "dhw"))


# Transposed -----------------------------------------------------------------------------------------------------------


@op("ConvolutionBackwardData", quantised=True)
def convolution_backward_data(
    t: MgeTape, w: ir.Value, x: ir.Value, like: ir.Value | None = None, *, format: str, **params: Any
) -> Any:
    """A transposed convolution; `like` has the shape of the result, where several shapes are possible."""
    layout = layout_of(t, format)
    scale, dtype = product_scale(t, x, w), t.dtype(x)
    weight, group = plain_weight(t, w, format, params["sparse"])
    operands = [computable(t, plain(t, x, layout)), flipped(t, computable(t, weight), params["mode"])]
    wanted = None if like is None else t.sizes(plain(t, like, layout))
    total = _transposed(t, operands, group, geometry(params, "hw"), wanted)
    return arranged(t, finished(t, total, dtype, scale, [], "IDENTITY"), layout)


@op("Convolution3DBackwardData")
def convolution_3d_backward_data(
    t: MgeTape, w: ir.Value, x: ir.Value, like: ir.Value | None = None, *, format: str, **params: Any
) -> Any:
    """A transposed convolution of volumes."""
    weight, group = _weight_3d(t, w, format, params)
    return _transposed(t, [x, weight], group, geometry(params, "dhw"), None if like is None else t.sizes(like))


def _transposed(
    t: MgeTape, operands: Sequence[ir.Value], group: int, numbers: dict[str, Any], wanted: Sequence[int] | None
) -> ir.Value:
    beyond = None
    if wanted is not None:
        sizes = zip(t.sizes(operands[0])[2:], t.sizes(operands[1])[2:], strict=True)
        steps = zip(numbers["strides"], numbers["dilations"], numbers["pads"], strict=False)
        least = [
            (size - 1) * stride + (taps - 1) * dilation + 1 - 2 * pad
            for (size, taps), (stride, dilation, pad) in zip(sizes, steps, strict=True)
        ]
        beyond = [size - found for size, found in zip(wanted[2:], least, strict=True)]
        if any(not 0 <= more < stride for more, stride in zip(beyond, numbers["strides"], strict=True)):
            t.refuse(f"a result of {list(wanted[2:])}, where the least is {least}")
    made: ir.Value = t.op("ConvTranspose", operands, group=group, output_padding=beyond, **numbers)
    return made


# What they share ------------------------------------------------------------------------------------------------------


def geometry(params: Params, axes: str) -> dict[str, Any]:
    """The attributes of an ONNX convolution."""
    pads = [params[f"pad_{axis}"] for axis in axes]
    return {
        "pads": pads + pads,
        "strides": [params[f"stride_{axis}"] for axis in axes],
        "dilations": [params[f"dilate_{axis}"] for axis in axes],
    }


def flipped(t: MgeTape, weight: ir.Value, mode: str) -> ir.Value:
    """The weight as a cross-correlation has it."""
    if mode == "CROSS_CORRELATION":
        return weight
    axes = range(2, t.rank(weight))
    backwards = [t.ints([number] * len(axes)) for number in (-1, -(1 << 31))]
    made: ir.Value = t.op("Slice", [weight, *backwards, t.ints(list(axes)), t.ints([-1] * len(axes))])
    return made


def _weight_3d(t: MgeTape, w: ir.Value, format: str, params: Params) -> tuple[ir.Value, int]:
    if format != "NCDHW":
        t.refuse(f"format {format} is not supported")
    group = 1
    if params["sparse"] == "GROUP":
        group, outer, *rest = t.sizes(w)
        w = t.op("Reshape", [w, t.ints([group * outer, *rest])])
    return flipped(t, w, params["mode"]), group


def computable(t: MgeTape, value: ir.Value) -> ir.Value:
    """Numbers that convolutions take: integers as float32, where all of eight bits and their sums are exact."""
    return value if t.dtype(value).is_floating_point() else t.cast(value, FLOAT)


def product_scale(t: MgeTape, x: ir.Value, w: ir.Value, bias: ir.Value | None = None) -> float | None:
    """The scale of products of quantised numbers, as their bias has it; None for plain ones."""
    first, second = t.quantised(x), t.quantised(w)
    if first is None and second is None:
        return None
    if first is None or second is None:
        t.refuse("quantised and plain operands together")
    scale = float(np.float32(first.scale) * np.float32(second.scale))
    kind = None if bias is None or not _adds_up(t, bias, scale) else t.quantised(bias)
    return scale if kind is None else kind.scale


def _steps(t: MgeTape, x: ir.Value, weight: ir.Value, group: int, format: str, params: Params) -> str:
    """How MegEngine on x86 brings the sums of a quantised convolution to the scale of its result.

    DIVIDED: the sums, with the bias, times their scale, divided by that of the result. JOINT: the same with a product
    by the inverse, or with one product where there is no activation. APART: the sums and the bias are multiplied each
    by itself before they are added. This tells to which side numbers near to a half are rounded.
    """
    if format != "NCHW":
        return "DIVIDED"
    kind = t.quantised(x)
    if kind is None or kind.name != "QuantizedS8" or (params["dilate_h"], params["dilate_w"]) != (1, 1):
        return "JOINT"
    outputs, inputs, height, _ = t.sizes(weight)
    strides = (params["stride_h"], params["stride_w"])
    single = inputs == 1 and outputs == group and height in SINGLE_HEIGHTS and strides in SINGLE_STRIDES
    return "JOINT" if single else "APART"


def _is_for_channels(t: MgeTape, bias: ir.Value, weight: ir.Value) -> bool:
    return t.shape(bias) == (1, t.sizes(weight)[0], 1, 1)


def _adds_up(t: MgeTape, bias: ir.Value, scale: float | None) -> bool:
    """Whether the numbers of a bias are of the same kind as the sums of products."""
    dtype = t.quantised(bias)
    if dtype is None or scale is None:
        return dtype is None and scale is None
    return bool(np.isclose(dtype.scale, scale, rtol=SAME_SCALE, atol=0))


def finished(
    t: MgeTape,
    total: ir.Value,
    dtype: ir.DataType,
    scale: float | None,
    summands: Sequence[ir.Value],
    mode: str,
    steps: str = "JOINT",
) -> ir.Value:
    """The result of a convolution from sums of products: other summands, the activation, and its dtype.

    Args:
        t: The tape.
        total: The sums.
        dtype: The dtype of what was convolved.
        scale: What the sums are multiples of, when they are quantised.
        summands: What to add.
        mode: The activation.
        steps: In which steps quantised sums become the result; see `_steps`.
    """
    if scale is None:
        for summand in summands:
            total = t.op("Add", [total, computable(t, summand)])
        return _of_plain_dtype(t, _active(t, total, mode), dtype, mode)
    return _requantised(t, total, scale, summands, mode, steps)


def _requantised(
    t: MgeTape, total: ir.Value, scale: float, summands: Sequence[ir.Value], mode: str, steps: str
) -> ir.Value:
    wanted = t.output_dtype or DType("QuantizedS32", scale)
    exact = wanted.name == "QuantizedS32" and bool(np.isclose(wanted.scale, scale, rtol=SAME_SCALE, atol=0))
    if summands and (steps != "APART" or exact) and _adds_up(t, summands[0], scale):
        total = t.op("Add", [total, summands[0]])
        summands = summands[1:]
    if exact and not summands and mode in ("IDENTITY", "RELU"):
        return t.as_quantised(_active(t, total, mode), wanted)
    if wanted.is_quantised and steps == "JOINT" and mode == "IDENTITY" and not summands:
        return settle(t, _scaled(t, total, np.float32(scale) / np.float32(wanted.scale)), wanted)
    positive = mode in ("RELU", "SIGMOID")
    if mode == "RELU" and not summands:  # as near to the convolution as can be: engines join them
        total, mode = _active(t, total, mode), "IDENTITY"
    total = _scaled(t, total, np.float32(scale))
    for summand in summands:
        total = t.op("Add", [total, real(t, summand)])
    if not wanted.is_quantised:
        return _active(t, total, mode)
    if mode != "RELU":  # which `settle` does
        total = _active(t, total, mode)
    if steps == "DIVIDED":
        total = t.op("Div", [total, t.constant(np.float32(wanted.scale))], like=total)
    else:
        total = _scaled(t, total, 1 / np.float32(wanted.scale))
    return settle(t, total, wanted, positive=positive)


def _active(t: MgeTape, x: ir.Value, mode: str) -> ir.Value:
    made: ir.Value = x if mode == "IDENTITY" else t.op(ACTIVATIONS[mode], [x], like=x)
    return made


def _scaled(t: MgeTape, x: ir.Value, factor: np.float32) -> ir.Value:
    # ONNX Runtime moves a factor of rank 0 into the weights of the convolution, whose sums are not exact then.
    made: ir.Value = t.op("Mul", [x, t.constant([factor], FLOAT)], like=x)
    return made


def _of_plain_dtype(t: MgeTape, total: ir.Value, dtype: ir.DataType, mode: str) -> ir.Value:
    if dtype.is_floating_point():
        return total
    if mode not in ("IDENTITY", "RELU"):
        t.refuse(f"activation {mode} of integers")
    wanted = t.output_dtype
    if wanted is None or wanted.numpy is None:
        return t.cast(total, INT32)
    return t.cast(t.cast(total, INT32), ir.DataType.from_numpy(wanted.numpy))

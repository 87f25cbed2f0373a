"""Numbers of 8 and 16 bits that stand for floats."""

from __future__ import annotations

import torch

from litehouse.engines.torch.ops.casts import FLOAT8, cast_to
from litehouse.engines.torch.ops.common import divided
from litehouse.engines.torch.ops.convolution import conv
from litehouse.engines.torch.ops.scales import LIMITS, by_filter, by_row, product, rounded, spread
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of


@op("QuantizeLinear", domain=MICROSOFT)
@op("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Tensor:
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else torch.uint8
    if dtype is None or precision not in (0, 1) or (dtype not in LIMITS and dtype not in FLOAT8):
        raise LackingError(f"QuantizeLinear to {dtype}, in the dtype {precision}")
    quotient = x.float() / spread(scale, x, axis, block_size).float()
    if dtype in FLOAT8:
        return cast_to(quotient, dtype, saturate)
    return rounded(quotient, None if zero is None else spread(zero, x, axis, block_size), dtype)


@op("DequantizeLinear", domain=MICROSOFT)
@op("DequantizeLinear")
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    if dtype is None:
        raise LackingError(f"the dtype {output_dtype}")
    if zero is not None and x.dtype not in FLOAT8:
        x = x.int() - spread(zero, x, axis, block_size)
    return (x.float() * spread(scale, x, axis, block_size).float()).to(dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    given = x if x.numel() else x.new_zeros(1)  # as ONNX Runtime has the range of nothing
    low, high = (bound.reshape(()) for bound in given.aminmax())
    low = low.clamp(max=0)
    span = high.clamp(min=0) - low
    scale = torch.where(span == 0, torch.ones_like(span), divided(span, 255))
    zero = rounded(-low / scale, None, torch.uint8)
    return rounded(x / scale, zero, torch.uint8), scale, zero


@op("MatMulInteger16", domain=MICROSOFT)
@op("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    if torch.int32 in (a.dtype, b.dtype):  # so numbers of 16 bits without a sign arrive
        raise LackingError("MatMulInteger16 of numbers without a sign")
    return product(a, b, a_zero, b_zero).long().int()


@op("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    scale = by_row(a_scale).float() * b_scale.float() / by_row(y_scale).float()
    return rounded(product(a, b, a_zero, b_zero).float() * scale, by_row(y_zero), y_zero.dtype)


@op("ConvInteger")
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    found: Tensor = conv(
        x.double() if x_zero is None else x.double() - x_zero.reshape(()),
        w.double() if w_zero is None else w.double() - by_filter(w_zero, w.ndim),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return found.round().long().int()


@op("QLinearConv", domain=MICROSOFT)
@op("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    channels_last: int = 0,
) -> Tensor:
    x = x.movedim(-1, 1) if channels_last else x
    found: Tensor = conv(
        x.double() - x_zero.reshape(()),
        w.double() - by_filter(w_zero, w.ndim),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    ).round()
    if bias is not None:
        found = found + bias.reshape([-1] + [1] * (x.ndim - 2))
    scale = x_scale.reshape(()) * by_filter(w_scale, x.ndim - 1) / y_scale.reshape(())
    found = rounded(found.float() * scale, y_zero.reshape(()), y_zero.dtype)
    return found.movedim(1, -1) if channels_last else found

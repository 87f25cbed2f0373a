"""Numbers of 8 and 16 bits that stand for floats.

Products of small integers are summed in float64, which holds them exactly: torch has no such products on a GPU.
"""

from __future__ import annotations

import torch

from litehouse.engines.torch.ops.casts import FLOAT8, cast_to
from litehouse.engines.torch.ops.common import divided
from litehouse.engines.torch.ops.convolution import conv
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of

# Zero points of uint16 arrive as int32, which has none of its own; and the result goes back to uint16.
LIMITS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-32768, 32767),
    torch.uint16: (0, 65535),
    torch.int32: (0, 65535),
}


def _spread(value: Tensor, x: Tensor, axis: int, block_size: int = 0) -> Tensor:
    """A scale or zero point for all of a tensor, for each place of an axis, or for blocks along it."""
    if block_size:
        return value.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])
    if value.numel() == 1:
        return value.reshape(())
    return value.reshape([-1 if place == axis % x.ndim else 1 for place in range(x.ndim)])


def _rounded(x: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Floats as integers of a dtype: rounded, shifted, and held within it."""
    x = x.round()
    return (x if zero is None else x + zero).clamp(*LIMITS[dtype]).to(dtype)


@op("QuantizeLinear", domain="com.microsoft")
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
    quotient = x.float() / _spread(scale, x, axis, block_size).float()
    if dtype in FLOAT8:
        return cast_to(quotient, dtype, saturate)
    return _rounded(quotient, None if zero is None else _spread(zero, x, axis, block_size), dtype)


@op("DequantizeLinear", domain="com.microsoft")
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
        x = x.int() - _spread(zero, x, axis, block_size)
    return (x.float() * _spread(scale, x, axis, block_size).float()).to(dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = (bound.reshape(()) for bound in x.aminmax())
    low = low.clamp(max=0)
    span = high.clamp(min=0) - low
    scale = torch.where(span == 0, torch.ones_like(span), divided(span, 255))
    zero = _rounded(-low / scale, None, torch.uint8)
    return _rounded(x / scale, zero, torch.uint8), scale, zero


def _product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """The exact product of matrices of integers, less their zero points, as float64."""
    a = a.double() if a_zero is None else a.double() - _by_row(a_zero)
    return a @ (b.double() if b_zero is None else b.double() - b_zero)


def _by_row(value: Tensor) -> Tensor:
    """A scale or zero point, one for each row where there are several."""
    return value.unsqueeze(-1) if value.ndim == 1 and value.numel() > 1 else value


@op("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    return _product(a, b, a_zero, b_zero).long().int()


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
    scale = _by_row(a_scale).float() * b_scale.float() / _by_row(y_scale).float()
    return _rounded(_product(a, b, a_zero, b_zero).float() * scale, _by_row(y_zero), y_zero.dtype)


@op("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    found = _product(a, b, a_zero, b_zero).float() * (_by_row(a_scale) * b_scale)
    return found if bias is None else found + bias


@op("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    small, a_scale, a_zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(small, b, a_scale, b_scale, a_zero, b_zero, bias)


def _by_filter(value: Tensor, rank: int) -> Tensor:
    """A scale or zero point of weights, one for each filter where there are several."""
    return value.reshape([-1] + [1] * (rank - 1)) if value.numel() > 1 else value.reshape(())


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
        w.double() if w_zero is None else w.double() - _by_filter(w_zero, w.ndim),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return found.round().long().int()


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
) -> Tensor:
    found: Tensor = conv(
        x.double() - x_zero.reshape(()),
        w.double() - _by_filter(w_zero, w.ndim),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    ).round()
    if bias is not None:
        found = found + bias.reshape([-1] + [1] * (x.ndim - 2))
    scale = x_scale.reshape(()) * _by_filter(w_scale, x.ndim - 1) / y_scale.reshape(())
    return _rounded(found.float() * scale, y_zero.reshape(()), y_zero.dtype)

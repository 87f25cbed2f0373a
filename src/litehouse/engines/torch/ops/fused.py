"""ONNX Runtime's own ops that do what several of ONNX's do."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.activation import swish
from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.ops.convolution import conv
from litehouse.engines.torch.ops.matrix import gemm
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("Gelu", domain=MICROSOFT)
def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return swish(x, alpha=alpha)


@op("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(x: Tensor, scale: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    scaled = (wide(x) * (alpha if scale is None else wide(scale))).to(x.dtype)
    return scaled * torch.sigmoid(scaled)


@op("GatedAdd", domain=MICROSOFT)
def gated_add(x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    return x + y * gate


@op("BiasAdd", domain=MICROSOFT)
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    left, right = (x + bias).chunk(2, -1)
    return left * F.gelu(right)


@op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    axis = axis % x.ndim
    sizes = [1] * (x.ndim - bias.ndim) + list(bias.shape)
    lacks = [place for place, size in enumerate(sizes) if size != x.shape[place]]  # the axes that it is spread over
    if lacks:
        spread = sizes[lacks[0] : axis] if is_inner_broadcast else sizes[: lacks[-1] + 1]
        if lacks[-1] >= axis or set(spread) != {1}:
            raise LackingError("BiasSoftmax whose bias is spread over other axes")
    return torch.softmax((x + bias).flatten(axis), -1).reshape(x.shape)


@op("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = fast_gelu(x @ weight, bias)
    return found


@op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's own name)
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Tensor:
    a = a.movedim(0, -2) if transBatchA else a  # the batches are between the other two axes
    b = b.movedim(0, -2) if transBatchB else b
    product = (a.mT if transA and a.ndim > 1 else a) @ (b.mT if transB and b.ndim > 1 else b)
    return product if alpha == 1.0 else product * alpha


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}


def _activated(x: Tensor, name: str, parameters: list[float]) -> Tensor:
    """What an op of several gives, by the function that it ends with."""
    if name in PLAIN and not parameters:
        return PLAIN[name](x)
    if name == "LeakyRelu" and len(parameters) == 1:
        return F.leaky_relu(x, parameters[0])
    if name == "Clip" and len(parameters) == 2:
        return x.clamp(parameters[0], parameters[1])
    if name == "HardSigmoid" and len(parameters) == 2:
        return (x * parameters[0] + parameters[1]).clamp(0, 1)
    raise LackingError(f"the activation {name} with {len(parameters)} parameters")


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Tensor:
    found: Tensor = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(found, activation, [] if activation_alpha is None else [activation_alpha])


@op("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(
    a: Tensor,
    b: Tensor,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Tensor:
    turns = {"transA": transA, "transB": transB, "transBatchA": transBatchA, "transBatchB": transBatchB}
    found: Tensor = fused_matmul(a, b, alpha=alpha, **turns)
    given = [value for value in (activation_alpha, activation_beta) if value is not None]
    return _activated(found, activation, given)


@op("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    y: Tensor = conv(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return _activated(y if z is None else y + z, activation, activation_params or [])


@op("NhwcFusedConv", domain=MICROSOFT)
def nhwc_fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    y: Tensor = fused_conv(
        x.movedim(-1, 1),
        w,
        b,
        None if z is None else z.movedim(-1, 1),
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return y.movedim(1, -1)


@op("NhwcConv", domain=MICROSOFT)
def nhwc_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    # What is written about this op has weights with channels first, what ONNX Runtime's optimiser writes, last.
    each = x.shape[-1] // group
    is_last, is_first = (
        channels == each and (kernel_shape is None or list(sizes) == kernel_shape)
        for channels, sizes in ((w.shape[-1], w.shape[1:-1]), (w.shape[1], w.shape[2:]))
    )
    if is_last == is_first:
        raise LackingError("NhwcConv whose weights do not tell their axes")
    found: Tensor = nhwc_fused_conv(
        x,
        w.movedim(-1, 1) if is_last else w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return found

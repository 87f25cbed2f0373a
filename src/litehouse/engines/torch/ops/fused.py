"""ONNX Runtime's own ops that do what several of ONNX's do."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.activation import leaky_relu, swish
from litehouse.engines.torch.ops.matrix import gemm
from litehouse.engines.torch.ops.normalization import layer_norm, rms_norm, scaled
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor

MICROSOFT = "com.microsoft"


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
    if transBatchA or transBatchB:
        raise LackingError("FusedMatMul with another order of batches")
    product = (a.mT if transA and a.ndim > 1 else a) @ (b.mT if transB and b.ndim > 1 else b)
    return product if alpha == 1.0 else product * alpha


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
}


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
    if activation == "LeakyRelu" and activation_alpha is not None:
        found = leaky_relu(found, alpha=activation_alpha)
    elif activation in ACTIVATIONS:
        found = ACTIVATIONS[activation](found)
    elif activation:
        raise LackingError(f"FusedGemm with {activation}")
    return found


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    before: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    total = scaled(x + skip, None, before)
    return layer_norm(total, scale, bias, epsilon=epsilon), None, None, total if outputs > 3 else None


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    before: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    total = scaled(x + skip, None, before)
    return rms_norm(total, scale, epsilon=epsilon), None, None, total if outputs > 3 else None

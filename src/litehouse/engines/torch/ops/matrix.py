"""Products of matrices."""

from __future__ import annotations

import torch

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import MICROSOFT, op
from litehouse.engines.torch.values import Tensor


@op("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's own name)
    transB: int = 0,  # noqa: N803
) -> Tensor:
    a, b = a.t() if transA else a, b.t() if transB else b
    if c is not None and a.is_floating_point() and c.ndim <= 2:
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    product = _times(a @ b, alpha)
    return product if c is None else product + _times(c, beta)


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else (factor * x).to(x.dtype)


@op("Einsum")
def einsum(*values: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *values).to(values[0].dtype)  # sums of a diagonal are of 64 bits in torch


@op("Det")
def det(x: Tensor) -> Tensor:
    return torch.linalg.det(x)


@op("Inverse", domain=MICROSOFT)
def inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv_ex(wide(x)).inverse.to(x.dtype)  # not `inv`, which waits to see whether there is one

"""Products of matrices."""

from __future__ import annotations

from litehouse.engines.torch.registry import op
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
    product = a @ b if alpha == 1.0 else alpha * (a @ b)
    if c is None:
        return product
    return product + (c if beta == 1.0 else beta * c)

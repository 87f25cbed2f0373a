"""ONNX Runtime's own products of small integers."""

from __future__ import annotations

from litehouse.engines.torch.ops.quantised import dynamic_quantize_linear
from litehouse.engines.torch.ops.scales import by_row, product, rounded
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    found = product(a, b, a_zero, b_zero).float() * (by_row(a_scale).float() * b_scale.float())
    return (found if bias is None else found + bias).to(a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    small, a_scale, a_zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(small, b, a_scale, b_scale, a_zero, b_zero, bias)


@op("QGemm", domain=MICROSOFT)
def qgemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's own name)
    transB: int = 0,  # noqa: N803
) -> Tensor:
    found = product(a.t() if transA else a, b.t() if transB else b, a_zero.reshape(()), b_zero)
    if c is not None:
        found = found + c
    scale = alpha * a_scale.reshape(()) * b_scale
    if y_scale is None and y_zero is None:
        return found.float() * scale
    if y_scale is None or y_zero is None:
        raise LackingError("QGemm with a scale and no zero point, or the other way around")
    return rounded(found.float() * (scale / y_scale.reshape(())), y_zero.reshape(()), y_zero.dtype)

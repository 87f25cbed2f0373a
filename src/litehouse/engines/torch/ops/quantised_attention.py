"""ONNX Runtime's own attention, with the product of quantised numbers that makes queries, keys and values."""

from __future__ import annotations

from litehouse.engines.torch.ops.attention import heads
from litehouse.engines.torch.ops.quantised_products import matmul_integer_to_float
from litehouse.engines.torch.ops.runtime_attention import with_past
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("QAttention", domain=MICROSOFT)
def qattention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    padding: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Tensor, Tensor | None]:
    if do_rotary or past_present_share_buffer:
        raise LackingError("QAttention that rotates, or that writes into its past")
    x_zero = None if x_zero is None else x_zero.reshape(())
    product: Tensor = matmul_integer_to_float(x, weight, x_scale.reshape(()), weight_scale, x_zero, weight_zero, bias)
    q, k, v = (heads(part, num_heads) for part in product.chunk(3, -1))
    return with_past(q, k, v, padding, past, None, mask_filter_value, scale, is_causal=bool(unidirectional))

"""ONNX Runtime's own attention of a sequence to itself, with the product that makes queries, keys and values."""

from __future__ import annotations

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.attention import attended, filled_mask, heads
from litehouse.engines.torch.ops.quantised_products import matmul_integer_to_float
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

FILTER = -10000.0  # what keys that are masked get by default


@op("Attention", domain=MICROSOFT)
def attention_with_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    mask_filter_value: float = FILTER,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
    scale: float = 0.0,
    unidirectional: int = 0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Tensor, Tensor | None]:
    if do_rotary or past_present_share_buffer:
        raise LackingError("Attention that rotates, or that writes into its past")
    whole = functional.linear(x, weight.t(), bias)
    sizes = qkv_hidden_sizes or [whole.shape[-1] // 3] * 3
    return _attended(
        whole, sizes, num_heads, mask, mask_filter_value, past, attention_bias, bool(unidirectional), scale
    )


@op("QAttention", domain=MICROSOFT)
def qattention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
    *,
    mask_filter_value: float = FILTER,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Tensor, Tensor | None]:
    if do_rotary or past_present_share_buffer:
        raise LackingError("QAttention that rotates, or that writes into its past")
    if x_zero is not None:
        x_zero = x_zero.reshape(())
    whole: Tensor = matmul_integer_to_float(x, weight, x_scale.reshape(()), weight_scale, x_zero, weight_zero, bias)
    sizes = [whole.shape[-1] // 3] * 3
    return _attended(whole, sizes, num_heads, mask, mask_filter_value, past, None, bool(unidirectional), scale)


def _attended(
    whole: Tensor,
    sizes: list[int],
    num_heads: int,
    mask: Tensor | None,
    mask_filter_value: float,
    past: Tensor | None,
    added: Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor | None]:
    """Attention of queries, keys and values that lie side by side; and keys and values with those of the past."""
    q, k, v = (heads(part, num_heads) for part in whole.split(sizes, -1))
    before = 0
    if past is not None:
        before = past.shape[3]
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    allowed = None if mask is None else _allowed(mask, q.shape[0], k.shape[2])
    if allowed is not None:
        filled = filled_mask(allowed, mask_filter_value, q.dtype)
        added = filled if added is None else added + filled
    found = attended(q, k, v, added, past=before, is_causal=is_causal, scale=scale)
    return found, torch.stack([k, v]) if k.shape == v.shape else None


def _allowed(mask: Tensor, batch: int, total: int) -> Tensor | None:
    """Which keys may be attended to, [batch, 1, query or 1, key]; None for all of them."""
    if mask.ndim == 3:
        return (mask > 0).unsqueeze(1)
    if mask.ndim == 2:
        return None if mask.shape[1] == 1 else (mask > 0)[:, None, None]
    if mask.ndim != 1 or mask.shape[0] not in (batch, 2 * batch):
        raise LackingError("a mask of four axes, or of sequences that are packed")
    places = torch.arange(total, device=mask.device)
    allowed = places < mask[:batch, None]
    if mask.shape[0] == 2 * batch:
        allowed = allowed & (places >= mask[batch:, None])
    return allowed[:, None, None]

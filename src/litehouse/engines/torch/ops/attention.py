"""Attention, and what all kinds of it share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of

UNBOUNDED = -1
AFTER_SOFTCAP, AFTER_BIAS, AFTER_SOFTMAX = 1, 2, 3  # what the fourth output is; by default, the bare product


@dataclass(frozen=True, slots=True)
class Mask:
    """What may be attended to.

    Attributes:
        allowed: True where a key may be attended to; None where all may.
        added: What is added to the scores; None for nothing. Where it has more digits, they have as many before.
        is_causal: Whether a query attends to the keys up to its own place, and nothing else is said.
    """

    allowed: Tensor | None = None
    added: Tensor | None = None
    is_causal: bool = False

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """All as numbers to be added to the scores."""
        if self.allowed is None:
            return self.added
        added = torch.zeros_like(self.allowed, dtype=dtype) if self.added is None else self.added
        return added.masked_fill(~self.allowed, -math.inf)


def heads(x: Tensor, count: int) -> Tensor:
    """[batch, place, head and size] as [batch, head, place, size]."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


@op("Attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = UNBOUNDED,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = UNBOUNDED,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    is_flat = q.ndim == 3
    if is_flat:
        q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    if not q.dtype == k.dtype == v.dtype:
        raise LackingError("Attention of several dtypes")
    windows = (left_window_size, right_window_size)
    masks = mask_of(q, k, mask, lengths, past=past, is_causal=bool(is_causal), windows=windows)
    weights = None
    if outputs > 3 or softcap or softmax_precision == 11:
        found, weights = spelled_out(q, k, v, masks, scale, softcap, softmax_precision, qk_matmul_output_mode)
    else:
        found = fused(q, k, v, masks, scale)
    return (found.transpose(1, 2).flatten(2) if is_flat else found), k, v, weights


def mask_of(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    lengths: Tensor | None,
    *,
    past: int,
    is_causal: bool,
    windows: tuple[int, int],
) -> Mask:
    """All that bounds the attention, as one."""
    left, right = windows
    has_windows = left != UNBOUNDED or right != UNBOUNDED
    if mask is None and lengths is None and not has_windows and not (is_causal and past):
        return Mask(is_causal=is_causal)
    rows = torch.arange(q.shape[2], device=q.device).unsqueeze(-1) + past
    columns = torch.arange(k.shape[2], device=q.device)
    rules: list[Tensor] = []
    if lengths is not None:
        lengths = lengths.reshape(-1, 1, 1, 1)
        rules.append(columns < lengths)
        rows = rows if past else rows + lengths - q.shape[2]
    if is_causal:
        rules.append(columns <= rows)
    if left != UNBOUNDED:
        rules.append(columns >= rows - left)
    if right != UNBOUNDED:
        rules.append(columns <= rows + right)
    added = None
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        missing = k.shape[2] - mask.shape[-1]
        if missing > 0:
            mask = F.pad(mask, (0, missing), value=False if is_bool else -math.inf)
        added = None if is_bool else mask.to(torch.promote_types(q.dtype, mask.dtype))
        rules += [mask] if is_bool else []
    allowed = None
    for rule in rules:
        allowed = rule if allowed is None else allowed & rule
    return Mask(allowed, added)


def attended(q: Tensor, k: Tensor, v: Tensor, masks: Mask, scale: float | None, softcap: float = 0.0) -> Tensor:
    """What the queries find, in the quickest way that there is."""
    if softcap:
        return spelled_out(q, k, v, masks, scale, softcap, None, 0)[0]
    return fused(q, k, v, masks, scale)


def fused(q: Tensor, k: Tensor, v: Tensor, masks: Mask, scale: float | None) -> Tensor:
    """Attention by torch's own function, which has kernels that never hold the scores."""
    bias = masks.allowed if masks.added is None else masks.bias(q.dtype)
    if bias is not None and bias.ndim < 2:
        bias = bias.reshape(1, -1)
    kind, wide = q.dtype, q.dtype if masks.added is None else masks.added.dtype
    q, k, v = q.to(wide), k.to(wide), v.to(wide)
    found = F.scaled_dot_product_attention(
        q, k, v, bias, is_causal=masks.is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    ).to(kind)
    if bias is None:
        return found
    is_masked = ~bias if bias.dtype == torch.bool else torch.isneginf(bias)
    return found.masked_fill(is_masked.all(-1, keepdim=True), 0)  # some kernels for GPUs give anything there


def spelled_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: Mask,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
    mode: int,
) -> tuple[Tensor, Tensor]:
    """Attention step by step, for what lies between."""
    if q.shape[1] != k.shape[1]:
        k, v = (value.repeat_interleave(q.shape[1] // value.shape[1], 1) for value in (k, v))
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = (q * root) @ (k * root).mT
    shown = scores
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    shown = scores if mode == AFTER_SOFTCAP else shown
    if masks.is_causal:
        masks = Mask(torch.ones_like(scores[0, 0], dtype=torch.bool).tril())
    bias = masks.bias(q.dtype)
    scores = scores if bias is None else scores + bias
    shown = scores if mode == AFTER_BIAS else shown
    kind = None if softmax_precision is None else dtype_of(softmax_precision)
    shares = torch.softmax(scores, -1, dtype=kind).to(q.dtype)
    if bias is not None:
        shares = shares.masked_fill(torch.isneginf(bias.amax(-1, keepdim=True)), 0)
    return shares @ v, (shares if mode == AFTER_SOFTMAX else shown).to(q.dtype)

"""ONNX Runtime's attention of language models: heads share keys and values, which go into a cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.attention import Mask, attended, heads
from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.ops.normalization import rms_norm
from litehouse.engines.torch.ops.rotary import rotated
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("GroupQueryAttention", domain=MICROSOFT, known=["total"])
def group_query_attention(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lasts: Tensor,
    total: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    attention_bias: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    is_whole = kv_cache_bit_width or {k_scale, v_scale} != {None} or k_quant_type + v_quant_type != 2 * "NONE"
    is_odd = local_window_size == 0 or (local_window_size > 0 and not causal)
    if is_whole or is_odd or sliding_window_cache or qk_output or outputs > 3:
        raise LackingError("GroupQueryAttention with a cache of whole numbers or of a window, or that gives its scores")
    if k is None or v is None:
        size = q.shape[-1] // (num_heads + 2 * kv_num_heads)
        q, k, v = q.split([num_heads * size, kv_num_heads * size, kv_num_heads * size], -1)
    q, k, v = heads(q, num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    if (q_norm is None) != (k_norm is None):
        raise LackingError("GroupQueryAttention with the norm of queries or of keys alone")
    if q_norm is not None:
        q, k = rms_norm(q, q_norm, epsilon=qk_norm_epsilon), rms_norm(k, k_norm, epsilon=qk_norm_epsilon)
    places = _Places(q, k, past_key, lasts, int(total))
    if do_rotary:
        if cos is None or sin is None:
            raise LackingError("GroupQueryAttention that rotates by nothing")
        cos, sin = (value.unsqueeze(1) for value in places.turns(cos, sin, positions))
        q = rotated(q, cos, sin, 2 * cos.shape[-1], rotary_interleaved)
        k = rotated(k, cos, sin, 2 * cos.shape[-1], rotary_interleaved) if k.shape[2] else k
    present_key, present_value = places.joined(past_key, k), places.joined(past_value, v)
    masks = places.mask(attention_bias, is_causal=bool(causal), window=local_window_size)
    k, v = present_key[:, :, : places.total], present_value[:, :, : places.total]
    if sinks is not None or smooth_softmax == 1:
        k, v, masks = _with_sink(q, k, v, masks, sinks)
    found = attended(q, k, v, masks, scale or None, softcap)
    return found.transpose(1, 2).flatten(2), present_key, present_value


class _Places:
    """Where the new keys of each sequence go, and what is there by then.

    Attributes:
        total: The places of the longest sequence.
        size: The places of the cache that is given.
        is_first: Whether nothing came before.
        ends: For each sequence, how many places it has in the end.
        before: How many of them were there before; what is in the old cache behind them is not read.
        starts: Where the first query is.
    """

    def __init__(self, q: Tensor, k: Tensor, past: Tensor | None, lasts: Tensor, total: int) -> None:
        count, device = q.shape[2], q.device
        past_size = 0 if past is None else past.shape[2]
        self.total, self.size, self.count = total, max(total, past_size), count
        self.is_first, self.is_shared = count == total, k.shape[2] == 0
        if (past is None and not self.is_first) or (self.is_shared and total > past_size):
            raise LackingError("GroupQueryAttention without the keys that came before")
        self.ends = from_zero(lasts.reshape(-1), self.size, counts_back=False) + 1
        self.starts = torch.zeros_like(self.ends) if self.is_first else self.ends - count
        if not self.is_first:
            self.starts = from_zero(self.starts, past_size + 1, counts_back=False)
        self.before = self.ends if self.is_shared else self.starts
        self.steps = torch.arange(count, device=device)
        self.columns = torch.arange(self.size, device=device)

    def turns(self, cos: Tensor, sin: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """The rotation of each new place of each sequence."""
        if positions is not None and self.is_first:  # only its first number counts
            positions = (positions.reshape(-1)[:1] + self.steps).unsqueeze(0)
        elif positions is None and self.is_first:
            return cos[: self.count].unsqueeze(0), sin[: self.count].unsqueeze(0)
        elif positions is None:
            positions = self.starts.unsqueeze(-1) + self.steps
        elif positions.shape[1] != self.count:
            raise LackingError("GroupQueryAttention with more positions than places")
        places = from_zero(positions, cos.shape[0], counts_back=False)
        return F.embedding(places, cos), F.embedding(places, sin)

    def joined(self, past: Tensor | None, new: Tensor) -> Tensor:
        """The cache with the new places of each sequence behind its old ones, and zeros behind them."""
        if self.is_first and not self.is_shared:
            return F.pad(new, (0, 0, 0, self.size - self.count))
        assert past is not None
        is_old = (self.columns < self.before.unsqueeze(-1))[:, None, :, None]
        made = torch.where(is_old, F.pad(past, (0, 0, 0, self.size - past.shape[2])), 0)
        if self.is_shared:
            return made
        rows = (self.starts.unsqueeze(-1) + self.steps)[:, None, :, None]
        return made.scatter_(2, rows.expand(new.shape), new)  # it is this function's own

    def mask(self, added: Tensor | None, *, is_causal: bool, window: int) -> Mask:
        """What each query attends to: what its sequence has up to its own place, or the last ones of that."""
        columns, ends = self.columns[: self.total], self.ends[:, None, None, None]
        allowed = columns < ends
        if is_causal:
            ends = self.starts[:, None, None, None] + self.steps.unsqueeze(-1) + 1
            allowed = allowed & (columns < ends)
        if window > 0:
            allowed = allowed & (columns >= ends - window)
        return Mask(allowed, added)


def _with_sink(q: Tensor, k: Tensor, v: Tensor, masks: Mask, sinks: Tensor | None) -> tuple[Tensor, Tensor, Mask]:
    """One more key, which takes a share of the attention and has no value; all queries attend to it.

    Its score is 0 without sinks, and the sink of the head with them.
    """
    k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    allowed, added = masks.allowed, masks.added
    assert allowed is not None
    if sinks is not None:
        added = k.new_zeros(1, 1, 1, 1) if added is None else added
        sizes = added.shape[0], q.shape[1], added.shape[2]
        added = torch.cat([added.expand(*sizes, allowed.shape[-1]), sinks.reshape(1, -1, 1, 1).expand(*sizes, 1)], -1)
    elif added is not None:
        added = F.pad(added, (0, 1))
    return k, v, Mask(F.pad(allowed, (0, 1), value=True), added)

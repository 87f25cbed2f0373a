"""ONNX Runtime's own kinds of attention, as its optimiser writes them."""

from __future__ import annotations

import torch

from litehouse.engines.torch.ops.attention import UNBOUNDED, attended, heads, mask_of
from litehouse.engines.torch.ops.common import known_from_zero
from litehouse.engines.torch.ops.own import linear
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("Attention", domain=MICROSOFT)
def attention_with_weights(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    padding: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    scale: float = 0.0,
    unidirectional: int = 0,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    is_joined = qkv_hidden_sizes is None or qkv_hidden_sizes[1] == qkv_hidden_sizes[2]
    if do_rotary or past_present_share_buffer or (outputs > 1 and not is_joined):
        raise LackingError("Attention that rotates, that shares the memory of its cache, or has one of several sizes")
    product = x @ weights if bias is None else linear(x, weights, bias)
    q, k, v = (heads(part, num_heads) for part in product.split(qkv_hidden_sizes or weights.shape[1] // 3, -1))
    return with_past(q, k, v, padding, past, attention_bias, mask_filter_value, scale, is_causal=bool(unidirectional))


def with_past(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    padding: Tensor | None,
    past: Tensor | None,
    attention_bias: Tensor | None,
    masked: float,
    scale: float,
    *,
    is_causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """What is found by heads; and the keys and values with those of the past, as one where they can be."""
    if past is not None:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    added = _added(q, k, padding, attention_bias, masked)
    found = _attended(q, k, v, added, scale, _places_of(past) if is_causal else None)
    return found, torch.stack([k, v]) if k.shape == v.shape else None


def _added(q: Tensor, k: Tensor, padding: Tensor | None, attention_bias: Tensor | None, masked: float) -> Tensor | None:
    """What is added to the scores: a bias, and a number where there is padding."""
    if padding is None or (padding.ndim == 2 and padding.shape[1] == 1):  # one number, of any size, says nothing
        return attention_bias
    kind = q.dtype if abs(masked) <= torch.finfo(q.dtype).max else torch.float32
    is_there = _is_there(padding, q.shape[0], k.shape[2])
    filled = torch.zeros_like(is_there, dtype=kind).masked_fill(~is_there, masked)
    filled = filled.unsqueeze(1) if filled.ndim == 3 else filled[:, None, None]
    return filled if attention_bias is None else attention_bias + filled


def _is_there(padding: Tensor, batch: int, places: int) -> Tensor:
    """Where there is no padding, by masks, by where it begins behind, or by that and where it ends before."""
    if padding.ndim in (2, 3) and padding.shape[-1] == places:
        return padding > 0
    if padding.ndim != 1 or len(padding) not in (batch, 2 * batch):
        raise LackingError("attention with a mask of this shape")
    columns = torch.arange(places, device=padding.device)
    is_there = columns < padding[:batch].unsqueeze(-1)
    return is_there if len(padding) == batch else is_there & (columns >= padding[batch:].unsqueeze(-1))


def _places_of(past: Tensor | None) -> int:
    """How many places came before."""
    return 0 if past is None else past.shape[-2]


def _attended(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float | None, causal_from: int | None = None
) -> Tensor:
    """What is found by heads; by the first query up to a place, and by each other up to one more, if that is told."""
    is_causal, windows = causal_from is not None and q.shape[2] > 1, (UNBOUNDED, UNBOUNDED)  # a single one finds all
    masks = mask_of(q, k, added, None, past=causal_from or 0, is_causal=is_causal, windows=windows)
    return attended(q, k, v, masks, scale or None).transpose(1, 2).flatten(2)


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    q: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    bias: Tensor | None = None,
    padding: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    if outputs > 3 or (bias is not None and (k is None or k.ndim != 3)):
        raise LackingError("MultiHeadAttention that gives its scores, or with a bias and keys by heads")
    q, k, v = _parts(q, k, v, bias, num_heads)
    if unidirectional and 1 < q.shape[2] < k.shape[2]:  # ONNX Runtime's kernel lets the last query attend to all keys
        raise LackingError("MultiHeadAttention in order, to more keys than there are queries")
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    if padding is not None and padding.ndim == 1 and len(padding) != len(q):
        raise LackingError("MultiHeadAttention with places of padding")
    added = _added(q, k, padding, attention_bias, mask_filter_value)
    return _attended(q, k, v, added, scale, _places_of(past_key) if unidirectional else None), k, v


def _parts(
    q: Tensor, k: Tensor | None, v: Tensor | None, bias: Tensor | None, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by heads, from whatever they are packed in."""
    if bias is not None and k is not None and v is not None:
        sizes = [q.shape[-1], k.shape[-1], v.shape[-1]]
        q, k, v = (value + part for value, part in zip((q, k, v), bias.split(sizes), strict=True))
    if q.ndim == 5:
        q, k, v = (part.transpose(1, 2) for part in q.unbind(3))
    else:
        q = heads(q, count)
    if k is not None and k.ndim == 5:
        k, v = (part.transpose(1, 2) for part in k.unbind(3))
    if k is None or v is None:
        raise LackingError("MultiHeadAttention without keys")
    k, v = (heads(value, count) if value.ndim == 3 else value for value in (k, v))
    return q, k, v


@op("DecoderMaskedMultiHeadAttention", domain=MICROSOFT, known=["past_size"])
def decoder_attention(
    q: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    padding: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_size: Tensor | None = None,
    beams: Tensor | None = None,
    sources: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    if (
        output_qk
        or outputs > 3
        or beams is not None
        or sources is not None
        or q.shape[1] != 1
        or k is None
        or v is None
    ):
        raise LackingError("DecoderMaskedMultiHeadAttention of beams, of packed inputs or that gives its scores")
    if past_key is None or past_value is None:  # of what an encoder found
        if k.ndim != 4 or attention_bias is not None:
            raise LackingError("DecoderMaskedMultiHeadAttention without a cache")
        q = heads(q if bias is None else q + bias[: q.shape[-1]], num_heads)
        return (_attended(q, k, v, _added(q, k, padding, None, mask_filter_value), scale),)
    if past_size is None or not past_present_share_buffer:
        raise LackingError("DecoderMaskedMultiHeadAttention with a cache that grows")
    q, k, v = _parts(q, k, v, bias, num_heads)
    place = known_from_zero(int(past_size), past_key.shape[2], counts_back=False)
    present = [old.slice_scatter(new, 2, place, place + 1) for old, new in ((past_key, k), (past_value, v))]
    k, v = (whole[:, :, : place + 1] for whole in present)
    added = _added(q, k, padding, attention_bias, mask_filter_value)
    return _attended(q, k, v, added, scale), *present

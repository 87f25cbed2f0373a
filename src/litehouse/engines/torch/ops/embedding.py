"""ONNX Runtime's own embeddings of words, places and segments, with the norm behind them."""

from __future__ import annotations

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.ops.scales import dequantised
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    ids: Tensor,
    segments: Tensor | None,
    word: Tensor,
    position: Tensor,
    segment: Tensor | None,
    scale: Tensor,
    bias: Tensor,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    if mask_index_type not in (0, 1) or (segments is None) != (segment is None):
        raise LackingError(f"EmbedLayerNormalization with the mask {mask_index_type}, or with half of its segments")
    if positions is None:
        positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    total = _rows(word, ids) + _rows(position, positions)
    if segments is not None and segment is not None:
        total = total + _rows(segment, segments)
    found = functional.layer_norm(total, total.shape[-1:], scale, bias, epsilon)
    return found, _counts(ids, mask), total


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_norm(
    ids: Tensor,
    segments: Tensor | None,
    word: Tensor,
    position: Tensor,
    segment: Tensor | None,
    scale: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    word_scale: Tensor,
    position_scale: Tensor,
    segment_scale: Tensor | None,
    scale_scale: Tensor,
    bias_scale: Tensor,
    word_zero: Tensor,
    position_zero: Tensor,
    segment_zero: Tensor | None,
    scale_zero: Tensor,
    bias_zero: Tensor,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor]:
    places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    total = dequantised(_rows(word, ids), word_scale, word_zero)
    total = total + dequantised(_rows(position, places), position_scale, position_zero)
    if segments is not None and segment is not None and segment_scale is not None:
        total = total + dequantised(_rows(segment, segments), segment_scale, segment_zero)
    scale, bias = dequantised(scale, scale_scale, scale_zero), dequantised(bias, bias_scale, bias_zero)
    return functional.layer_norm(total, total.shape[-1:], scale, bias, epsilon), _counts(ids, mask)


def _rows(table: Tensor, places: Tensor) -> Tensor:
    return functional.embedding(from_zero(places, table.shape[0], counts_back=False), table)


def _counts(ids: Tensor, mask: Tensor | None) -> Tensor:
    """How many words of each sequence the mask lets stay; 0 without one."""
    if mask is None:
        return torch.zeros(ids.shape[:1], dtype=torch.int32, device=ids.device)
    return (mask == 1).sum(1).int()

"""ONNX Runtime's own embeddings of words, places and segments, with the norm behind them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.ops.normalization import layer_norm
from litehouse.engines.torch.ops.scales import dequantised
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    words: Tensor,
    segments: Tensor | None,
    of_words: Tensor,
    of_places: Tensor,
    of_segments: Tensor | None,
    scale: Tensor,
    bias: Tensor,
    mask: Tensor | None = None,
    places: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,  # noqa: ARG001  (for inference of shapes)
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    if (segments is None) != (of_segments is None):
        raise LackingError("EmbedLayerNormalization with segments or their embedding alone")
    total = _embedded(words, of_words)
    total = total + (_first(of_places, words.shape[1]) if places is None else _embedded(places, of_places))
    if segments is not None and of_segments is not None:
        total = total + _embedded(segments, of_segments)
    found: Tensor = layer_norm(total, scale, bias, epsilon=epsilon)
    return (found, _counts(words, mask), total)[: max(outputs, 2)]


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_norm(
    words: Tensor,
    segments: Tensor | None,
    of_words: Tensor,
    of_places: Tensor,
    of_segments: Tensor | None,
    scale: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    words_scale: Tensor,
    places_scale: Tensor,
    segments_scale: Tensor | None,
    scale_scale: Tensor,
    bias_scale: Tensor,
    words_zero: Tensor,
    places_zero: Tensor,
    segments_zero: Tensor | None,
    scale_zero: Tensor,
    bias_zero: Tensor,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor]:
    total = dequantised(_embedded(words, of_words), words_scale, words_zero)
    total = total + dequantised(_first(of_places, words.shape[1]), places_scale, places_zero)
    if segments is not None and of_segments is not None and segments_scale is not None:
        total = total + dequantised(_embedded(segments, of_segments), segments_scale, segments_zero)
    scale, bias = dequantised(scale, scale_scale, scale_zero), dequantised(bias, bias_scale, bias_zero)
    found: Tensor = layer_norm(total, scale, bias, epsilon=epsilon)
    return found, _counts(words, mask)


def _first(table: Tensor, count: int) -> Tensor:
    """What a table has for the first places."""
    if table.shape[0] < count:
        raise IndexError(f"{count} places, of which a table has {table.shape[0]}")
    return table[:count]


def _embedded(places: Tensor, table: Tensor) -> Tensor:
    return F.embedding(from_zero(places, table.shape[0], counts_back=False), table)


def _counts(words: Tensor, mask: Tensor | None) -> Tensor:
    """How many words of each sequence the mask lets stay; 0 without one."""
    return torch.zeros_like(words[:, 0]) if mask is None else (mask == 1).sum(1, dtype=torch.int32)

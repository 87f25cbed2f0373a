"""The rotation of what attention takes, by positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    if positions is not None:
        places = from_zero(positions, cos.shape[0], counts_back=False)
        cos, sin = F.embedding(places, cos), F.embedding(places, sin)
    if x.ndim == 4:
        return rotated(x, cos.unsqueeze(1), sin.unsqueeze(1), rotary_embedding_dim, interleaved)
    heads = x.unflatten(-1, (num_heads, -1))
    return rotated(heads, cos.unsqueeze(2), sin.unsqueeze(2), rotary_embedding_dim, interleaved).flatten(2)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, width: int, interleaved: int) -> Tensor:
    """The first `width` numbers of the last axis, all by default, as pairs that are turned; the rest stays."""
    turned, rest = (x[..., :width], x[..., width:]) if width and width != x.shape[-1] else (x, None)
    real, imaginary = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    pair = cos * real - sin * imaginary, sin * real + cos * imaginary
    found = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return found if rest is None else torch.cat([found, rest], -1)


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_of_runtime(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,  # noqa: ARG001  (it is about nothing but a check of sizes)
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    if scale != 1.0:
        raise LackingError("RotaryEmbedding with a scale")
    if positions.numel() == 1:  # where the first begins
        places = x.shape[2] if x.ndim == 4 else x.shape[1]
        positions = torch.arange(places, device=x.device).unsqueeze(0) + positions.reshape(1, 1)
    if x.ndim == 3 and not num_heads:
        num_heads = x.shape[2] // (2 * cos.shape[-1])
    found: Tensor = rotary_embedding(
        x,
        cos,
        sin,
        positions,
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )
    return found


@op("MRotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_of_streams(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,  # noqa: ARG001  (it is about nothing but a check of sizes)
    mrope_layout: int = 0,
    mrope_section: list[int],
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Each pair of numbers is turned by one of three positions: in time, of a row or of a column."""
    places = from_zero(positions, cos.shape[0], counts_back=False)
    _, tall, broad = mrope_section
    turns = []
    for cache in (cos, sin):
        time, row, column = F.embedding(places, cache)
        if mrope_layout == 0:
            parts = [value.split(mrope_section, -1)[place] for place, value in enumerate((time, row, column))]
            turns.append(torch.cat(parts, -1) * scale)
        else:
            pairs = torch.arange(cache.shape[-1], device=cache.device)
            time = torch.where((pairs % 3 == 1) & (pairs < 3 * tall), row, time)
            turns.append(torch.where((pairs % 3 == 2) & (pairs < 3 * broad), column, time) * scale)
    axis = 1 if x.ndim == 4 else 2  # that of the heads
    cosine, sine = (turn.unsqueeze(axis) for turn in turns)
    if x.ndim == 4:
        return rotated(x, cosine, sine, rotary_embedding_dim, interleaved)
    split = x.unflatten(-1, (num_heads, -1))
    return rotated(split, cosine, sine, rotary_embedding_dim, interleaved).flatten(2)

"""Attention whose memory has one size, however many tokens it has seen."""

from __future__ import annotations

import math

import torch

from litehouse.engines.torch.ops.attention import heads
from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

CHUNK = 32  # tokens that are computed at once
RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


@op("LinearAttention")
@op("LinearAttention", domain=MICROSOFT)
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,  # noqa: ARG001  (a hint)
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    if state_window or update_rule not in RULES or q_num_heads % kv_num_heads:
        raise LackingError(
            "LinearAttention that keeps several states, by another rule, or with fewer queries than keys"
        )
    is_gated, is_delta = RULES[update_rule]
    if (is_gated and decay is None) or (is_delta and beta is None):
        raise LackingError(f"LinearAttention of the rule {update_rule} without what it needs")
    kinds = q.dtype, k.dtype if state is None else state.dtype
    q, k, v = wide(heads(q, q_num_heads)), wide(heads(k, kv_num_heads)), wide(heads(v, kv_num_heads))
    q = q * (scale or 1 / math.sqrt(q.shape[-1]))
    q = q.unflatten(1, (kv_num_heads, -1))  # those that share keys
    memory = k.new_zeros(*k.shape[:2], k.shape[3], v.shape[3]) if state is None else wide(state)
    gates = None
    if is_gated and decay is not None:
        gates = wide(heads(decay, kv_num_heads)).expand(
            -1, -1, -1, 1 if decay.shape[-1] == kv_num_heads else k.shape[3]
        )
    rates = wide(heads(beta, beta.shape[-1])) if is_delta and beta is not None else None
    found = []
    for start in range(0, k.shape[2], CHUNK):
        part = slice(start, start + CHUNK)
        sums = None if gates is None else gates[:, :, part].cumsum(2)
        rate = None if rates is None else rates[:, :, part]
        one, memory = _chunk(q[..., part, :], k[:, :, part], v[:, :, part], memory, sums, rate)
        found.append(one)
    y = torch.cat(found, 3) if found else q.new_zeros(*q.shape[:-1], v.shape[-1])
    return y.flatten(1, 2).transpose(1, 2).flatten(2).to(kinds[0]), memory.to(kinds[1])


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, memory: Tensor, sums: Tensor | None, rates: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What some tokens find, and the memory behind them.

    A token adds the product of its key and of an update to the memory, which decays by then and later. The updates are
    the values, or, by the delta rule, what the values lack of what the memory holds for their keys. Those depend on
    each other in a triangle of equations.

    Args:
        q: The queries: [batch, head, queries of the head, token, size].
        k: The keys: [batch, head, token, size].
        v: The values.
        memory: What is remembered: [batch, head, size of a key, size of a value].
        sums: By how much it has decayed since then at each token, as logarithms; None for not at all.
        rates: How much of its update each token makes; None for no delta rule.
    """
    count = k.shape[2]
    causal = torch.ones(count, count, dtype=torch.bool, device=k.device).tril()
    if sums is None:
        sums = k.new_zeros(*k.shape[:3], 1)
    shares = (sums.unsqueeze(3) - sums.unsqueeze(2)).masked_fill(~causal.unsqueeze(-1), -math.inf).exp()
    updates, since = v, sums.exp()
    if rates is not None:
        updates = rates * (v - (k * since) @ memory)
        if count > 1:
            triangle = (rates * _scores(k.unsqueeze(2), k, shares).squeeze(2)).tril(-1)
            updates = torch.linalg.solve_triangular(triangle, updates, upper=False, unitriangular=True)
    found = (q * since.unsqueeze(2)) @ memory.unsqueeze(2) + _scores(q, k, shares) @ updates.unsqueeze(2)
    last = sums[:, :, -1:]
    return found, last.exp().mT * memory + (k * (last - sums).exp()).mT @ updates


def _scores(q: Tensor, k: Tensor, shares: Tensor) -> Tensor:
    """The products of queries and keys, with the share that is left of each pair, as a whole or of each number."""
    if shares.shape[-1] == 1:
        return (q @ k.mT.unsqueeze(2)) * shares[..., 0].unsqueeze(2)
    return torch.einsum("bhrtd,bhjd,bhtjd->bhrtj", q, k, shares)

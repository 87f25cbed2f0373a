"""Attention with several heads."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.ops.flat_weights import FlatWeights
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

ADDED_MASKS = ("DEFAULT_MASK", "USER_DEFINED_MASK")


@op("MultiHeadAttn")
def multi_head_attention(
    t: MgeTape,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    weights: ir.Value,
    *more: ir.Value,
    num_heads: int,
    sm_scaler: float,
    **params: Any,
) -> Any:
    """The attention's result; the weights of its sums, for each head of each sample; and what only training wants.

    MegEngine computes this on CPU without regard to `reslink`, `input_order` and `need_weights`.
    """
    _refuse_unknown(t, params)
    if {t.rank(value) for value in (q, k, v)} != {3} or num_heads < 1:
        t.refuse(f"{num_heads} heads, or operands that are not of rank 3")
    (w_q, b_q), (w_k, b_k), (w_v, b_v), (w_o, b_o) = _projections(t, weights, num_heads, params)
    queries = _heads(t, _projected(t, q, w_q, b_q), num_heads, w_q is not None, (0, 2, 1, 3))
    keys = _heads(t, _projected(t, k, w_k, b_k), num_heads, w_k is not None, (0, 2, 3, 1))
    values = _heads(t, _projected(t, v, w_v, b_v), num_heads, w_v is not None, (0, 2, 1, 3))
    scores = t.op("MatMul", [queries, keys])
    scores = t.op("Mul", [scores, t.constant(sm_scaler, t.dtype(q))])
    (batch, steps, _), (_, places, _) = t.sizes(q), t.sizes(k)
    if params["attn_mask_type"] in ADDED_MASKS:
        scores = t.op("Add", [scores, _mask(t, more, batch, num_heads)])
    if t.sizes(scores)[1] != num_heads:
        scores = t.op("Expand", [scores, t.ints((1, num_heads, 1, 1))])
    shares = t.op("Softmax", [scores], axis=-1)
    mixed = t.op("Transpose", [t.op("MatMul", [shares, values])], perm=[0, 2, 1, 3])
    y = _projected(t, t.op("Reshape", [mixed, t.ints((0, 0, -1))]), w_o, b_o)
    return y, t.op("Reshape", [shares, t.ints((batch * num_heads, steps, places))]), None, None


def _refuse_unknown(t: MgeTape, params: dict[str, Any]) -> None:
    """Refuse what MegEngine itself computes on CUDA alone, and what is random."""
    if params["attn_mask_type"] == "CUDNN_STYLE_MASK":
        t.refuse("a mask in cuDNN's style, which MegEngine itself knows on CUDA alone")
    if params["tensor_combination_type"] in ("ONLY_BIASKV", "ALL") or params["add_zero_attn"]:
        t.refuse("a key and value that are added to the sequence, which MegEngine itself knows on CUDA alone")
    if params["training"] and (params["attn_prob"] or params["out_prob"]):
        t.refuse("it drops numbers at random; save the network in inference mode")


def _projections(
    t: MgeTape, weights: ir.Value, heads: int, params: dict[str, Any]
) -> list[tuple[ir.Value | None, ir.Value | None]]:
    """The weights and biases for queries, keys, values and results; None for those that are not there."""
    flat = FlatWeights(t, weights)
    rows = [params["embedding_size"], params["k_size"], params["v_size"], params["vproj_size"]]
    rows[3] = rows[3] or heads * params["v_size"]
    columns = [params[f"{name}proj_size"] for name in "qkvo"]
    matrices = [flat.take(*sizes) if sizes[1] else None for sizes in zip(rows, columns, strict=True)]
    has_bias = [params[f"{name}bias"] and size for name, size in zip("qkvo", columns, strict=True)]
    biases = [flat.take(size) if there else None for size, there in zip(columns, has_bias, strict=True)]
    flat.finish()
    return list(zip(matrices, biases, strict=True))


def _projected(t: MgeTape, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None) -> ir.Value:
    if weight is not None:
        x = t.op("MatMul", [x, weight])
    return x if bias is None else t.op("Add", [x, bias])


def _heads(t: MgeTape, x: ir.Value, heads: int, split: bool, order: tuple[int, ...]) -> ir.Value:
    """The operand with an axis for the heads; where it is not projected, all of them share it."""
    shaped = t.op("Reshape", [x, t.ints((0, 0, heads, -1))]) if split else t.op("Unsqueeze", [x, t.ints(2)])
    turned: ir.Value = t.op("Transpose", [shaped], perm=list(order))
    return turned


def _mask(t: MgeTape, more: tuple[ir.Value, ...], batch: int, heads: int) -> ir.Value:
    """What is added to the scores: the same for all, or one for each head of each sample."""
    if len(more) != 1:
        t.refuse(f"{len(more)} operands behind the weights, where one mask must be")
    mask = more[0]
    if t.rank(mask) == 2:
        return mask
    if t.rank(mask) != 3:
        t.refuse(f"a mask of rank {t.rank(mask)}")
    samples, steps, places = t.sizes(mask)
    if samples != batch * heads:
        t.refuse(f"{samples} masks for {heads} heads of {batch} samples")
    shaped: ir.Value = t.op("Reshape", [mask, t.ints((batch, heads, steps, places))])
    return shaped

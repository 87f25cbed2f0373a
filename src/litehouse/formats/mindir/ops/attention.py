"""Attention, which accelerators have as one op; here it is composed of products and a softmax, in float32."""

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import positions, size_along, through
from litehouse.formats.mindir.ops.normalization import inverse_root, rms_norm, statistics
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

LAYOUTS = {0: "BSH", 1: "BNSD", 2: "SBH", 3: "BSND"}
TO_HEADS = {"BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3), "BSND": (0, 2, 1, 3)}
FROM_HEADS = {"BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3), "BSND": (0, 2, 1, 3)}
ALL_TOKENS = 2**31 - 1
FLOAT, INT64, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL
LOWEST = -3.0e38  # for what is masked out; minus infinity would make a row without any token not a number


@dataclass(frozen=True, slots=True)
class Mask:
    """What of the scores counts.

    Attributes:
        given: The network's mask, 1 where a score does not count.
        mode: How it is to be read: 0 and 1 as it is; 2 and 3 as tokens up to one's own, counted from the first or from
            the last; 4 as a band, counted from the last.
        before: In a band, how many tokens before one's own count.
        after: In a band, how many tokens after one's own count.
    """

    given: ir.Value | None
    mode: int
    before: int
    after: int


@op("FlashAttentionScore")
def flash_attention_score(
    t: MindirTape,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    real_shift: ir.Value | None = None,
    drop_mask: ir.Value | None = None,
    padding_mask: ir.Value | None = None,
    attn_mask: ir.Value | None = None,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    head_num: Any = 1,
    keep_prob: Any = 1.0,
    scale_value: Any = 1.0,
    pre_tokens: Any = ALL_TOKENS,
    next_tokens: Any = ALL_TOKENS,
    inner_precise: Any = 0,
    input_layout: Any = "BSH",
    sparse_mode: Any = 0,
) -> Any:
    _refuse_given(
        t,
        padding_mask=padding_mask,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
    )
    if real_shift is not None and t.literal(scale_value) != 1:
        t.refuse("real_shift together with a scale is not supported: its releases differ in which comes first")
    mask = Mask(attn_mask, *(t.literal(each) for each in (sparse_mode, pre_tokens, next_tokens)))
    layout, heads = _layout(t, input_layout), t.literal(head_num)
    y = _attention(t, (query, key, value), layout, heads, t.literal(scale_value), mask, real_shift)
    return (None, None, None, y)  # the rest is for training


@op("PromptFlashAttention")
def prompt_flash_attention(
    t: MindirTape,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    actual_seq_lengths: Any = None,
    actual_seq_lengths_kv: Any = None,
    pse_shift: Any = None,
    deq_scale1: Any = None,
    quant_scale1: Any = None,
    deq_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    num_heads: Any = 1,
    scale_value: Any = 1.0,
    pre_tokens: Any = ALL_TOKENS,
    next_tokens: Any = 0,
    input_layout: Any = "BSH",
    num_key_value_heads: Any = 0,
    sparse_mode: Any = 0,
    inner_precise: Any = 1,
) -> Any:
    _refuse_given(
        t,
        actual_seq_lengths=actual_seq_lengths,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
        pse_shift=pse_shift,
        deq_scale1=deq_scale1,
        quant_scale1=quant_scale1,
        deq_scale2=deq_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
    )
    mask = Mask(attn_mask, *(t.literal(each) for each in (sparse_mode, pre_tokens, next_tokens)))
    layout, heads = _layout(t, input_layout), t.literal(num_heads)
    return _attention(t, (query, key, value), layout, heads, t.literal(scale_value), mask, None)


@op("IncreFlashAttention")
def incremental_flash_attention(
    t: MindirTape,
    query: ir.Value,
    key: Any,
    value: Any,
    attn_mask: ir.Value | None = None,
    actual_seq_lengths: Any = None,
    pse_shift: Any = None,
    dequant_scale1: Any = None,
    quant_scale1: Any = None,
    dequant_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    block_table: Any = None,
    kv_padding_size: Any = None,
    num_heads: Any = 1,
    input_layout: Any = "BSH",
    scale_value: Any = 1.0,
    num_key_value_heads: Any = 0,
    block_size: Any = 0,
    inner_precise: Any = 1,
) -> Any:
    """One new token for each sample; keys and values come as tuples of one tensor."""
    _refuse_given(
        t,
        actual_seq_lengths=actual_seq_lengths,
        pse_shift=pse_shift,
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        antiquant_scale=antiquant_scale,
        antiquant_offset=antiquant_offset,
        block_table=block_table,
        kv_padding_size=kv_padding_size,
    )
    (keys,), (values,) = (each if isinstance(each, tuple) else (each,) for each in (key, value))
    if attn_mask is not None:  # of (batch, key), with axes of size 1 between them or not
        attn_mask = t.op("Reshape", [attn_mask, t.ints((0, 1, 1, -1))], dtype=attn_mask.dtype, shape=(None,) * 4)
    mask = Mask(attn_mask, 1, ALL_TOKENS, ALL_TOKENS)
    layout, heads = _layout(t, input_layout), t.literal(num_heads)
    return _attention(t, (query, keys, values), layout, heads, t.literal(scale_value), mask, None)


def _refuse_given(t: MindirTape, **operands: Any) -> None:
    for name, value in operands.items():
        if value is not None:
            t.refuse(f"{name} is not supported")


def _layout(t: MindirTape, layout: Any) -> str:
    layout = t.literal(layout)
    layout = LAYOUTS.get(layout, layout)
    if layout not in LAYOUTS.values():
        t.refuse(f"layout {layout!r} is not supported, only {', '.join(LAYOUTS.values())}")
    return str(layout)


def _attention(
    t: MindirTape,
    operands: tuple[ir.Value, ir.Value, ir.Value],
    layout: str,
    heads: int,
    scale: float,
    mask: Mask,
    shift: ir.Value | None,
) -> ir.Value:
    query, key, value = operands
    if query.shape is None or key.shape is None:
        t.refuse("an operand of unknown rank is not supported")
    key_heads = _key_heads(t, query.shape, key.shape, layout, heads)
    q = _by_heads(t, query, layout, heads)
    k, v = (_repeated(t, _by_heads(t, each, layout, key_heads), heads // key_heads, heads) for each in (key, value))
    scores = t.op("MatMul", [q, t.op("Transpose", [k], perm=(0, 1, 3, 2))])
    scores = t.op("Mul", [scores, t.constant(scale, FLOAT)], dtype=FLOAT)
    if shift is not None:
        scores = t.op("Add", [scores, t.cast(shift, FLOAT)], dtype=FLOAT)
    token_axis = layout.index("S")
    square = isinstance(tokens := query.shape[token_axis], int) and tokens == key.shape[token_axis]
    if square:
        t.known_sizes(query)  # true for these sizes alone
    hidden = _hidden(t, q, k, mask, square)
    if hidden is not None:
        scores = t.op("Where", [hidden, t.constant(LOWEST, FLOAT), scores], dtype=FLOAT)
    y = t.op("MatMul", [t.op("Softmax", [scores], axis=-1), v], dtype=FLOAT)
    if layout != "BNSD":
        y = t.op("Transpose", [y], perm=FROM_HEADS[layout], dtype=FLOAT)
    if layout in ("BSH", "SBH"):
        y = t.op("Reshape", [y, t.ints((0, 0, -1))], dtype=FLOAT)
    return t.cast(y, t.dtype(query))


def _key_heads(t: MindirTape, query: ir.Shape, key: ir.Shape, layout: str, heads: int) -> int:
    """How many heads the keys have, from the shapes: several heads of the query may share one."""
    if layout in ("BSH", "SBH"):
        width, key_width = query[2], key[2]
        found: Any = key_width * heads // width if isinstance(width, int) and isinstance(key_width, int) else None
    else:
        found = key[layout.index("N")]
    if not isinstance(found, int) or found < 1 or heads % found:
        t.refuse(f"{found} heads of keys for {heads} heads of queries are not supported")
    return found


def _by_heads(t: MindirTape, x: ir.Value, layout: str, heads: int) -> ir.Value:
    """(batch, head, token, feature), from any layout."""
    x = t.cast(x, FLOAT)
    if layout == "BNSD":
        return x
    if layout in ("BSH", "SBH"):
        x = t.op("Reshape", [x, t.ints((0, 0, heads, -1))])
    made: ir.Value = t.op("Transpose", [x], perm=TO_HEADS[layout], dtype=FLOAT)
    return made


def _repeated(t: MindirTape, x: ir.Value, times: int, heads: int) -> ir.Value:
    """Each head several times."""
    if times == 1:
        return x
    wide = t.op("Expand", [t.op("Unsqueeze", [x, t.ints(2)]), t.ints((1, 1, times, 1, 1))])
    shape = t.op("Concat", [t.ints((0, heads)), t.op("Shape", [x], start=2)], axis=0)
    made: ir.Value = t.op("Reshape", [wide, shape], dtype=FLOAT)
    return made


def _hidden(t: MindirTape, q: ir.Value, k: ir.Value, mask: Mask, square: bool) -> ir.Value | None:
    """Where a score does not count; None where all do."""
    if mask.mode not in range(5) or (mask.given is None and mask.mode > 1):
        t.refuse(f"sparse mode {mask.mode}, {'with' if mask.given is not None else 'without'} a mask, is not supported")
    if mask.given is None:
        return None
    if mask.mode > 1:  # the mask that is given is the same for all networks, and not needed
        return _outside_band(t, q, k, mask)
    hidden = _full_mask(t, mask.given)
    if mask.mode == 1 or (mask.before >= ALL_TOKENS and mask.after >= ALL_TOKENS):
        return hidden
    if not square:
        t.refuse("a mask with pre_tokens or next_tokens, for keys and queries of other numbers, is not supported")
    return t.op("Or", [hidden, _outside_band(t, q, k, mask)])  # type: ignore[no-any-return]


def _outside_band(t: MindirTape, q: ir.Value, k: ir.Value, mask: Mask) -> ir.Value:
    """Where a key lies too many tokens before or after the query's own."""
    tokens, key_tokens = size_along(t, q, 2), size_along(t, k, 2)
    own = t.op("Unsqueeze", [positions(t, tokens), t.ints(1)])
    if mask.mode in (3, 4):
        own = t.op("Add", [own, t.op("Sub", [key_tokens, tokens])])
    away = t.op("Sub", [positions(t, key_tokens), own])
    causal = mask.mode in (2, 3)
    hidden: ir.Value = t.op("Greater", [away, t.constant(0 if causal else mask.after, INT64)])
    if not causal:
        hidden = t.op("Or", [hidden, t.op("Less", [away, t.constant(-mask.before, INT64)])])
    return hidden


def _full_mask(t: MindirTape, mask: ir.Value) -> ir.Value:
    """A mask of (token, key), (batch, token, key) or (batch, head, token, key), as the last of these."""
    hidden = t.cast(mask, BOOL)
    return t.op("Unsqueeze", [hidden, t.ints(1)]) if t.rank(mask) == 3 else hidden


# Position, and sums that are normalised -------------------------------------------------------------------------------


@op("RotaryPositionEmbedding")
def rotary_position_embedding(t: MindirTape, x: ir.Value, cos: ir.Value, sin: ir.Value, mode: Any = 0) -> Any:
    """Pairs of features turned by an angle: mode 0 pairs the first half with the second, mode 1 neighbours."""
    kind = t.literal(mode)
    if kind == 0:
        first, second = t.op("Split", [x], axis=-1, num_outputs=2, outputs=2)
        turned = t.op("Concat", [t.op("Neg", [second]), first], axis=-1)
    elif kind == 1:
        pairs = t.op("Reshape", [x, t.op("Concat", [t.op("Shape", [x], end=-1), t.ints((-1, 2))], axis=0)])
        first, second = t.op("Split", [pairs], axis=-1, num_outputs=2, outputs=2)
        turned = t.op("Reshape", [t.op("Concat", [t.op("Neg", [second]), first], axis=-1), t.op("Shape", [x])])
    else:
        t.refuse(f"mode {kind} is not supported")
    return t.op("Add", [t.op("Mul", [x, t.cast(cos, t.dtype(x))]), t.op("Mul", [turned, t.cast(sin, t.dtype(x))])])


@op("AddRmsNorm")
def add_rms_norm(t: MindirTape, x1: ir.Value, x2: ir.Value, gamma: ir.Value, epsilon: Any = 1e-6) -> Any:
    total = _sum(t, x1, x2)
    y, scale = rms_norm(t, total, gamma, epsilon)
    return (t.cast(y, t.result_dtype(0)), scale, t.cast(total, t.result_dtype(2)))


@op("AddLayerNormV2")
def add_layer_norm(
    t: MindirTape,
    x1: ir.Value,
    x2: ir.Value,
    gamma: ir.Value,
    beta: ir.Value,
    epsilon: Any = 1e-5,
    additional_out: Any = False,
) -> Any:
    total = _sum(t, x1, x2)
    y = through(t, "LayerNormalization", [total, gamma, beta], axis=-1, epsilon=t.literal(epsilon))
    mean, variance = statistics(t, total, (-1,))
    scale = inverse_root(t, variance, epsilon)
    return (t.cast(y, t.result_dtype(0)), mean, scale, t.cast(total, t.result_dtype(3)))


def _sum(t: MindirTape, x1: ir.Value, x2: ir.Value) -> ir.Value:
    total: ir.Value = t.op("Add", [t.cast(x1, FLOAT), t.cast(x2, FLOAT)], dtype=FLOAT)
    total.shape = x1.shape
    return total

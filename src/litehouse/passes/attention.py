"""Joins the steps of an attention into one op of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from litehouse.passes.heads import Heads, find_heads
from litehouse.passes.sketch import (
    Sketch,
    folds_weights,
    is_along_last,
    number_of,
    only_maker,
    only_user,
    order_of,
    static_shape,
)

MICROSOFT = "com.microsoft"
OLDEST_OPSET = 10  # of a Slice that takes its bounds as inputs
LOST = -1e30  # adding a score to this, or less, does not change it


@dataclass(frozen=True, slots=True)
class _Masking:
    """How the scores are masked: by an Add, or by a Where that puts a very small number in places."""

    node: ir.Node
    place: int  # of the scores among the node's operands


@dataclass(frozen=True, slots=True)
class _Attention:
    """softmax(scale * queries * keys + mask) * values, for each head."""

    queries: Heads
    keys: Heads
    values: Heads
    scale: float
    masking: _Masking | None
    mixing: ir.Node
    joining: ir.Node


class AttentionPass(ir.passes.InPlacePass):
    """Writes one op for the products, the softmax and the transpositions of an attention.

    The op takes the projections as they are, with the heads side by side, and goes through many tokens in blocks that
    stay in the cache. The standard op of the same meaning (measured in ONNX Runtime 1.31.1) is a little faster with few
    tokens, but with two threads and three heads slower than the single steps. It also wants opset 23, which not all ops
    have a kernel for, and where a mask hides all it gives zeros instead of NaN.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Join every attention that is recognised as a whole, in the main graph."""
        modified = False
        is_served = model.graph.opset_imports.get("", 0) >= OLDEST_OPSET and folds_weights(model)
        for node in list(model.graph) if is_served else ():
            if node.op_type == "Softmax" and not node.domain:
                found = _find(node)
                if found is not None:
                    _rewrite(model.graph, found)
                    modified = True
        if modified:
            model.graph.sort()
        return ir.passes.PassResult(model, modified)


def _find(softmax: ir.Node) -> _Attention | None:
    before = softmax.inputs[0]
    shape = static_shape(before)
    if before is None or shape is None or len(shape) != 4 or before.dtype != ir.DataType.FLOAT:
        return None
    mixing = only_user(softmax.outputs[0], "MatMul")
    joining = None if mixing is None else only_user(mixing.outputs[0], "Transpose")
    if mixing is None or joining is None or not is_along_last(softmax, len(shape)):
        return None
    if mixing.inputs[0] is not softmax.outputs[0] or order_of(joining) != (0, 2, 1, 3):
        return None
    masking = _masking(before, shape)
    scores, scale = _unscaled(before if masking is None else masking.node.inputs[masking.place])
    product = only_maker(scores, "MatMul")
    if product is None:
        return None
    (left, left_scale), (right, right_scale) = (_unscaled(value) for value in product.inputs)
    queries, keys, values = find_heads(left), find_heads(right, turned=True), find_heads(mixing.inputs[1])
    if queries is None or keys is None or values is None:
        return None
    batch, tokens, heads, size = queries.shape
    if keys.shape != (batch, shape[3], heads, size) or keys.shape[:3] != values.shape[:3]:
        return None
    if shape[:3] != (batch, heads, tokens):
        return None
    whole = float(np.float32(scale * left_scale * right_scale))  # 0 would stand for the op's own default
    return _Attention(queries, keys, values, whole, masking, mixing, joining) if whole else None


def _rewrite(graph: ir.Graph, found: _Attention) -> None:
    sketch = Sketch(graph, found.joining)
    operands: list[ir.Value | None] = [heads.write(sketch) for heads in (found.queries, found.keys, found.values)]
    batch, tokens, heads, _ = found.queries.shape
    keys, size = found.keys.shape[1], found.values.shape[3]
    if found.masking is not None:
        operands += [None, None, _mask(sketch, found.masking, tokens, keys)]
    graph.opset_imports[MICROSOFT] = 1
    joined = sketch.op("MultiHeadAttention", operands, domain=MICROSOFT, num_heads=heads, scale=found.scale)
    old = found.joining.outputs[0]
    for user in list(old.consumers()):
        if user.op_type == "Reshape" and _is_plain(user.inputs[1]):
            user.replace_input_with(0, joined)
    apart = sketch.op("Reshape", [joined, sketch.ints(batch, tokens, heads, size)])
    sketch.replace(old, apart)
    graph.remove(found.joining, safe=True)


def _mask(sketch: Sketch, masking: _Masking, tokens: int, keys: int) -> ir.Value:
    """What is added to the scores, for all queries and keys."""
    operands = list(masking.node.inputs)
    if masking.node.op_type == "Where":
        shape = static_shape(operands[0])
        operands[masking.place] = sketch.constant(np.array(0, np.float32))
        mask = sketch.shared("Where", operands)
        mask.type = ir.TensorType(ir.DataType.FLOAT)
    else:
        mask = operands[1 - masking.place]
        shape = static_shape(mask)
    assert shape is not None
    outer = (*(1,) * (4 - len(shape)), *shape)[:2]
    return sketch.shared("Expand", [mask, sketch.ints(*outer, tokens, keys)])  # type: ignore[no-any-return]


def _masking(value: ir.Value, shape: tuple[int, ...]) -> _Masking | None:
    """How the scores behind a value are masked."""
    for op_type, places in (("Add", (0, 1)), ("Where", (1, 2))):
        node = only_maker(value, op_type)
        for place in places if node is not None else ():
            assert node is not None
            mask = node.inputs[1 - place] if op_type == "Add" else node.inputs[0]
            is_small = op_type == "Add" or _is_lost(node.inputs[3 - place])
            if is_small and _spans(mask, shape) and only_maker(_unscaled(node.inputs[place])[0], "MatMul") is not None:
                return _Masking(node, place)
    return None


def _spans(mask: ir.Value | None, shape: tuple[int, ...]) -> bool:
    """Whether a mask is for scores of a shape, and does not make them larger."""
    sizes = static_shape(mask)
    if sizes is None or len(sizes) > len(shape):
        return False
    return all(size in (1, whole) for size, whole in zip(reversed(sizes), reversed(shape)))  # noqa: B905


def _is_lost(value: ir.Value | None) -> bool:
    number = number_of(value)
    return number is not None and number <= LOST


def _unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """A value before it was multiplied with, or divided by, a number; and the factor."""
    node = only_maker(value, "Mul", "Div")
    if node is None:
        return value, 1.0
    first, second = (number_of(each) for each in node.inputs)
    if second is not None and (node.op_type == "Mul" or second != 0):
        return node.inputs[0], second if node.op_type == "Mul" else 1 / second
    return (node.inputs[1], first) if first is not None and node.op_type == "Mul" else (value, 1.0)


def _is_plain(shape: ir.Value | None) -> bool:
    """Whether a shape is constant, and copies no size from the operand."""
    return shape is not None and shape.const_value is not None and 0 not in shape.const_value.numpy()

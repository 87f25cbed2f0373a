"""Computes on operands whose axes are in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from litehouse.passes.kinds import ALONE, REDUCTIONS, TOGETHER
from litehouse.passes.sketch import Sketch, ints_of, is_fixed, static_shape

Order = tuple[int, ...]

ONE_AXIS = frozenset(("Concat", "LogSoftmax", "Softmax", "Split"))


def common_order(node: ir.Node, orders: Mapping[ir.Value, Order]) -> Order | None:
    """In which order the operands of a node may be taken instead; None if they differ, or the node depends on it.

    Args:
        node: The node.
        orders: How those values that are transposed ones have been transposed.
    """
    found = {orders[value] for value in node.inputs if value is not None and value in orders}
    if len(found) != 1 or node.domain:
        return None
    (order,) = found
    fits = {
        **dict.fromkeys(ALONE, _is_alone),
        **dict.fromkeys(TOGETHER, _are_together),
        **dict.fromkeys(ONE_AXIS, _are_together),
        **dict.fromkeys(REDUCTIONS, _keeps_axes),
        "Pad": _is_padding,
        "Slice": _is_slice,
    }.get(node.op_type)
    return order if fits is not None and fits(node, order, orders) else None


def turned(sketch: Sketch, node: ir.Node, order: Order, sources: Mapping[ir.Value, ir.Value]) -> Sequence[ir.Value]:
    """Write a node on its operands as they were before they were transposed.

    Args:
        sketch: Where to write.
        node: The node.
        order: How they were transposed.
        sources: What they were.

    Returns:
        Its results, with their axes in the order that the operands have.
    """
    attributes: dict[str, Any] = {name: each.value for name, each in node.attributes.items()}
    operands: list[ir.Value | None] = []
    for value in node.inputs:
        if value is not None and value in sources:
            operands.append(sources[value])
        else:
            is_weight = node.op_type in TOGETHER or node.op_type == "Concat"
            operands.append(_turned_back(sketch, value, order) if is_weight else value)
    if node.op_type in ONE_AXIS:
        attributes["axis"] = order[attributes.get("axis", -1 if "Softmax" in node.op_type else 0)]
    elif node.op_type in REDUCTIONS and "axes" in attributes:
        attributes["axes"] = [order[axis] for axis in attributes["axes"]]
    elif node.op_type in REDUCTIONS:
        operands[1] = sketch.ints(*(order[axis] for axis in ints_of(node, 1) or ()))
    elif node.op_type == "Slice":
        operands[3] = sketch.ints(*(order[axis] for axis in ints_of(node, 3) or ()))
    elif node.op_type == "Pad":
        pads, back = ints_of(node, 1) or [], inverse(order)
        operands[1] = sketch.ints(*(pads[start + axis] for start in (0, len(order)) for axis in back))
    made = sketch.op(node.op_type, operands, outputs=len(node.outputs), **attributes)
    return [made] if len(node.outputs) == 1 else made


def inverse(order: Order) -> Order:
    """The order that undoes a transposition."""
    return tuple(order.index(axis) for axis in range(len(order)))


def _turned_back(sketch: Sketch, value: ir.Value | None, order: Order) -> ir.Value | None:
    """A weight, for operands in the order before the transposition."""
    shape = static_shape(value)
    if value is None or shape is None or shape in ((), (1,)):
        return value
    whole = sketch.op("Reshape", [value, sketch.ints(*(1,) * (len(order) - len(shape)), *shape)])
    return sketch.op("Transpose", [whole], perm=inverse(order))  # type: ignore[no-any-return]


def _is_alone(node: ir.Node, _: Order, orders: Mapping[ir.Value, Order]) -> bool:
    """One operand, and settings that are single numbers."""
    return node.inputs[0] in orders and all(
        value is None or static_shape(value) in ((), (1,)) for value in node.inputs[1:]
    )


def _are_together(node: ir.Node, order: Order, orders: Mapping[ir.Value, Order]) -> bool:
    """Operands in the same order, and weights that fit them; what they are split by is no weight."""
    others = [value for value in node.inputs if value not in orders]
    if node.op_type == "Split":
        return others == list(node.inputs[1:])
    return all(is_fixed(value) and len(static_shape(value) or (0,) * 9) <= len(order) for value in others)


def _keeps_axes(node: ir.Node, _: Order, orders: Mapping[ir.Value, Order]) -> bool:
    """A reduction over known axes that stay as size 1."""
    kept = node.attributes.get("keepdims")
    is_known = "axes" in node.attributes or ints_of(node, 1)
    return node.inputs[0] in orders and bool(is_known) and (kept is None or kept.as_int() == 1)


def _is_padding(node: ir.Node, order: Order, orders: Mapping[ir.Value, Order]) -> bool:
    """Known padding of all axes."""
    pads = ints_of(node, 1)
    return node.inputs[0] in orders and len(node.inputs) < 4 and pads is not None and len(pads) == 2 * len(order)


def _is_slice(node: ir.Node, _: Order, orders: Mapping[ir.Value, Order]) -> bool:
    """Slices of known axes."""
    return node.inputs[0] in orders and bool(ints_of(node, 3))

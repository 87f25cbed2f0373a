"""Ops on every element by itself, or on elements at the same place."""

from __future__ import annotations

from litehouse.distributed.slicing.cuts import Cut
from litehouse.distributed.slicing.moves.registry import Move, Site, moves, spread


@moves(
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Cos", "Cosh"),
    *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh"),
    *("Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
)
def alone(_: Site, cut: Cut) -> Move | None:
    """Every element by itself."""
    return Move({0: cut})


@moves("Clip", "CastLike", "Dropout")
def settings_behind(_: Site, cut: Cut) -> Move | None:
    """Every element by itself; the operands behind the first are single numbers, or only their type matters."""
    return Move({0: cut})


@moves("Gelu", "QuickGelu", "FastGelu", domain="com.microsoft")
def contributed(site: Site, cut: Cut) -> Move | None:
    """Activations that ONNX Runtime adds; one of them may have a bias."""
    found = spread(site, cut, range(len(site.node.inputs)))
    return None if found is None else Move(found)


@moves(
    *("Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual"),
    *("Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor"),
)
def together(site: Site, cut: Cut) -> Move | None:
    """Elements at the same place; an operand of size 1 on the axis, or without it, is the same for all ranks."""
    if site.opset < 7 and site.node.op_type not in ("Max", "Mean", "Min", "Sum", "Where"):
        return None  # operands were spread by an attribute then
    found = spread(site, cut, range(len(site.node.inputs)))
    return None if found is None else Move(found)


@moves("DequantizeLinear", "QuantizeLinear")
def scaled(site: Site, cut: Cut) -> Move | None:
    """Numbers by a scale: one for all, one for each place of an axis, or one for blocks of it."""
    data, scale = site.sizes(0), site.sizes(1)
    if data is None or scale is None or site.number("block_size", 0) or cut.is_padded:
        return None
    found = {0: cut}
    if len(scale) == 1 and scale[0] != 1:
        if site.number("axis", 1) % len(data) == cut.axis:
            found |= {place: cut.along(0) for place in (1, 2) if site.has(place)}
    elif len(scale) > 1:
        return None
    return Move(found)

"""Checks the ops of an ONNX file that exchange data with other ranks: those that `litehouse slice` writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx

INT, TEXT = onnx.AttributeProto.INT, onnx.AttributeProto.STRING
VERSION = 1  # of the domain
MAX_RANKS = 1 << 20
MAX_TEXT = 1024
MANY = 1 << 16  # operands


def _is_rank(number: int) -> bool:
    return 0 <= number < MAX_RANKS


def _is_count(number: int) -> bool:
    return 1 <= number <= MAX_RANKS


def _is_tag(number: int) -> bool:
    return 0 <= number < 1 << 31


def _is_name(text: bytes) -> bool:
    return 0 < len(text) <= MAX_TEXT


def _is_reduction(text: bytes) -> bool:
    return text in (b"sum", b"max", b"min", b"prod")


Check = tuple[int, Callable[[Any], bool]]
GROUP: dict[str, Check] = {"group": (TEXT, _is_name)}
SIZE: dict[str, Check] = {"rank_size": (INT, _is_count)}
REDUCTION: dict[str, Check] = {"op": (TEXT, _is_reduction)}


@dataclass(frozen=True, slots=True)
class Form:
    """What a node of an op looks like: its operands, its results, and its attributes, of which none may be missing."""

    inputs: tuple[int, int] = (1, 1)
    outputs: tuple[int, int] = (1, 1)
    attributes: dict[str, Check] = field(default_factory=dict)


FORMS = {
    "AllReduce": Form(attributes={**GROUP, **REDUCTION, **SIZE}),
    "AllGather": Form(attributes={**GROUP, **SIZE}),
    "ReduceScatter": Form(attributes={**GROUP, **REDUCTION, **SIZE}),
    "Broadcast": Form((1, MANY), (1, MANY), {**GROUP, "root_rank": (INT, _is_rank)}),
    "Send": Form(attributes={**GROUP, "dest_rank": (INT, _is_rank), "sr_tag": (INT, _is_tag)}),
    "Receive": Form(attributes={**GROUP, "src_rank": (INT, _is_rank), "sr_tag": (INT, _is_tag)}),
    "Depend": Form((1, MANY)),
}


def fault_of(node: Any, typed: set[str]) -> str:
    """What is wrong with a node of such an op; empty where nothing is.

    Args:
        node: The node.
        typed: The values for which the file states a type.
    """
    form = FORMS[node.op_type]
    if not (form.inputs[0] <= len(node.input) <= form.inputs[1] and all(node.input)):
        return f"has {len(node.input)} operands, which the op does not take, or one without a name"
    if not (form.outputs[0] <= len(node.output) <= form.outputs[1] and all(node.output)):
        return f"has {len(node.output)} results, which the op does not give, or one without a name"
    if node.op_type == "Broadcast" and len(node.input) != len(node.output):
        return "does not give as much as it takes"
    found = {attribute.name: attribute for attribute in node.attribute}
    if found.keys() != form.attributes.keys() or len(found) != len(node.attribute):
        return f"has the attributes {sorted(found)}, not {sorted(form.attributes)}"
    for name, (kind, is_sound) in form.attributes.items():
        attribute = found[name]
        if attribute.type != kind or attribute.ref_attr_name:
            return f"has an attribute {name!r} of the wrong kind"
        if not is_sound(attribute.i if kind == INT else attribute.s):
            return f"has an attribute {name!r} that makes no sense"
    if node.op_type == "Receive" and node.output[0] not in typed:
        return "does not state the type of what comes"
    return ""


def typed_values(graph: Any) -> set[str]:
    """The values of a graph for which the file states dtype and rank."""
    values = [*graph.value_info, *graph.output]
    return {
        value.name for value in values if value.type.tensor_type.elem_type and value.type.tensor_type.HasField("shape")
    }

"""Keeps OpenVINO from loops that make no round."""

from __future__ import annotations

from typing import Any

ROUNDS, CONDITION, FIRST = 0, 1, 2  # a Loop's operands: its count of rounds, its condition, the values that it carries


def skip_idle_loops(graph: Any) -> None:
    """Put every Loop of an ONNX graph into an If that leaves it out where it would make no round.

    OpenVINO (seen in 2026.4.1) gives values that an earlier run left there, not those that the loop begins with. Loops
    that also collect a value of every round stay as they are.
    """
    nodes = list(graph.node)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                skip_idle_loops(attribute.g)
    if not any(_is_guarded(node) for node in nodes):
        return
    del graph.node[:]
    for node in nodes:
        graph.node.extend(_guarded(node) if _is_guarded(node) else [node])


def _is_guarded(node: Any) -> bool:
    if node.op_type != "Loop" or len(node.output) != len(node.input) - FIRST:
        return False
    return bool(node.input[CONDITION] or node.input[ROUNDS])


def _guarded(node: Any) -> list[Any]:
    from onnx import GraphProto, ValueInfoProto, helper

    label = node.output[0]
    before, condition = _condition(node, f"{label}/runs")
    ran, kept = ([f"{name}/{way}" for name in node.output] for way in ("ran", "kept"))
    copies = [
        helper.make_node("Identity", [first], [name]) for first, name in zip(node.input[FIRST:], kept, strict=True)
    ]
    choice = helper.make_node("If", [condition], list(node.output), name=f"{node.name}/guard")
    del node.output[:]
    node.output.extend(ran)
    for name, nodes, outputs in (("then_branch", [node], ran), ("else_branch", copies, kept)):
        branch = GraphProto(name=f"{label}/{name}", node=nodes, output=[ValueInfoProto(name=item) for item in outputs])
        choice.attribute.append(helper.make_attribute(name, branch))
    return [*before, choice]


def _condition(node: Any, name: str) -> tuple[list[Any], str]:
    """The nodes that compute whether the loop makes a round, and their result."""
    from onnx import TensorProto, helper

    if not node.input[ROUNDS]:
        return [], node.input[CONDITION]
    zero = helper.make_tensor("", TensorProto.INT64, [], [0])
    nodes = [
        helper.make_node("Constant", [], [f"{name}/zero"], value=zero),
        helper.make_node("Greater", [node.input[ROUNDS], f"{name}/zero"], [f"{name}/count"]),
    ]
    if not node.input[CONDITION]:
        return nodes, f"{name}/count"
    nodes.append(helper.make_node("And", [f"{name}/count", node.input[CONDITION]], [name]))
    return nodes, name

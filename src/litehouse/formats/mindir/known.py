"""Conditions that follow from constants, and so are known before the model runs."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

MAX_NODES, MAX_ELEMENTS = 32, 1024


def known(value: ir.Value, opset: int) -> Any:
    """What a value that a few nodes compute from small constants holds; None for any other."""
    nodes: dict[ir.Node, None] = {}
    constants: dict[ir.Value, None] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        node = item.producer()
        if item.const_value is not None:
            if item.const_value.size > MAX_ELEMENTS:
                return None
            constants[item] = None
        elif node is None or node.domain or len(nodes) == MAX_NODES or _has_graph(node):
            return None
        elif node not in nodes:
            nodes[node] = None
            waiting += [operand for operand in node.inputs if operand is not None]
    return _computed(value, list(nodes), list(constants), opset)


def _has_graph(node: ir.Node) -> bool:
    return any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())


def _computed(value: ir.Value, nodes: list[ir.Node], constants: list[ir.Value], opset: int) -> Any:
    from onnx import helper

    graph = helper.make_graph(
        [ir.to_proto(node) for node in _sorted(nodes)],
        "known",
        [],
        [helper.make_empty_tensor_value_info(value.name or "")],
        [_tensor(item) for item in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:
        (result,) = ReferenceEvaluator(model).run(None, {})
    except Exception:  # noqa: BLE001  (it raises what it likes; the engine will say what is wrong)
        return None
    return result


def _tensor(value: ir.Value) -> Any:
    assert value.const_value is not None
    tensor = ir.to_proto(value.const_value)
    tensor.name = value.name or ""
    return tensor


def _sorted(nodes: list[ir.Node]) -> list[ir.Node]:
    """The nodes, each behind those that it needs."""
    done: dict[ir.Node, None] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        needed = [item.producer() for item in node.inputs if item is not None]
        missing = [item for item in needed if item is not None and item not in done]
        if missing:
            waiting += [node, *missing]
        else:
            done[node] = None
    return list(done)

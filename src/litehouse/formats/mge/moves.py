"""Leaves out moves that undo each other: files move values to and fro between blocked and plain layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

MOVES = ("Reshape", "Transpose")


def shortened(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> tuple[Sequence[ir.Value | None], dict[str, Any]]:
    """A Reshape or Transpose of the result of another one, as one of what that one takes."""
    kept = inputs, dict(attributes)
    node = inputs[0].producer() if inputs[0] is not None else None
    if node is None or node.op_type != op_type:
        return kept
    if op_type == "Transpose":
        inner, outer = node.attributes.get_ints("perm"), attributes.get("perm")
        if inner is None or outer is None:
            return kept
        return [node.inputs[0]], {**attributes, "perm": [inner[axis] for axis in outer]}
    sizes = _stated(inputs[1])
    if sizes is None or (0 in sizes and not attributes.get("allowzero")):
        return kept
    return [node.inputs[0], inputs[1]], dict(attributes)


def is_idle(op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]) -> bool:
    """Whether a Reshape or Transpose gives back what it takes."""
    if op_type == "Transpose":
        perm = attributes.get("perm")
        return perm is not None and list(perm) == sorted(perm)
    sizes = _stated(inputs[1])
    return (
        sizes is not None and inputs[0] is not None and inputs[0].shape is not None and sizes == list(inputs[0].shape)
    )


def _stated(shape: ir.Value | None) -> list[int] | None:
    if shape is None or shape.const_value is None:
        return None
    sizes: list[int] = shape.const_value.numpy().tolist()
    return sizes

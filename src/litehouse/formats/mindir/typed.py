"""Gives values the types that the file records."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.flow import leaf_types, leaves
from litehouse.formats.mindir.literals import ScalarType, TensorType, Type
from litehouse.formats.mindir.memory import Memory


def typed_content(result: Any, type_: Type) -> Any:
    """The result of a call: where dtype or shape of its tensors is not known, what the file records."""
    for leaf, leaf_type in zip(leaves(result), leaf_types(type_, result), strict=True):
        value = leaf.read() if isinstance(leaf, Memory) else None
        if value is not None and (value.dtype is None or value.shape is None):
            typed(value, leaf_type)
    return result


def typed(result: Any, type_: Type) -> Any:
    """The result, its tensors given the dtypes and shapes that the file records."""
    if isinstance(result, ir.Value) and result.const_value is None:
        if isinstance(type_, TensorType):
            result.dtype = type_.dtype
            if type_.shape is not None:
                result.shape = ir.Shape(type_.shape)
        elif isinstance(type_, ScalarType):
            result.dtype, result.shape = type_.dtype, ir.Shape(())
    elif isinstance(result, tuple | list) and isinstance(type_, tuple):
        for item, item_type in zip(result, type_, strict=False):
            typed(item, item_type)
    return result

"""Attributes of a MindIR file as Python values: literals, and the types of results.

Two encodings exist: today's states a type per attribute; that of MindSpore 1.x puts a pattern into `ref_attr_name`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import onnx_ir as ir

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.loader import MAX_RANK, check_shape
from litehouse.formats.mindir.schema_pb2 import Attribute, Tensor, ValueInfo

FLOAT, STRING, BOOL, DOUBLE = 1, 8, 9, 11
NUMBERS = {*range(1, 8), BOOL, 10, DOUBLE, 12, 13, 16}
TENSOR, TENSORS, TUPLE, LIST, DICT, UMONAD, IOMONAD, NONE = 17, 19, 20, 21, 22, 23, 24, 25
SCALAR = 39
UNKNOWN_RANK = [-2]

DTYPES: dict[int, ir.DataType] = {
    1: ir.DataType.FLOAT,
    2: ir.DataType.UINT8,
    3: ir.DataType.INT8,
    4: ir.DataType.UINT16,
    5: ir.DataType.INT16,
    6: ir.DataType.INT32,
    7: ir.DataType.INT64,
    8: ir.DataType.STRING,
    9: ir.DataType.BOOL,
    10: ir.DataType.FLOAT16,
    11: ir.DataType.DOUBLE,
    12: ir.DataType.UINT32,
    13: ir.DataType.UINT64,
    14: ir.DataType.COMPLEX64,
    15: ir.DataType.COMPLEX128,
    16: ir.DataType.BFLOAT16,
    17: ir.DataType.DOUBLE,
}

TYPE_IDS: dict[int, ir.DataType] = {
    30: ir.DataType.BOOL,
    32: ir.DataType.INT8,
    33: ir.DataType.INT16,
    34: ir.DataType.INT32,
    35: ir.DataType.INT64,
    37: ir.DataType.UINT8,
    38: ir.DataType.UINT16,
    39: ir.DataType.UINT32,
    40: ir.DataType.UINT64,
    42: ir.DataType.FLOAT16,
    43: ir.DataType.FLOAT,
    44: ir.DataType.DOUBLE,
    45: ir.DataType.BFLOAT16,
    48: ir.DataType.COMPLEX64,
    49: ir.DataType.COMPLEX128,
}


class Monad:
    """An ordering token: no value of its own."""

    def __repr__(self) -> str:
        """For messages."""
        return "MONAD"


MONAD = Monad()


@dataclass(frozen=True, slots=True)
class TensorType:
    """The recorded type of a tensor. `shape` is None for an unknown rank; a size is None when dynamic."""

    dtype: ir.DataType
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class ScalarType:
    """The recorded type of a Python number that is computed when the model runs."""

    dtype: ir.DataType


Type = TensorType | ScalarType | tuple[Any, ...] | Monad | None


def dtype_of(number: int, path: str) -> ir.DataType:
    """The dtype for a MindIR data type number."""
    if number not in DTYPES:
        raise ModelFormatError(
            f"unknown data type number {number}; the file is damaged or newer than this version", path=path
        )
    return DTYPES[number]


def numpy_dtype(dtype: ir.DataType) -> np.dtype:
    """The numpy dtype, with ml_dtypes' bfloat16."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == ir.DataType.BFLOAT16 else np.dtype(dtype.numpy())


def tensor_literal(tensor: Tensor, path: str) -> np.ndarray | ir.DataType:
    """A tensor stored in an attribute; without a data field it stands for its dtype alone."""
    dtype = dtype_of(tensor.data_type, path)
    if not tensor.HasField("raw_data"):
        return dtype
    shape = check_shape(tensor.name, tensor.dims, path)
    numpy = numpy_dtype(dtype)
    if numpy.hasobject:
        raise ModelFormatError(f"constant {tensor.name!r} holds text, which is not supported", path=path)
    expected = numpy.itemsize * math.prod(shape)
    if len(tensor.raw_data) != expected:
        raise ModelFormatError(
            f"constant of shape {list(shape)} has {len(tensor.raw_data)} bytes, not {expected}; the file is damaged",
            path=path,
        )
    return np.frombuffer(tensor.raw_data, numpy).reshape(shape)


def decode(attribute: Attribute, path: str, depth: int = 64) -> Any:
    """The literal that an attribute holds."""
    if depth == 0:
        raise LimitError("literals are nested too deeply; the file is damaged", path=path)
    if attribute.HasField("ref_attr_name"):
        return _decode_old(attribute, path, depth)
    kind = attribute.type
    if kind in NUMBERS or kind == STRING:
        return _number(attribute, kind)
    if kind in (TUPLE, LIST):
        return tuple(decode(item, path, depth - 1) for item in attribute.values)
    if kind == DICT:
        return {
            item.name: decode(item.values[0], path, depth - 1) if item.values else None for item in attribute.values
        }
    if kind in (TENSORS, TENSOR):
        tensors = list(attribute.tensors) or ([attribute.t] if attribute.HasField("t") else [])
        if not tensors:
            raise ModelFormatError(f"attribute {attribute.name!r} lacks its tensor; the file is damaged", path=path)
        return tensor_literal(tensors[0], path)
    if kind in (UMONAD, IOMONAD):
        return MONAD
    if kind == NONE:
        return None
    raise ModelFormatError(f"attribute {attribute.name!r} has the unknown type {kind}", path=path)


def _number(attribute: Attribute, kind: int) -> Any:
    # At top level the payload is in the single field; inside a sequence it is the first entry of the repeated one.
    if kind == STRING:
        raw = attribute.s if attribute.HasField("s") else (attribute.strings[0] if attribute.strings else b"")
        return raw.decode("utf-8", "replace")
    if kind == DOUBLE:
        return attribute.d if attribute.HasField("d") else (attribute.doubles[0] if attribute.doubles else 0.0)
    if kind in (FLOAT, 10, 16):
        return attribute.f if attribute.HasField("f") else (attribute.floats[0] if attribute.floats else 0.0)
    value = attribute.i if attribute.HasField("i") else (attribute.ints[0] if attribute.ints else 0)
    return bool(value) if kind == BOOL else value


def _decode_old(attribute: Attribute, path: str, depth: int) -> Any:
    form = attribute.ref_attr_name
    prefix = form.partition(":")[0]
    if form.startswith("Monad"):
        return MONAD
    if prefix == "none":
        return None
    if prefix == "type" and attribute.tensors:
        return dtype_of(attribute.tensors[0].data_type, path)
    items = _old_items(attribute, path)
    if "[" in form:
        return _nested(form, items, path, depth)
    if prefix == "scalar":
        return _number(attribute, attribute.type)
    if prefix == "tensor" and attribute.tensors:
        return tensor_literal(attribute.tensors[0], path)
    raise ModelFormatError(f"attribute {attribute.name!r} has the unknown form {form!r}", path=path)


def _old_items(attribute: Attribute, path: str) -> list[Any]:
    if attribute.tensors:
        return [tensor_literal(tensor, path) for tensor in attribute.tensors]
    if attribute.strings:
        return [text.decode("utf-8", "replace") for text in attribute.strings]
    numbers: list[Any] = list(attribute.doubles) or list(attribute.floats) or list(attribute.ints)
    return [bool(number) for number in numbers] if attribute.type == BOOL else numbers


def _nested(form: str, items: list[Any], path: str, depth: int) -> Any:
    """The tuple that a form like `scalar:Tuple[value1,Tuple[value2,],],` describes, its leaves taken in order."""
    stack: list[list[Any]] = [[]]
    leaves = iter(items)
    for token in re.findall(r"\[|\]|[A-Za-z_]+\d+", form.partition(":")[2] or form):
        if token == "[":
            if len(stack) > depth:
                raise LimitError("literals are nested too deeply; the file is damaged", path=path)
            stack.append([])
        elif token == "]":
            if len(stack) < 2:
                raise ModelFormatError(f"unbalanced attribute form {form!r}; the file is damaged", path=path)
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            try:
                stack[-1].append(next(leaves))
            except StopIteration:
                raise ModelFormatError(
                    f"attribute form {form!r} names more values than are stored", path=path
                ) from None
    return stack[0][0] if len(stack) == 1 and stack[0] else ()


def decode_type(attribute: Attribute, path: str, depth: int = 64) -> Type:
    """The result type that a node's "shape" attribute, or an input's or output's `attr_info`, states."""
    if depth == 0:
        raise LimitError("types are nested too deeply; the file is damaged", path=path)
    if attribute.HasField("ref_attr_name"):
        types: list[Any] = [tensor_type(tensor, path) for tensor in attribute.tensors]
        if attribute.ref_attr_name.startswith("Monad"):
            return MONAD
        if "[" in attribute.ref_attr_name:
            nested: Type = _nested(attribute.ref_attr_name, types, path, depth)
            return nested
        return types[0] if types else None
    kind = attribute.type
    if kind in (TUPLE, LIST):
        return tuple(decode_type(item, path, depth - 1) for item in attribute.values)
    if kind in (UMONAD, IOMONAD):
        return MONAD
    if kind == SCALAR and attribute.tensors:
        return ScalarType(dtype_of(attribute.tensors[0].data_type, path))
    if kind in (TENSOR, TENSORS) and attribute.tensors:
        return tensor_type(attribute.tensors[0], path)
    return None


def input_type(info: ValueInfo, path: str) -> Type:
    """The type that a function's input has."""
    if info.tensor:
        return tensor_type(info.tensor[0], path)
    return decode_type(info.attr_info, path) if info.HasField("attr_info") else None


def tensor_type(tensor: Tensor, path: str) -> TensorType:
    """The type that a tensor message states."""
    dims = list(tensor.dims)
    if len(dims) > MAX_RANK:
        raise ModelFormatError(f"a value has the impossible rank {len(dims)}; the file is damaged", path=path)
    shape = None if dims == UNKNOWN_RANK else tuple(size if size >= 0 else None for size in dims)
    return TensorType(dtype_of(tensor.data_type, path), shape)

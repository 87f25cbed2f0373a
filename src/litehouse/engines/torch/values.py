"""Between numpy's arrays and torch's tensors."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch

Tensor: TypeAlias = torch.Tensor


class Absent:
    """What an ONNX optional holds where it holds nothing."""


ABSENT = Absent()

_NAMES = {
    ir.DataType.FLOAT: "float32",
    ir.DataType.UINT8: "uint8",
    ir.DataType.INT8: "int8",
    ir.DataType.UINT16: "uint16",
    ir.DataType.INT16: "int16",
    ir.DataType.INT32: "int32",
    ir.DataType.INT64: "int64",
    ir.DataType.BOOL: "bool",
    ir.DataType.FLOAT16: "float16",
    ir.DataType.DOUBLE: "float64",
    ir.DataType.UINT32: "uint32",
    ir.DataType.UINT64: "uint64",
    ir.DataType.COMPLEX64: "complex64",
    ir.DataType.COMPLEX128: "complex128",
    ir.DataType.BFLOAT16: "bfloat16",
    ir.DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    ir.DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    ir.DataType.FLOAT8E5M2: "float8_e5m2",
    ir.DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
}
_DTYPES: dict[int, torch.dtype] = {int(kind): getattr(torch, name) for kind, name in _NAMES.items()}
# Those that numpy has from elsewhere, which torch only takes as bits.
_BITS = {
    np.dtype(getattr(ml_dtypes, name)): (np.uint16 if name == "bfloat16" else np.uint8, getattr(torch, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_NUMPY = {kind: (bits, dtype) for dtype, (bits, kind) in _BITS.items()}
_FOREIGN = frozenset({"int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e8m0fnu"})


def dtype_of(number: int) -> torch.dtype | None:
    """The torch dtype for an ONNX one; None where torch has none."""
    return _DTYPES.get(int(number))


@functools.cache
def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype, as numpy has it."""
    return str(dtype).removeprefix("torch.")


def as_tensor(array: Any) -> Any:
    """An array as a tensor on the CPU, over the same memory; text, and what torch has no type for, stays an array.

    What is a tensor already stays one, wherever it is.
    """
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype in _BITS:
        bits, kind = _BITS[array.dtype]
        return as_tensor(array.view(bits)).view(kind)
    if array.dtype.kind in "OSU":
        return _text(array)
    if array.dtype.name in _FOREIGN:
        return array
    if array.dtype.kind in "iu":  # numpy has two types of 64 bits, of which torch knows one
        array = array.view(f"{array.dtype.byteorder}{array.dtype.kind}{array.dtype.itemsize}")
    if not array.dtype.isnative or not array.flags.c_contiguous:
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array if array.flags.writeable else _unlocked(array))


def pinned(like: Tensor) -> Tensor:
    """Memory of the CPU for such a tensor, which the device that has it reads and writes by itself."""
    return torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=like.is_cuda)


def fetched(tensor: Tensor) -> np.ndarray:
    """A tensor of a device as an array of its own, in such memory."""
    array = as_array(pinned(tensor).copy_(tensor))
    _fetched[id(array)] = array
    return array


def is_fetched(array: np.ndarray) -> bool:
    """Whether an array came about so: nobody changes it, and the device can read it by itself."""
    return _fetched.get(id(array)) is array


_fetched: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


def _text(array: np.ndarray) -> np.ndarray:
    """Text as an array of str; files have it as bytes."""
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [each.decode() if isinstance(each, bytes) else str(each) for each in array.reshape(-1)]
    return made


def _unlocked(array: np.ndarray) -> np.ndarray:
    """The same memory without the mark that it must not be written to, which torch warns of: no op writes to it."""
    if not array.size:
        return array.copy()
    buffer: Any = (ctypes.c_ubyte * array.nbytes).from_address(array.__array_interface__["data"][0])
    buffer.owner = array  # the new array holds the buffer, which holds its owner
    return np.frombuffer(buffer, array.dtype).reshape(array.shape)


def as_array(value: Any) -> np.ndarray:
    """A tensor as an array; from another device it is copied."""
    if isinstance(value, np.ndarray):
        return value
    tensor: Tensor = value.detach().resolve_conj().resolve_neg().cpu()
    if tensor.dtype in _NUMPY:
        bits, dtype = _NUMPY[tensor.dtype]
        found: np.ndarray = tensor.contiguous().view(getattr(torch, np.dtype(bits).name)).numpy()
        return found.view(dtype)
    found = tensor.contiguous().numpy()
    return found

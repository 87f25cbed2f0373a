"""Types of elements, and `LiteLayout`: the shape and the type of a tensor."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from megenginelite._errors import fail
from megenginelite.struct import LiteDataType

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
Dtype = np.dtype[Any]

MAX_DIM = 7

_NUMPY_TYPES: dict[LiteDataType, type[np.generic]] = {
    LiteDataType.LITE_FLOAT: np.float32,
    LiteDataType.LITE_HALF: np.float16,
    LiteDataType.LITE_INT: np.int32,
    LiteDataType.LITE_INT16: np.int16,
    LiteDataType.LITE_INT8: np.int8,
    LiteDataType.LITE_UINT8: np.uint8,
    LiteDataType.LITE_UINT16: np.uint16,
}
_DTYPES = {number: np.dtype(kind) for number, kind in _NUMPY_TYPES.items()}
# The API has no type for truth values: they are bytes, 0 or 1.
_LITE_TYPES = {kind: number for number, kind in _NUMPY_TYPES.items()} | {np.bool_: LiteDataType.LITE_UINT8}
# An array of these is taken byte by byte.
_LITE_TYPES_OF_ARRAYS = _LITE_TYPES | {np.uint32: LiteDataType.LITE_INT}

ctype_to_lite_dtypes: dict[type, LiteDataType] = {
    ctypes.c_int: LiteDataType.LITE_INT,
    ctypes.c_uint: LiteDataType.LITE_INT,
    ctypes.c_float: LiteDataType.LITE_FLOAT,
    ctypes.c_ubyte: LiteDataType.LITE_UINT8,
    ctypes.c_byte: LiteDataType.LITE_INT8,
    ctypes.c_short: LiteDataType.LITE_INT16,
    ctypes.c_ushort: LiteDataType.LITE_UINT16,
}
"""The LiteDataType of a ctypes type."""


def lite_dtype_2_numpy(dtype: LiteDataType) -> type[np.generic]:
    """Give the NumPy type of a LiteDataType."""
    assert isinstance(dtype, LiteDataType), "input must be LiteDataType when using lite_dtype_2_numpy."
    return _NUMPY_TYPES[dtype]


def dtype_of(number: int) -> Dtype:
    """Give the NumPy dtype for the number of a LiteDataType.

    Raises:
        RuntimeError: It is the number of none.
    """
    try:
        return _DTYPES[LiteDataType(number)]
    except ValueError:
        fail(f"unsupport dtype in lite enum id is {number}.")


def lite_type_of(dtype: Dtype) -> LiteDataType:
    """Give the LiteDataType of an array's dtype.

    Raises:
        KeyError: There is none.
        NotImplementedError: ctypes has no such type either.
    """
    found = _LITE_TYPES_OF_ARRAYS.get(dtype.type) if dtype.isnative else None
    if found is None:
        raise KeyError(np.ctypeslib.as_ctypes_type(dtype))
    return found


def _lite_type(dtype: object) -> LiteDataType:
    """Give the LiteDataType that `LiteLayout` was asked for."""
    if not dtype:
        return LiteDataType.LITE_FLOAT
    if isinstance(dtype, LiteDataType):
        return dtype
    if isinstance(dtype, np.dtype):
        return lite_type_of(dtype)
    if isinstance(dtype, str):
        named = np.dtype(dtype)
        if named.type not in _LITE_TYPES:
            raise KeyError(named)
        return _LITE_TYPES[named.type]
    if isinstance(dtype, type):
        if dtype not in _LITE_TYPES:
            raise KeyError(dtype)
        return _LITE_TYPES[dtype]
    raise RuntimeError("unkonw data type")


class LiteLayout(ctypes.Structure):
    """The shape and the type of a tensor's elements.

    Args:
        shape: The sizes, at most 7.
        dtype: A LiteDataType, a NumPy dtype or type, or its name; None for float32. bool becomes uint8.

    Example:
        >>> LiteLayout([1, 4], "int8")
        {'shapes': [1, 4], 'ndim': 2, 'data_type': <class 'numpy.int8'>}
    """

    _fields_ = [("_shapes", ctypes.c_size_t * MAX_DIM), ("ndim", ctypes.c_size_t), ("data_type", ctypes.c_int)]

    _shapes: ctypes.Array[ctypes.c_size_t]
    ndim: int
    data_type: int

    def __init__(self, shape: Sequence[int] | None = None, dtype: object = None) -> None:
        super().__init__()
        if shape:
            self.shapes = shape
        self.data_type = _lite_type(dtype)

    @property
    def dtype(self) -> type[np.generic]:
        """The NumPy type of the elements; read only, `data_type` can be set."""
        return _NUMPY_TYPES[LiteDataType(self.data_type)]

    @property
    def shapes(self) -> list[int]:
        """The sizes, as a new list."""
        return list(self._shapes[: self.ndim])

    @shapes.setter
    def shapes(self, shape: Sequence[int]) -> None:
        sizes = list(shape)
        assert len(sizes) <= MAX_DIM, "Layout max dim is 7."
        self.ndim = len(sizes)
        for axis, size in enumerate(sizes):
            self._shapes[axis] = size

    def __repr__(self) -> str:
        return repr({"shapes": self.shapes, "ndim": self.ndim, "data_type": self.dtype})


def type_name(dtype: Dtype) -> str:
    """Give MegEngine's name of a dtype, as in `Float32`."""
    return dtype.name.capitalize()


def shape_text(shape: Sequence[int]) -> str:
    """Give a shape as MegEngine writes it, as in `{1,4}`."""
    return "{" + ",".join(map(str, shape)) + "}"


def make_layout(shape: tuple[int, ...], dtype: Dtype) -> LiteLayout:
    """Give a layout from an array's shape and dtype."""
    return LiteLayout(shape, _LITE_TYPES[dtype.type])

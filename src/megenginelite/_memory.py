"""Memory by its address: what ctypes and NumPy make of the same bytes; and memory as a layout shows it."""

import ctypes
import math
from typing import Any

import numpy as np

from litehouse.device import DeviceArray, Values, assign
from megenginelite._devices import Allocate, host_memory
from megenginelite._errors import fail
from megenginelite._layout import Array, Dtype, LiteLayout, dtype_of, shape_text

_FLOAT32 = np.dtype(np.float32)
_BOOL = np.dtype(np.bool_)


def flat_bytes(array: Values) -> Values:
    """Give the memory of an array in C order as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8)


def on_host(array: Values) -> Array:
    """Give the elements on the host: the array itself, or a copy of a GPU's memory."""
    return array.copy() if isinstance(array, DeviceArray) else array


def address_of(array: Values) -> int:
    """Give the address of an array's first element."""
    return array.address if isinstance(array, DeviceArray) else int(array.__array_interface__["data"][0])


def bytes_of(data: Any, size: int) -> Array:
    """Give `size` bytes of memory that ctypes describes, without a copy. They keep `data` alive.

    Args:
        data: A ctypes array, a pointer to one, a `c_void_p`, bytes, or an address.
        size: The number of bytes; more than a ctypes array or bytes have is refused.

    Raises:
        ctypes.ArgumentError: It is none of these.
        RuntimeError: It is a null pointer, or known to be too small.
    """
    room = len(data) if isinstance(data, bytes) else ctypes.sizeof(data) if isinstance(data, ctypes.Array) else size
    if room < size:
        fail(f"the memory has {room} bytes, and the tensor {size}")
    if isinstance(data, bytes):
        return np.frombuffer(data, np.uint8, size)
    address = ctypes.cast(data, ctypes.c_void_p).value
    if not address:
        fail("The prepared_data pass to LITE c_api is null")
    buffer: Any = (ctypes.c_ubyte * size).from_address(address)
    buffer.owner = data  # the array holds the buffer, which holds its owner
    return np.frombuffer(buffer, np.uint8)


class Memory:
    """Memory, and how a layout shows it.

    A network runs on `_array` as it is, and looks at nothing else. On a GPU, it is memory of that.
    """

    _array: Values | None = None  # the memory as the layout shows it; None while that is empty
    _memory: Values | None = None  # the same as bytes, with all that a larger layout can use; None where there are gaps
    _allocate: Allocate = staticmethod(host_memory)
    _dtype: Dtype = _FLOAT32  # counts while there is no `_array`
    _is_continue = True
    _can_grow = True
    _is_shared = False  # with the caller, or another tensor

    def _set_layout(self, layout: LiteLayout) -> None:
        self._relayout(tuple(layout.shapes), dtype_of(layout.data_type))

    def _relayout(self, shape: tuple[int, ...], dtype: Dtype) -> None:
        """Show the memory in another layout, in new memory where it is too small."""
        if not shape:
            self._array, self._dtype, self._is_continue = None, dtype, True
            return
        size = math.prod(shape) * dtype.itemsize
        memory = self._memory
        if memory is None or memory.nbytes < size:
            if not self._can_grow:
                fail("can not grow a tensor that does not allow realloc")
            try:
                memory = self._allocate(size)
            except (MemoryError, ValueError, OverflowError) as error:
                fail(f"out of memory: a tensor of shape {list(shape)} takes {size} bytes", error)
            self._is_shared = False
        self._show(memory, shape, dtype)

    def _show(self, memory: Values, shape: tuple[int, ...], dtype: Dtype) -> None:
        self._memory = memory
        self._array = memory[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        self._is_continue = True

    def _look_at(self, part: Values) -> None:
        """Show a part of another tensor's memory, which this one cannot grow out of."""
        self._array, self._can_grow = part, False
        self._is_continue = part.flags.c_contiguous and part.size > 0
        self._memory = flat_bytes(part) if self._is_continue else None

    def _view(self) -> Values:
        return np.empty(0, self._dtype) if self._array is None else self._array

    def _receive(self, result: Values, *, is_fixed: bool) -> None:
        """Take a network's output: into the memory that is there, if it is large enough.

        Args:
            result: The output; from a GPU, it may still be on its way when this returns.
            is_fixed: Whether memory of the caller that is too small is an error, and not replaced.
        """
        if result.dtype == _BOOL:
            result = result.view(np.uint8)
        own = self._array
        if own is None or own.shape != result.shape or own.dtype != result.dtype:
            room = 0 if self._memory is None else self._memory.nbytes
            if is_fixed and self._is_shared and own is not None and room < result.nbytes:
                fail(f"disallowed shape change: {shape_text(own.shape)} vs {shape_text(result.shape)}")
            self._can_grow = True
            self._relayout(result.shape, result.dtype)
        if not self._view().flags.writeable:
            fail("the memory of an output tensor cannot be written; share an array that can be")
        assign(self._view(), result, wait=False)

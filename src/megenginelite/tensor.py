"""`LiteTensor`: memory with a layout, of the caller, of a network, or of its own."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from litehouse.device import DeviceArray, Values, assign
from megenginelite._devices import HOST_ONLY, borrow, check_device, device_memory, pinned_memory
from megenginelite._errors import fail
from megenginelite._layout import (
    MAX_DIM,
    Array,
    LiteLayout,
    ctype_to_lite_dtypes,
    dtype_of,
    lite_dtype_2_numpy,
    lite_type_of,
    shape_text,
    type_name,
)
from megenginelite._memory import Memory, address_of, bytes_of, flat_bytes
from megenginelite.struct import LiteDataType, LiteDeviceType, LiteIOType

__all__ = [
    "MAX_DIM",
    "LiteDataType",
    "LiteDeviceType",
    "LiteIOType",
    "LiteLayout",
    "LiteTensor",
    "LiteTensorConcat",
    "ctype_to_lite_dtypes",
    "lite_dtype_2_numpy",
    "np",
]


_NOT_CONTIGUOUS = "input numpy is not continuous, please call input = np.ascontiguousarray(input) before call "


class LiteTensor(Memory):
    """A tensor: memory, and the layout by which it is read. Fresh memory holds zeros.

    Args:
        layout: Shape and type; None makes a tensor without memory, which takes the layout of what it is given.
        device_type: `LITE_CPU` or `LITE_DEVICE_DEFAULT`, the host; `LITE_CUDA`, a GPU. Others are refused.
        device_id: The number of the GPU; on the host, a number that `device_id` shows.
        is_pinned_host: With `LITE_CUDA`, memory of the host that the GPU reads and writes by itself; on the host, a
            flag that `is_pinned_host` shows.
        shapes: The shape, where there is no `layout`.
        dtype: The type that goes with `shapes`.
        physic_construct: With False, the tensor begins without layout and memory.

    Example:
        >>> tensor = LiteTensor(LiteLayout([2, 3], "int8"))
        >>> tensor.nbytes, tensor.to_numpy().tolist()
        (6, [[0, 0, 0], [0, 0, 0]])
    """

    def __init__(
        self,
        layout: LiteLayout | None = None,
        device_type: int = LiteDeviceType.LITE_CPU,
        device_id: int = 0,
        is_pinned_host: bool = False,
        shapes: Sequence[int] | None = None,
        dtype: object = None,
        physic_construct: bool = True,
    ) -> None:
        if layout is None and shapes is not None:
            layout = LiteLayout(shapes, dtype)
        if layout is not None and not isinstance(layout, LiteLayout):
            raise TypeError(f"expected LiteLayout instance, got {type(layout).__name__}")
        if not isinstance(device_type, int):
            raise TypeError(f"{type(device_type).__name__!r} object cannot be interpreted as an integer")
        check_device(device_type, device_id)
        self._layout = LiteLayout()
        self._device_type = LiteDeviceType(device_type)
        self._device_id = device_id
        self._is_pinned_host = bool(is_pinned_host)
        if device_type == LiteDeviceType.LITE_CUDA:
            self._live_on_device(device_id, is_pinned_host=self._is_pinned_host)
        if layout is not None and physic_construct:
            self._set_layout(layout)

    def _live_on_device(self, device_id: int, *, is_pinned_host: bool) -> None:
        """Take memory of a GPU from now on, or such of the host that belongs to one."""
        self._device_id, self._is_pinned_host = device_id, is_pinned_host
        self._device_type = LiteDeviceType.LITE_CPU if is_pinned_host else LiteDeviceType.LITE_CUDA
        self._allocate = (pinned_memory if is_pinned_host else device_memory)(device_id)

    def _live_like(self, other: "LiteTensor") -> None:
        self._device_type, self._device_id = other._device_type, other._device_id
        self._is_pinned_host, self._allocate = other._is_pinned_host, other._allocate

    @property
    def _is_on_device(self) -> bool:
        return self._device_type == LiteDeviceType.LITE_CUDA

    def __repr__(self) -> str:
        return repr(
            {
                "layout": self.layout,
                "device_type": self.device_type,
                "device_id": self.device_id,
                "is_pinned_host": self.is_pinned_host,
            }
        )

    @property
    def layout(self) -> LiteLayout:
        """Shape and type. A change of the object does nothing; set it again, or set a list of sizes.

        Memory that is large enough stays; else there is new memory.
        """
        self._layout.shapes = () if self._array is None else self._array.shape
        self._layout.data_type = lite_type_of(self._view().dtype)
        return self._layout

    @layout.setter
    def layout(self, layout: LiteLayout | Sequence[int]) -> None:
        if isinstance(layout, LiteLayout):
            self._set_layout(layout)
        elif isinstance(layout, (list, tuple)):
            self._set_layout(
                LiteLayout(layout, lite_type_of(self._dtype if self._array is None else self._array.dtype))
            )
        else:
            raise TypeError(f"layout must be a LiteLayout or a list of sizes, not {type(layout).__name__}")

    @property
    def is_pinned_host(self) -> bool:
        """Whether the memory is of the host and belongs to a GPU; without one, what the constructor was told."""
        return self._is_pinned_host

    @property
    def device_type(self) -> LiteDeviceType:
        """Where the tensor lives. Pinned memory is of the host, so that `LITE_CPU` is told for it."""
        return self._device_type

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self._device_id

    @property
    def is_continue(self) -> bool:
        """Whether there are no gaps between the elements."""
        return self._is_continue

    @property
    def nbytes(self) -> int:
        """The number of bytes that the elements take."""
        return 0 if self._array is None else self._array.nbytes

    def update(self) -> None:
        """Do nothing: what the tensor tells is always up to date."""

    def set_data_by_copy(self, data: Any, data_length: int = 0, layout: LiteLayout | None = None) -> None:
        """Copy data into the tensor. It may be overwritten at once, also where the tensor is on a GPU.

        Args:
            data: An array in C order, whose shape and type the tensor takes over; a flat list of at most as many
                numbers as the tensor has, what is left over becomes 0; or a ctypes array, pointer or address.
            data_length: The number of bytes at a ctypes pointer, which must be that of the tensor.
            layout: A new layout for data that is no array.

        Raises:
            AssertionError: The tensor or the array has gaps, or the length of the data is wrong.
            KeyError: There is no LiteDataType for the array.
        """
        array = self._array
        if (
            type(data) is np.ndarray
            and array is not None
            and data.shape == array.shape
            and data.dtype == array.dtype
            and self._is_continue
            and data.flags.c_contiguous
        ):
            array[...] = data
        else:
            self._set_data(data, data_length, layout)

    def _set_data(self, data: Any, data_length: int, layout: LiteLayout | None) -> None:
        assert self._is_continue, "set_data_by_copy can only apply in continue tensor."
        if isinstance(data, np.ndarray):
            assert data.flags.c_contiguous, _NOT_CONTIGUOUS + "set_data_by_copy"
            if not data.shape:
                fail("Tensor layout is empty, please reset with layout")
            assert data.ndim <= MAX_DIM, "Layout max dim is 7."
            dtype = dtype_of(lite_type_of(data.dtype))
            self._relayout(data.shape, dtype)
            self._view()[...] = data.view(dtype)
            return
        if layout is not None:
            self._set_layout(layout)
        if isinstance(data, list):
            numbers = self._numbers(data)
            self._view()[...] = numbers
            return
        assert layout is not None or (data_length and data_length == self.nbytes), (
            "when input data is ctypes, the length of input data or layout must set"
        )
        if self._array is not None:
            flat_bytes(self._array)[...] = bytes_of(data, self.nbytes)

    def _numbers(self, values: list[Any]) -> Array:
        """Give an array of the tensor's layout that begins with these values."""
        count, dtype = (0, self._dtype) if self._array is None else (self._array.size, self._array.dtype)
        assert len(values) <= count, "the length of input data to set to the tensor is too large."
        numbers = np.zeros(count, dtype)
        if dtype == np.float16:
            numbers[: len(values)] = values
        elif values:
            kind = np.ctypeslib.as_ctypes_type(dtype)
            numbers[: len(values)] = (kind * len(values))(*values)
        return numbers.reshape(() if self._array is None else self._array.shape)

    def set_data_by_share(self, data: Any, length: int = 0, layout: LiteLayout | None = None) -> None:
        """Use the caller's memory, without a copy: the next `forward` sees what is written to it.

        Args:
            data: An array in C order, or a ctypes array, pointer or address; for a tensor on a GPU, a pointer or
                address of that GPU's memory. An array of as many bytes as the tensor leaves its layout as it is; for
                another, the tensor takes over its shape, and keeps its own type.
            length: The number of bytes at a ctypes pointer, 0 or that of the tensor.
            layout: A new layout.

        Raises:
            AssertionError: The tensor or the array has gaps, the length is wrong, or the tensor is on a GPU and the
                data is not.
            RuntimeError: The memory is smaller than the layout.
        """
        assert self._is_continue, "set_data_by_share can only apply in continue tensor."
        shape, dtype = ((), self._dtype) if self._array is None else (self._array.shape, self._array.dtype)
        if layout is not None:
            shape, dtype = tuple(layout.shapes), dtype_of(layout.data_type)
        if isinstance(data, np.ndarray):
            assert data.flags.c_contiguous, _NOT_CONTIGUOUS + "set_data_by_share"
            assert not self._is_on_device, HOST_ONLY
            if layout is None and data.nbytes != self.nbytes:
                shape = tuple(LiteLayout(data.shape).shapes)
            memory = flat_bytes(data)
        else:
            assert length in (0, self.nbytes) or layout is not None, "the data length is not match."
            room = math.prod(shape) * dtype.itemsize if shape else 0
            memory = borrow(data, room, self._device_id) if self._is_on_device else bytes_of(data, room)
        if not shape:
            fail("Tensor layout is empty, please reset with layout")
        size = math.prod(shape) * dtype.itemsize
        if memory.nbytes < size:
            fail(f"the shared memory has {memory.nbytes} bytes, and the layout {list(shape)} {dtype} takes {size}")
        self._show(memory, shape, dtype)
        self._is_shared, self._can_grow = True, True

    def get_data_by_share(self) -> Array:
        """Give a view of the tensor's memory, not a copy. What a later `forward` computes is seen in it.

        Raises:
            RuntimeError: The tensor is empty, or on a GPU.
        """
        array = self._filled("get memory ptr")
        if isinstance(array, DeviceArray):
            fail(f"the memory is on {array.device}, and cannot be seen from the host; to_numpy copies it")
        return array.view()

    def to_numpy(self) -> Array:
        """Give a copy as an array."""
        array = self._array
        return np.array([], self._dtype) if array is None else array.copy()

    def get_ctypes_memory(self) -> ctypes.c_void_p:
        """Give the address of the first element; on a GPU, its own."""
        return ctypes.c_void_p(address_of(self._filled("get memory ptr")))

    def _filled(self, purpose: str) -> Values:
        if self._array is None:
            fail(f"Tensor layout is not valid when {purpose}.")
        return self._array

    def fill_zero(self) -> None:
        """Set all elements to 0."""
        if self._array is None:
            fail("fill_zero can't apply on a tensor with empty layout.")
        self._array.fill(0)

    def reshape(self, shape: Sequence[int]) -> None:
        """Change the shape; the count of elements stays. One size may be -1.

        Raises:
            RuntimeError: The count is another one, or the tensor is empty or has gaps.
        """
        sizes = list(shape)
        if self._array is None:
            fail("The tensor to be reshape is empty.")
        if len(sizes) > MAX_DIM:
            fail("The ndim of reshape input is too large.")
        if not self._is_continue:
            fail("a tensor with gaps cannot be reshaped; copy it to another one with copy_from first")
        if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
            fail("The reshape inputs invalid.")
        known = -math.prod(sizes) if -1 in sizes else math.prod(sizes)
        if not sizes or (self._array.size % known if -1 in sizes else self._array.size != known):
            fail("The reshape inputs invalid.")
        self._array = self._array.reshape(sizes)

    def slice(self, start: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None) -> "LiteTensor":
        """Give a part of the tensor as a tensor over the same memory, with the same rank.

        Args:
            start: Where it begins, for each of the first axes.
            end: Before what it ends.
            step: How far it is from one element to the next; None for 1.

        Raises:
            AssertionError: The lists are not of one length.
            RuntimeError: They are longer than the shape, or a step is 0.
        """
        starts, ends = list(start), list(end)
        assert len(starts) == len(ends), "slice with different length of start and end."
        steps = [1] * len(starts) if step is None else list(step)
        assert len(starts) == len(steps), "slice with different length of start and step."
        if self._array is None or len(starts) > self._array.ndim:
            fail("The start and end must be the same size and less than layout ndim.")
        if 0 in steps:
            fail("Slice step can not be zero")
        part = LiteTensor()
        part._live_like(self)
        try:
            part._look_at(self._array[tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))])
        except ValueError as error:  # a GPU's memory is not read backwards
            fail(str(error), error)
        return part

    def copy_from(self, src_tensor: "LiteTensor") -> None:
        """Copy another tensor's data, from wherever it is, and take over its shape.

        An empty tensor of the host that is given data of a GPU takes pinned memory for it.

        Raises:
            RuntimeError: The other tensor is empty or of another type, or this one has gaps and another shape.
        """
        assert isinstance(src_tensor, LiteTensor)
        source, own = src_tensor._array, self._array
        if source is None:
            fail("when tensor copy, the src tensor layout is empty.")
        if own is not None and own.dtype != source.dtype:
            fail(f"attempt to access dtype {type_name(own.dtype)} as {type_name(source.dtype)}")
        if own is not None and own.shape == source.shape:
            assign(own, source, is_pinned=src_tensor._is_pinned_host)
            return
        if own is not None and not self._is_continue:
            fail(f"shape differs in copy_from_fixlayout: {shape_text(own.shape)} vs {shape_text(source.shape)}")
        self._can_grow = True  # a slice that grows goes to memory of its own
        if own is None and isinstance(source, DeviceArray) and not self._is_on_device:
            self._live_on_device(src_tensor._device_id, is_pinned_host=True)
        self._relayout(source.shape, source.dtype)
        assign(self._view(), source, is_pinned=src_tensor._is_pinned_host)

    def share_memory_with(self, src_tensor: "LiteTensor") -> None:
        """Take over another tensor's memory and layout, without a copy: both see what either writes.

        Raises:
            RuntimeError: The other tensor is empty, or one is on a GPU and one is not.
        """
        assert isinstance(src_tensor, LiteTensor)
        if src_tensor._array is None:
            fail("To be shared tensor with empty layout.")
        if self._is_on_device != src_tensor._is_on_device:
            fail("share memory must happen in same device")
        self._array, self._memory = src_tensor._array, src_tensor._memory
        self._is_continue, self._is_shared, self._can_grow = src_tensor._is_continue, True, True
        self._live_like(src_tensor)


def LiteTensorConcat(  # noqa: N802  (the original's name)
    tensors: Sequence[LiteTensor],
    dim: int,
    device_type: int = LiteDeviceType.LITE_DEVICE_DEFAULT,
    device_id: int = -1,
) -> LiteTensor:
    """Give a new tensor with the given ones one after another along an axis.

    Args:
        tensors: The tensors: of one type, and of one shape but for that axis.
        dim: The axis; a negative one counts from the last.
        device_type: Where the result lives; by default, where the first tensor does.
        device_id: The number of that device.

    Raises:
        RuntimeError: The tensors do not fit together.
    """
    result = LiteTensor()
    if device_type != LiteDeviceType.LITE_DEVICE_DEFAULT:
        result = LiteTensor(device_type=device_type, device_id=max(device_id, 0))
    elif tensors:
        result._live_like(tensors[0])
    if not tensors:
        return result
    arrays = [_concatenable(tensor, tensors[0], dim) for tensor in tensors]
    axis, shape = dim % arrays[0].ndim, list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    result._relayout(tuple(shape), arrays[0].dtype)
    whole, start = result._filled("concat"), 0
    for array in arrays:
        end = start + array.shape[axis]
        assign(whole[(slice(None),) * axis + (slice(start, end),)], array)
        start = end
    return result


def _concatenable(tensor: LiteTensor, first: LiteTensor, dim: int) -> Values:
    array, wanted = tensor._array, first._array
    if wanted is None or not -wanted.ndim <= dim < wanted.ndim:
        fail("the dim in concat is error.")
    if array is None or array.ndim != wanted.ndim:
        fail("the dim size of tensors is not same!")
    if array.dtype != wanted.dtype:
        fail("the dtype of tensors is not same!")
    axis = dim % array.ndim
    if any(array.shape[k] != wanted.shape[k] for k in range(array.ndim) if k != axis):
        fail("the shape of tensors is not same!")
    return array

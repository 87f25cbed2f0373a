"""`Tensor`: an input or output of a model, with its data; and the enums that describe one."""

import logging
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from litehouse import device as devices
from mindspore_lite._checks import check_instance, check_sequence

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

logger = logging.getLogger("mindspore_lite")

_NEW = object.__new__  # makes a Tensor without running its checks


class DataType(Enum):
    """The type of a tensor's elements."""

    UNKNOWN = 0
    BOOL = 30
    INT8 = 32
    INT16 = 33
    INT32 = 34
    INT64 = 35
    UINT8 = 37
    UINT16 = 38
    UINT32 = 39
    UINT64 = 40
    FLOAT16 = 42
    FLOAT32 = 43
    FLOAT64 = 44
    INVALID = 2147483647


class Format(Enum):
    """The order of a tensor's dimensions."""

    DEFAULT = -1
    NCHW = 0
    NHWC = 1
    NHWC4 = 2
    HWKC = 3
    HWCK = 4
    KCHW = 5
    CKHW = 6
    KHWC = 7
    CHWK = 8
    HW = 9
    HW4 = 10
    NC = 11
    NC4 = 12
    NC4HW4 = 13
    NCDHW = 15
    NWC = 16
    NCW = 17
    NDHWC = 18
    NC8HW8 = 19


NUMPY_TYPES: dict[DataType, np.dtype[np.generic]] = {
    kind: np.dtype(kind.name.lower()) for kind in DataType if kind not in (DataType.UNKNOWN, DataType.INVALID)
}
_DATA_TYPES = {
    np.dtype(code).num: kind for kind, dtype in NUMPY_TYPES.items() for code in "?bBhHiIlLqQefd" if dtype == code
}


def data_type_of(dtype: np.dtype[np.generic]) -> DataType:
    """Give the DataType of a numpy dtype, UNKNOWN where there is none."""
    return _DATA_TYPES.get(dtype.num, DataType.UNKNOWN)


def element_count(shape: tuple[int, ...]) -> int:
    """Give the number of elements: 1 for a scalar, 0 where a dimension is dynamic."""
    return 0 if min(shape, default=0) < 0 else math.prod(shape)


def byte_count(dtype: DataType, shape: tuple[int, ...]) -> int:
    """Give the number of bytes, 0 for a type that has none."""
    return element_count(shape) * NUMPY_TYPES[dtype].itemsize if dtype in NUMPY_TYPES else 0


def fit(array: Array, dtype: DataType, shape: tuple[int, ...]) -> Array:
    """Give a view of `array` in C order with the given shape; a copy where its memory does not allow that.

    Like the original, this compares the element type and the count of bytes, not the shape. But an array whose axes
    are in another order would give wrong results without a word, so it is refused.

    Raises:
        TypeError: The element type of the array has no DataType.
        RuntimeError: The element type or the count of bytes is another one, or the axes are in another order.
    """
    found = _DATA_TYPES.get(array.dtype.num)
    if found is None:
        raise TypeError(f"Unsupported numpy dtype value {array.dtype}")
    if found is not dtype:
        raise RuntimeError(f"data type not equal! Numpy type: {array.dtype.type}, Tensor type: {dtype}")
    if array.shape != shape and array.nbytes != (size := byte_count(dtype, shape)):
        raise RuntimeError(f"data size not equal! Numpy size: {array.nbytes}, Tensor size: {size}")
    given, wanted = ([size for size in sizes if size != 1] for sizes in (array.shape, shape))
    if given != wanted and sorted(given) == sorted(wanted):
        raise RuntimeError(
            f"data shape not equal! Numpy shape: {list(array.shape)}, Tensor shape: {list(shape)}: "
            "the axes are in another order; transpose the array"
        )
    return np.asarray(array, dtype=NUMPY_TYPES[dtype], order="C").reshape(shape)


class Tensor:
    """An input or output of a model, with its data.

    Data that was set from an array is that array's memory: `Model.predict` sees what is written to the array later.
    A tensor on a GPU has memory of its own there, which data is copied to.

    Args:
        tensor: Where the data comes from: an array, whose memory is used, or another Tensor, which is copied, from
            wherever it is. With none, the tensor has zeros of the given shape and dtype.
        shape: The shape; must agree with that of `tensor`.
        dtype: The type of the elements; must agree with that of `tensor`.
        device: None, the host; `"gpu"` or `"gpu:0"`, a GPU. A device as `"ascend:0"` is refused.

    Example:
        >>> tensor = Tensor(np.zeros((2, 3), np.float32))
        >>> tensor.shape, tensor.data_size
        ([2, 3], 24)
    """

    # While there is an array, it tells shape and dtype; the two attributes are not kept up to date then.
    # What stays at its default is not set on the instance: making the tensors of a predict is quick that way.
    _array: Array | None = None
    _shape: tuple[int, ...] = ()
    _dtype = DataType.FLOAT32
    _name = ""
    _format = Format.DEFAULT
    _is_shared = False  # with an array that the caller holds, too
    _device = ""  # the GPU that it is on; none is the host

    def __init__(
        self,
        tensor: "Tensor | Array | None" = None,
        shape: list[int] | tuple[int, ...] | None = None,
        dtype: DataType | None = None,
        device: str | None = None,
    ) -> None:
        self._format = Format.NCHW
        if shape is not None:
            check_sequence("shape", shape, int)
        if dtype is not None:
            check_instance("dtype", dtype, DataType)
        if device is not None:
            self._move_to(device)
        if isinstance(tensor, Tensor):
            self._copy(tensor, shape, dtype)
        elif isinstance(tensor, np.ndarray):
            self._adopt(tensor, shape, dtype)
        elif tensor is not None:
            raise TypeError(f"tensor must be MindSpore Lite's Tensor._tensor or numpy ndarray, but got {type(tensor)}.")
        elif shape is not None and dtype is not None:
            self._shape = tuple(map(int, shape))
            self._dtype = dtype
            self._allocate()

    def _move_to(self, device: str) -> None:
        """Be a tensor on a GPU: one on the host, which most are, need not ask where it is."""
        from mindspore_lite._device_tensor import DeviceTensor

        self._device = _find_device(device)
        self.__class__ = DeviceTensor

    def _copy(self, source: "Tensor", shape: Sequence[int] | None, dtype: DataType | None) -> None:
        if shape is not None and list(shape) != source.shape:
            raise TypeError(
                f"user set shape is not equal tensor shape, user's shape: {shape}, tensor shape is: {source.shape}."
            )
        if dtype is not None and dtype is not source.dtype:
            raise TypeError(
                f"user set dtype is not equal tensor dtype, user's dtype: {dtype}, tensor dtype is: {source.dtype}."
            )
        self._name, self._format = source._name, source._format
        self._shape, self._dtype = tuple(source.shape), source.dtype
        if source._array is not None:
            self._take(source._array)

    def _take(self, array: Array) -> None:
        """Copy an array, or the memory of a GPU, into memory of the tensor's own."""
        self._array = array.copy()

    def _adopt(self, array: Array, shape: Sequence[int] | None, dtype: DataType | None) -> None:
        found = data_type_of(array.dtype)
        if found is DataType.UNKNOWN:
            raise TypeError(f"Unsupported numpy dtype value {array.dtype}")
        if shape is not None and tuple(shape) != array.shape:
            raise TypeError(
                f"user set shape is not equal numpy shape, user shape: {shape}, numpy shape is: {array.shape}."
            )
        if dtype is not None and dtype is not found:
            raise TypeError(
                f"user set dtype is not equal numpy dtype, user dtype: {dtype}, numpy dtype is: {array.dtype}."
            )
        self._array = fit(array, found, array.shape)
        self._is_shared = True

    def _allocate(self) -> Array | None:
        """Make the memory, zeroed, if the tensor has a size."""
        if self._dtype in NUMPY_TYPES and min(self._shape, default=0) >= 0:
            self._array = np.zeros(self._shape, NUMPY_TYPES[self._dtype])
        return self._array

    def _receive(self, array: Array) -> None:
        """Take a model's output: into the tensor's memory where it fits, so that who shares that memory sees it."""
        own = self._array
        if own is not None and own.dtype == array.dtype and own.size == array.size and own.flags.writeable:
            self._array = own.reshape(array.shape)
            np.copyto(self._array, array)
        else:
            self._array = array
            self._is_shared = False

    def _redescribe(self, what: str, dtype: DataType, shape: tuple[int, ...]) -> None:
        """Change dtype and shape. Memory of the same size is kept."""
        if self._is_shared:
            logger.error(
                "%s of tensor %r stays as it is: the tensor's data was set from a numpy array", what, self._name
            )
            return
        array = self._array
        self._array, self._dtype, self._shape = None, dtype, shape
        if array is not None and array.nbytes and array.nbytes == self.data_size:
            self._array = array.reshape(-1).view(NUMPY_TYPES[dtype]).reshape(shape)

    def __str__(self) -> str:
        return f"{_lines(self)}\ndevice: {self.device}."

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        check_instance("name", value, str)
        self._name = value

    @property
    def dtype(self) -> DataType:
        """The type of the elements."""
        return self._dtype if self._array is None else data_type_of(self._array.dtype)

    @dtype.setter
    def dtype(self, value: DataType) -> None:
        check_instance("dtype", value, DataType)
        self._redescribe("dtype", value, tuple(self.shape))

    @property
    def shape(self) -> list[int]:
        """The shape, as a new list; -1 stands for a dynamic dimension."""
        return list(self._shape if self._array is None else self._array.shape)

    @shape.setter
    def shape(self, value: list[int] | tuple[int, ...]) -> None:
        check_sequence("shape", value, int)
        self._redescribe("shape", self.dtype, tuple(map(int, value)))

    @property
    def format(self) -> Format:
        """The order of the dimensions."""
        return self._format

    @format.setter  # noqa: A003
    def format(self, value: Format) -> None:
        check_instance("format", value, Format)
        if self._is_shared:
            logger.error("format of tensor %r stays as it is: the tensor's data was set from a numpy array", self._name)
            return
        self._format = value

    @property
    def element_num(self) -> int:
        """The number of elements: 1 for a scalar, 0 where a dimension is dynamic."""
        return element_count(self._shape) if self._array is None else self._array.size

    @property
    def data_size(self) -> int:
        """The number of bytes."""
        return byte_count(self._dtype, self._shape) if self._array is None else self._array.nbytes

    @property
    def device(self) -> str:
        """Where the data is: `"None:-1"` is the host, `"gpu:0"` a GPU."""
        return self._device or "None:-1"

    def set_data_from_numpy(self, numpy_obj: Array) -> None:
        """Use an array as this tensor's data, without a copy if it is in C order. On a GPU, copy it there.

        Only the element type and the count of bytes must agree; the tensor keeps its shape. An array whose axes are in
        another order (channels first, where the model takes them last) is refused.

        Args:
            numpy_obj: The array.

        Raises:
            TypeError: It is no array, or its element type has no DataType.
            RuntimeError: Its element type or count of bytes is not the tensor's, or its axes are in another order.
        """
        if not isinstance(numpy_obj, np.ndarray):
            raise TypeError(f"numpy_obj must be numpy.ndarray, but got {type(numpy_obj)}.")
        array = self._array
        if array is None:
            self._array = fit(numpy_obj, self._dtype, self._shape)
        elif numpy_obj.shape == array.shape and numpy_obj.dtype == array.dtype and type(numpy_obj) is np.ndarray:
            self._array = numpy_obj.view() if numpy_obj.flags.c_contiguous else numpy_obj.copy(order="C")
        else:
            self._array = fit(numpy_obj, data_type_of(array.dtype), array.shape)
        self._is_shared = True

    def get_data_to_numpy(self) -> Array:
        """Give a writable view of the tensor's memory: zeros, if no data was set. Of a GPU's memory, give a copy."""
        array = self._allocate() if self._array is None else self._array
        return np.empty(0, NUMPY_TYPES.get(self._dtype)) if array is None else array.view()

    def __dlpack__(self, **arguments: Any) -> Any:
        """Give the tensor's memory to another library: `torch.from_dlpack(tensor)`, `np.from_dlpack(tensor)`.

        Raises:
            BufferError: The tensor has no size.
        """
        return self._exported().__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Tell another library where the memory is."""
        kind, index = self._exported().__dlpack_device__()
        return int(kind), int(index)

    def _exported(self) -> Any:
        """Give what another library takes over, with zeros in it if no data was set."""
        array = self._allocate() if self._array is None else self._array
        if array is None:
            raise BufferError(f"tensor {self._name!r} of shape {self.shape} has no memory")
        return array


def input_tensor(name: str, dtype: DataType, shape: tuple[int, ...]) -> Tensor:
    """Make the tensor of a model's input, without data."""
    tensor = Tensor()
    tensor._name, tensor._dtype, tensor._shape = name, dtype, shape
    return tensor


def output_tensors(names: tuple[str, ...], arrays: list[Array]) -> list[Tensor]:
    """Make the tensors of a model's outputs."""
    tensors = []
    for name, array in zip(names, arrays, strict=True):  # quicker than a comprehension that calls a function
        tensor = _NEW(Tensor)
        tensor._name = name
        tensor._array = array
        tensors.append(tensor)
    return tensors


class TensorMeta:
    """What a model says about an output before it has run."""

    def __init__(self) -> None:
        self.name = ""
        self.dtype = DataType.UNKNOWN
        self.shape: list[int] = []
        self.format = Format.DEFAULT
        self.element_num = 0
        self.data_size = 0

    def __str__(self) -> str:
        return _lines(self)


def _lines(tensor: Tensor | TensorMeta) -> str:
    return (
        f"name: {tensor.name},\n"
        f"dtype: {tensor.dtype},\n"
        f"shape: {tensor.shape},\n"
        f"format: {tensor.format},\n"
        f"element_num: {tensor.element_num},\n"
        f"data_size: {tensor.data_size}."
    )


def _find_device(device: str) -> str:
    """Give the GPU that is asked for, with its number; raise where there is none."""
    check_instance("device", device, str)
    kind, colon, index = device.partition(":")
    if kind not in ("ascend", "gpu"):
        raise TypeError(
            "now only support ascend device. Here, 'gpu' and 'gpu:0' are devices, too; leave `device` out for the host."
        )
    if colon and not index.removeprefix("-").isdecimal():
        raise TypeError(f"device must be '{kind}:index', eg: '{kind}:0'")
    if colon and int(index) < 0:
        raise TypeError("device id should >= 0.")
    if kind == "ascend":
        raise RuntimeError(f"no tensor can be made on {device}: tensors live on the host here. Leave `device` out.")
    reason = devices.lack(device)
    if reason is not None:
        raise RuntimeError(f"no tensor can be made on {device}: {reason}. Leave `device` out for one on the host.")
    return devices.named(device)

"""What a GPU is to those who hold its memory: which there are, memory there, and copies to it and from it.

The memory is torch's, which is imported when a GPU is asked for. Copies and the zeroing of memory are in the order of
torch's current stream, so that a run that begins later sees them.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from litehouse.apart import apart

REHEARSAL = "LITEHOUSE_REHEARSE_GPU"
"""The environment variable that makes so many GPUs of the CPU's memory: for tests where there is none."""

DRIVER_INFO = Path("/proc/driver/nvidia/version")
MAX_PINNED = 1 << 26  # bytes that are copied through memory that a GPU reads by itself
MAX_STAGED = 1 << 22  # and bytes that come back that way: the memory that is handed out is copied once more

Dtype = np.dtype[Any]
Array = np.ndarray[tuple[int, ...], Dtype]


def is_rehearsed() -> bool:
    """Whether the GPU is made of the CPU's memory."""
    return _rehearsed() > 0


def _rehearsed() -> int:
    text = os.environ.get(REHEARSAL, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) == 1 else 0


def device_count(kind: str) -> int:
    """The number of devices of a kind that torch can use besides the CPU: 0 where torch is missing or broken."""
    if kind != "gpu":
        return 0
    try:
        import torch
    except (ImportError, OSError):  # the second for a library that it loads
        return 0
    return _rehearsed() or (int(torch.cuda.device_count()) if torch.cuda.is_available() else 0)


def lack(device: str) -> str | None:
    """Why torch cannot use a device; None where it can."""
    kind, index = split(device)
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"torch does not import ({error}); install it with: pip install torch"
    if kind == "cpu":
        return None
    count = device_count(kind)
    if not count and torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; install a build that has it in its place"
    if not count:
        return "torch finds no GPU; check that nvidia-smi shows one, and what CUDA_VISIBLE_DEVICES says"
    return None if index < count else f"there is no GPU {index}: torch finds {count}, from 0 on"


def place(device: str) -> Any:
    """Where torch has the memory of a device: a `torch.device`. Nothing else decides this."""
    import torch

    kind, index = split(device)
    return torch.device("cpu") if kind == "cpu" or is_rehearsed() else torch.device("cuda", index)


def device_fingerprint(device: str) -> str | None:
    """A digest of what decides what is fast on a device: the GPU, its driver, and torch with its libraries.

    None where torch cannot use the device.
    """
    if lack(device) is not None:
        return None
    import torch

    facts = [torch.__version__, str(torch.version.cuda), str(torch.backends.cudnn.version())]
    where = place(device)
    if where.type == "cuda":
        found = torch.cuda.get_device_properties(where)
        facts += [found.name, f"{found.major}.{found.minor}", str(found.multi_processor_count), str(found.total_memory)]
        facts.append(_driver())
    else:
        facts.append(f"{split(device)[0]} of the CPU's memory")
    return hashlib.sha256("\n".join(facts).encode(errors="surrogateescape")).hexdigest()


def _driver() -> str:
    """What the driver says of itself; empty where it does not."""
    try:
        return DRIVER_INFO.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""


def about(device: str) -> tuple[str, int]:
    """What a GPU that is there calls itself, and the bytes of its memory."""
    import torch

    where = place(device)
    if where.type != "cuda":
        return f"made of the CPU's memory, as {REHEARSAL} asks for", 0
    found = torch.cuda.get_device_properties(where)
    return str(found.name), int(found.total_memory)


def free_memory(device: str) -> int | None:
    """The bytes that are left on a GPU, with those that torch holds for later; None where nobody knows."""
    if lack(device) is not None or (where := place(device)).type != "cuda":
        return None
    import torch

    free = torch.cuda.mem_get_info(where)[0]
    unused = torch.cuda.memory_reserved(where) - torch.cuda.memory_allocated(where)
    return int(free + max(0, unused))


def give_back(device: str) -> None:
    """Let others have what torch holds of a GPU's memory for later: after a race, that of all who have lost it."""
    if lack(device) is None and place(device).type == "cuda":
        import torch

        gc.collect()  # what holds graphs is full of cycles
        torch.cuda.empty_cache()


def split(device: str) -> tuple[str, int]:
    """The kind of a device and its number, which is 0 where none is said."""
    kind, _, index = device.partition(":")
    return kind, int(index or 0)


def named(device: str) -> str:
    """A device with its number: `"gpu"` is `"gpu:0"`."""
    kind, index = split(device)
    return kind if kind == "cpu" else f"{kind}:{index}"


class Flags(NamedTuple):
    """What numpy's `flags` tell."""

    c_contiguous: bool
    writeable: bool = True


class DeviceArray:
    """Memory of a GPU with a shape and a dtype: as much of numpy's array as its holders use.

    Its numbers are seen by copying alone: `copy` gives them as an array of numpy, and setting items takes one.

    Attributes:
        tensor: The memory, as torch's tensor.
        dtype: The type of the elements, as numpy's.
        device: The GPU, as in `"gpu:0"`.
    """

    __slots__ = ("device", "dtype", "tensor")

    def __init__(self, tensor: Any, device: str, dtype: Dtype | None = None) -> None:
        """Wrap a tensor of torch."""
        self.tensor, self.device = tensor, device
        self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch.")) if dtype is None else dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The count of sizes."""
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        """The count of elements."""
        return int(self.tensor.numel())

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self.size * self.dtype.itemsize

    @property
    def flags(self) -> Flags:
        """Whether the elements lie in C order without gaps; all of this memory can be written."""
        return Flags(bool(self.tensor.is_contiguous()))

    @property
    def address(self) -> int:
        """Where the first element is, for those who can read the GPU's memory."""
        return int(self.tensor.data_ptr())

    def reshape(self, shape: int | Sequence[int]) -> DeviceArray:
        """The same elements in another shape."""
        return DeviceArray(self.tensor.reshape(shape), self.device, self.dtype)

    def view(self, dtype: Any) -> DeviceArray:
        """The same memory as elements of another type."""
        kind = np.dtype(dtype)
        return DeviceArray(self.tensor.view(_torch_type(kind)), self.device, kind)

    def __getitem__(self, key: Any) -> DeviceArray:
        """A part of the memory."""
        return DeviceArray(self.tensor[key], self.device, self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Copy elements into the memory: those of an array of numpy, which may be changed at once, or of a GPU."""
        target = self.tensor if key is Ellipsis else self.tensor[key]
        if isinstance(value, DeviceArray):
            target.copy_(value.tensor, non_blocking=True)
        else:
            _upload(target, np.asarray(value, self.dtype))

    def fill(self, number: float) -> None:
        """Set all elements to a number."""
        self.tensor.fill_(number)

    def copy(self) -> Array:
        """The elements, as an array of numpy."""
        return _download(self.tensor)

    def __array__(self, *_: object, **__: object) -> Array:
        """Refuse: what is copied from a GPU is copied by `copy`, and not in passing."""
        raise TypeError(f"this memory is on {self.device}; copy() gives its numbers as an array")

    def __repr__(self) -> str:
        """The shape and where it is."""
        return f"<DeviceArray {self.dtype.name}{list(self.shape)} on {self.device}>"


Values = Array | DeviceArray


@apart()
def zeros(device: str, shape: int | Sequence[int], dtype: Any = np.uint8) -> DeviceArray:
    """New memory of a GPU, with zeros in it.

    Raises:
        MemoryError: There is not so much.
    """
    import torch

    kind = np.dtype(dtype)
    try:
        tensor = torch.zeros(shape, dtype=_torch_type(kind), device=place(device))
    except (RuntimeError, TypeError) as error:  # the second for sizes beyond all numbers
        raise MemoryError(f"{device} has not enough memory: {_first_line(error)}") from error
    return DeviceArray(tensor, named(device), kind)


def pinned_zeros(device: str, nbytes: int) -> Array:
    """New memory of the host that a GPU reads and writes by itself, as bytes, with zeros in it.

    Raises:
        MemoryError: There is not so much.
    """
    import torch

    try:
        tensor = torch.zeros(nbytes, dtype=torch.uint8, device="cpu", pin_memory=place(device).type == "cuda")
    except (RuntimeError, TypeError) as error:
        raise MemoryError(f"the host has not enough memory for {device}: {_first_line(error)}") from error
    found: Array = tensor.numpy()
    return found


@apart()
def at(device: str, address: int, nbytes: int, owner: object = None) -> DeviceArray:
    """Memory of a GPU that somebody else holds, as bytes.

    Args:
        device: The GPU.
        address: Where it begins.
        nbytes: How much it is.
        owner: Is kept as long as this is.

    Raises:
        ValueError: The GPU has no such memory.
    """
    import torch

    where = place(device)
    if where.type != "cuda":
        buffer: Any = (ctypes.c_ubyte * nbytes).from_address(address)
        buffer.owner = owner
        return DeviceArray(torch.frombuffer(buffer, dtype=torch.uint8), named(device))
    if not _is_on_gpu(address):
        raise ValueError(f"{device} has no memory at {address:#x}")
    try:
        tensor = torch.as_tensor(_Borrowed(address, nbytes, owner), device=where)
    except RuntimeError as error:
        raise ValueError(f"{device} has no memory at {address:#x}: {_first_line(error)}") from error
    if tensor.data_ptr() != address:
        raise ValueError(f"the memory at {address:#x} is not that of {device}")
    return DeviceArray(tensor, named(device))


MEMORY_TYPE, DEVICE_MEMORY = 2, 2  # what the driver is asked for, and its answer


def _is_on_gpu(address: int) -> bool:
    """Whether the driver knows memory of a GPU at an address; torch takes others, too, where a GPU can read them."""
    kind = ctypes.c_uint()
    code = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, ctypes.c_uint64(address))
    return bool(code == 0 and kind.value == DEVICE_MEMORY)


class _Borrowed:
    """Memory by its address, as torch takes it over."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def host_tensor(array: Array) -> Any:
    """An array of numpy as a tensor of torch, over the same memory where that can be."""
    import torch

    array = np.ascontiguousarray(array).reshape(array.shape)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def assign(target: Values, source: Values, *, is_pinned: bool = False, wait: bool = True) -> None:
    """Copy elements, from and to wherever they are.

    Args:
        target: Where to; of the same shape and dtype.
        source: Where from.
        is_pinned: Whether the GPU may read the source by itself: it is not copied on the host before, but waited for.
        wait: Wait until a target on the host has the elements; else `synchronize` does.
    """
    if isinstance(target, DeviceArray):
        if is_pinned and not isinstance(source, DeviceArray):
            _upload_pinned(target.tensor, source)
            synchronize(target.device)  # the source may be overwritten then
        else:
            target[...] = source
    elif not isinstance(source, DeviceArray):
        target[...] = source
    elif target.flags.c_contiguous and target.flags.writeable:
        _download_into(target, source.tensor)
        if wait:
            synchronize(source.device)
    else:
        target[...] = source.copy()


def synchronize(device: str) -> None:
    """Wait for all that was begun on torch's current stream of a device."""
    import torch

    where = place(device)
    if where.type == "cuda":
        torch.cuda.current_stream(where).synchronize()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _torch_type(dtype: Dtype) -> Any:
    import torch

    return getattr(torch, dtype.name)


def _upload(tensor: Any, array: Array) -> None:
    """Copy an array to a GPU: it is read before this returns; when it arrives, the stream knows."""
    import torch

    is_pinned = tensor.is_cuda and array.nbytes <= MAX_PINNED
    staging = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=is_pinned)
    staging.numpy()[...] = array
    tensor.copy_(staging, non_blocking=is_pinned)  # torch keeps pinned memory until it was read


def _upload_pinned(tensor: Any, array: Array) -> None:
    """Let a GPU read an array by itself; the array must stay as it is until then."""
    tensor.copy_(host_tensor(array), non_blocking=True)


def _download_into(array: Array, tensor: Any) -> None:
    """Let a GPU write its memory to an array; it is there when the stream has come so far."""
    host_tensor(array).copy_(tensor, non_blocking=True)


def _download(tensor: Any) -> Array:
    import torch

    found: Array
    if not tensor.is_cuda:
        found = tensor.contiguous().numpy().copy()
    elif tensor.nbytes <= MAX_STAGED:
        staging = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        staging.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(tensor.device).synchronize()
        found = staging.numpy().copy()
    else:
        found = tensor.contiguous().cpu().numpy()
    return found

"""Memory of a GPU that other processes can use, too: by the driver's own calls, without pickled objects.

Torch's allocator hands out parts of larger blocks, and a handle is always for a whole block: so this memory is not
its, but one block of the driver for each arena.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref

import torch

from litehouse.device import is_rehearsed
from litehouse.engines.torch.driver import driver, on
from litehouse.engines.torch.values import Tensor
from litehouse.errors import WeightError

HANDLE_BYTES = 64
PEER_ACCESS = 1  # the only way that the driver knows
GRANULE = 1 << 21  # bytes: smaller blocks lie in a common one, and a handle is for all of that
FILE = b"file "  # how a handle begins that stands for memory of the CPU, where a GPU is rehearsed


class _Handle(ctypes.Structure):
    _fields_ = [("content", ctypes.c_ubyte * HANDLE_BYTES)]


class _Block:
    """A block of memory of the driver, which is given back with the last tensor that uses it."""

    def __init__(self, address: int, nbytes: int, free: str) -> None:
        self._address, self._free, self._context = address, free, ctypes.c_void_p()
        driver().cuCtxGetCurrent(ctypes.byref(self._context))
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the process may be about to end
            driver().cuCtxPushCurrent_v2(self._context)  # the thread that lets go of it may have none
            getattr(driver(), self._free)(ctypes.c_uint64(self._address))
            driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def allocate(nbytes: int, place: torch.device) -> Tensor:
    """Memory on a device, as bytes, that `export` can give to others.

    Raises:
        torch.OutOfMemoryError: There is not enough.
    """
    if place.type != "cuda":
        return _file_memory(nbytes) if is_rehearsed() else torch.empty(nbytes, dtype=torch.uint8)
    address, size = ctypes.c_uint64(), ctypes.c_size_t(-(-nbytes // GRANULE) * GRANULE)
    with on(place):
        if driver().cuMemAlloc_v2(ctypes.byref(address), size) != 0:
            torch.cuda.empty_cache()
            if driver().cuMemAlloc_v2(ctypes.byref(address), size) != 0:
                raise torch.OutOfMemoryError(f"{nbytes} bytes for weights")
        return torch.as_tensor(_Block(address.value, nbytes, "cuMemFree_v2"), device=place)


def export(memory: Tensor) -> bytes:
    """The handle by which another process opens memory that `allocate` has given.

    Raises:
        WeightError: The driver has none for it.
    """
    if not memory.is_cuda and memory.data_ptr() not in _files:
        raise WeightError("weights on the CPU are shared by the engine onnxruntime alone")
    if not memory.is_cuda:
        return FILE + f"/proc/{os.getpid()}/fd/{_files[memory.data_ptr()]}".encode()
    handle = _Handle()
    with torch.cuda.device(memory.device):
        code = driver().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(memory.data_ptr()))
    if code != 0:
        raise WeightError(f"the driver cannot share memory of this GPU (error {code})")
    return bytes(handle.content)


def adopt(digits: str, nbytes: int, place: torch.device) -> Tensor:
    """The memory of another process, as bytes, by its handle in hexadecimal digits.

    Raises:
        WeightError: It cannot be opened here: that process has ended, or it is on another GPU.
    """
    try:
        handle = bytes.fromhex(digits)
    except ValueError as error:
        raise WeightError(f"the other process has given no handle: {error}") from error
    if handle.startswith(FILE) and is_rehearsed():
        return _opened_file(handle, nbytes)
    if len(handle) != HANDLE_BYTES or place.type != "cuda":
        raise WeightError("the weights are on a GPU, and this process was not asked to run there; use device='gpu'")
    address = ctypes.c_uint64()
    with on(place):
        opens = driver().cuIpcOpenMemHandle_v2
        opens.argtypes = [ctypes.c_void_p, _Handle, ctypes.c_uint]
        code = opens(ctypes.byref(address), _Handle.from_buffer_copy(handle), PEER_ACCESS)
        if code != 0:
            raise WeightError(
                f"the weights on the GPU cannot be opened here (the driver's error {code}): the process that shares "
                "them has ended, is this one, or sees another GPU"
            )
        block = _Block(address.value, nbytes, "cuIpcCloseMemHandle")
        _check_size(address.value, nbytes)
        return torch.as_tensor(block, device=place)


def _check_size(address: int, nbytes: int) -> None:
    """Raise WeightError where less memory was opened: kernels would read beyond it."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    found = ctypes.byref(base), ctypes.byref(size)
    if driver().cuMemGetAddressRange_v2(*found, ctypes.c_uint64(address)) != 0:
        return  # the driver does not tell
    if address + nbytes > base.value + size.value:
        raise WeightError(f"the other process shares {size.value} bytes on the GPU, where the weights take {nbytes}")


def card(place: torch.device) -> str:
    """What tells a GPU from others; empty for the CPU."""
    return str(torch.cuda.get_device_properties(place).uuid) if place.type == "cuda" else ""


# Where a GPU is rehearsed ---------------------------------------------------------------------------------------------

_files: dict[int, int] = {}  # descriptors by the address of their memory


def _file_memory(nbytes: int) -> Tensor:
    descriptor = os.memfd_create("litehouse", os.MFD_CLOEXEC)
    os.truncate(descriptor, nbytes)
    mapped = mmap.mmap(descriptor, nbytes)
    memory = torch.frombuffer(mapped, dtype=torch.uint8)
    _files[memory.data_ptr()] = descriptor
    weakref.finalize(mapped, _close_file, memory.data_ptr()).atexit = False
    return memory


def _close_file(address: int) -> None:
    os.close(_files.pop(address))


def _opened_file(handle: bytes, nbytes: int) -> Tensor:
    try:
        with open(handle.removeprefix(FILE).decode(), "r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), nbytes), dtype=torch.uint8)
    except (OSError, ValueError) as error:
        raise WeightError(f"the weights cannot be opened here: {error}") from error

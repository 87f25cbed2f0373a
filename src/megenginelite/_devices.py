"""Which devices there are, and the memory that tensors on them take."""

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from litehouse import EngineError, device
from litehouse.device import DeviceArray, Values
from megenginelite._errors import fail
from megenginelite.struct import LiteDeviceType

_REFUSED = {
    LiteDeviceType.LITE_ATLAS: "acl initialize failed: (acl: ACL_ERROR_INTERNAL_ERROR)",
    LiteDeviceType.LITE_CAMBRICON: "cambricon disabled at compile time",
}
_HOST = (LiteDeviceType.LITE_CPU, LiteDeviceType.LITE_DEVICE_DEFAULT)


def device_count(device_type: int) -> int:
    """Give the number of devices of a kind.

    Raises:
        RuntimeError: There is no such kind here.
    """
    if device_type in _HOST:
        return os.cpu_count() or 1
    if device_type == LiteDeviceType.LITE_CUDA:
        return device.device_count("gpu")
    if device_type in _REFUSED:
        return 0
    fail(f"lite unsupported compnode type: enum value: {int(device_type)}.")


def check_device(device_type: int, device_id: int) -> None:
    """Raise RuntimeError unless there is such a device."""
    if device_type in _HOST:
        return
    count = device_count(device_type)
    if device_type in _REFUSED:
        fail(_REFUSED[LiteDeviceType(device_type)])
    if not 0 <= device_id < count:
        reason = device.lack(f"gpu:{device_id}")  # which the original does not tell
        cause = None if reason is None else EngineError(reason)
        fail(f"request gpu{device_id} out of valid range [0, {count})", cause)


def device_option(device_type: int, device_id: int) -> str:
    """Give the core's name of a device."""
    return f"gpu:{device_id}" if device_type == LiteDeviceType.LITE_CUDA else "cpu"


HOST_ONLY = "set_data_by_share can only apply in cpu tensor or pinned tensor."
Allocate = Callable[[int], Values]
"""Gives so many bytes of memory, with zeros in them."""


def host_memory(nbytes: int) -> Values:
    """Give memory of the host."""
    return np.zeros(nbytes, np.uint8)


def device_memory(device_id: int) -> Allocate:
    """Give what takes memory of a GPU."""
    return functools.partial(device.zeros, f"gpu:{device_id}")


def pinned_memory(device_id: int) -> Allocate:
    """Give what takes memory of the host that a GPU reads and writes by itself."""
    return functools.partial(device.pinned_zeros, f"gpu:{device_id}")


def borrow(data: Any, nbytes: int, device_id: int) -> DeviceArray:
    """Give memory of a GPU that ctypes describes, without a copy. It must live as long as it is used.

    Args:
        data: A pointer, a `c_void_p`, or an address.
        nbytes: The number of bytes.
        device_id: The GPU.

    Raises:
        AssertionError: It is memory of the host.
        RuntimeError: The GPU has no such memory.
    """
    assert not isinstance(data, bytes | ctypes.Array), HOST_ONLY
    address = ctypes.cast(data, ctypes.c_void_p).value
    if not address:
        fail("The prepared_data pass to LITE c_api is null")
    try:
        return device.at(f"gpu:{device_id}", address, nbytes, data)
    except ValueError as error:
        fail(str(error), error)

"""Which devices there are. A tensor lives in the host's memory; a network runs on the CPU, or where the core can."""

import os

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
    if device_type == LiteDeviceType.LITE_CUDA or device_type in _REFUSED:
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
        fail(f"request gpu{device_id} out of valid range [0, {count})")


def device_option(device_type: int, device_id: int) -> str:
    """Give the core's name of a device."""
    return f"gpu:{device_id}" if device_type == LiteDeviceType.LITE_CUDA else "cpu"

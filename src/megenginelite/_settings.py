"""What a network runs with: its LiteConfig and LiteNetworkIO, and what a packed model says about itself."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from megenginelite._config import LiteConfig, LiteIO, LiteNetworkIO
from megenginelite._layout import Dtype, dtype_of
from megenginelite.struct import LiteDeviceType

_PLAIN = "NONE"
# The names of devices in a packed model's info.
_DEVICES = {
    "CPU": LiteDeviceType.LITE_CPU,
    "CUDA": LiteDeviceType.LITE_CUDA,
    "ATLAS": LiteDeviceType.LITE_ATLAS,
    "NPU": LiteDeviceType.LITE_NPU,
    "CAMBRICON": LiteDeviceType.LITE_CAMBRICON,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a network runs with. A LiteConfig that is changed after the network was made does not change it.

    Attributes:
        device_type: A LiteDeviceType.
        device_id: The number of the device.
        stream_id: A number that the network shows.
        threads: Threads inside one operator.
        is_inplace: Whether the CPU's in-place mode was asked for.
        cipher: The decryption method of an encrypted file, or "".
        const_shape: Whether the inputs must keep their shapes.
        fixed_outputs: Whether outputs must go to the caller's memory.
        discrete_input: The input that is fed one piece of the batch at a time, or "".
        layouts: Shapes and dtypes of inputs where they are not the file's; a dtype of None is the file's.
        ios: Declared inputs and outputs by name.
        outputs: The names of declared outputs, in order.
        on_device: The names of inputs and outputs that live on the device, where that is not the CPU.
    """

    device_type: int
    device_id: int
    cipher: str
    const_shape: bool
    fixed_outputs: bool
    discrete_input: str
    stream_id: int = 0
    threads: int = 1
    is_inplace: bool = False
    layouts: Mapping[str, tuple[tuple[int, ...], Dtype | None]] = field(default_factory=dict)
    ios: Mapping[str, LiteIO] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    on_device: frozenset[str] = frozenset()

    @property
    def is_cuda(self) -> bool:
        """Whether the network runs on a GPU."""
        return self.device_type == LiteDeviceType.LITE_CUDA

    @classmethod
    def of(cls, config: LiteConfig, io: LiteNetworkIO) -> Self:
        """Give the settings that the caller asks for."""
        layouts = {
            item.name: (tuple(item.config_layout.shapes), dtype_of(item.config_layout.data_type))
            for item in io.inputs
            if item.config_layout.ndim
        }
        return cls(
            device_type=config.device_type,
            device_id=config.device_id,
            cipher="" if config.bare_model_cryption_name == _PLAIN else config.bare_model_cryption_name,
            const_shape=bool(config.options.const_shape),
            fixed_outputs=bool(config.options.force_output_use_user_specified_memory),
            discrete_input=(config.discrete_input_name or b"").decode("utf-8"),
            layouts=layouts,
            ios={item.name: item for item in (*io.inputs, *io.outputs)},
            outputs=tuple(item.name for item in io.outputs),
            on_device=frozenset(item.name for item in (*io.inputs, *io.outputs) if not item.is_host),
        )

    def with_info(self, text: str, *, is_disabled: bool) -> "Settings":
        """Give the settings with those of a packed model laid over them.

        Args:
            text: The model's info, JSON that the core has checked; "" for none.
            is_disabled: Whether the caller set them aside. The threads and the in-place mode count all the same.
        """
        info: dict[str, Any] = json.loads(text) if text else {}
        device = _get(info, "device", {})
        settings = replace(
            self,
            threads=int(_get(device, "number_threads", self.threads)),
            is_inplace=_get(device, "enable_inplace_model", False) or self.is_inplace,
        )
        if is_disabled:
            return settings
        ios = _get(info, "IO", {})
        declared = {item["name"]: layout for item in _get(ios, "inputs", ()) if (layout := _layout(item))}
        items = (*_get(ios, "inputs", ()), *_get(ios, "outputs", ()))
        on_device = {item["name"] for item in items if not _get(item, "is_host", True)}
        return replace(
            settings,
            device_type=_DEVICES[device["type"]] if device else self.device_type,
            device_id=int(_get(device, "device_id", self.device_id)),
            const_shape=_get(_get(info, "options", {}), "const_shape", self.const_shape),
            layouts={**declared, **self.layouts},
            outputs=(*self.outputs, *(item["name"] for item in _get(ios, "outputs", ()))),
            on_device=self.on_device | (on_device - self.ios.keys()),
        )


def _get(entries: Mapping[str, Any], key: str, default: Any) -> Any:
    value = entries.get(key)
    return default if value is None else value


def _layout(item: Mapping[str, Any]) -> tuple[tuple[int, ...], Dtype | None] | None:
    """Give the shape and the dtype that a packed model declares for an input; None without a shape."""
    sizes = _get(item, "shape", {})
    given = itertools.takewhile(lambda size: size is not None, (sizes.get(f"dim{axis}") for axis in range(4)))
    shape = tuple(int(size) for size in given)
    dtype = item.get("dtype")
    return (shape, np.dtype(dtype) if dtype else None) if shape else None

"""What several op families share: padding, axes, layouts."""

from collections.abc import Sequence
from typing import Any

from litehouse.formats.mindir.tape import MindirTape

CHANNELS_FIRST = ("NCHW", "NCDHW", "NCW", "DEFAULT", "DefaultFormat", "", None, 0, 14, 16, -1)
PAD_MODES = {0: "pad", 1: "same", 2: "valid"}


def require_channels_first(t: MindirTape, format: Any) -> None:  # noqa: A002
    """Refuse any layout but channels first."""
    if t.literal(format) not in CHANNELS_FIRST:
        t.refuse(f"layout {format!r} is not supported, only channels first")


def pad_mode_name(t: MindirTape, mode: Any) -> str:
    """A pad mode, given as text of any case or as a number, as `pad`, `same` or `valid`."""
    mode = t.literal(mode)
    name = PAD_MODES.get(mode, "") if isinstance(mode, int) else str(mode).lower()
    if name not in PAD_MODES.values():
        t.refuse(f"pad mode {mode!r} is not supported")
    return name


def last(t: MindirTape, sizes: Any, count: int) -> tuple[int, ...]:
    """The last `count` entries of a spatial argument that may also carry batch and channel; one number stands for all."""
    sizes = t.literal(sizes)
    sizes = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,) * count
    return tuple(int(size) for size in (sizes * count if len(sizes) == 1 else sizes)[-count:])


def onnx_pads(pairs: Sequence[int]) -> tuple[int, ...]:
    """ONNX's order (all begins, then all ends) from MindSpore's (begin and end, axis by axis)."""
    return (*pairs[::2], *pairs[1::2])


def convolution_geometry(
    t: MindirTape, axes: int, pad_mode: Any, pad_list: Any, stride: Any, dilation: Any
) -> dict[str, Any]:
    """The ONNX attributes for a window that moves over `axes` axes."""
    geometry: dict[str, Any] = {"strides": last(t, stride, axes), "dilations": last(t, dilation, axes)}
    mode = pad_mode_name(t, pad_mode)
    if mode == "same":
        # Also where the file states the sizes: they hold for the exported input size alone.
        return {**geometry, "auto_pad": "SAME_UPPER"}
    pads = t.literal(pad_list) if mode == "pad" else (0,) * (2 * axes)
    return {**geometry, "pads": onnx_pads(pads)}

"""Windows that move over an image, as convolution and pooling have them: where they begin and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.nn import functional

from litehouse.engines.torch.registry import LackingError
from litehouse.engines.torch.values import Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """Windows along one axis.

    Attributes:
        size: The size of the image.
        kernel: How many elements a window takes.
        stride: The way from a window to the next.
        dilation: The way from an element of a window to the next.
        begin: The padding before the image.
        end: The padding behind it.
        count: How many windows there are.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    count: int

    @property
    def extent(self) -> int:
        """From the first element of a window to behind the last one."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def overhang(self) -> int:
        """How far the last window reaches beyond the image and its padding."""
        return (self.count - 1) * self.stride + self.extent - (self.begin + self.size + self.end)


def axes_of(
    sizes: Sequence[int],
    kernel: Sequence[int],
    auto_pad: str,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    *,
    is_ceil: bool = False,
) -> list[Axis]:
    """The windows along each axis of an image, from the attributes of an op."""
    rank = len(sizes)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = pads or [0] * (2 * rank)
    if len(kernel) != rank or len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise LackingError("windows of another rank than the image")
    rows = zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [_axis(*row, auto_pad=auto_pad or "NOTSET", is_ceil=is_ceil) for row in rows]


def _axis(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int, *, auto_pad: str, is_ceil: bool
) -> Axis:
    extent = (kernel - 1) * dilation + 1
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return Axis(size, kernel, stride, dilation, begin, total - begin, count)
    if auto_pad == "VALID":
        begin = end = 0
    room = size + begin + end - extent
    count = (-(-room // stride) if is_ceil else room // stride) + 1
    if is_ceil and (count - 1) * stride >= size + begin:  # a window must not begin in the padding behind the image
        count -= 1
    return Axis(size, kernel, stride, dilation, begin, end, count)


def padded(x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """An image with something before and behind each of its last axes; less than nothing takes away."""
    if not any(begin or end for begin, end in pads):
        return x
    return functional.pad(x, [number for pair in reversed(pads) for number in pair], value=value)

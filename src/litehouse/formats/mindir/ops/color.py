"""Colours of images whose last axis is the channel."""

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

FLOAT = ir.DataType.FLOAT


def _number(t: MindirTape, value: float) -> ir.Value:
    return t.constant(value, FLOAT)


def _channels(t: MindirTape, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    first, second, third = t.op("Split", [t.cast(x, FLOAT)], axis=-1, num_outputs=3, outputs=3)
    return first, second, third


def _joined(t: MindirTape, parts: tuple[ir.Value, ir.Value, ir.Value], dtype: ir.DataType) -> ir.Value:
    return t.cast(t.op("Concat", parts, axis=-1, dtype=FLOAT), dtype)


def _to_hsv(t: MindirTape, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    red, green, blue = _channels(t, x)
    value = t.op("Max", [red, green, blue])
    span = t.op("Sub", [value, t.op("Min", [red, green, blue])])
    zero, one = _number(t, 0), _number(t, 1)

    def share(part: ir.Value, whole: ir.Value) -> ir.Value:
        """The quotient, and 0 where there is nothing to divide by."""
        positive = t.op("Greater", [whole, zero])
        made: ir.Value = t.op("Where", [positive, t.op("Div", [part, t.op("Where", [positive, whole, one])]), zero])
        return made

    from_red = share(t.op("Sub", [green, blue]), span)
    from_green = t.op("Add", [share(t.op("Sub", [blue, red]), span), _number(t, 2)])
    from_blue = t.op("Add", [share(t.op("Sub", [red, green]), span), _number(t, 4)])
    later = t.op("Where", [t.op("Equal", [green, value]), from_green, from_blue])
    sixths = t.op("Where", [t.op("Equal", [red, value]), from_red, later])
    sixths = t.op("Where", [t.op("Greater", [span, zero]), sixths, zero])
    hue = t.op("Div", [sixths, _number(t, 6)])
    hue = t.op("Where", [t.op("Less", [hue, zero]), t.op("Add", [hue, one]), hue])
    return hue, share(span, value), value


def _from_hsv(t: MindirTape, hsv: tuple[ir.Value, ir.Value, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
    hue, saturation, value = hsv
    sixths = t.op("Mul", [hue, _number(t, 6)])
    zero, one, two = (_number(t, number) for number in (0, 1, 2))
    away = {centre: t.op("Abs", [t.op("Sub", [sixths, _number(t, centre)])]) for centre in (2, 3, 4)}
    bright = (t.op("Sub", [away[3], one]), t.op("Sub", [two, away[2]]), t.op("Sub", [two, away[4]]))

    def shaded(part: ir.Value) -> ir.Value:
        clear = t.op("Sub", [t.op("Clip", [part, zero, one]), one])
        made: ir.Value = t.op("Mul", [t.op("Add", [t.op("Mul", [clear, saturation]), one]), value])
        return made

    return shaded(bright[0]), shaded(bright[1]), shaded(bright[2])


@op("RGBToHSV")
def rgb_to_hsv(t: MindirTape, images: ir.Value) -> Any:
    return _joined(t, _to_hsv(t, images), t.dtype(images))


@op("HSVToRGB")
def hsv_to_rgb(t: MindirTape, x: ir.Value) -> Any:
    return _joined(t, _from_hsv(t, _channels(t, x)), t.dtype(x))


def _adjusted(t: MindirTape, images: ir.Value, change: Callable[..., tuple[ir.Value, ir.Value, ir.Value]]) -> ir.Value:
    return _joined(t, _from_hsv(t, change(*_to_hsv(t, images))), t.dtype(images))


@op("AdjustHue")
def adjust_hue(t: MindirTape, image: ir.Value, delta: Any) -> Any:
    def change(hue: ir.Value, saturation: ir.Value, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        turned = t.op("Add", [hue, t.tensor(delta, FLOAT)])
        return t.op("Sub", [turned, t.op("Floor", [turned])]), saturation, value

    return _adjusted(t, image, change)


@op("AdjustSaturation")
def adjust_saturation(t: MindirTape, image: ir.Value, scale: Any) -> Any:
    def change(hue: ir.Value, saturation: ir.Value, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        stronger = t.op("Mul", [saturation, t.tensor(scale, FLOAT)])
        return hue, t.op("Clip", [stronger, _number(t, 0), _number(t, 1)]), value

    return _adjusted(t, image, change)


@op("AdjustContrastv2")
def adjust_contrast(t: MindirTape, images: ir.Value, contrast_factor: Any) -> Any:
    """Away from each channel's mean over height and width, or towards it."""
    x = t.cast(images, FLOAT)
    mean = t.op("ReduceMean", [x, t.ints((-3, -2))], keepdims=1)
    far = t.op("Mul", [t.op("Sub", [x, mean]), t.tensor(contrast_factor, FLOAT)])
    return t.cast(t.op("Add", [far, mean], dtype=FLOAT), t.dtype(images))

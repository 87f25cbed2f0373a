"""Resizing in MindSpore Lite's dialect: one op for all methods, to sizes or by factors."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.layout import as_format, channels_first, is_channels_last
from litehouse.formats.mindir.ops.resize import RULES, nearest, resized
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

METHODS = {0: "linear", 1: "nearest", 2: "cubic"}
ROUNDING = {1: "round_prefer_floor", 2: "round_prefer_ceil", 3: "floor", 4: "ceil"}


@op("Resize")
def resize(
    t: MindirTape,
    x: ir.Value,
    size: Any = None,
    *,
    method: Any = 0,
    new_height: Any = 0,
    new_width: Any = 0,
    coordinate_transform_mode: Any = 0,
    nearest_mode: Any = 0,
    cubic_coeff: Any = -0.75,
    exclude_outside: Any = 0,
    format: Any = 0,
) -> Any:
    """The second operand holds two factors where it is floating point, two sizes where it is not.

    A nearest mode of 0 is that of other sources than ONNX, which round as MindSpore does.
    """
    images = channels_first(t, x, format)
    sizes, scales = _targets(t, size, (new_height, new_width), format)
    kind, rule = METHODS.get(t.literal(method)), RULES.get(t.literal(coordinate_transform_mode))
    if kind is None or rule is None:
        t.refuse(f"method {method!r} with the coordinates {coordinate_transform_mode!r} is not supported")
    details: dict[str, Any] = {"mode": kind, "coordinate_transformation_mode": rule}
    if kind == "nearest" and t.literal(nearest_mode) not in ROUNDING:
        return as_format(t, nearest(t, images, sizes, scales, rule), format)
    if kind == "nearest":
        details["nearest_mode"] = ROUNDING[t.literal(nearest_mode)]
    if kind == "cubic":
        details["cubic_coeff_a"] = float(cubic_coeff)
        details["exclude_outside"] = int(t.literal(exclude_outside))
    return as_format(t, resized(t, images, sizes, scales, **details), format)


def _targets(t: MindirTape, size: Any, attributes: tuple[Any, Any], format: Any) -> tuple[Any, Any]:
    """The sizes of height and width, or the factors; one of the two is None."""
    if size is None:
        if not all(attributes):
            t.refuse("neither a size nor a factor is stated")
        return attributes, None
    plane = _plane(t, size, format)
    is_factor = plane.dtype.is_floating_point() if isinstance(plane, ir.Value) and plane.dtype else _floats(plane)
    return (None, plane) if is_factor else (plane, None)


def _floats(values: Any) -> bool:
    return any(isinstance(value, float) for value in values)


def _plane(t: MindirTape, size: Any, format: Any) -> Any:
    """The two numbers for height and width, also where the operand has four."""
    if t.is_literal(size):
        numbers = t.literal(size)
        return numbers if len(numbers) == 2 else numbers[1:3] if is_channels_last(t, format) else numbers[2:]
    if t.sizes(size) == (2,):
        return size
    first = 1 if is_channels_last(t, format) else 2
    part: ir.Value = t.op("Slice", [size, t.ints(first), t.ints(first + 2)], dtype=size.dtype, shape=[2])
    return part

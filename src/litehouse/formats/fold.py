"""Computes small constants while a graph is written: the arithmetic on shapes that exporters leave in files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

LARGEST = 4096  # elements; what is larger is left to the engine

Arrays = Sequence[Any]
Attributes = Mapping[str, Any]


def fold(op_type: str, inputs: Sequence[np.ndarray | None], attributes: Attributes) -> np.ndarray | None:
    """The result of an ONNX op on constants; None where it is not one of the ops here, too large, or fails."""
    function = FOLDERS.get(op_type)
    if function is None or any(array is not None and array.size > LARGEST for array in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(function(inputs, attributes))
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
        return None  # the engine says what is wrong
    return result if result.size <= LARGEST else None


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu":  # towards zero, as ONNX has it
        if not b.all():
            raise ZeroDivisionError
        quotient: np.ndarray = (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
        return quotient
    return np.asarray(a / b)


def _modulo(inputs: Arrays, attributes: Attributes) -> Any:
    if inputs[0].dtype.kind in "iu" and not inputs[1].all():
        raise ZeroDivisionError
    return (np.fmod if attributes.get("fmod") else np.mod)(*inputs)


def _reshape(inputs: Arrays, _: Attributes) -> np.ndarray:
    data, shape = inputs
    sizes = [data.shape[axis] if size == 0 else size for axis, size in enumerate(shape.tolist())]
    return np.asarray(data.reshape(sizes))


def _slice(inputs: Arrays, _: Attributes) -> np.ndarray:
    data, starts, ends, axes, steps = [*inputs, None, None][:5]
    axes = range(len(starts)) if axes is None else axes.tolist()
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), axes, steps.tolist(), strict=True):
        size = data.shape[axis]
        # An end at or before -size - 1 means "past the first element" for a negative step.
        index[axis] = slice(start, None if step < 0 and end < -size else end, step)
    return np.asarray(data[tuple(index)])


def _expand(inputs: Arrays, _: Attributes) -> np.ndarray:
    data, shape = inputs
    wanted = np.broadcast_shapes(data.shape, tuple(shape.tolist()))
    if math.prod(wanted) > LARGEST:
        raise ValueError
    return np.broadcast_to(data, wanted)


def _squeeze(inputs: Arrays, _: Attributes) -> np.ndarray:
    axes = None if len(inputs) < 2 or inputs[1] is None else tuple(inputs[1].tolist())
    return np.asarray(np.squeeze(inputs[0], axes))


def _range(inputs: Arrays, _: Attributes) -> np.ndarray:
    start, stop, step = (array.item() for array in inputs)
    if step == 0 or (stop - start) / step > LARGEST:
        raise ValueError
    return np.asarray(np.arange(start, stop, step, dtype=inputs[0].dtype))


def _filled(inputs: Arrays, attributes: Attributes) -> np.ndarray:
    value = attributes.get("value")
    item = np.zeros(1, np.float32) if value is None else value.numpy()
    shape = tuple(inputs[0].tolist())
    if math.prod(shape) > LARGEST:
        raise ValueError
    return np.full(shape, item.reshape(()), item.dtype)


def _reduce(function: Callable[..., Any]) -> Callable[[Arrays, Attributes], Any]:
    def reduce(inputs: Arrays, attributes: Attributes) -> Any:
        axes = None if len(inputs) < 2 or inputs[1] is None else tuple(inputs[1].tolist())
        keep = bool(attributes.get("keepdims", 1))
        return np.asarray(function(inputs[0], axis=axes, keepdims=keep)).astype(inputs[0].dtype)

    return reduce


def _cast(inputs: Arrays, attributes: Attributes) -> np.ndarray:
    import onnx_ir as ir

    return np.asarray(inputs[0].astype(ir.DataType(attributes["to"]).numpy()))


def _plain(function: Callable[..., Any]) -> Callable[[Arrays, Attributes], Any]:
    return lambda inputs, _: function(*inputs)


def _many(function: Callable[[Any, Any], Any]) -> Callable[[Arrays, Attributes], Any]:
    def join(inputs: Arrays, _: Attributes) -> Any:
        result = inputs[0]
        for other in inputs[1:]:
            result = function(result, other)
        return result

    return join


FOLDERS: dict[str, Callable[[Arrays, Attributes], Any]] = {
    "Abs": _plain(np.abs),
    "Add": _plain(np.add),
    "And": _plain(np.logical_and),
    "Cast": _cast,
    "Ceil": _plain(np.ceil),
    "Clip": _plain(np.clip),
    "Concat": lambda inputs, attributes: np.concatenate(inputs, attributes["axis"]),
    "ConstantOfShape": _filled,
    "Div": _plain(_divide),
    "Equal": _plain(np.equal),
    "Expand": _expand,
    "Floor": _plain(np.floor),
    "Gather": lambda inputs, attributes: np.take(inputs[0], inputs[1], attributes.get("axis", 0)),
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Max": _many(np.maximum),
    "Min": _many(np.minimum),
    "Mod": _modulo,
    "Mul": _plain(np.multiply),
    "Neg": _plain(np.negative),
    "Not": _plain(np.logical_not),
    "Or": _plain(np.logical_or),
    "Pow": lambda inputs, _: np.power(*inputs).astype(inputs[0].dtype),
    "Range": _range,
    "Reciprocal": _plain(np.reciprocal),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Sign": _plain(np.sign),
    "Slice": _slice,
    "Sqrt": _plain(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _plain(np.subtract),
    "Transpose": lambda inputs, attributes: np.transpose(inputs[0], attributes.get("perm")),
    "Unsqueeze": lambda inputs, _: np.expand_dims(inputs[0], tuple(inputs[1].tolist())),
    "Where": _plain(np.where),
    "Xor": _plain(np.logical_xor),
}

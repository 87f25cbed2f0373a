"""Holds what a caller gives against what a model takes, and says what differs."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from litehouse.errors import ShapeError
from litehouse.model import Model, TensorInfo

Item = TypeVar("Item")


def known_shape(info: TensorInfo, found: tuple[int, ...]) -> tuple[Any, ...]:
    """The shape that a run gave, with the sizes left open that the file leaves open."""
    if len(info.shape) != len(found):
        return found
    return tuple(size if isinstance(old, int) else old for old, size in zip(info.shape, found, strict=True))


def is_static(infos: tuple[TensorInfo, ...]) -> bool:
    """Whether every size is known."""
    return all(info.is_static for info in infos)


def fits(shape: tuple[int, ...], info: TensorInfo) -> bool:
    """Whether an array of this shape can be given for an input."""
    return len(shape) == len(info.shape) and all(
        not isinstance(size, int) or size == given for size, given in zip(info.shape, shape, strict=True)
    )


def as_list(inputs: Any, infos: tuple[TensorInfo, ...]) -> Sequence[np.ndarray]:
    """The inputs in order, given in order or by name."""
    if isinstance(inputs, Mapping):
        return in_order(inputs, infos)
    if not isinstance(inputs, Sequence):
        raise ShapeError(f"give the inputs as a list, as run([x]), not as {type(inputs).__name__}")
    return inputs


def in_order(named: Mapping[str, Item], infos: tuple[TensorInfo, ...], what: str = "input") -> list[Item]:
    """The values of a mapping in the order of the infos; every missing and unknown name is told."""
    missing = [info.name for info in infos if info.name not in named]
    unknown = sorted(set(named) - {info.name for info in infos})
    if missing or unknown:
        problems = [f"{what} {name!r} is missing" for name in missing] + [
            f"there is no {what} {name!r}" for name in unknown
        ]
        raise ShapeError(f"{'; '.join(problems)}. The model takes: {describe(infos)}")
    return [named[info.name] for info in infos]


def shapes_in_order(model: Model, shapes: Any) -> tuple[tuple[int, ...], ...]:
    """One shape per input, given in order or by name, as tuples of ints.

    Raises:
        ShapeError: The count is wrong, or what was given are no shapes that the inputs can have.
    """
    if isinstance(shapes, Mapping):
        shapes = in_order(shapes, model.inputs)
    if not isinstance(shapes, Sequence) or not all(isinstance(shape, Sequence) for shape in shapes):
        raise ShapeError(f"give one shape per input, as [[1, 3, 224, 224]], not {shapes!r}")
    try:
        wanted = tuple(tuple(operator.index(size) for size in shape) for shape in shapes)
    except TypeError:
        raise ShapeError(f"shapes must be made of ints, not {shapes!r}") from None
    if len(wanted) != len(model.inputs):
        raise ShapeError(f"the model takes {len(model.inputs)} inputs, but {len(wanted)} shapes were given")
    for info, shape in zip(model.inputs, wanted, strict=True):
        other_rank = len(shape) != len(info.shape) and model.translate is None
        if other_rank or any(size < 0 for size in shape):
            raise ShapeError(
                f"input {info.name!r} of shape {shape_text(info.shape)} cannot be resized to {list(shape)}"
            )
    return wanted


def checked(array: Any, info: TensorInfo) -> np.ndarray:
    """The array as C-contiguous memory of the input's dtype and shape, or an error that says what differs."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        raise ShapeError(
            f"input {info.name!r} must be a numpy array, not {type(array).__name__}; "
            f"np.array(value, {info.dtype.name!r}) makes one"
        )
    if array.dtype != info.dtype:
        raise ShapeError(
            f"input {info.name!r} must be {info.dtype}, not {array.dtype}; convert it with .astype({info.dtype.name!r})"
        )
    if not fits(array.shape, info):
        order = _order(array.shape, info.shape)
        others = "reshape the array, or resize the session (a pool: any_size=True)"
        advice = f"transpose it with .transpose{order}" if order else others
        raise ShapeError(
            f"input {info.name!r} must have the shape {shape_text(info.shape)}, not {list(array.shape)}; {advice}"
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def is_foreign(array: Any) -> bool:
    """Whether an array belongs to another library than numpy, and can be taken over by DLPack."""
    return not isinstance(array, np.ndarray | np.generic) and hasattr(array, "__dlpack__")


def from_dlpack(array: Any, info: TensorInfo) -> np.ndarray:
    """An array of another library as one of numpy, over the same memory.

    Raises:
        ShapeError: It is not in the memory of the CPU, or numpy does not have its dtype.
    """
    if not is_foreign(array):
        return array  # type: ignore[no-any-return]
    try:
        return np.from_dlpack(settled(array))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ShapeError(
            f"input {info.name!r} cannot be taken as a numpy array ({error}); "
            "the engine takes arrays of the host: copy it there"
        ) from error


def settled(array: Any) -> Any:
    """A tensor of torch without what DLPack does not tell: that a gradient is wanted, or a sign is yet to change."""
    if getattr(array, "requires_grad", False):
        array = array.detach()
    return array.resolve_conj().resolve_neg() if hasattr(array, "resolve_neg") else array


def accept(inputs: Any, infos: tuple[TensorInfo, ...], *, any_size: bool = False) -> list[np.ndarray]:
    """The inputs in order, as C-contiguous memory of the dtypes and shapes that a model takes.

    Args:
        inputs: Arrays in order or by name.
        infos: What the model takes.
        any_size: Take other sizes than the file has, too, of as many axes.

    Raises:
        ShapeError: The count, a dtype or a shape is wrong.
    """
    given = as_list(inputs, infos)
    if len(given) != len(infos):
        raise ShapeError(f"the model takes {len(infos)} inputs, not {len(given)}: {describe(infos)}")
    return [
        array
        if type(array) is np.ndarray
        and array.dtype is info.dtype
        and array.shape == info.shape
        and array.flags.c_contiguous
        else checked(array, replace(info, shape=(None,) * len(info.shape)) if any_size else info)
        for array, info in zip(given, infos, strict=True)
    ]


def shape_text(shape: tuple[Any, ...]) -> str:
    """A shape as errors show it."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def describe(infos: tuple[TensorInfo, ...]) -> str:
    """Names, dtypes and shapes, as errors show them."""
    return ", ".join(f"{info.name} {info.dtype.name}{shape_text(info.shape)}" for info in infos) or "nothing"


def _order(given: tuple[int, ...], wanted: tuple[Any, ...]) -> tuple[int, ...]:
    """How to turn an image from channels first to last, or the other way, where that gives the wanted shape."""
    orders = ((0, 2, 3, 1), (0, 3, 1, 2)) if len(given) == 4 else ()
    return next((order for order in orders if tuple(given[axis] for axis in order) == wanted), ())

"""Tensors of other libraries, by DLPack."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from litehouse.engines.torch.values import Tensor, as_tensor, name_of
from litehouse.errors import ShapeError
from litehouse.model import TensorInfo
from litehouse.signature import checked, fits, shape_text

PLACES = ("cpu", "cuda")


def adopt(value: Any, info: TensorInfo) -> Tensor:
    """A tensor over the memory of what a caller gives for an input.

    Raises:
        ShapeError: It is none, or of another dtype or shape.
    """
    if type(value) is torch.Tensor and _is_plain(value, info):
        return value
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
        return as_tensor(checked(value, info))
    tensor = _taken(value, info)
    if name_of(tensor.dtype) != info.dtype.name:
        raise ShapeError(
            f"input {info.name!r} must be {info.dtype}, not {name_of(tensor.dtype)}; convert the tensor to {info.dtype}"
        )
    if tensor.shape != info.shape and not fits(tuple(tensor.shape), info):
        raise ShapeError(
            f"input {info.name!r} must have the shape {shape_text(info.shape)}, not {list(tensor.shape)}; "
            "reshape the tensor, or resize the session"
        )
    return tensor


@functools.cache
def _kind(dtype: np.dtype) -> torch.dtype | None:
    return getattr(torch, dtype.name, None)


def _is_plain(tensor: Tensor, info: TensorInfo) -> bool:
    """Whether a tensor can be taken as it is: most can, and to look at them more closely takes ten times as long."""
    is_here = (tensor.is_cuda or tensor.is_cpu) and tensor.layout is torch.strided
    is_right = tensor.dtype is _kind(info.dtype) and tensor.shape == info.shape
    return is_here and is_right and not tensor.requires_grad and not tensor.is_neg() and not tensor.is_conj()


def _taken(value: Any, info: TensorInfo) -> Tensor:
    """What a caller gives, as a tensor that no gradient is wanted of."""
    tensor: Tensor
    try:
        tensor = value if isinstance(value, torch.Tensor) else _imported(value)
    except (AssertionError, AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        # The first is what a build of torch without CUDA has to say of another library's array on a GPU.
        raise ShapeError(f"input {info.name!r} cannot be taken as a tensor ({error})") from error
    if tensor.device.type not in PLACES or tensor.layout != torch.strided:
        raise ShapeError(
            f"input {info.name!r} must be a dense tensor in the memory of the CPU or of a GPU, not one of "
            f"{tensor.layout} on {tensor.device}; copy it there"
        )
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor.resolve_conj().resolve_neg()


def _imported(value: Any) -> Any:
    """A tensor of another library; one that does not say where it is, is asked for its memory all the same."""
    return torch.from_dlpack(value if hasattr(value, "__dlpack_device__") else value.__dlpack__())

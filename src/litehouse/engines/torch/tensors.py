"""Tensors of other libraries, by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from litehouse.engines.torch.values import Tensor, as_tensor, name_of
from litehouse.errors import ShapeError
from litehouse.model import TensorInfo
from litehouse.signature import checked, fits, shape_text


def adopt(value: Any, info: TensorInfo) -> Tensor:
    """A tensor over the memory of what a caller gives for an input.

    Raises:
        ShapeError: It is none, or of another dtype or shape.
    """
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
        return as_tensor(checked(value, info))
    tensor: Tensor = value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)
    if tensor.requires_grad:
        tensor = tensor.detach()
    if name_of(tensor.dtype) != info.dtype.name:
        raise ShapeError(f"input {info.name!r} must be {info.dtype}, not {name_of(tensor.dtype)}")
    if tensor.shape != info.shape and not fits(tuple(tensor.shape), info):
        raise ShapeError(
            f"input {info.name!r} must have the shape {shape_text(info.shape)}, not {list(tensor.shape)}; "
            "reshape the tensor, or resize the session"
        )
    return tensor

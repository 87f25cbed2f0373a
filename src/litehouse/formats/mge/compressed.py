"""Compressed values of tensors: float32 numbers as steps of 8 or 16 bits, as `has_compression` announces them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from litehouse.errors import ModelFormatError
from litehouse.formats.loader import check_shape

RAW = 0
STEPS = {1: "u1", 2: "<u2"}
HEAD = struct.Struct("<Bff")  # the kind, then the size of a step and the value of step 0


def compressed_sizes(count: int, dtype: np.dtype) -> set[int]:
    """How many bytes that many values may take when they are compressed."""
    sizes = {1 + count * dtype.itemsize}
    if dtype == np.float32:
        sizes |= {HEAD.size + count * np.dtype(stored).itemsize for stored in STEPS.values()}
    return sizes


def decompress(data: bytes, dtype: np.dtype, shape: Sequence[int], path: str, name: str = "") -> np.ndarray:
    """The values of one tensor. Bytes behind them are passed over, as MegEngine Lite does.

    Args:
        data: All bytes of the tensor in the file: the kind of compression, then the values.
        dtype: The tensor's dtype. Only float32 can be compressed; values of others must be marked as raw.
        shape: The tensor's shape.
        path: The file, for error texts.
        name: The tensor's name, for error texts.

    Returns:
        The values in memory of their own.

    Raises:
        ModelFormatError: The bytes are too few, or of no known kind.
    """
    count = math.prod(check_shape(name, shape, path))
    kind = data[0] if data else None
    if kind == RAW:
        start, stored = 1, dtype
    elif kind in STEPS and dtype == np.float32:
        start, stored = HEAD.size, np.dtype(STEPS[kind])
    else:
        raise ModelFormatError(
            f"Unexpected compression method {kind} of tensor {name!r} of dtype {dtype}; "
            "the file is damaged, or not compressed although it says so",
            path=path,
        )
    size = start + count * stored.itemsize
    if len(data) < size:
        raise ModelFormatError(
            f"tensor {name!r} has {len(data)} bytes where its compressed values take {size}; the file is damaged",
            path=path,
        )
    values = np.frombuffer(data, stored, count, start).reshape(shape)
    if kind == RAW:
        return values.copy()
    _, step, base = HEAD.unpack_from(data)
    with np.errstate(over="ignore", invalid="ignore"):
        spread: np.ndarray = values.astype(np.float32) * np.float32(step)
        spread += np.float32(base)
    return spread

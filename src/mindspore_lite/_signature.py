"""What a model says of its inputs and outputs, in the words of the original."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import litehouse
from mindspore_lite.tensor import DataType, TensorMeta, byte_count, data_type_of, element_count


class Description(NamedTuple):
    """An input or output; -1 in the shape stands for a dynamic dimension."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    numpy_type: np.dtype[np.generic]


def describe(infos: Sequence[litehouse.TensorInfo]) -> tuple[Description, ...]:
    """Give inputs or outputs as the original shows them."""
    return tuple(
        Description(
            info.name,
            data_type_of(info.dtype),
            tuple(size if isinstance(size, int) else -1 for size in info.shape),
            info.dtype,
        )
        for info in infos
    )


def meta_of(info: Description) -> TensorMeta:
    """Give what is known of an output before a run."""
    meta = TensorMeta()
    meta.name, meta.dtype, meta.shape = info.name, info.dtype, list(info.shape)
    meta.element_num = element_count(info.shape)
    meta.data_size = byte_count(info.dtype, info.shape)
    return meta

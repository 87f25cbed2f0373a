"""`TensorBatchCollector`: one tensor for a batch, filled piece by piece."""

import threading
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from megenginelite._layout import Array, LiteLayout
from megenginelite.struct import LiteDataType, LiteDeviceType
from megenginelite.tensor import LiteTensor

__all__ = ["TensorBatchCollector", "np", "threading", "warnings"]


class TensorBatchCollector:
    """One tensor for a batch, filled piece by piece. Several threads may collect at a time.

    Args:
        shape: The shape of the tensor; the first size is the count of pieces.
        dtype: The type of the elements.
        device_type: Where the tensor lives. The default is the original's; on the CPU, give `LITE_CPU`.
        device_id: The number of the device.
        is_pinned_host: With a GPU, whether the tensor is in memory of the host that belongs to it.
        tensor: A tensor to use instead of a new one; its type counts, then.

    Example:
        >>> batch = TensorBatchCollector([2, 3], "float32", LiteDeviceType.LITE_CPU)
        >>> batch.collect(np.ones(3, np.float32)), batch.collect(np.zeros(3, np.float32))
        (0, 1)
        >>> batch.to_numpy().tolist()
        [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: object = LiteDataType.LITE_INT8,
        device_type: int = LiteDeviceType.LITE_CUDA,
        device_id: int = 0,
        is_pinned_host: bool = False,
        tensor: LiteTensor | None = None,
    ) -> None:
        layout = LiteLayout(shape, dtype)
        self.shape = shape
        if tensor is None:
            tensor = LiteTensor(layout, device_type, device_id, is_pinned_host)
        assert isinstance(tensor, LiteTensor) and tensor.layout.shapes == layout.shapes, (  # noqa: PT018
            "The tensor set to TensorBatchCollector is not right."
        )
        self.dtype = tensor.layout.data_type
        self.dev_type = tensor.device_type
        self.dev_id = tensor.device_id
        self.is_pinned_host = tensor.is_pinned_host
        self._tensor = tensor
        self._mutex = threading.Lock()
        self._free_list = list(range(shape[0]))

    def collect(self, array: Array | LiteTensor) -> int:
        """Put a piece into the first place that is free.

        Args:
            array: An array or tensor of the batch's type and of its shape without the first size.

        Returns:
            The place, or -1, with a warning, where none is free.
        """
        with self._mutex:
            if not self._free_list:
                warnings.warn(
                    "all batch has been collected, please call free before collect again.", UserWarning, stacklevel=2
                )
                return -1
            self._put(array, self._free_list[0])
            return self._free_list.pop(0)

    def collect_id(self, array: Array | LiteTensor, batch_id: int) -> None:
        """Put a piece into a given place; a warning, and nothing else, where that is not free."""
        with self._mutex:
            if batch_id not in self._free_list:
                self.get_tensor_at(batch_id)  # refuses what is no place
                warnings.warn(
                    f"batch {batch_id} has been collected, please call free before collected it again.",
                    UserWarning,
                    stacklevel=2,
                )
                return
            self._put(array, batch_id)
            self._free_list.remove(batch_id)

    def collect_by_ctypes(self, data: Any, length: int) -> int:
        """Put what a ctypes pointer points to into the first place that is free.

        Args:
            data: A ctypes array, pointer or address.
            length: The number of bytes, that of a piece.

        Returns:
            The place, or -1 where none is free.
        """
        with self._mutex:
            if not self._free_list:
                return -1
            self.get_tensor_at(self._free_list[0]).set_data_by_copy(data, length)
            return self._free_list.pop(0)

    def _put(self, array: Array | LiteTensor, batch_id: int) -> None:
        piece = self.get_tensor_at(batch_id)
        assert isinstance(array, (np.ndarray, LiteTensor))
        shape = list(array.shape) if isinstance(array, np.ndarray) else array.layout.shapes
        assert shape == list(self.shape)[1:]
        piece.reshape(shape or [1])
        if isinstance(array, np.ndarray):
            assert LiteLayout(shape, array.dtype).data_type == self.dtype
            piece.set_data_by_copy(array.reshape(shape or [1]))
        else:
            piece.copy_from(array)

    def free(self, indexes: Iterable[int]) -> None:
        """Make places free again, to be used after those that are free already. What is no place does not count."""
        with self._mutex:
            count = self._tensor.layout.shapes[0]
            freed = [index for index in dict.fromkeys(indexes) if index in range(count)]
            self._free_list = [index for index in self._free_list if index not in freed] + freed

    def get(self) -> LiteTensor:
        """Give the tensor, the same one with every call."""
        return self._tensor

    def get_tensor_at(self, idx: int) -> LiteTensor:
        """Give one place as a tensor over the same memory, with a first size of 1."""
        assert 0 <= idx < self._tensor.layout.shapes[0], "the idx specific the tensor is out of range."
        return self._tensor.slice([idx], [idx + 1])

    def to_numpy(self) -> Array:
        """Give a copy of the whole batch."""
        return self._tensor.to_numpy()

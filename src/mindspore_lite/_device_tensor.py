"""`DeviceTensor`: a `Tensor` in the memory of a GPU; and how a model runs on such."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from litehouse import EngineError, Session
from litehouse.device import DeviceArray, Values, assign, host_tensor, named, synchronize, zeros
from mindspore_lite.tensor import NUMPY_TYPES, Array, Tensor, data_type_of, fit


class DeviceTensor(Tensor):
    """A tensor in the memory of a GPU: what `Tensor(device="gpu:0")` makes."""

    _array: Any = None  # a DeviceArray, where there is memory

    def _take(self, array: Values) -> None:
        self._array = zeros(self._device, array.shape, array.dtype)
        assign(self._array, array)

    def _adopt(self, array: Array, shape: Sequence[int] | None, dtype: Any) -> None:
        super()._adopt(array, shape, dtype)
        self._is_shared = False
        self._take(self._array)

    def _allocate(self) -> Any:
        if self._dtype in NUMPY_TYPES and min(self._shape, default=0) >= 0:
            self._array = zeros(self._device, self._shape, NUMPY_TYPES[self._dtype])
        return self._array

    def _receive(self, array: Values) -> None:
        own = self._array
        if own is not None and own.dtype == array.dtype and own.size == array.size:
            self._array = own.reshape(array.shape)
            assign(self._array, array)
        else:
            self._take(array)

    def set_data_from_numpy(self, numpy_obj: Array) -> None:
        """Copy an array to the GPU; see `Tensor.set_data_from_numpy`."""
        if not isinstance(numpy_obj, np.ndarray):
            raise TypeError(f"numpy_obj must be numpy.ndarray, but got {type(numpy_obj)}.")
        own = self._array
        if own is None:
            self._take(fit(numpy_obj, self._dtype, self._shape))
        else:
            assign(own, fit(numpy_obj, data_type_of(own.dtype), own.shape))

    def get_data_to_numpy(self) -> Array:
        """Give a copy of the tensor's data."""
        array = self._allocate() if self._array is None else self._array
        return np.empty(0, NUMPY_TYPES.get(self._dtype)) if array is None else array.copy()

    def _exported(self) -> Any:
        return super()._exported().tensor


class DeviceRun:
    """Runs a session of a GPU on tensors of the host and of that GPU, without copies of these.

    Attributes:
        device: The GPU.
    """

    def __init__(self, session: Session) -> None:
        self._session, self.device = session, named(session.options.device)

    def __call__(self, arrays: list[Any], outputs: Sequence[Tensor] = ()) -> list[Any]:
        """Give the outputs: on the GPU those for which there is a tensor there, the others on the host.

        Raises:
            LitehouseError: The session cannot take the inputs, or they are on another GPU.
        """
        on_device = [isinstance(array, DeviceArray) for array in arrays]
        kept = [bool(tensor._device) for tensor in outputs]
        if not any(on_device) and (not any(kept) or not arrays):  # without inputs, nothing says that tensors are wanted
            return self._session.run(arrays)
        for array in arrays:
            if isinstance(array, DeviceArray) and array.device != self.device:
                raise EngineError(wrong_place("An input", array.device, self.device))
        if not self._session.takes_tensors:  # ONNX Runtime, where it serves the GPU
            return self._session.run([array.copy() if isinstance(array, DeviceArray) else array for array in arrays])
        given = [array.tensor if isinstance(array, DeviceArray) else host_tensor(array) for array in arrays]
        results: list[Any] = [DeviceArray(result, self.device) for result in self._session.run(given)]
        if not all(on_device):
            synchronize(self.device)  # arrays of the host may be written to when this returns
        kept = kept or [False] * len(results)
        return [result if keep else result.copy() for result, keep in zip(results, kept, strict=True)]


def wrong_place(what: str, device: str, wanted: str) -> str:
    """Say that a tensor is on another device than a model."""
    return f"{what} is on {device}, and the model runs on {wanted}; make a tensor there: " + (
        "Tensor(tensor)" if wanted == "cpu" else f"Tensor(tensor, device={wanted!r})"
    )


def explain(error: Exception, names: Sequence[str], arrays: Sequence[object], device: str) -> str:
    """Give the text of a run's error; for inputs on a GPU that the model is not on, say that."""
    for name, array in zip(names, arrays, strict=False):
        if isinstance(array, DeviceArray) and array.device != device:
            return wrong_place(f"Input {name!r}", array.device, device)
    return str(error)

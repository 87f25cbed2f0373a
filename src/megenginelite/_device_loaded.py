"""`DeviceLoaded`: a model whose inputs or outputs are in the memory of a GPU."""

from typing import Any

import numpy as np

from litehouse import LitehouseError
from litehouse.device import DeviceArray, host_tensor, synchronize
from megenginelite._devices import device_option
from megenginelite._loaded import Loaded, filled
from megenginelite.tensor import LiteTensorConcat

_BOOL = np.dtype(np.bool_)


class DeviceLoaded(Loaded):
    """A model with inputs or outputs that are in the memory of a GPU. They are not copied through the host.

    A run is begun behind all copies that were begun before. Where all inputs and outputs are on the GPU, `run` does not
    wait for its end; `wait` does.
    """

    def run(self) -> None:
        """Run on what the tensors of the inputs hold, and fill those of the outputs; on the GPU, in time."""
        self.has_run = True
        try:
            results: list[Any] = self._run(self._given())
        except LitehouseError:
            results = self._run_fitted()
        device = device_option(self.settings.device_type, self.settings.device_id)
        for tensor, result in zip(self._outputs, results, strict=True):
            values = result if isinstance(result, np.ndarray) else DeviceArray(result, device)
            tensor._receive(values, is_fixed=self.settings.fixed_outputs)
        if not all(tensor._is_on_device for tensor in (*self._inputs, *self._outputs)):
            self.wait()  # for outputs on the host; and inputs there may be written to when this returns

    def wait(self) -> None:
        """Wait for the outputs of the last run."""
        synchronize(device_option(self.settings.device_type, self.settings.device_id))

    def _given(self) -> list[Any]:
        """Give what the session takes: tensors of torch, also for the host's memory, so that results stay there.

        ONNX Runtime, where it serves the GPU, takes and gives arrays.
        """
        if not self.session.takes_tensors:
            return self.arrays()
        given = []
        for own, info in zip(self._inputs, self._infos, strict=True):
            array = filled(own, info.name)
            tensor = array.tensor if isinstance(array, DeviceArray) else host_tensor(array)
            given.append(tensor != 0 if info.dtype == _BOOL else tensor)
        return given

    def join_pieces(self) -> None:
        """Put the pieces of the batch into their input."""
        self.inputs[self.settings.discrete_input].copy_from(LiteTensorConcat(self.pieces, 0))

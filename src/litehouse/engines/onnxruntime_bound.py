"""Runs tiny networks with ONNX Runtime on memory that was bound once: a third of their time is the call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from litehouse.engines.base import Names, Runner, Stoppable
from litehouse.errors import EngineError

SMALL_BYTES = 1 << 16  # copying more costs more than binding saves
DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(bool)": "bool"}
DTYPES |= {f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

Buffers = list[tuple[tuple[int, ...], np.dtype]]


@contextmanager
def stopping(stoppable: Stoppable) -> Iterator[Any]:
    """What a run is told so that another thread can stop it."""
    import onnxruntime

    settings = onnxruntime.RunOptions()

    def stop() -> None:
        settings.terminate = True

    stoppable(stop)
    try:
        yield settings
    finally:
        stoppable(None)


def small_buffers(session: Any, names: Names) -> Buffers | None:
    """Shape and dtype of all inputs and outputs, where they are fixed and small; None elsewhere."""
    if not set(names.fed).isdisjoint(names.given):
        return None  # nothing would write what is an input and an output at once
    inputs = {item.name: item for item in session.get_inputs()}
    outputs = {item.name: item for item in session.get_outputs()}
    found = []
    for item in (*(inputs.get(name) for name in names.fed), *(outputs.get(name) for name in names.given)):
        if item is None or item.type not in DTYPES:
            return None
        if not all(isinstance(size, int) and size > 0 for size in item.shape):
            return None
        found.append((tuple(item.shape), np.dtype(DTYPES[item.type])))
    total = sum(math.prod(shape) * dtype.itemsize for shape, dtype in found)
    return found if total <= SMALL_BYTES else None


class BoundRunner:
    """Runs an ONNX Runtime session on memory of its own."""

    def __init__(self, session: Any, names: Names, buffers: Buffers, plain: Runner) -> None:
        """Bind memory for all inputs and outputs.

        Args:
            session: The session.
            names: What it calls its inputs and outputs.
            buffers: What `small_buffers` found.
            plain: Serves where the bound memory does not.
        """
        import onnxruntime

        arrays = [np.zeros(shape, dtype) for shape, dtype in buffers]
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
        count = len(names.fed)
        binding = session.io_binding()
        for name, value in zip(names.fed, values[:count], strict=True):
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(names.given, values[count:], strict=True):
            binding.bind_ortvalue_output(name, value)
        self._inputs, self._outputs = arrays[:count], arrays[count:]
        self._kept = (binding, values)
        native = getattr(session, "_sess", None)  # without the checks of the public method
        self._binding = binding if native is None else binding._iobinding
        self._run = session.run_with_iobinding if native is None else native.run_with_iobinding
        self._plain = plain

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        for bound, array in zip(self._inputs, inputs):  # noqa: B905  (the session has checked the count)
            bound[...] = array
        try:
            self._run(self._binding, None)
        except Exception:  # noqa: BLE001  (an error, or an output of another size than the file says: this tells)
            return self._plain.run(inputs)
        return [output.copy() for output in self._outputs]

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs, unless the run is stopped."""
        for bound, array in zip(self._inputs, inputs, strict=True):
            bound[...] = array
        with stopping(stoppable) as settings:
            try:
                self._run(self._binding, settings)
                return [output.copy() for output in self._outputs]
            except Exception as error:
                if settings.terminate:
                    raise EngineError(f"the run was stopped: {error}") from error
        return self._plain.run_stoppable(inputs, stoppable)


class BoundPairRunner(BoundRunner):
    """The same for one input and one output, without the loops over them."""

    def __init__(self, session: Any, names: Names, buffers: Buffers, plain: Runner) -> None:
        """Bind memory for both."""
        super().__init__(session, names, buffers, plain)
        (self._input,), (self._output,) = self._inputs, self._outputs

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The output for this input."""
        self._input[...] = inputs[0]
        try:
            self._run(self._binding, None)
        except Exception:  # noqa: BLE001  (as above)
            return self._plain.run(inputs)
        return [self._output.copy()]

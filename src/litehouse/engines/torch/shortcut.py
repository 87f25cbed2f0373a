"""The shortest way from arrays to arrays, for a model that was captured in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

from litehouse.engines.torch.pieces import Capture
from litehouse.engines.torch.values import Tensor, as_array

MAX_STAGED = 1 << 22  # bytes of an array that is copied through memory which the GPU reads and writes by itself


class Shortcut:
    """A captured model with memory of the CPU beside that of the GPU."""

    def __init__(self, capture: Capture, fed: Sequence[int], given: Sequence[int], stream: Any) -> None:
        """Take the memory.

        Args:
            capture: The model, captured.
            fed: The slots of its inputs.
            given: The slots of its outputs.
            stream: The stream that it runs on.
        """
        self._stream, self._capture = stream, capture
        places = [(place, slot) for place, slot in enumerate(fed) if slot in capture.inputs]
        self._targets = [capture.inputs[slot] for _, slot in places]
        self._places = [place for place, _ in places]
        self._sources = [_pinned(target) for target in self._targets]
        self._views = [as_array(source) for source in self._sources]
        self._results = [capture.device[slot] for slot in given]
        self._copies = [_pinned(result) for result in self._results]
        self._arrays = [as_array(copy) for copy in self._copies]

    @classmethod
    def find(cls, capture: Capture, fed: Sequence[int], given: Sequence[int], stream: Any) -> Self | None:
        """The shortcut for a captured model; None where something is too large, or known beforehand."""
        if stream is None or not all(slot in capture.device for slot in given):
            return None
        tensors = [*capture.inputs.values(), *(capture.device[slot] for slot in given)]
        is_small = all(tensor.nbytes <= MAX_STAGED for tensor in tensors)
        return cls(capture, fed, given, stream) if is_small else None

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs, which have the sizes of the capture."""
        before = torch.cuda.current_stream(self._stream.device)
        torch.cuda.set_stream(self._stream)
        try:
            for place, view, source, target in zip(
                self._places, self._views, self._sources, self._targets, strict=True
            ):
                np.copyto(view, inputs[place])
                target.copy_(source, non_blocking=True)
            self._capture.graph.replay()
            for copy, result in zip(self._copies, self._results, strict=True):
                copy.copy_(result, non_blocking=True)
            self._stream.synchronize()
        finally:
            torch.cuda.set_stream(before)
        return [array.copy() for array in self._arrays]


def _pinned(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

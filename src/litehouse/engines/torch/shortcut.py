"""The shortest way from inputs to outputs, for a model that was captured in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from litehouse.engines.torch.doubts import first_wrong
from litehouse.engines.torch.pieces import Capture, Wrong
from litehouse.engines.torch.values import Tensor, as_array
from litehouse.errors import EngineError

MAX_STAGED = 1 << 22  # bytes of an array that is copied through memory which the GPU reads and writes by itself


class Shortcut:
    """A captured model, with memory of the CPU beside that of the GPU."""

    def __init__(
        self,
        capture: Capture,
        fed: Sequence[int],
        given: Sequence[int],
        stream: Any,
        path: str,
        wait: Callable[[], None],
    ) -> None:
        """Take the memory of a capture.

        Args:
            capture: The model, captured.
            fed: The slots of its inputs.
            given: The slots of its outputs.
            stream: The stream that arrays are run on.
            path: The model's file, for error texts.
            wait: Waits for what was begun on the stream.
        """
        self._stream, self._graph, self._path, self._wait = stream, capture.graph, path, wait
        places = [(place, slot) for place, slot in enumerate(fed) if slot in capture.inputs]
        self._inputs = [(place, capture.inputs[slot]) for place, slot in places]
        self._results = [capture.device[slot] for slot in given]
        self._wrong = capture.wrong
        self._last: Any = stream  # that it ran on
        self._staged: list[tuple[int, np.ndarray, Tensor, Tensor]] = []
        self._copies: list[tuple[Tensor, Tensor]] = []
        tensors = [*(target for _, target in self._inputs), *self._results]
        self.takes_arrays = all(tensor.nbytes <= MAX_STAGED for tensor in tensors)
        if self.takes_arrays:
            for place, target in self._inputs:
                source = _pinned(target)
                self._staged.append((place, as_array(source), source, target))
            self._copies = [(_pinned(result), result) for result in self._results]
        self._arrays = [as_array(copy) for copy, _ in self._copies]
        self._flags = [(_pinned(flags), texts) for flags, texts in capture.wrong]
        self._copies += [(copy, flags) for (copy, _), (flags, _) in zip(self._flags, capture.wrong, strict=True)]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for arrays, which have the sizes of the capture."""
        stream = self._stream
        before = torch.cuda.current_stream(stream.device)
        torch.cuda.set_stream(stream)
        try:
            self.follow(stream)
            for place, view, source, target in self._staged:
                np.copyto(view, inputs[place])
                target.copy_(source, non_blocking=True)
            self._graph.replay()
            for copy, result in self._copies:
                copy.copy_(result, non_blocking=True)
            self._wait()
        finally:
            torch.cuda.set_stream(before)
        for flags, texts in self._flags:
            if text := first_wrong(flags.tolist(), texts):
                raise EngineError(f"{self._path}: torch failed while running: {text}")
        return [array.copy() for array in self._arrays]

    def run_tensors(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for tensors of the same sizes, on the caller's stream: nobody waits for the GPU."""
        stream = torch.cuda.current_stream(self._stream.device)
        self.follow(stream)
        for place, target in self._inputs:
            target.copy_(inputs[place], non_blocking=True)
        self._graph.replay()
        return [unless_wrong(result, self._wrong) for result in self._results]

    def follow(self, stream: Any) -> None:
        """Let a stream wait for a run on another one: both use the same memory."""
        if stream != self._last:
            stream.wait_stream(self._last)
            self._last = stream


def unless_wrong(result: Tensor, wrong: Wrong) -> Tensor:
    """A copy of a result; of floats, all NaN where the run was wrong: nobody waits to be told."""
    if not wrong or not result.is_floating_point():
        return result.clone()
    flags = wrong[0][0] if len(wrong) == 1 else torch.cat([flags for flags, _ in wrong])
    return torch.where(flags.any(), float("nan"), result)


def _pinned(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

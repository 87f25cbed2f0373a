"""The shortest ways from inputs to outputs, for a model that was captured in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import torch

from litehouse.device import MAX_STAGED
from litehouse.engines.torch.captures import Capture, Recording, can_do_without
from litehouse.engines.torch.doubts import Wrong, check
from litehouse.engines.torch.frame import Frame
from litehouse.engines.torch.values import Tensor, as_array, pinned
from litehouse.errors import EngineError

SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
ALIGNED = 32  # bytes: what kernels may expect of the places of inputs; convolutions try anew for less
MAX_BOUND = 8  # places that inputs are read from without a copy
MIN_TIMES = 3  # that inputs must come from the same place before they are
MAX_PLACES = 64  # that are counted

AtWork = Callable[[], AbstractContextManager[None]]
"""On the stream that things are captured on, in the precision of the program."""
Place = tuple[Any, ...]
Made = TypeVar("Made")


class Arrays:
    """The way of arrays: the graph copies them from memory of the CPU, and the outputs to it."""

    def __init__(
        self, capture: Capture, fed: Sequence[int], given: Sequence[int], arrays: Sequence[np.ndarray]
    ) -> None:
        """Capture it.

        Args:
            capture: The model, captured.
            fed: The slots of its inputs.
            given: The slots of its outputs.
            arrays: What comes first: on the CPU, the steps run when they are captured.
        """
        inputs = {slot: pinned(own) for slot, own in capture.inputs.items()}
        self.inputs = [(place, as_array(inputs[slot])) for place, slot in enumerate(fed) if slot in inputs]
        self.fill(arrays)
        outputs = {slot: pinned(capture.own.device[slot]) for slot in given}
        flags = [pinned(flags) for flags, _ in capture.own.wrong]

        def before() -> None:
            for slot, source in inputs.items():
                capture.inputs[slot].copy_(source, non_blocking=True)

        def after(frame: Frame) -> None:
            for slot, target in outputs.items():
                target.copy_(frame.device[slot], non_blocking=True)
            for target, (found, _) in zip(flags, frame.wrong, strict=True):
                target.copy_(found, non_blocking=True)

        self._memory = inputs, outputs, flags
        self.recording = capture.record(before=before, after=after)
        self.outputs = [as_array(outputs[slot]) for slot in given]
        self.flags = [(as_array(own), texts) for own, (_, texts) in zip(flags, capture.own.wrong, strict=True)]

    def fill(self, arrays: Sequence[np.ndarray]) -> None:
        """Put arrays where they are copied from."""
        for place, own in self.inputs:
            np.copyto(own, arrays[place])


class Shortcut:
    """A captured model. What a way needs is made when it is first gone.

    Attributes:
        capture: The model, captured.
    """

    def __init__(
        self, capture: Capture, fed: Sequence[int], given: Sequence[int], stream: Any, path: str, at_work: AtWork
    ) -> None:
        """Take a capture.

        Args:
            capture: The model, captured.
            fed: The slots of its inputs.
            given: The slots of its outputs.
            stream: The stream that arrays are run on.
            path: The model's file, for error texts.
            at_work: Where things are captured.
        """
        self.capture, self._fed, self._given = capture, fed, given
        self._stream, self._path, self._at_work = stream, path, at_work
        self._inputs = [(place, capture.inputs[slot]) for place, slot in enumerate(fed) if slot in capture.inputs]
        tensors = [*(own for _, own in self._inputs), *(capture.own.device[slot] for slot in given)]
        self._can_capture = True  # more than what there is: the device may have no memory, or torch may fail
        self._is_small = all(tensor.nbytes <= MAX_STAGED for tensor in tensors)
        self._arrays: Arrays | None = None
        self._bound: dict[Place, Recording] = {}
        self._times: dict[Place, int] = {}
        self._streams = {stream}  # that it has run on

    def takes(self, inputs: Sequence[np.ndarray]) -> bool:
        """Whether it is a way for these arrays: large ones are better copied from where they are."""
        if self._arrays is None and self._is_small and self._can_capture:
            self._arrays = self._made(lambda: Arrays(self.capture, self._fed, self._given, inputs))
        return self._arrays is not None

    def _made(self, make: Callable[[], Made]) -> Made | None:
        """What is captured now; None where it cannot be."""
        try:
            with self._at_work():
                return make()
        except EngineError as error:
            if not can_do_without(error):
                raise
            self._can_capture = False
            return None

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for arrays, which have the sizes of the capture; nothing is under way on other streams."""
        way, stream = self._arrays, self._stream
        assert way is not None  # as it takes arrays
        self.capture.use()
        way.fill(inputs)
        if stream is None:
            way.recording.graph.replay()
        else:
            with torch.cuda.device(stream.device):  # to set a stream makes its GPU the caller's current one
                before = torch.cuda.current_stream(stream.device)
                torch.cuda.set_stream(stream)
                try:
                    way.recording.graph.replay()
                finally:
                    torch.cuda.set_stream(before)
            stream.synchronize()
        check(way.flags, f"{self._path}: torch failed while running: ")
        return [array.copy() for array in way.outputs]

    def run_tensors(self, inputs: Sequence[Tensor], stream: Any) -> list[Tensor]:
        """The outputs for tensors of the same sizes, on the caller's stream: nobody waits for the GPU.

        What comes again and again from the same place is read there.

        Args:
            inputs: The tensors.
            stream: That stream, which is the current one; None on the CPU.
        """
        self.capture.use()
        if stream not in self._streams:
            self._streams.add(stream)
            for _, own in self._inputs:
                own.record_stream(stream)  # who drops the model now does not let others have the memory too early
        key = tuple([_place(inputs[place]) for place, _ in self._inputs])
        recording = self._bound.get(key)
        if recording is None:
            recording = self._bind(key, inputs)
        if recording is None:
            recording = self.capture.own
            for place, own in self._inputs:
                own.copy_(inputs[place], non_blocking=inputs[place].is_cuda)  # memory of the host may change then
        recording.graph.replay()
        return [unless_wrong(recording.device[slot], recording.wrong) for slot in self._given]

    def _bind(self, key: Place, inputs: Sequence[Tensor]) -> Recording | None:
        """What reads the inputs where they are; None where that is not worth it yet, or cannot be."""
        if len(self._bound) == MAX_BOUND or not self._can_capture:
            return None
        if len(self._times) == MAX_PLACES:
            self._times.clear()
        self._times[key] = self._times.get(key, 0) + 1
        if self._times[key] < MIN_TIMES or not all(_is_alike(inputs[place], own) for place, own in self._inputs):
            return None
        # Not the caller's own objects, which can be given other memory: an output may be one of them.
        tensors = {self._fed[place]: inputs[place].detach() for place, _ in self._inputs}
        recording = self._made(lambda: self.capture.record(tensors))
        if recording is not None:
            self._bound[key] = recording
        return recording


def _place(tensor: Tensor) -> Place:
    """Where a tensor of given sizes is."""
    return tensor.data_ptr(), tensor.get_device(), tensor.stride()


def _is_alike(tensor: Tensor, own: Tensor) -> bool:
    """Whether kernels for a tensor can read another one instead."""
    is_there: bool = tensor.device == own.device and tensor.data_ptr() % ALIGNED == 0
    return is_there and tensor.stride() == own.stride()


def unless_wrong(result: Tensor, wrong: Wrong) -> Tensor:
    """A copy of a result; where the run was wrong, one that nobody takes for right: nobody waits to be told.

    Floats are all NaN then, and whole numbers with a sign the least that there is.
    """
    if not wrong or not (result.is_floating_point() or result.dtype in SIGNED):
        return result.clone()
    flags = wrong[0][0] if len(wrong) == 1 else torch.cat([flags for flags, _ in wrong])
    spoilt = float("nan") if result.is_floating_point() else torch.iinfo(result.dtype).min
    return torch.where(flags.any(), spoilt, result)

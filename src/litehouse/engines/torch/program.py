"""A lowered model on a device, and what runs it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litehouse.engines.base import Names, Stoppable
from litehouse.engines.torch.arena import Arena
from litehouse.engines.torch.frame import Frame, Step
from litehouse.engines.torch.lower import Lowered
from litehouse.engines.torch.values import as_array, as_tensor
from litehouse.errors import EngineError

log = logging.getLogger(__name__)


class TorchProgram:
    """A model as torch functions, with its weights on a device."""

    is_rewritten = False

    def __init__(self, lowered: Lowered, names: Names, place: torch.device, precision: str) -> None:
        """Copy the weights to the device."""
        self.lowered, self.names, self.place, self.precision = lowered, names, place, precision
        self.arena = Arena({slot: lowered.constants[slot] for slot in lowered.on_device}, place)
        self.weights: list[Any] = [None] * len(lowered.constants)
        for slot, tensor in self.arena.tensors.items():
            self.weights[slot] = tensor
        self._lock = threading.Lock()
        self._told: set[Step] = set()
        self.tell(lowered.lacking)

    def bind(self) -> TorchRunner:
        """A new runner."""
        return TorchRunner(self)

    def save(self, folder: Path) -> None:
        """It is not kept: lowering takes less time than reading it would."""
        raise EngineError(f"{self.names.path}: the torch engine keeps no programs ({folder})")

    @property
    def lacking(self) -> list[str]:
        """The ops that torch lacks, as far as they have run or were never there, with their nodes."""
        return [str(step) for step in self._told]

    def tell(self, lacking: Sequence[Step]) -> None:
        """Warn once of the ops that torch lacks."""
        with self._lock:
            new = [step for step in lacking if step not in self._told]
            is_first = not self._told
            self._told.update(new)
        if new and is_first:
            texts = ", ".join(dict.fromkeys(str(step) for step in new))
            log.warning("%s: torch lacks %s; ONNX Runtime computes that on the CPU", self.names.path, texts)


class TorchRunner:
    """Runs a program. Used by one thread at a time."""

    def __init__(self, program: TorchProgram) -> None:
        """Wrap a program."""
        self._program = program
        self._path = program.names.path

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        program = self._program
        frame = Frame(program.lowered.constants, program.weights, program.place)
        block = program.lowered.block
        given = [as_tensor(array) for array in inputs]
        for slot, value in zip(block.inputs, given, strict=False):
            if isinstance(value, np.ndarray):
                frame.host[slot] = value
            else:
                frame.fed[slot] = value
        try:
            with torch.inference_mode():
                frame.run(block.steps)
                results = [frame.anywhere(slot) for slot in block.outputs]
        except EngineError as error:
            raise EngineError(f"{self._path}: {error}") from error
        self._program.tell([step for step in frame.waits if step.is_lacking])
        return _own([as_array(value) for value in results], inputs, program.lowered.constants)

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs; a run is short, and is not stopped."""
        with _told(stoppable):
            return self.run(inputs)


@contextlib.contextmanager
def _told(stoppable: Stoppable) -> Iterator[None]:
    stoppable(lambda: None)
    try:
        yield
    finally:
        stoppable(None)


def _own(arrays: list[np.ndarray], inputs: Sequence[np.ndarray], constants: Sequence[Any]) -> list[np.ndarray]:
    """The arrays, as copies where their memory is that of an input, of a weight or of each other."""
    taken = {_start(array) for array in inputs} | {_start(value) for value in constants if value is not None}
    made = []
    for array in arrays:
        made.append(array.copy() if _start(array) in taken or not array.flags.writeable else array)
        taken.add(_start(array))
    return made


def _start(value: Any) -> int:
    """Where the memory begins that a value is a part of."""
    if isinstance(value, torch.Tensor):
        return int(value.untyped_storage().data_ptr()) or -1
    if isinstance(value, list):
        return -1
    while isinstance(value.base, np.ndarray):
        value = value.base
    return int(value.__array_interface__["data"][0])

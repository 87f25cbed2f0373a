"""The weights of a model that may change while it runs: on the device once, for all programs of the model."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from litehouse.apart import apart
from litehouse.engines.torch.arena import Arena
from litehouse.engines.torch.graphs import recording
from litehouse.engines.torch.values import Tensor, as_array, as_tensor, is_fetched
from litehouse.errors import EngineError

PART = 1 << 19  # numbers that are copied to a GPU at a time


class Turns:
    """Lets any number of runs in at a time, or one update alone. An update that waits goes before runs that come."""

    def __init__(self) -> None:
        """Begin with nobody inside."""
        self._changed = threading.Condition(threading.Lock())
        self._runs, self._updates, self._is_updating = 0, 0, False

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Together with other runs."""
        with self._changed:
            while self._updates:
                self._changed.wait()
            self._runs += 1
        try:
            yield
        finally:
            with self._changed:
                self._runs -= 1
                if not self._runs:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """Alone."""
        is_inside = False
        with self._changed:
            self._updates += 1
        try:
            with self._changed:
                while self._runs or self._is_updating:
                    self._changed.wait()  # the user may interrupt it
                self._is_updating = is_inside = True
            yield
        finally:
            with self._changed:
                self._updates -= 1
                self._is_updating = self._is_updating and not is_inside
                self._changed.notify_all()

    def renew(self) -> None:
        """This process was forked off: whoever was inside is not there."""
        self.__init__()  # type: ignore[misc]


class Store:
    """The live weights of a model.

    Attributes:
        tensors: Them, by name. Their memory stays the same: what was captured reads it.
        turns: Taken by runs, and by updates.
    """

    @apart()
    def __init__(self, arrays: Mapping[str, np.ndarray], place: torch.device) -> None:
        """Copy weights to a device."""
        self._place = place
        self._arena = Arena({name: as_tensor(array) for name, array in arrays.items()}, place)
        self.tensors: dict[str, Tensor] = self._arena.tensors
        self.turns = Turns()
        self._uploads: dict[str, Upload] = {}  # what `keep` has begun
        self._followers: weakref.WeakSet[Any] = weakref.WeakSet()
        _stores.add(self)

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor is a part of one of the weights."""
        return bool(tensor.untyped_storage().data_ptr() == self._arena.memory.untyped_storage().data_ptr())

    @apart()
    def follow(self, follower: Any) -> None:
        """Let something compute, by its `derive`, what depends on the weights alone: now, and with each update."""
        with self.turns.run():  # no update comes between
            follower.derive()
            if self._place.type == "cuda":
                torch.cuda.current_stream(self._place).synchronize()  # runs have streams of their own
            self._followers.add(follower)

    @apart()
    def keep(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Copies of what weights are to hold. They are on their way to the device, where `update` finds them."""
        with _enough_memory():
            self._uploads = {name: Upload(array, self._place) for name, array in arrays.items()}
        return {name: upload.array for name, upload in self._uploads.items()}

    @apart()
    def not_numbers(self, kept: Mapping[str, np.ndarray]) -> list[str]:
        """Which copies have a value that is not a number."""
        real = {name: each for name, array in kept.items() if (each := _real(self._uploaded(name, array))) is not None}
        doubtful = torch.stack([each.sum().isnan() for each in real.values()]).tolist() if real else []
        # One that is not makes the sum none, too; so do infinities of both signs, which are looked at more closely.
        names = [name for name, is_doubtful in zip(real, doubtful, strict=True) if is_doubtful]
        return [name for name in names if bool(real[name].isnan().any())]

    def _uploaded(self, name: str, array: np.ndarray) -> Tensor:
        """An array on the device: what was begun for it, or begun now."""
        begun = self._uploads.get(name)
        return begun.tensor if begun is not None and begun.array is array else Upload(array, self._place).tensor

    @apart()
    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give weights other values, between two runs: all of them, or none where that fails.

        Raises:
            EngineError: The GPU has not enough memory for both the old and the new ones.
        """
        try:
            with _enough_memory():
                self._update({name: self._uploaded(name, array) for name, array in arrays.items()})
        finally:
            self._uploads = {}

    def _update(self, staged: Mapping[str, Tensor]) -> None:
        with self.turns.update():
            self._wait()  # for runs that their callers have not waited for
            before = {name: self.tensors[name].clone() for name in staged}
            try:
                self._write(staged)
            except BaseException:
                self._write(before)
                raise

    def _write(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)
        for follower in list(self._followers):
            follower.derive()
        self._wait()

    def _wait(self) -> None:
        """Wait for all that the device does: which streams the callers of runs have, nobody knows."""
        if self._place.type == "cuda":
            with recording:
                torch.cuda.synchronize(self._place)


class Upload:
    """What a weight is to hold, on its way to the device.

    Attributes:
        array: A copy of it; for a GPU, in memory that it reads by itself.
        tensor: It on the device; who uses it there comes behind the copy.
    """

    def __init__(self, array: np.ndarray, place: torch.device) -> None:
        """Begin it. A GPU copies a part while the next one is made ready for it."""
        source, is_gpu, is_own = as_tensor(np.asarray(array)), place.type == "cuda", is_fetched(array)
        copy = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=is_gpu) if not is_own else source
        self.tensor = torch.empty_like(copy, device=place) if is_gpu else copy
        self.array = as_array(copy)
        parts = [each.reshape(-1).split(PART) for each in (source, copy, self.tensor)]
        for given, own, there in zip(*parts, strict=True):
            if not is_own:
                own.copy_(given)
            if is_gpu:
                there.copy_(own, non_blocking=True)


def _real(tensor: Tensor) -> Tensor | None:
    """A tensor of numbers that may be none, in a type that torch adds up; None where they are whole."""
    if not tensor.is_floating_point() and not tensor.is_complex():
        return None
    return tensor.float() if tensor.element_size() == 1 else tensor


@contextlib.contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EngineError(f"the GPU has not enough memory for an update of weights: {error}") from error


def _renew_turns() -> None:
    for store in list(_stores):
        store.turns.renew()


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_turns)

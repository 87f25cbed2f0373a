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
from litehouse.engines.torch.pieces import recording
from litehouse.engines.torch.values import Tensor, as_array, as_tensor
from litehouse.errors import EngineError


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
    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give weights other values, between two runs: all of them, or none where that fails.

        Raises:
            EngineError: The GPU has not enough memory for both the old and the new ones.
        """
        try:
            self._update(arrays)
        except torch.OutOfMemoryError as error:
            raise EngineError(f"the GPU has not enough memory for an update of weights: {error}") from error

    def _update(self, arrays: Mapping[str, np.ndarray]) -> None:
        staged = {name: as_tensor(array).to(self._place, non_blocking=True) for name, array in arrays.items()}
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


def keep(array: np.ndarray) -> np.ndarray:
    """A copy of an array, in memory that a GPU reads by itself."""
    source = as_tensor(np.asarray(array))
    copy = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=torch.cuda.is_available())
    return as_array(copy.copy_(source))


def has_nan(array: np.ndarray) -> bool:
    """Whether a value is not a number, as all cores can tell."""
    tensor = as_tensor(array)
    if not tensor.is_floating_point() and not tensor.is_complex():
        return False
    # One that is not makes the sum none, too; so do infinities of both signs, which are looked at more closely.
    return bool(torch.isnan(tensor.sum())) and bool(torch.isnan(tensor).any())


def _renew_turns() -> None:
    for store in list(_stores):
        store.turns.renew()


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_turns)

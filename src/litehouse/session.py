"""`Session`: a model, ready to run."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from litehouse import lora
from litehouse.builds import CLOSED, FORKED, Build, Builds, Loaded
from litehouse.cores import neighbours
from litehouse.cores.budget import give_back_memory
from litehouse.errors import EngineError, ShapeError, WeightError
from litehouse.live import Arrays, Live, WeightInfo, settle, with_values
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.signature import (
    accept,
    as_list,
    checked,
    describe,
    from_dlpack,
    in_order,
    is_foreign,
    shapes_in_order,
)

if TYPE_CHECKING:
    from litehouse.engines.base import Stoppable
    from litehouse.engines.choice import Choice
    from litehouse.engines.select import Selected
    from litehouse.sharing import Attached, Received, Sharing
    from litehouse.weights import Arena

ndarray = np.ndarray  # looked up once


class Session:
    """A model with an engine, ready to run. Any number of threads may use one session at once.

    Attributes:
        model: The model.
        options: How it is run.
    """

    def __init__(self, model: Model, options: Options | None = None) -> None:
        """Choose an engine and compile the model; `litehouse.load` does this from a file."""
        from litehouse.engines.build import build

        model, options = settle(model, options or Options())
        self._begin(Loaded(model, options, build(model, options)))

    @classmethod
    def of(cls, loaded: Loaded, attached: Attached | None = None) -> Session:
        """A session of a model that is compiled already, with the size, state and weights of the file.

        Args:
            loaded: The compiled model.
            attached: The memory of another process that it uses.
        """
        session = object.__new__(cls)
        if attached is None:
            session._begin(loaded)
        else:
            session._begin(loaded, Live(loaded.model, loaded.built.engine, attached.now.arrays))
            session._follow_from(attached, attached.now)
        return session

    def twin(self) -> Session:
        """Another session of the compiled model, with the file's size and state: the weights are in memory once.

        What is updated in place is updated for both; where the model is built anew, for one of them.
        """
        other = object.__new__(type(self))
        with self._live.updating, self._switching:
            is_one = not self.model.updatable or bool(self.model.live)
            other._begin(self.loaded, self._live if is_one else self._live.copy())
            other._arena = self._arena
            if self._attached is not None:
                other._follow_from(self._attached, self._followed)
        return other

    def _begin(self, loaded: Loaded, live: Live | None = None) -> None:
        self.model, self.options = loaded.model, loaded.options
        self._live = live or Live(loaded.model, loaded.built.engine)
        self._live.sessions.add(self)
        self._attached: Attached | None = None
        self._followed: Received | None = None  # what is in use of it
        self._arena: Arena | None = None
        self._switching = threading.RLock()  # held while other builds take the place of those in use
        self._state_lock = threading.Lock()
        self._state = self._first_state()
        self._takes_more = bool(self._state or loaded.model.live)
        self._builds: Builds | None = Builds(loaded, self._live)
        _sessions.add(self)

    def _follow_from(self, attached: Attached, now: Received | None) -> None:
        attached.sessions.add(self)
        self._attached, self._followed = attached, now

    @property
    def loaded(self) -> Loaded:
        """The compiled model, of which other sessions can be made."""
        return self._open().loaded

    @property
    def engine(self) -> Choice:
        """The name of the engine in use; its `reason` says why, and its `figures` what was measured at this size."""
        return self._builds.current.choice if self._builds is not None else self._last_choice

    @property
    def precision(self) -> str:
        """What the engine computes in: "fp32", "tf32", "fp16" or "bf16"."""
        return self.engine.precision

    @property
    def takes_tensors(self) -> bool:
        """Whether `run` takes tensors of other libraries where they are, and then gives tensors of torch."""
        return self._open().current.adopt is not None

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """What `run` takes, in order, with the present shapes."""
        return self._open().current.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """What `run` returns, in order.

        After a resize the shapes come from a run on zeros, made when they are first asked for.
        """
        return self._open().outputs()

    def __call__(self, *arrays: np.ndarray, **named: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run with arrays in order or by name: `(scores,) = session(image)`."""
        if arrays and named:
            raise ShapeError("give the inputs either in order or by name, not both")
        return tuple(self.run(named if named else arrays))

    def run(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs, as arrays that own their memory.

        On a GPU, tensors of torch, CuPy and others that speak DLPack are taken where they are; the outputs are then
        tensors of torch on that GPU.

        Args:
            inputs: One array per input, in order or by name.

        Raises:
            ShapeError: The count, a dtype or a shape is wrong. The session stays usable.
            EngineError: The engine failed.
        """
        if self._attached is not None:
            self._follow()
        builds = self._builds
        if builds is None:
            raise EngineError(CLOSED)
        build = builds.current
        try:
            if type(inputs) is not list:
                inputs = as_list(inputs, build.inputs)
            if len(inputs) != len(build.expected):
                raise ShapeError(
                    f"the model takes {len(build.expected)} inputs, not {len(inputs)}: {describe(build.inputs)}"
                )
            for array, (shape, dtype) in zip(inputs, build.expected):  # noqa: B905  (counted above)
                # The common case costs a microsecond less without a call per input.
                if (
                    type(array) is not ndarray
                    or array.dtype is not dtype
                    or array.shape != shape
                    or not array.flags.c_contiguous
                ):
                    if any(map(is_foreign, inputs)):
                        return self._run_foreign(build, inputs)
                    inputs = [checked(*pair) for pair in zip(inputs, build.inputs, strict=True)]
                    break
        except ShapeError as error:
            builds.refused(error)
            raise
        runner = build.take()
        try:
            return self._run_with_more(runner.run, inputs) if self._takes_more else runner.run(inputs)
        finally:
            build.runners.append(runner)

    def run_any(self, inputs: Sequence[np.ndarray], stoppable: Stoppable | None = None) -> list[np.ndarray]:
        """The outputs for inputs of any shapes that the model can take, whatever the session was resized to.

        Args:
            inputs: One array per input, in order or by name.
            stoppable: Told how another thread stops the run, and None when it has ended.

        Raises:
            ShapeError: The count or a dtype is wrong, or the model cannot take these shapes.
            EngineError: The engine failed, or was stopped.
        """
        if self._attached is not None:
            self._follow()
        builds = self._open()
        try:
            inputs = accept(inputs, self.model.inputs, any_size=True)
            build = builds.at(tuple(array.shape for array in inputs))
        except ShapeError as error:
            builds.refused(error)
            raise
        runner = build.take()
        try:
            run = runner.run if stoppable is None else functools.partial(runner.run_stoppable, stoppable=stoppable)
            return self._run_with_more(run, inputs) if self._takes_more else run(inputs)
        finally:
            build.runners.append(runner)

    @property
    def weights(self) -> dict[str, WeightInfo]:
        """All weights of the file, by its own names for them."""
        updatable = set(self.model.updatable)
        return {
            name: WeightInfo(name, dtype, shape, name in updatable and self._attached is None)
            for name, (dtype, shape) in self.model.weight_shapes.items()
        }

    def update_weights(self, new: Mapping[str, np.ndarray], *, allow_nan: bool = False) -> None:
        """Give weights other values, all of them or none.

        A run that starts after this sees the new ones; one that is under way, the old ones, all of them. The arrays are
        copied. Updates by several threads take turns.

        Args:
            new: The values by name, with the dtype and shape that the weights have.
            allow_nan: Take values that are not numbers, too.

        Raises:
            WeightError: A name, dtype, shape or value is wrong; the text tells all that are. The old values stay.
            EngineError: The model cannot be built with them. The old values stay.
        """
        self._updatable().update(new, self._install, allow_nan=allow_nan)

    def update_weights_from(self, path: str | os.PathLike[str], *, scale: float = 1.0, allow_nan: bool = False) -> None:
        """Give weights the values that a safetensors file has for them.

        Pairs of low-rank matrices (`NAME.lora_A` and `lora_B`, or `lora_down` and `lora_up`, with `NAME.alpha`) are an
        adapter: `scale * alpha / rank * up @ down` is added to the weight. It stays merged when the weight is updated,
        takes the place of what came from the same path before, and is taken out by `remove_adapter`.

        Args:
            path: The file.
            scale: How much of an adapter is added.
            allow_nan: Take values that are not numbers, too.

        Raises:
            WeightError: As for `update_weights`, or the file is broken. The old values stay.
        """
        if not isinstance(scale, int | float):
            raise TypeError(f"scale must be a number, not {type(scale).__name__}")
        self._updatable().add(_label(path), lora.load(path), self._install, scale=scale, allow_nan=allow_nan)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The absolute paths of the adapters that are merged into the weights."""
        return self._live.adapters

    def remove_adapter(self, path: str | os.PathLike[str]) -> None:
        """Take an adapter out again: the weights are what they would be without it, to the bit.

        Raises:
            WeightError: No adapter came from that path.
        """
        self._updatable().remove(_label(path), self._install)

    def share(self, pids: Iterable[int]) -> int:
        """Let other processes use the memory of this session.

        The session itself uses that memory, too, from now on: on the CPU, ONNX Runtime with weights as they are, not
        packed for it, which costs some networks a tenth of their speed. On a GPU, the memory is there, and nothing
        changes for the session. Others get each update of the weights.

        Args:
            pids: The processes that may have it. Nobody else gets it, whoever knows the handle. What was shared before
                stays shared, also with those that were named then.

        Returns:
            The handle that `attach` takes.

        Raises:
            TypeError: `pids` are no numbers.
            WeightError: There is no such process, or not enough memory.
        """
        from litehouse import sharing as memory

        allowed = _numbers(pids)
        self._own("share")
        self._whole("shared")
        with self._live.updating:
            sharing = self._live.shared()
            if sharing is not None:
                sharing.allow(allowed)
                return int(sharing.handle)
            if "arena" in self.loaded.built.engine.capabilities:
                return self._share_on_device(allowed)
            model, built, sharing, arrays = memory.begin(self.model, self.options, self._open().choice, self._live)

            def take() -> None:
                self._live.take(arrays, self._live.values.number)
                self._live.sharing = sharing
                if isinstance(model, memory.AttachedModel):
                    self._live.model = model

            try:
                sharing.allow(allowed)
                self._adopt(model, built, take)
            except BaseException:
                if self._live.sharing is not sharing:
                    sharing.close()
                raise
            return sharing.handle

    def _share_on_device(self, allowed: list[int]) -> int:
        from litehouse import sharing as memory

        builds = self._open()
        sharing, arrays = memory.begin_on_device(self.model, builds.loaded.built.program, builds.choice, self._live)
        try:
            sharing.allow(allowed)
        except BaseException:
            sharing.close()
            raise
        self._live.take(arrays, self._live.values.number)
        self._live.sharing = sharing
        return sharing.handle

    def use_arena(self, arena: Arena) -> None:
        """Take the weights from an arena: what several sessions have in common is then in memory once.

        The model runs as after `share`: on ONNX Runtime with weights as they are, not packed for the CPU. On a GPU,
        weights that are updated in place stay each session's own.

        Args:
            arena: The arena, of any number of sessions.

        Raises:
            WeightError: Other processes use the memory on the GPU that the session would leave.
        """
        from litehouse import sharing as memory

        self._own("move")
        self._whole("moved into an arena")
        is_on_device = "arena" in self.loaded.built.engine.capabilities
        with self._live.updating:
            if is_on_device and self._live.shared() is not None:
                raise WeightError(f"{self.model.path}: other processes use its weights on the GPU, which stay there")

            def take() -> None:
                self._arena = arena
                if self.model.live and not is_on_device:
                    self._live.take(arena.intern(self._live.values.arrays), self._live.values.number)

            self._adopt(self.model, memory.in_arena(self.model, self.options, self._open().choice, arena), take)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the weights that the network changes when it runs (counters, caches), as the last run left them.

        A session keeps these between runs, and runs of such a network take turns. Every session has its own.
        """
        with self._state_lock:
            self._open()
            names = [item.name for item in self.model.states]
            return {name: _as_array(value).copy() for name, value in zip(names, self._state, strict=True)}

    def reset(self, state: Mapping[str, np.ndarray] | None = None) -> None:
        """Give the state the values that the file has, or those that `state` gave before.

        Args:
            state: An array for every item of the state; None for the values in the file.

        Raises:
            ShapeError: A name is missing or unknown, or a dtype or shape is wrong. The state stays as it was.
        """
        first = self._first_state()
        if state is not None:
            infos = tuple(
                TensorInfo(item.name, array.dtype, array.shape)
                for item, array in zip(self.model.states, first, strict=True)
            )
            given = in_order(state, infos, "state")
            first = [checked(array, info).copy() for array, info in zip(given, infos, strict=True)]
        with self._state_lock:
            self._open()
            self._state = first

    def resize(self, shapes: Sequence[Sequence[int]] | Mapping[str, Sequence[int]]) -> None:
        """Give the inputs other shapes, one per input, in order or by name. On failure the old shapes stay.

        Where the new shapes only fill in dynamic dimensions, nothing is rebuilt.

        Raises:
            ShapeError: The count is wrong, or the model cannot take these shapes.
        """
        with self._switching:
            self._open().resize(shapes_in_order(self.model, shapes))

    def close(self) -> None:
        """Free the model's memory. The session cannot run afterwards."""
        with self._switching, self._state_lock:
            builds = self._builds
            if builds is not None:
                self._last_choice = builds.current.choice
            self._builds, self._state = None, []
        if builds is not None:
            builds.close()
        self._live.sessions.discard(self)
        if not self._live.sessions and (sharing := self._live.shared()) is not None:
            sharing.close()
        if self._attached is not None:
            self._attached.sessions.discard(self)
            if not self._attached.sessions:
                self._attached.close()

    def __repr__(self) -> str:
        """The model, its signature and its engine."""
        if self._builds is None:
            return f"<Session {self.model.path}: closed>"
        names = ", ".join(info.name for info in self.model.outputs)
        return f"<Session {self.model.path}: {describe(self.inputs)} -> {names}, on {self.engine}>"

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def _updatable(self) -> Live:
        self._own("update")
        if not self.model.updatable:
            raise WeightError(f"{self.model.path}: no weight is updatable; load it with updatable=[names] or 'all'")
        return self._live

    def _own(self, verb: str) -> None:
        """Raise unless the weights are this process's own, and may be changed by it."""
        if self._open().is_forked:
            raise EngineError(FORKED)
        if self._attached is not None:
            raise WeightError(f"the weights belong to process {self._attached.pid}; {verb} them there")

    def _whole(self, done: str) -> None:
        """Raise where the model is one part of a job: it consists of many."""
        if "ranks" in self.loaded.built.engine.capabilities:
            raise WeightError(
                f"{self.model.path}: the model is one part of a job over several ranks, and is not {done}"
            )

    def _install(self, changed: Arrays, take: Callable[[Arrays], None]) -> None:
        """Make runs use these weights: what is live, they are given; else the model is built anew beside them."""
        sharing = self._live.shared()
        if not self.model.live:
            self._swap(changed, take, sharing)
        else:
            placed = changed if sharing is None else sharing.place(changed)  # what may fail comes first
            self._live.engine.update(self.model, changed)
            take(placed)
            if sharing is not None:
                sharing.publish(self._live.values.number)

    def _swap(self, changed: Arrays, take: Callable[[Arrays], None], sharing: Sharing | None) -> None:
        from litehouse import sharing as memory
        from litehouse.engines.build import rebuild

        # All values, into the model as it was read: what updates before have made of it is not kept.
        model = with_values(self._live.model, {**self._live.values.arrays, **changed})
        choice, base = self._open().choice, None

        def done() -> None:
            take(changed)
            if sharing is not None:
                sharing.publish(self._live.values.number, base)

        try:
            with neighbours.aside(self._open()):
                if sharing is not None:
                    base = memory.freeze(model, self.options, choice, sharing.content)
                    built = memory.thaw(base, model, self.options)
                elif self._arena is not None:
                    built = memory.in_arena(model, self.options, choice, self._arena)
                else:
                    built = rebuild(model, self.options, choice)
            self._adopt(model, built, done)
        except BaseException:
            if base is not None and self.model is not model:
                base.close()
            raise

    def _adopt(self, model: Model, built: Selected, done: Callable[[], None]) -> None:
        """Use another build of the model from the next run on; `done` notes what it holds."""
        builds = Builds(Loaded(model, self.options, built), self._live)
        with self._switching:
            before = self._open()
            builds.succeed(before)
            self.model, self._builds = model, builds
            done()
        before.retire()
        del before
        give_back_memory()  # what was made on the way, too

    def _follow(self) -> None:
        """Take over what the process that owns the weights has updated."""
        assert self._attached is not None
        if self._attached.latest() is self._followed:
            return
        with self._live.updating, self._switching:
            now = self._attached.latest()  # again: what another thread has taken over meanwhile must not be undone
            if now is not self._followed:
                self._take_over(now)

    def _take_over(self, now: Received) -> None:
        from litehouse import sharing as memory

        def take() -> None:
            self._live.engine.update(self.model, now.arrays)
            self._live.take(now.arrays, now.number)
            self._followed = now

        assert self._attached is not None
        if self._followed is not None and now.base is self._followed.base:
            take()
        else:
            model = self._live.model = self._attached.model(now)
            self._adopt(model, memory.thaw(now.base, model, self.options), take)

    def _renew_locks(self) -> None:
        """This process was forked off: whoever held a lock is not there."""
        self._switching, self._state_lock = threading.RLock(), threading.Lock()

    def _first_state(self) -> list[np.ndarray]:
        return [self.model.weights[state.name] for state in self.model.states]

    def _run_foreign(self, build: Build, inputs: Sequence[Any]) -> list[Any]:
        """Run with tensors of other libraries, by DLPack: what is given as such, comes back as tensors of torch."""
        adopt = build.adopt
        if adopt is None:
            return self.run([from_dlpack(*pair) for pair in zip(inputs, build.inputs, strict=True)])
        tensors = [adopt(value, info) for value, info in zip(inputs, build.inputs)]  # noqa: B905  (counted by `run`)
        runner: Any = build.take()
        try:
            if not self._takes_more:
                return runner.run_tensors(tensors)  # type: ignore[no-any-return]
            from litehouse.engines.torch.values import as_tensor

            return self._run_with_more(runner.run_tensors, tensors, as_tensor)
        finally:
            build.runners.append(runner)

    def _run_with_more(
        self, run: Callable[..., list[Any]], inputs: Sequence[Any], adapt: Callable[[Any], Any] | None = None
    ) -> list[Any]:
        """Run with what the network keeps between runs, and with the weights that are live.

        Args:
            run: Runs.
            inputs: What the caller has given.
            adapt: Gives what the network keeps in the form that `run` takes, as the last run may have had another one;
                None gives arrays.
        """
        held = self._live.values.held
        if not self.model.states:
            return run([*inputs, *held])
        with self._state_lock:
            self._open()
            results = run([*inputs, *map(adapt or _as_array, self._state), *held])
            count = len(results) - len(self._state)
            self._state = results[count:]
            return results[:count]

    def _open(self) -> Builds:
        if self._builds is None:
            raise EngineError(CLOSED)
        return self._builds


def _as_array(value: Any) -> np.ndarray:
    """An array, or a copy of what a tensor of torch holds, wherever that is."""
    if isinstance(value, ndarray):
        return value
    from litehouse.engines.torch.values import as_array

    return as_array(value)


def _label(path: str | os.PathLike[str]) -> str:
    """What tells an adapter from others, however its path is written."""
    return os.path.realpath(os.fsdecode(path))


def _numbers(pids: Iterable[int]) -> list[int]:
    found = list(pids) if isinstance(pids, Iterable) else []
    if not isinstance(pids, Iterable) or not all(type(pid) is int for pid in found):
        raise TypeError(f"pids must be a list of process numbers, not {pids!r}")
    return found


def _renew_locks() -> None:
    for session in list(_sessions):
        session._renew_locks()


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_locks)

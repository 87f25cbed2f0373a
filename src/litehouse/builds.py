"""The programs of a model: the one for the sizes of the file, and those for others that were asked for."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from litehouse.cores import neighbours
from litehouse.errors import EngineError, LitehouseError, ShapeError, UnsupportedOpError
from litehouse.live import Live
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.signature import describe, fits, is_static, known_shape

if TYPE_CHECKING:
    from litehouse.engines.base import Program, Runner
    from litehouse.engines.choice import Choice
    from litehouse.engines.select import Selected

REMEMBERED_SHAPES = 16
CLOSED = "the session is closed; load the model again"

FORKED = "this process was forked off after the model was loaded, and has no threads to run it; load it again here"

Shapes = tuple[tuple[int, ...], ...]
_all: weakref.WeakSet[Builds] = weakref.WeakSet()


@dataclass(slots=True, weakref_slot=True, eq=False)
class Loaded:
    """A compiled model, which is in memory as long as a session uses it."""

    model: Model
    options: Options
    built: Selected


@dataclass(slots=True)
class Build:
    """A program with the shapes that it is used for, and its idle runners."""

    program: Program
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...] | None
    expected: tuple[tuple[tuple[int, ...] | None, np.dtype], ...]  # no shape where a dimension is dynamic
    choice: Choice
    runners: list[Runner]
    adopt: Callable[[Any, TensorInfo], Any] | None  # takes a tensor of another library where it is; None: arrays only

    def take(self) -> Runner:
        """A runner that nobody uses; put it back behind the run."""
        try:
            return self.runners.pop()  # list operations are atomic: no lock
        except IndexError:
            return self.program.bind()


class Builds:
    """What was built of a model. Any number of threads may use it at once.

    Attributes:
        loaded: The compiled model; other sessions may use it, too.
        current: The build for the present sizes.
        has_threads: Whether an engine has threads for it.
        is_forked: Whether this process was forked off later, and the threads of an engine are not there.
    """

    def __init__(self, loaded: Loaded, live: Live) -> None:
        """Begin with what was loaded.

        Args:
            loaded: The compiled model.
            live: Its weights that runs are given.
        """
        self.loaded, self._live = loaded, live
        self._lock = threading.Lock()
        self._is_closed, self.is_forked = False, False
        self._remembered: OrderedDict[Shapes, Build] = OrderedDict()
        model, options = loaded.model, loaded.options
        self._use(loaded.built, model.inputs)
        has_choice = options.engine == "auto" or options.precision == "fp16" or options.device_kind != "cpu"
        is_timed = has_choice and options.tune != "off"
        self._is_settled = not is_timed or is_static(model.inputs)  # without sizes no engine can be timed
        self.current = self._build(loaded.built.program, model.inputs, model.outputs, self._choice, self._runners)
        if options.threads != 1:
            neighbours.join(self)
        self.has_threads = options.threads != 1 or self._choice in ("openvino", "torch")
        _all.add(self)

    @property
    def choice(self) -> Choice:
        """The engine that was chosen, and why."""
        return self._choice

    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs of the current build; after a resize their shapes come from a run on zeros."""
        build = self.current
        if build.outputs is None:
            build.outputs = self._trial(build)
        return build.outputs

    def refused(self, error: ShapeError) -> None:
        """Inputs were refused: where other ranks run, too, they must know that this one does not."""
        if "ranks" in self.loaded.built.engine.capabilities:
            cast(Any, self.current.program).refuse(error)

    def resize(self, shapes: Shapes) -> None:
        """Make the build for these shapes the current one."""
        build = self.at(shapes)
        with self._lock:
            self._check_open()
            self.current = build

    def at(self, shapes: Shapes) -> Build:
        """The build for these shapes: one that is remembered, or a new one."""
        known = self._remembered.get(shapes)
        if known is not None and not self._is_closed:
            with contextlib.suppress(KeyError):  # another thread has just dropped it
                self._remembered.move_to_end(shapes)
            return known
        with self._lock, neighbours.aside(self):
            self._check_open()
            build = self._remembered.get(shapes) or self._build_for(shapes)
            self._check_open()
            self._remembered[shapes] = build
            self._remembered.move_to_end(shapes)
            if len(self._remembered) > REMEMBERED_SHAPES:
                self._remembered.popitem(last=False)
            return build

    def retire(self) -> None:
        """Make room for others. Runs that have begun with this go on, and may build what they need."""
        neighbours.leave(self)

    def close(self) -> None:
        """Build no more. Runs that are under way have what they need."""
        self._is_closed = True
        neighbours.leave(self)
        with self._lock:  # behind what is being built
            self._remembered.clear()

    def lose_threads(self) -> None:
        """This process was forked off, and has no threads of any engine: runs would wait for them forever."""
        self.is_forked = True
        builds = [self.current, *self._remembered.values()]
        for kept in (self.loaded.built, *(part for build in builds for part in (build.program, build.runners))):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # never freed: that would wait for them, too
        for build in builds:
            build.program, build.runners = _Forked(), []

    def renew_lock(self) -> None:
        """This process was forked off: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def succeed(self, other: Builds) -> None:
        """Take the sizes of another one, whose place this one takes."""
        self._is_settled = other._is_settled
        shapes = tuple(info.shape for info in other.current.inputs)
        if shapes != tuple(info.shape for info in self.loaded.model.inputs):
            self.current = self.at(cast(Shapes, shapes))

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError(CLOSED)

    def _use(self, built: Selected, inputs: tuple[TensorInfo, ...]) -> None:
        self._choice, self._chosen_for = built.choice, inputs
        self._runners: list[Runner] = []  # of that program, for all sizes

    @staticmethod
    def _build(
        program: Program,
        inputs: tuple[TensorInfo, ...],
        outputs: tuple[TensorInfo, ...] | None,
        choice: Choice,
        runners: list[Runner] | None = None,
    ) -> Build:
        expected = tuple((cast(Any, info.shape) if info.is_static else None, info.dtype) for info in inputs)
        adopt = getattr(program, "adopt", None)
        return Build(program, inputs, outputs, expected, choice, [] if runners is None else runners, adopt)

    def _build_for(self, shapes: Shapes) -> Build:
        model = self.loaded.model
        infos = tuple(replace(info, shape=shape) for info, shape in zip(model.inputs, shapes, strict=True))
        if all(fits(shape, info) for shape, info in zip(shapes, model.inputs, strict=True)):
            if not self._is_settled:
                self._settle(infos)
            outputs = model.outputs if is_static(model.outputs) else None
            choice = self._choice if infos == self._chosen_for else self._choice_elsewhere(self._choice.parts)
            return self._build(self.loaded.built.program, infos, outputs, choice, self._runners)
        if model.translate is not None:
            return self._translated(shapes)
        if model.fixed_nodes:
            raise ShapeError(
                f"the file was exported for the shapes {[list(info.shape) for info in model.inputs]} and cannot take "
                f"{[list(shape) for shape in shapes]}: {len(model.fixed_nodes)} nodes, as {model.fixed_nodes[0]}, "
                "depend on them; export the network with dynamic shapes"
            )
        try:
            build = self._build(self._compile(model, shapes), infos, None, self._choice_elsewhere())
            build.outputs = self._trial(build)
        except (EngineError, MemoryError) as error:
            wanted = [list(shape) for shape in shapes]
            raise ShapeError(f"the network cannot take the shapes {wanted}: {error or 'not enough memory'}") from error
        return build

    def _compile(self, model: Model, shapes: Sequence[Sequence[int]] | None = None) -> Program:
        choice, options = self._choice, self.loaded.options
        how: dict[str, Any] = {"is_plain": choice.is_plain, "form": choice.form}
        return self.loaded.built.engine.compile(model, options, shapes, choice.precision, **how)

    def _choice_elsewhere(self, parts: int = 1) -> Choice:
        """The choice, for sizes at which nothing was timed."""
        facts = self._choice.facts() | {"parts": parts}
        if facts["figures"]:
            facts["reason"] = f"it was chosen for {describe(self._chosen_for)}: {facts['reason']}"
        return type(self._choice).of(facts | {"figures": []})

    def _settle(self, inputs: tuple[TensorInfo, ...]) -> None:
        """Choose the engine anew, now that the sizes are known; later ones stay with it."""
        from litehouse.engines.build import build

        model = self.loaded.model
        sized = copy.copy(model)
        sized.inputs = inputs
        with contextlib.suppress(EngineError):  # then what is built serves
            built = build(sized, self.loaded.options)
            self._use(built, inputs)
            # What was built without sizes would be a second copy of the weights; other sessions have their own sizes.
            self.loaded = Loaded(model, self.loaded.options, built)
            self.current = self._build(built.program, model.inputs, model.outputs, built.choice, self._runners)
        self._is_settled = True

    def _translated(self, shapes: Shapes) -> Build:
        """A build of a model that is translated anew for each size of its inputs."""
        whole = self.loaded.model
        assert whole.translate is not None
        try:
            model = whole.translate(shapes)
            model.live, model.shelf = whole.live, whole.shelf
            return self._build(self._compile(model), model.inputs, model.outputs, self._choice_elsewhere())
        except (LitehouseError, MemoryError) as error:
            wanted, reason = [list(shape) for shape in shapes], str(error) or "not enough memory"
            if isinstance(error, UnsupportedOpError) and error.reason:
                reason = f"{error.reason}, at {error.op} (node {error.node})"
            raise ShapeError(f"the network cannot take the shapes {wanted}: {reason}") from error

    def _trial(self, build: Build) -> tuple[TensorInfo, ...]:
        """The outputs' infos, from a run on made-up inputs; what the file says where an input is dynamic."""
        model = self.loaded.model
        if "ranks" in self.loaded.built.engine.capabilities:  # the others would have to make the same trial
            return (
                model.outputs
                if build.inputs == model.inputs
                else tuple(replace(info, shape=(None,) * len(info.shape)) for info in model.outputs)
            )
        if not is_static(build.inputs):
            return model.outputs
        shapes = [(cast(tuple[int, ...], info.shape), info.dtype) for info in build.inputs]
        states = [model.weights[state.name] for state in model.states]
        runner, more = build.program.bind(), [*states, *self._live.values.held]
        try:
            results = runner.run([*(np.zeros(shape, dtype) for shape, dtype in shapes), *more])
        except EngineError:
            # Some networks cannot take zeros: they divide by an integer input.
            results = runner.run([*(np.ones(shape, dtype) for shape, dtype in shapes), *more])
        results = results[: len(results) - len(states)]
        # With inputs of fixed shapes, a dynamic size is one that depends on the data: no trial can tell it.
        by_data = is_static(model.inputs)
        return tuple(
            replace(info, shape=known_shape(info, array.shape) if by_data else array.shape)
            for info, array in zip(model.outputs, results, strict=True)
        )


class _Forked:
    """A program without its threads."""

    precision, is_rewritten = "fp32", False

    def bind(self) -> Runner:
        """There is no runner."""
        raise EngineError(FORKED)

    def save(self, folder: Path) -> None:
        """It was saved elsewhere, if at all."""


def _after_fork() -> None:
    for builds in list(_all):
        builds.renew_lock()
        if builds.has_threads:
            builds.lose_threads()


os.register_at_fork(after_in_child=_after_fork)

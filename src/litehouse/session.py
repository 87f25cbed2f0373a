"""`Session`: a model, ready to run."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from litehouse.errors import EngineError, LitehouseError, ShapeError, UnsupportedOpError
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits, Options
from litehouse.signature import as_list, checked, describe, fits, in_order, is_static, known_shape, shapes_in_order

if TYPE_CHECKING:
    from litehouse.engines.base import Program, Runner
    from litehouse.engines.choice import Choice
    from litehouse.engines.select import Selected

REMEMBERED_SHAPES = 16
ndarray = np.ndarray  # looked up once
PLAIN_MODE = "AES-GCM"  # the usual one, which says nothing about a file that is not encrypted


def read(
    source: str | os.PathLike[str] | bytes,
    *,
    key: bytes | None = None,
    mode: str = "AES-GCM",
    limits: Limits | None = None,
    cache: Path | bool = False,
) -> Model:
    """Read a model file without building it: to inspect or convert it.

    Args:
        source: A path, or the bytes of a file.
        key: The key of an encrypted file.
        mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`.
        limits: What the file may ask for.
        cache: Where translations are kept, as in `Options`; sessions of the model then use it too. Leave it out for a
            model whose graph or weights you change.

    Raises:
        ModelFormatError: The file is broken, of an unknown kind, or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
    """
    if key is not None and not isinstance(key, bytes):
        raise TypeError(f"key must be bytes, not {type(key).__name__}; b'...' or text.encode() gives them")
    if cache is not False and key is None and mode == PLAIN_MODE:
        from litehouse import kept

        return kept.read(source, limits or Limits(), cache)
    from litehouse import formats, passes

    return passes.prepare(formats.read(source, key=key, mode=mode, limits=limits))


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    key: bytes | None = None,
    mode: str = "AES-GCM",
    options: Options | None = None,
    **fields: Any,
) -> Session:
    """Load a model and make it ready to run.

    Args:
        source: A path, or the bytes of a file: `.mindir`, `.ms`, `.mge` or `.onnx`.
        key: The key of an encrypted file.
        mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`; for MegEngine files the name of a cipher.
        options: How to run it.
        **fields: Fields of `Options`, as `threads=2`; they win over `options`.

    Raises:
        ModelFormatError: The file is broken, of an unknown kind, or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
        EngineError: No engine can run it here.
    """
    if options is not None and not isinstance(options, Options):
        raise TypeError(
            f"options must be Options, not {type(options).__name__}; fields can be given by name: threads=2"
        )
    unknown = sorted(set(fields) - set(Options.__slots__))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; the options are {', '.join(Options.__slots__)}")
    options = replace(options or Options(), **fields)
    return Session(read(source, key=key, mode=mode, limits=options.limits, cache=options.cache), options)


@dataclass(slots=True)
class _Build:
    """A program with the shapes that it was built for, and its idle runners."""

    program: Program
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...] | None
    expected: tuple[tuple[tuple[int, ...] | None, np.dtype], ...]  # no shape where a dimension is dynamic
    choice: Choice
    runners: list[Runner] = field(default_factory=list)


class Session:
    """A model with an engine, ready to run. Any number of threads may use one session at once.

    Attributes:
        model: The model.
        options: How it is run.
        engine: The name of the engine in use; its `reason` says why, and its `figures` what was measured at this size.
        precision: What the engine computes in: "fp32", "fp16" or "bf16".
    """

    engine: Choice
    precision: str

    def __init__(self, model: Model, options: Options | None = None) -> None:
        """Choose an engine and compile the model; `litehouse.load` does this from a file."""
        from litehouse.engines.build import build

        self.model = model
        self.options = options or Options()
        self._resizing = threading.Lock()
        self._state_lock = threading.Lock()
        self._state = self._first_state()
        self._has_state = bool(self._state)
        self._remembered: OrderedDict[tuple[tuple[int, ...], ...], _Build] = OrderedDict()
        built = build(model, self.options)
        self._program: Program | None
        self._use(built, model.inputs)
        has_choice = self.options.engine == "auto" or self.options.precision == "fp16"
        is_timed = has_choice and self.options.tune != "off"
        self._is_settled = not is_timed or is_static(model.inputs)  # without sizes no engine can be timed
        self._build: _Build | None = _build(built.program, model.inputs, model.outputs, self.engine)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """What `run` takes, in order, with the present shapes."""
        return self._current().inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """What `run` returns, in order.

        After a resize the shapes come from a run on zeros, made when they are first asked for.
        """
        build = self._current()
        if build.outputs is None:
            build.outputs = self._trial(build)
        return build.outputs

    def __call__(self, *arrays: np.ndarray, **named: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run with arrays in order or by name: `(scores,) = session(image)`."""
        if arrays and named:
            raise ShapeError("give the inputs either in order or by name, not both")
        return tuple(self.run(named if named else arrays))

    def run(self, inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs, as arrays that own their memory.

        Args:
            inputs: One array per input, in order or by name.

        Raises:
            ShapeError: The count, a dtype or a shape is wrong. The session stays usable.
            EngineError: The engine failed.
        """
        build = self._build
        if build is None:
            raise EngineError("the session is closed; load the model again")
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
                inputs = [checked(*pair) for pair in zip(inputs, build.inputs, strict=True)]
                break
        try:
            runner = build.runners.pop()  # list operations are atomic: no lock
        except IndexError:
            runner = build.program.bind()
        try:
            return self._run_with_state(runner, inputs) if self._has_state else runner.run(inputs)
        finally:
            build.runners.append(runner)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the weights that the network changes when it runs (counters, caches), as the last run left them.

        A session keeps these between runs, and runs of such a network take turns. Every session has its own.
        """
        with self._state_lock:
            self._current()
            names = [item.name for item in self.model.states]
            return {name: array.copy() for name, array in zip(names, self._state, strict=True)}

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
            self._current()
            self._state = first

    def resize(self, shapes: Sequence[Sequence[int]] | Mapping[str, Sequence[int]]) -> None:
        """Give the inputs other shapes, one per input, in order or by name. On failure the old shapes stay.

        Where the new shapes only fill in dynamic dimensions, nothing is rebuilt.

        Raises:
            ShapeError: The count is wrong, or the model cannot take these shapes.
        """
        wanted = shapes_in_order(self.model, shapes)
        with self._resizing:
            self._current()
            build = self._remembered.get(wanted) or self._build_for(wanted)
            self._remembered[wanted] = build
            self._remembered.move_to_end(wanted)
            if len(self._remembered) > REMEMBERED_SHAPES:
                self._remembered.popitem(last=False)
            self._build, self.engine = build, build.choice

    def close(self) -> None:
        """Free the model's memory. The session cannot run afterwards."""
        with self._state_lock:
            self._build = self._program = None
            self._state = []
        self._remembered.clear()

    def __repr__(self) -> str:
        """The model, its signature and its engine."""
        if self._build is None:
            return f"<Session {self.model.path}: closed>"
        names = ", ".join(info.name for info in self.model.outputs)
        return f"<Session {self.model.path}: {describe(self.inputs)} -> {names}, on {self.engine}>"

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def _use(self, built: Selected, inputs: tuple[TensorInfo, ...]) -> None:
        self._engine = built.engine
        self._program = built.program  # as the file has it; a resize may need another one
        self.engine = built.choice
        self.precision = built.choice.precision
        self._choice, self._chosen_for = built.choice, inputs

    def _first_state(self) -> list[np.ndarray]:
        return [self.model.weights[state.name] for state in self.model.states]

    def _run_with_state(self, runner: Runner, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self._state_lock:
            self._current()
            results = runner.run([*inputs, *self._state])
            count = len(results) - len(self._state)
            self._state = results[count:]
            return results[:count]

    def _current(self) -> _Build:
        if self._build is None:
            raise EngineError("the session is closed; load the model again")
        return self._build

    def _build_for(self, shapes: tuple[tuple[int, ...], ...]) -> _Build:
        model = self.model
        infos = tuple(replace(info, shape=shape) for info, shape in zip(model.inputs, shapes, strict=True))
        if all(fits(shape, info) for shape, info in zip(shapes, model.inputs, strict=True)):
            if not self._is_settled:
                self._settle(infos)
            assert self._program is not None  # the session is open
            outputs = model.outputs if is_static(model.outputs) else None
            choice = self._choice if infos == self._chosen_for else self._choice_elsewhere(self._choice.parts)
            return _build(self._program, infos, outputs, choice)
        if model.translate is not None:
            return self._translated(shapes)
        if model.fixed_nodes:
            raise ShapeError(
                f"the file was exported for the shapes {[list(info.shape) for info in model.inputs]} and cannot take "
                f"{[list(shape) for shape in shapes]}: {len(model.fixed_nodes)} nodes, as {model.fixed_nodes[0]}, "
                "depend on them; export the network with dynamic shapes"
            )
        try:
            build = _build(self._compile(model, shapes), infos, None, self._choice_elsewhere())
            build.outputs = self._trial(build)
        except (EngineError, MemoryError) as error:
            wanted = [list(shape) for shape in shapes]
            raise ShapeError(f"the network cannot take the shapes {wanted}: {error or 'not enough memory'}") from error
        return build

    def _compile(self, model: Model, shapes: Sequence[Sequence[int]] | None = None) -> Program:
        choice = self._choice
        return self._engine.compile(model, self.options, shapes, choice.precision, is_plain=choice.is_plain)

    def _choice_elsewhere(self, parts: int = 1) -> Choice:
        """The choice, for sizes at which nothing was timed."""
        facts = self._choice.facts() | {"parts": parts}
        if facts["figures"]:
            facts["reason"] = f"it was chosen for {describe(self._chosen_for)}: {facts['reason']}"
        return type(self._choice).of(facts | {"figures": []})

    def _settle(self, inputs: tuple[TensorInfo, ...]) -> None:
        """Choose the engine anew, now that the sizes are known; later ones stay with it."""
        from litehouse.engines.build import build

        sized = copy.copy(self.model)
        sized.inputs = inputs
        with contextlib.suppress(EngineError):  # then what is built serves
            self._use(build(sized, self.options), inputs)
        self._is_settled = True

    def _translated(self, shapes: tuple[tuple[int, ...], ...]) -> _Build:
        """A build of a model that is translated anew for each size of its inputs."""
        assert self.model.translate is not None
        try:
            model = self.model.translate(shapes)
            return _build(self._compile(model), model.inputs, model.outputs, self._choice_elsewhere())
        except (LitehouseError, MemoryError) as error:
            wanted, reason = [list(shape) for shape in shapes], str(error) or "not enough memory"
            if isinstance(error, UnsupportedOpError) and error.reason:
                reason = f"{error.reason}, at {error.op} (node {error.node})"
            raise ShapeError(f"the network cannot take the shapes {wanted}: {reason}") from error

    def _trial(self, build: _Build) -> tuple[TensorInfo, ...]:
        """The outputs' infos, from a run on made-up inputs; what the file says where an input is dynamic."""
        if not is_static(build.inputs):
            return self.model.outputs
        shapes = [(cast(tuple[int, ...], info.shape), info.dtype) for info in build.inputs]
        runner, state = build.program.bind(), self._first_state()
        try:
            results = runner.run([*(np.zeros(shape, dtype) for shape, dtype in shapes), *state])
        except EngineError:
            # Some networks cannot take zeros: they divide by an integer input.
            results = runner.run([*(np.ones(shape, dtype) for shape, dtype in shapes), *state])
        results = results[: len(results) - len(state)]
        # With inputs of fixed shapes, a dynamic size is one that depends on the data: no trial can tell it.
        by_data = is_static(self.model.inputs)
        return tuple(
            replace(info, shape=known_shape(info, array.shape) if by_data else array.shape)
            for info, array in zip(self.model.outputs, results, strict=True)
        )


def _build(
    program: Program, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...] | None, choice: Choice
) -> _Build:
    expected = tuple((info.shape if info.is_static else None, info.dtype) for info in inputs)
    return _Build(program, inputs, outputs, expected, choice)  # type: ignore[arg-type]

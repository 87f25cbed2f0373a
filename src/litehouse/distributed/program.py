"""A model that was cut at its exchanges: a `Program` like those of the engines, made of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from litehouse.distributed.collectives import EXCHANGES, Call, Wait
from litehouse.distributed.exchange import Exchange, call_dtype
from litehouse.distributed.mail import Key, Mail
from litehouse.distributed.meanings import FOR_ONE
from litehouse.distributed.segments import AS_FLOAT, Begin, Segment, Step
from litehouse.engines.base import Program, Runner, Stoppable
from litehouse.errors import EngineError, RankError
from litehouse.model import Model


@dataclass(slots=True)
class Part:
    """A segment, and what an engine has made of it."""

    segment: Segment
    live: tuple[str, ...]
    program: Program


Compile = Callable[[Segment, Sequence[np.ndarray]], Part]
"""Compiles a segment for arrays of these shapes, when it is first run with them."""


@dataclass(slots=True)
class Frame:
    """What a run has computed so far, by the values of the graph.

    Attributes:
        number: The number of the run.
        arrays: What is computed, and still needed.
        what: The exchange that is at work, for error texts.
        waits: The exchanges that are under way.
    """

    number: int
    arrays: dict[ir.Value, np.ndarray]
    what: str = ""
    waits: dict[ir.Node, Wait] = field(default_factory=dict)


class SegmentedProgram:
    """The segments and exchanges of a model, in the order in which they run.

    Attributes:
        precision: What it computes in.
        is_rewritten: Whether passes changed the graph of a segment.
    """

    def __init__(
        self,
        model: Model,
        steps: Sequence[Step],
        exchanges: dict[ir.Node, Exchange],
        mail: Mail,
        channel: int,
        compile_: Compile,
        parts: dict[Segment, Part],
        *,
        is_fixed: bool = True,
    ) -> None:
        """Join what was compiled.

        Args:
            model: The model.
            steps: What runs, in order.
            exchanges: What is known of the exchanges among them.
            mail: What they send with.
            channel: The number of the model in the mail.
            compile_: Compiles the segments that are not in `parts`.
            parts: The segments that are compiled.
            is_fixed: Whether it is for the sizes of the file.
        """
        self._is_fixed = is_fixed
        self._sizes: dict[Segment, list[tuple[int, ...]]] = {}
        self.path, self._steps, self._exchanges, self._mail = model.path, steps, exchanges, mail
        self._channel, self._compile, self._parts = channel, compile_, parts
        graph = model.graph.graph
        self._fed = [*graph.inputs, *(graph.initializers[name] for name in model.live if name in graph.initializers)]
        self._places = [
            *range(len(graph.inputs)),
            *(len(graph.inputs) + place for place, name in enumerate(model.live) if name in graph.initializers),
        ]
        self._given = list(graph.outputs)
        self._live = {name: graph.initializers[name] for name in model.live if name in graph.initializers}
        self._last = _last_uses(steps, self._given, self._live)
        self._constants = _constants(steps, self._given, self._live)
        made = {value for step in steps if isinstance(step, Segment) for value in step.outputs}
        # Outputs that no engine has just made: they may be an input, a weight, or each other.
        self._loose = [place for place, value in enumerate(self._given) if value not in made]
        self._loose += [place for place, value in enumerate(self._given) if value in self._given[:place]]
        self._has_state = bool(model.states)
        found = [part.program for part in parts.values()]
        precisions = {program.precision for program in found}
        self.precision = precisions.pop() if len(precisions) == 1 else "fp32"
        self.is_rewritten = any(program.is_rewritten for program in found)

    def bind(self) -> SegmentedRunner:
        """A runner for one thread at a time; runs of all of them take turns, as all ranks must run in one order."""
        return SegmentedRunner(self)

    def save(self, folder: Path) -> None:
        """It is not kept."""
        raise EngineError(f"{self.path}: a part of a job is not kept ({folder})")

    def run(self, inputs: Sequence[np.ndarray], runners: dict[Segment, Runner]) -> list[np.ndarray]:
        """The outputs, computed together with the other ranks."""
        mail = self._mail
        if not mail.using.acquire(blocking=False):
            raise EngineError(
                f"{self.path}: another thread is running a part of this job; the ranks could not tell which runs "
                "belong together: let one thread run all parts of the job, in the same order on all ranks"
            )
        try:
            number = mail.begin(self._channel)
            frame = Frame(number, dict(self._constants))
            frame.arrays.update((value, inputs[place]) for value, place in zip(self._fed, self._places, strict=True))
            try:
                self._run_steps(frame, runners)
            except BaseException as error:
                self._give_up(number, error, frame.what)
                raise
            results = [frame.arrays[value] for value in self._given]
            shared = [*inputs, *self._constants.values()]
            for place in self._loose:
                if any(np.may_share_memory(results[place], array) for array in shared):
                    results[place] = results[place].copy()
                shared.append(results[place])
            return results
        finally:
            mail.using.release()

    def refuse(self, error: BaseException) -> None:
        """Count a run that was refused here before it began: the other ranks count it, too, and are told."""
        with self._mail.using:
            if self._mail.failure is None:
                self._give_up(self._mail.begin(self._channel), error, "")

    def _give_up(self, number: int, error: BaseException, what: str) -> None:
        if self._has_state:  # some ranks have the next state, and others not
            self._mail.fail(error, what)
        else:
            self._mail.stop(self._channel, number, error, what)

    def _run_steps(self, frame: Frame, runners: dict[Segment, Runner]) -> None:
        for place, step in enumerate(self._steps):
            frame.what = "" if isinstance(step, Segment) else self._exchanges[step.node].what
            if isinstance(step, Segment):
                self._run_segment(step, frame, runners)
            else:
                try:
                    (self._begin if isinstance(step, Begin) else self._finish)(step.node, frame)
                except (ValueError, TypeError) as error:  # numpy's, of arrays that do not fit each other
                    raise RankError(f"{frame.what} got arrays that do not fit: {error}", op=frame.what) from error
            for value in self._last[place]:
                frame.arrays.pop(value, None)

    def _run_segment(self, segment: Segment, frame: Frame, runners: dict[Segment, Runner]) -> None:
        inputs = [frame.arrays[value] for value in segment.inputs]
        shapes = self._sizes.setdefault(segment, [array.shape for array in inputs])
        if not self._is_fixed and shapes != [array.shape for array in inputs]:
            raise RankError("another rank was resized otherwise, or got inputs of another size")
        runner = runners.get(segment)
        if runner is None:
            runner = runners[segment] = self._part(segment, inputs).program.bind()
        inputs += [frame.arrays[self._live[name]] for name in self._parts[segment].live]
        results = runner.run([np.asarray(array, order="C") for array in inputs])
        frame.arrays.update(zip(segment.outputs, results, strict=True))

    def _part(self, segment: Segment, inputs: Sequence[np.ndarray]) -> Part:
        if segment not in self._parts:
            with self._mail.busy():
                self._parts[segment] = self._compile(segment, inputs)
        return self._parts[segment]

    def _begin(self, node: ir.Node, frame: Frame) -> None:
        exchange = self._exchanges[node]
        key = Key(self._channel, frame.number, exchange.label)
        call = Call(self._mail, key, exchange.group, exchange.attributes, exchange.what, len(node.outputs))
        inputs = []
        for value in node.inputs:
            if value is not None:
                array = frame.arrays[value]
                inputs.append(array.astype(call_dtype(value)) if value.dtype in AS_FLOAT else array)
        frame.waits[node] = EXCHANGES[node.op_type](call, *inputs)

    def _finish(self, node: ir.Node, frame: Frame) -> None:
        results = frame.waits.pop(node)()
        for value, array in zip(node.outputs, results, strict=True):
            is_other = value.dtype is not None and array.dtype != call_dtype(value)
            shape = value.shape
            if self._is_fixed and shape is not None and shape.is_static():
                is_other = is_other or array.shape != tuple(shape.numpy())
            if is_other and node.op_type not in FOR_ONE:
                raise RankError(
                    f"{frame.what} gave {array.dtype} {list(array.shape)}, where the file has {value.dtype} {shape}: "
                    "the ranks run models that do not belong together, or got other inputs",
                    op=frame.what,
                )
            frame.arrays[value] = array.astype(np.float32) if value.dtype in AS_FLOAT else array


class SegmentedRunner:
    """Runs a program that was cut."""

    def __init__(self, program: SegmentedProgram) -> None:
        """Begin without runners of the segments; they are made when they are first needed."""
        self._program = program
        self._runners: dict[Segment, Runner] = {}

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        return self._program.run(inputs, self._runners)

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs. It is not stopped: the other ranks would wait for it."""
        del stoppable
        return self._program.run(inputs, self._runners)


def _users(steps: Sequence[Step], live: dict[str, ir.Value]) -> list[list[ir.Value]]:
    """What each step uses."""
    kept = set(live.values())
    found: list[list[ir.Value]] = []
    for step in steps:
        if isinstance(step, Segment):
            own = [value for node in step.nodes for value in node.inputs if value is not None and value in kept]
            found.append([*step.inputs, *own])
        else:
            found.append([value for value in step.node.inputs if value is not None])
    return found


def _last_uses(steps: Sequence[Step], given: Sequence[ir.Value], live: dict[str, ir.Value]) -> list[list[ir.Value]]:
    """The values that nothing uses behind each step: their memory is given back."""
    seen = set(given) | set(live.values())
    found: list[list[ir.Value]] = []
    for values in reversed(_users(steps, live)):
        found.append([value for value in dict.fromkeys(values) if value not in seen])
        seen.update(values)
    return found[::-1]


def _constants(
    steps: Sequence[Step], given: Sequence[ir.Value], live: dict[str, ir.Value]
) -> dict[ir.Value, np.ndarray]:
    """The weights that are sent or given as they are."""
    wanted = [*given, *(value for step in steps if isinstance(step, Begin) for value in step.node.inputs)]
    kept = set(live.values())
    found = {}
    for value in wanted:
        if value is not None and value.is_initializer() and value not in kept and value.const_value is not None:
            array = value.const_value.numpy()
            found[value] = array.astype(np.float32) if value.dtype in AS_FLOAT else array
    return found

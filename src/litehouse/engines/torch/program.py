"""A lowered model on a device, and what runs it."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litehouse.apart import apart
from litehouse.device import MAX_STAGED
from litehouse.engines.base import Names, Stoppable
from litehouse.engines.torch.arena import Arena, SharedArena, is_dense
from litehouse.engines.torch.captures import WaitsError
from litehouse.engines.torch.compiled import Kernels
from litehouse.engines.torch.doubts import check
from litehouse.engines.torch.engine import COMPILED, LAST
from litehouse.engines.torch.frame import NONE, Frame, Step
from litehouse.engines.torch.kernels_kept import Workplace
from litehouse.engines.torch.lower import Lowered
from litehouse.engines.torch.pieces import Piece, cut, run_singly
from litehouse.engines.torch.precision import computing
from litehouse.engines.torch.shortcut import Shortcut, unless_wrong
from litehouse.engines.torch.store import Store
from litehouse.engines.torch.streams import stream_for
from litehouse.engines.torch.tensors import adopt
from litehouse.engines.torch.values import Tensor, as_array, as_tensor, pinned
from litehouse.errors import EngineError, RankError

log = logging.getLogger(__name__)
Sizes = tuple[tuple[int, ...], ...]


class TorchProgram:
    """A model as torch functions, with its weights on a device."""

    is_rewritten = False
    adopt = staticmethod(adopt)

    def __init__(
        self,
        lowered: Lowered,
        names: Names,
        place: torch.device,
        precision: str,
        *,
        is_fixed: bool,
        form: str = "",
        workplace: Workplace | None = None,
        store: Store | None = None,
        shared: SharedArena | None = None,
        others: Iterable[Arena] = (),
        warned: set[str] | None = None,
    ) -> None:
        """Copy the weights to the device.

        Args:
            lowered: The steps.
            names: What the model calls its inputs and outputs.
            place: The device.
            precision: What it computes in.
            is_fixed: Whether the sizes of the inputs are known.
            form: What `TorchEngine.forms` gives.
            workplace: Where kernels are made, if the form has any.
            store: The live weights.
            shared: The arena of another process that has all other weights.
            others: The arenas of the same model at other sizes.
            warned: Takes the ops that were warned of, by all programs of the model.
        """
        self.lowered, self.names, self.place, self.precision = lowered, names, place, precision
        self.is_fixed = is_fixed
        self.told: Any = None  # what ranks have told each other about the sizes of the run that begins
        self.watch: Callable[[Any], None] | None = None  # waits for a stream on which other ranks may be missing
        self.fed = lowered.block.inputs[: len(names.fed) - names.live]
        self.is_compiled, self.kernels = COMPILED in form, Kernels(is_last=LAST in form, workplace=workplace)
        tensors = {slot: lowered.constants[slot] for slot in lowered.on_device}
        self.arena = Arena(_channels_last(lowered, tensors) if LAST in form else tensors, place, shared, others)
        self.weights: list[Any] = [None] * len(lowered.constants)
        for slot, tensor in self.arena.tensors.items():
            self.weights[slot] = tensor
        self._lock = threading.Lock()
        self._lacking: dict[str, None] = {}
        self._warned = set[str]() if warned is None else warned
        self.warn(lowered.lacking)

        constant = {slot for slot, value in enumerate(lowered.constants) if value is not None}
        derived = {slot for step in lowered.derived for slot in step.outputs}
        self.constant = frozenset(constant | set(lowered.live.values()) | derived)
        self.store = store
        if store is not None:
            for name, slot in lowered.live.items():
                self.weights[slot] = store.tensors[name]
            store.follow(self)

    def derive(self) -> None:
        """Compute what depends on the live weights alone, into the same memory as before."""
        assert self.store is not None
        frame = Frame(self.lowered.constants, self.weights, self.place)
        for step in self.lowered.derived:
            for slot in step.outputs:
                if slot != NONE:
                    frame.device[slot] = None
        with torch.no_grad(), computing(self.precision) if self.place.type == "cuda" else contextlib.nullcontext():
            frame.run_noted(self.lowered.derived)
        check(frame.wrong)
        for slot in (slot for step in self.lowered.derived for slot in step.outputs if slot != NONE):
            value, before = frame.on_device(slot), self.weights[slot]
            if before is None:
                self.weights[slot] = value if self.store.has(value) or is_dense(value) else value.contiguous()
            elif before.data_ptr() != value.data_ptr():  # a view of a weight has changed with it
                before.copy_(value)

    def frame(self, given: Sequence[Any]) -> Frame:
        """A frame with the constants and these inputs, which are tensors, or text."""
        frame = Frame(self.lowered.constants, self.weights, self.place)
        frame.told = self.told
        for slot, value in zip(self.fed, given, strict=True):
            if isinstance(value, np.ndarray):
                frame.host[slot] = value
            elif value.is_cuda:
                frame.device[slot] = value.to(self.place)  # of another GPU, too
            else:
                frame.fed[slot] = value
        return frame

    def bind(self) -> TorchRunner:
        """A new runner."""
        return TorchRunner(self)

    def save(self, folder: Path) -> None:
        """It is not kept: lowering takes less time than reading it would."""
        raise EngineError(f"{self.names.path}: the torch engine keeps no programs ({folder})")

    @property
    def lacking(self) -> list[str]:
        """The ops that torch lacks, as far as they have run or were never there, with their nodes."""
        return list(self._lacking)

    def warn(self, lacking: Sequence[Step]) -> None:
        """Warn of the ops that torch lacks, once of each in all programs of a model."""
        texts = dict.fromkeys(str(part) for step in lacking for part in step.parts or (step,))
        with self._lock:
            self._lacking |= texts
            new = [text for text in texts if text not in self._warned]
            self._warned.update(new)
        if new:
            path, named = self.names.path, ", ".join(new)
            log.warning("%s: torch lacks %s; ONNX Runtime computes that on the CPU", path, named)


class TorchRunner:
    """Runs a program. Used by one thread at a time."""

    def __init__(self, program: TorchProgram) -> None:
        """Wrap a program; on a GPU, with streams of its own: to run on, and to capture on."""
        self._program, self._path = program, program.names.path
        is_on_gpu = program.place.type == "cuda"
        self._stream = stream_for(self, program.place) if is_on_gpu else None
        self._captured_on = stream_for(self, program.place, captures=True) if is_on_gpu else None
        # Not a method: what is captured has it, and the memory of a runner that is dropped is free at once.
        self._at_work = functools.partial(_working, self._stream, program.precision, self._path)
        self._staging: dict[int, Tensor] = {}
        self._waiting: set[Step] = set()
        self._parts: list[Piece | Step] = []
        self._shortcuts: dict[Sizes, Shortcut] = {}
        self._last: Any = self._stream  # that something of this runner went to
        self._reading: Any = None  # the event at which the device has read what a run without an end staged for it
        self._cut()

    def __del__(self) -> None:
        """Let go of what was captured before others get the stream: torch 2.12 clears its scratch memory meanwhile."""
        self._parts, self._shortcuts = [], {}

    def _cut(self) -> None:
        lowered = self._program.lowered
        block, constant = lowered.block, self._program.constant
        kernels = self._program.kernels if self._program.is_compiled else None
        self._parts = cut(block.steps, self._waiting, block.outputs, constant, self._captured_on, kernels)
        self._shortcuts.clear()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs; live weights behind them are not looked at, as the device has them."""
        store = self._program.store
        if store is None:
            return self._run(inputs)
        with store.turns.run():
            return self._run(inputs[: len(self._program.fed)])

    def run_tensors(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for inputs that may be on the device; they are there, and own their memory.

        The run takes its place in the caller's stream: it sees what was begun there before, and what is begun there
        behind it sees the outputs. The caller need not wait.
        """
        store = self._program.store
        if store is None:
            return self._run_tensors(inputs)
        with store.turns.run():
            return self._run_tensors(inputs[: len(self._program.fed)])

    def drop(self) -> None:
        """Let go of all that was captured; what comes next is captured anew."""
        self._cut()

    def _wait(self) -> None:
        """Wait for what was begun on the stream."""
        if self._program.watch is not None:
            self._program.watch(self._stream)
        elif self._stream is not None:
            self._stream.synchronize()

    def _follow(self, stream: Any) -> None:
        """Let a stream wait for what went to another one: all of it uses the same memory."""
        if stream is not None and stream != self._last:
            stream.wait_stream(self._last)
            self._last = stream

    def _run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._finish_reading()
        self._follow(self._stream)
        shortcut = self._shortcuts.get(tuple([array.shape for array in inputs]))
        if shortcut is None or not shortcut.takes(inputs):
            return self._run_arrays(inputs)
        return shortcut.run(inputs)

    def _run_arrays(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        program = self._program
        given = [as_tensor(array) for array in inputs]
        with self._at_work():
            frame = self._filled(given)
            results = [frame.anywhere(slot) for slot in program.lowered.block.outputs]
            self._find_shortcut(given)
            if self._stream is None:
                check(frame.wrong)
                return [as_array(value).copy() for value in results]
            arrays = self._downloaded(results)
            check(frame.wrong)
            return arrays

    def _find_shortcut(self, inputs: Sequence[Any]) -> None:
        """Let the next run of the same sizes go a shorter way, where there is one."""
        program, whole = self._program, self._parts[0] if len(self._parts) == 1 else None
        given = program.lowered.block.outputs
        if not isinstance(whole, Piece) or whole.latest is None or program.told is not None:
            return  # with other ranks, every run begins with what they tell
        sizes, capture = tuple(value.shape for value in inputs), whole.latest
        if sizes not in self._shortcuts and all(slot in capture.own.device for slot in given):
            kept = {known: way for known, way in self._shortcuts.items() if whole.has(way.capture)}
            way = Shortcut(capture, program.fed, given, self._stream, self._path, self._at_work)
            self._shortcuts = {**kept, sizes: way}

    def _run_tensors(self, inputs: Sequence[Any]) -> list[Tensor]:
        self._finish_reading()
        inputs = [as_tensor(value) if isinstance(value, np.ndarray) else value for value in inputs]  # what it keeps
        shortcut = self._shortcuts.get(tuple([tensor.shape for tensor in inputs]))
        if shortcut is not None:
            stream = None if self._stream is None else torch.cuda.current_stream(self._program.place)
            self._follow(stream)
            return shortcut.run_tensors(inputs, stream)
        with self._in_line() as caller, self._at_work():
            frame = self._filled(inputs)
            results = [frame.on_device(slot) for slot in self._program.lowered.block.outputs]
            self._find_shortcut(inputs)
            if self._stream is not None:
                if not all(tensor.is_cuda for tensor in inputs):
                    self._reading = self._stream.record_event()
                for tensor in (*results, *(flags for flags, _ in frame.wrong)):
                    tensor.record_stream(caller)  # memory of the expandable kind is unmapped behind what reads it
            self._follow(caller)
            # What the caller gets is memory of that stream. Where torch is told that a stream uses memory of another
            # one, it forgets that if a thread captures then, and when the memory is let go of.
            with torch.cuda.stream(caller):
                return [unless_wrong(result, frame.wrong) for result in results]

    @contextlib.contextmanager
    def _in_line(self) -> Iterator[Any]:
        """Between what the caller's stream has begun and what it begins next; gives that stream, None on the CPU."""
        if self._stream is None:
            yield None
            return
        caller, last = torch.cuda.current_stream(self._program.place), self._last
        self._follow(self._stream)
        if caller != last:  # which was waited for
            self._stream.wait_stream(caller)
        try:
            yield caller
        finally:
            self._follow(caller)  # after an error, too: inputs may still be read

    def _finish_reading(self) -> None:
        """Wait until the device has read what the last run staged for it: the same memory is written next."""
        if self._reading is not None:
            self._reading.synchronize()
            self._reading = None

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:  # noqa: ARG002
        """The outputs for these inputs; a run is short, and is not stopped."""
        return self.run(inputs)

    def _filled(self, given: Sequence[Any]) -> Frame:
        """A frame on which all parts have run."""
        while True:
            frame = self._program.frame(given)
            is_ranked = frame.told is not None  # a run with others happens once: it finds out what waits, too
            if is_ranked and self._stream is not None:
                frame.finish = self._wait
            try:
                for part in self._parts:
                    if isinstance(part, Piece):
                        part.run(frame, at_once=self._program.is_fixed and not is_ranked)
                    else:
                        run_singly(frame, [part])
            except WaitsError as error:
                self._learn(error.steps)
                continue
            if not frame.waits <= self._waiting:
                self._learn(frame.waits)
            return frame

    def _learn(self, waiting: set[Step]) -> None:
        """Cut the steps anew, now that more is known of them."""
        self._waiting |= waiting
        self._cut()
        self._program.warn([step for step in waiting if step.is_lacking])

    def _downloaded(self, results: Sequence[Any]) -> list[np.ndarray]:
        assert self._stream is not None
        small: dict[int, Tensor] = {}
        for place, value in enumerate(results):
            if isinstance(value, torch.Tensor) and value.is_cuda and value.nbytes <= MAX_STAGED:
                staging = self._staging.get(place)
                if staging is None or staging.shape != value.shape or staging.dtype != value.dtype:
                    staging = self._staging[place] = pinned(value)
                small[place] = staging.copy_(value, non_blocking=True)
        self._wait()
        return [
            as_array(small[place]).copy() if place in small else as_array(value) for place, value in enumerate(results)
        ]


@contextlib.contextmanager
def _working(stream: Any, precision: str, path: str) -> Iterator[None]:
    """On a runner's stream, in a program's precision, whatever torch was told for other work."""
    with contextlib.ExitStack() as entered:
        entered.enter_context(apart())
        entered.enter_context(torch.no_grad())
        if stream is not None:
            entered.enter_context(torch.cuda.stream(stream))
            entered.enter_context(computing(precision))
        try:
            yield
        except RankError:
            raise
        except EngineError as error:
            raise EngineError(f"{path}: torch failed while running: {error}") from error
        except torch.OutOfMemoryError as error:
            raise EngineError(f"{path}: the GPU has not enough memory: {error}") from error
        except RuntimeError as error:  # of the GPU, as of a kernel that was begun before
            raise EngineError(f"{path}: torch failed while running: {error}") from error


def _channels_last(lowered: Lowered, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
    """The tensors, with the weights of convolutions in the order that lets their results have channels last, too."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    weights = {step.inputs[1] for step in lowered.block.steps if step.op == "Conv" and len(step.inputs) > 1}
    return {
        slot: tensor.contiguous(memory_format=formats[tensor.ndim])
        if slot in weights and tensor.ndim in formats
        else tensor
        for slot, tensor in tensors.items()
    }

"""Steps that are captured for certain sizes, and replayed over the same memory.

Nothing here refers to what has it: the memory of a device is free as soon as a model is dropped, not when garbage is
collected.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch

from litehouse.apart import apart
from litehouse.engines.torch.compiled import Kernels
from litehouse.engines.torch.doubts import Wrong
from litehouse.engines.torch.frame import Frame, Step
from litehouse.engines.torch.graphs import CaptureError, aside, graph_of
from litehouse.engines.torch.values import Tensor, pinned

Key = tuple[Any, ...]
NOTHING: Mapping[int, Tensor] = MappingProxyType({})
_capturing = threading.RLock()  # one at a time in the process
_uses = itertools.count()


class WaitsError(Exception):
    """Steps cannot be captured: they must know numbers that the device computes."""

    def __init__(self, steps: set[Step]) -> None:
        """Take those steps."""
        super().__init__()
        self.steps = steps


class Graph(Protocol):
    """What was captured."""

    def replay(self) -> None:
        """Compute once more, with the same memory."""
        ...


class HostGraph:
    """Steps on the CPU, where nothing can be captured: they run again, over the same memory."""

    def __init__(self, run: Callable[[], Frame], outputs: dict[int, Tensor], wrong: Wrong) -> None:
        """Remember how they run, and where they gave their outputs at first."""
        self._run, self._outputs, self._wrong = run, outputs, wrong

    def replay(self) -> None:
        """Run the steps."""
        with apart(), torch.no_grad():
            frame = self._run()
        for slot, tensor in self._outputs.items():
            tensor.copy_(frame.on_device(slot))
        for (flags, _), (now, _) in zip(self._wrong, frame.wrong, strict=True):
            flags.copy_(now)


@dataclass(frozen=True, slots=True)
class Recording:
    """Steps over certain memory.

    Attributes:
        graph: What computes the outputs.
        device: The memory that it leaves them in, by slot.
        wrong: What tells whether something is wrong with them, with the texts for it.
    """

    graph: Graph
    device: dict[int, Tensor]
    wrong: Wrong


@dataclass(frozen=True, slots=True)
class Work:
    """Steps that need not wait for anything between them.

    Attributes:
        steps: The steps.
        reads: The slots that they take from outside, and that are no constants.
        uses: The slots that they take, constants, too.
        gives: The slots that something behind them uses.
        stream: The stream that they are captured on, and that nothing else runs on; None on the CPU.
        pool: The memory that their graphs use between steps, None on the CPU. Only one of these is replayed in a run.
            Graphs of other work would overwrite what this one gives, where they were captured before it.
    """

    steps: Sequence[Step]
    reads: Sequence[int]
    uses: frozenset[int]
    gives: Sequence[int]
    stream: Any
    pool: Any


class Capture:
    """Work for certain sizes, with memory of its own that it reads its inputs from.

    Attributes:
        inputs: That memory, by slot.
        own: What runs over it.
        host: Outputs that are known beforehand, by slot: they follow from the sizes.
        used: Tells which of two captures was used last.
    """

    def __init__(self, work: Work, frame: Frame, key: Key, kernels: Kernels | None = None) -> None:
        """Capture work for what the frame holds.

        Args:
            work: The work.
            frame: The values.
            key: What the capture depends on.
            kernels: Takes the kernels that are made for it; None for those of torch.

        Raises:
            WaitsError: It cannot be captured.
            KernelsError: No kernels can be made for it.
        """
        self._work, self._place = work, frame.place
        if frame.finish is not None:
            frame.finish()  # to capture waits for the whole GPU, and so for other ranks, of which one may be missing
        with _capturing:
            with aside(work.stream, frame.place) as runs_on:
                self.inputs = {slot: _like(frame, slot) for slot in work.reads if frame.varies(slot)}
            for own in self.inputs.values() if runs_on is not None else ():
                own.record_stream(runs_on)  # replays there use the graph's memory, too: torch waits to unmap that
            staged = [slot for slot, own in self.inputs.items() if frame.device[slot] is None and own.is_cuda]
            self._staging = {slot: pinned(self.inputs[slot]) for slot in staged}
            self.fill(frame)
            self.use()
            steps = _Steps(work, frame, self.inputs)
            warm = steps.first()
            self.host = {slot: warm.host[slot] for slot in work.gives if warm.host[slot] is not None}
            self._run: Run = steps.run if kernels is None else _compiled(steps, warm, kernels, key)
            del warm
            self._warm = threading.local()  # tells which threads have run it
            self.own = self.record()

    def record(
        self,
        tensors: Mapping[int, Tensor] = NOTHING,
        before: Callable[[], None] | None = None,
        after: Callable[[Frame], None] | None = None,
    ) -> Recording:
        """Capture the steps.

        Args:
            tensors: What they read instead of the memory for inputs; of the same sizes and strides.
            before: What is captured before them.
            after: What is captured behind them, on the frame with the outputs.

        Raises:
            CaptureError: They cannot be captured, or not now.
        """
        run, work = self._run, self._work

        def whole(*, is_dry: bool = False) -> Frame:
            if before is not None:
                before()
            frame = run(tensors, is_dry=is_dry)
            if after is not None:
                after(frame)
            return frame

        with _capturing:
            if self._place.type != "cuda":
                done = whole(is_dry=True)
                outputs = {slot: tensor.clone() for slot, tensor in _given(work, done).items()}  # no views
                return Recording(HostGraph(whole, outputs, done.wrong), outputs, done.wrong)
            self._warm_up()
            graph, done = graph_of(whole, work.pool, work.stream, self._place)
            return Recording(graph, _given(work, done), done.wrong)

    def _warm_up(self) -> None:
        """Run the steps once as they are, in each thread that captures them: kernels are chosen, and memory is taken.

        Torch has the handles of its libraries, and the kernels that convolutions have tried, for each thread: while
        something is captured, no new ones can come about.
        """
        if hasattr(self._warm, "is_done"):
            return
        self._run(is_dry=True)
        self._warm.is_done = True

    def use(self) -> None:
        """Note that it is used: others make room before it."""
        self.used = next(_uses)

    def fill(self, frame: Frame) -> None:
        """Copy what a frame has for the inputs to where they are read from."""
        for slot, own in self.inputs.items():
            source = frame.device[slot]
            if source is None:
                source = frame.fed[slot]
                staging = self._staging.get(slot)
                if staging is not None:
                    source = staging.copy_(source)
            if source.data_ptr() != own.data_ptr():
                own.copy_(source, non_blocking=True)

    def replay(self, frame: Frame) -> None:
        """Compute the outputs, into a frame."""
        self.own.graph.replay()
        frame.wrong += self.own.wrong
        for slot, tensor in self.own.device.items():
            frame.device[slot] = tensor
        for slot, value in self.host.items():
            frame.host[slot] = value


class Run(Protocol):
    """Computes what work gives, into a new frame."""

    def __call__(self, tensors: Mapping[int, Tensor] = NOTHING, *, is_dry: bool = False) -> Frame:
        """Do it.

        Args:
            tensors: What takes the place of the frame's own values.
            is_dry: Exchange nothing with other ranks, who may not do the same now.
        """
        ...


class _Steps:
    """Work on copies of a frame, step by step.

    Attributes:
        work: The work.
        frame: What it begins with.
    """

    def __init__(self, work: Work, frame: Frame, inputs: Mapping[int, Tensor]) -> None:
        """Take a frame, but read what varies from the memory for inputs."""
        self.work, self.frame = work, frame.copy()
        self.frame.fed.clear()
        for slot in range(len(self.frame.device)):
            if slot not in work.uses:
                self.frame.device[slot] = None  # what others use is not kept for them, as the caller's tensors
        for slot in work.reads:
            self.frame.device[slot] = inputs.get(slot)  # what is known is noted where it is needed
        self._notes: list[Any] = []  # what follows from the sizes

    def first(self) -> Frame:
        """Run them once, and note what all other runs find in the notes.

        Raises:
            WaitsError: Some of them wait, or give what is no tensor.
        """
        done = self._done(is_dry=True, notes=self._notes)
        self.frame.finish = None  # no other run waits; it would keep the runner
        if done.waits or not all(isinstance(done.anywhere(slot), torch.Tensor) for slot in self.work.gives):
            raise WaitsError(done.waits)
        return done

    def run(self, tensors: Mapping[int, Tensor] = NOTHING, *, is_dry: bool = False) -> Frame:
        """Run them again; see `Run`."""
        return self._done(tensors, is_dry=is_dry, reads=iter(self._notes))

    def _done(
        self,
        tensors: Mapping[int, Tensor] = NOTHING,
        *,
        is_dry: bool,
        notes: list[Any] | None = None,
        reads: Iterator[Any] | None = None,
    ) -> Frame:
        frame = self.frame.copy()
        frame.is_dry, frame.notes, frame.reads = is_dry, notes, reads
        for slot, tensor in tensors.items():
            frame.device[slot] = tensor
        frame.run_noted(self.work.steps)
        return frame


def _compiled(steps: _Steps, warm: Frame, kernels: Kernels, key: Key) -> Run:
    """What runs the steps as kernels that were made for them; `warm` is a frame on which they have run."""
    work = steps.work
    gives = [slot for slot in work.gives if warm.device[slot] is not None]
    takes = {slot: value for slot, value in enumerate(steps.frame.device) if isinstance(value, torch.Tensor)}
    takes = {slot: value for slot, value in takes.items() if slot in work.uses}

    def traced(*tensors: Tensor) -> list[Tensor]:
        frame = steps.run(dict(zip(takes, tensors, strict=True)))
        return [*(frame.device[slot] for slot in gives), *(flags for flags, _ in frame.wrong)]

    # The steps may be cut in another way next time.
    function = kernels.find(((tuple(work.steps), work.gives, tuple(takes)), key), traced, list(takes.values()))

    def run(tensors: Mapping[int, Tensor] = NOTHING, *, is_dry: bool = False) -> Frame:
        del is_dry  # nothing of ranks is compiled
        frame = warm.copy()
        found = function(*{**takes, **tensors}.values())
        for slot, tensor in zip(gives, found[: len(gives)], strict=True):
            frame.device[slot] = tensor
        frame.wrong = [(flags, texts) for flags, (_, texts) in zip(found[len(gives) :], warm.wrong, strict=True)]
        return frame

    return run


def _given(work: Work, frame: Frame) -> dict[int, Tensor]:
    return {slot: frame.device[slot] for slot in work.gives if frame.device[slot] is not None}


def _like(frame: Frame, slot: int) -> Tensor:
    """New memory for what a slot has."""
    return torch.empty_like(frame.anywhere(slot), device=frame.place)


def is_short_of_memory(error: BaseException) -> bool:
    """Whether an error comes of too little memory on the device."""
    return _comes_of(error, torch.OutOfMemoryError)


def can_do_without(error: BaseException) -> bool:
    """Whether what failed need not be captured to be run."""
    return _comes_of(error, CaptureError, torch.OutOfMemoryError)


def _comes_of(error: BaseException | None, *kinds: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kinds):
        error = error.__cause__
    return error is not None

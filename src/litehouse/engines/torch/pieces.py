"""Steps that run as one: captured for the sizes of what they take, then replayed."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch

from litehouse.apart import apart, unwarned
from litehouse.device import is_rehearsed
from litehouse.engines.torch.compiled import Kernels, KernelsError
from litehouse.engines.torch.doubts import Wrong
from litehouse.engines.torch.frame import NONE, Frame, Step, uses_of
from litehouse.engines.torch.values import Tensor, as_array, pinned
from litehouse.errors import EngineError, RankError

log = logging.getLogger(__name__)
MAX_CAPTURES = 16  # of a piece; the one that was not used for the longest time makes room
MAX_SEEN = 64  # sizes that are remembered as having been run step by step
MIN_SEEN = 1  # times that sizes were, before they are captured
MIN_SEEN_FULL = 32  # times, where another one must make room: to capture takes as long as many runs
MIN_STEPS = 2  # of a piece that is worth capturing
ON_CPU = False  # whether steps on the CPU are run as if they were captured: only tests gain from it
Key = tuple[Any, ...]
NOTHING: Mapping[int, Tensor] = MappingProxyType({})
_capturing = threading.RLock()  # one at a time in the process
recording = threading.Lock()  # held while a GPU's graph comes about: nobody may wait for the whole GPU meanwhile
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


class Capture:
    """A piece for certain sizes, with memory of its own that it reads its inputs from.

    Attributes:
        inputs: That memory, by slot.
        own: What runs over it.
        host: Outputs that are known beforehand, by slot: they follow from the sizes.
        used: Tells which of two captures was used last.
    """

    def __init__(self, piece: Piece, frame: Frame, key: Key, kernels: Kernels | None = None) -> None:
        """Capture a piece for what the frame holds.

        Args:
            piece: The piece.
            frame: The values.
            key: What the capture depends on.
            kernels: Takes the kernels that are made for it; None for those of torch.

        Raises:
            WaitsError: It cannot be captured.
            KernelsError: No kernels can be made for it.
        """
        self.inputs = {slot: _like(frame, slot) for slot in piece.reads if frame.varies(slot)}
        staged = [slot for slot, own in self.inputs.items() if frame.device[slot] is None and own.is_cuda]
        self._staging = {slot: pinned(self.inputs[slot]) for slot in staged}
        self._frame, self._piece = frame.copy(), piece
        self._frame.fed.clear()
        for slot in range(len(self._frame.device)):
            if slot not in piece.uses:
                self._frame.device[slot] = None  # what other pieces use is not kept for them, as the caller's tensors
        for slot in piece.reads:
            self._frame.device[slot] = self.inputs.get(slot)  # what is known is noted where it is needed
        self._notes: list[Any] = []
        self.fill(frame)
        self.use()
        self._function: Callable[..., Frame] | None = None  # not a method: nothing would free the memory at once then
        with _capturing:
            warm = self._again(notes=self._notes, is_dry=True)
            if warm.waits or not all(isinstance(warm.anywhere(slot), torch.Tensor) for slot in piece.gives):
                raise WaitsError(warm.waits)
            self.host = {slot: warm.host[slot] for slot in piece.gives if warm.host[slot] is not None}
            if kernels is not None:
                self._function = self._compiled(warm, kernels, key)
            del warm
            if frame.place.type == "cuda":
                self._run(is_dry=True)  # once as it is: kernels are chosen, and memory is taken
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
        """

        def whole(*, is_dry: bool = False) -> Frame:
            if before is not None:
                before()
            frame = self._run(tensors, is_dry=is_dry)
            if after is not None:
                after(frame)
            return frame

        piece = self._piece
        with _capturing:
            if self._frame.place.type != "cuda":
                done = whole(is_dry=True)
                outputs = {slot: tensor.clone() for slot, tensor in self._given(done).items()}  # no views
                return Recording(HostGraph(whole, outputs, done.wrong), outputs, done.wrong)
            graph = torch.cuda.CUDAGraph()
            with (
                recording,
                unwarned("The CUDA Graph is empty"),  # as where all outputs are views of inputs
                torch.cuda.graph(graph, piece.pool, piece.stream, capture_error_mode="thread_local"),
                _nothing_freed(),
            ):
                done = whole()
            return Recording(graph, self._given(done), done.wrong)

    def _run(self, tensors: Mapping[int, Tensor] = NOTHING, *, is_dry: bool = False) -> Frame:
        """Run the steps, in the kernels that were made for them where there are any."""
        return (self._function or self._again)(tensors, is_dry=is_dry)

    def _given(self, frame: Frame) -> dict[int, Tensor]:
        return {slot: frame.device[slot] for slot in self._piece.gives if frame.device[slot] is not None}

    def _again(
        self, tensors: Mapping[int, Tensor] = NOTHING, *, notes: list[Any] | None = None, is_dry: bool = False
    ) -> Frame:
        """Run the steps on a copy of the frame.

        Args:
            tensors: What takes the place of the frame's own values.
            notes: Takes what follows from the sizes; None for a run that finds it in the notes.
            is_dry: Exchange nothing with other ranks, who may not do the same now.
        """
        frame = self._frame.copy()
        frame.is_dry = is_dry
        for slot, tensor in tensors.items():
            frame.device[slot] = tensor
        frame.notes, frame.reads = notes, iter(self._notes) if notes is None else None
        frame.run_noted(self._piece.steps)
        return frame

    def _compiled(self, warm: Frame, kernels: Kernels, key: Key) -> Callable[..., Frame]:
        """What runs the steps as kernels that were made for them."""
        gives = [slot for slot in self._piece.gives if warm.device[slot] is not None]
        takes = {slot: value for slot, value in enumerate(self._frame.device) if isinstance(value, torch.Tensor)}
        takes = {slot: value for slot, value in takes.items() if slot in self._piece.uses}

        def traced(*tensors: Tensor) -> list[Tensor]:
            frame = self._again(dict(zip(takes, tensors, strict=True)))
            return [*(frame.device[slot] for slot in gives), *(flags for flags, _ in frame.wrong)]

        # The steps may be cut in another way next time.
        what = (tuple(self._piece.steps), self._piece.gives, tuple(takes))
        function = kernels.find((what, key), traced, list(takes.values()))

        def run(tensors: Mapping[int, Tensor] = NOTHING, *, is_dry: bool = False) -> Frame:
            del is_dry  # nothing of ranks is compiled
            frame = warm.copy()
            found = function(*{**takes, **tensors}.values())
            for slot, tensor in zip(gives, found[: len(gives)], strict=True):
                frame.device[slot] = tensor
            frame.wrong = [(flags, texts) for flags, (_, texts) in zip(found[len(gives) :], warm.wrong, strict=True)]
            return frame

        return run

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


@contextlib.contextmanager
def _nothing_freed() -> Iterator[None]:
    """Without the collection of garbage: to free memory of a GPU would end what is being captured."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _like(frame: Frame, slot: int) -> Tensor:
    """New memory for what a slot has."""
    return torch.empty_like(frame.anywhere(slot), device=frame.place)


class Piece:
    """Steps that need not wait for anything between them.

    Attributes:
        steps: The steps.
        reads: The slots that they take from outside, and that are no constants.
        uses: The slots that they take, constants, too.
        gives: The slots that something behind them uses.
        kernels: Has the kernels that are made for them; None where none are.
        stream: The stream that they are captured on; None on the CPU.
        pool: The memory that their graphs use between steps, None on the CPU. Only one of these is replayed in a run.
            Graphs of other pieces would overwrite what this one gives, where they were captured before it.
        latest: What the last run has replayed; None where it went step by step.
    """

    def __init__(
        self, steps: Sequence[Step], constant: frozenset[int], needed: set[int], stream: Any, kernels: Kernels | None
    ) -> None:
        """Join steps; nothing is captured yet."""
        self.steps, self.kernels = list(steps), kernels
        self.stream, self.pool = stream, None if stream is None else torch.cuda.graph_pool_handle()
        own = {slot: None for step in steps for slot in step.outputs if slot != NONE}
        self.uses = frozenset(slot for step in steps for slot in uses_of(step))
        self.reads = tuple(slot for slot in sorted(self.uses) if slot not in own and slot not in constant)
        self.gives = tuple(slot for slot in own if slot in needed)
        self._captures: dict[Key, Capture] = {}
        self._seen: OrderedDict[Key, int] = OrderedDict()  # sizes that ran step by step, and how often
        self._left_out: set[Key] = set()  # sizes that are too large to be captured
        is_gained = self.stream is not None or kernels is not None or ON_CPU or is_rehearsed()
        self._is_open = len(self.steps) < MIN_STEPS or not is_gained  # and is never captured
        self.latest: Capture | None = None

    def run(self, frame: Frame, *, at_once: bool = False) -> None:
        """Run on a frame: replayed, or step by step where the sizes are new.

        Args:
            frame: The values.
            at_once: Capture new sizes when they come first, not when they come again.

        Raises:
            WaitsError: It cannot be captured.
        """
        key, self.latest = self._key(frame), None
        capture = self._captures.get(key) if key is not None else None
        if capture is not None:
            capture.fill(frame)
        elif key is not None and self._is_due(key, at_once=at_once):
            capture = self._new(frame, key, at_once=at_once)
        if capture is None:
            return frame.run_noted(self.steps)
        capture.use()
        self.latest = capture
        capture.replay(frame)

    def _is_due(self, key: Key, *, at_once: bool) -> bool:
        """Whether new sizes are captured now; else they are remembered."""
        if key in self._left_out:
            return False
        seen = self._seen.pop(key, 0)
        if at_once or seen >= (MIN_SEEN if len(self._captures) < MAX_CAPTURES else MIN_SEEN_FULL):
            return True
        self._seen[key] = seen + 1
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return False

    def _new(self, frame: Frame, key: Key, *, at_once: bool) -> Capture | None:
        """A capture for new sizes; None where the steps run one by one."""
        try:
            capture = self._capture(frame, key, is_only_size=at_once)
        except WaitsError as error:
            if error.steps and frame.told is None:
                raise
            self._is_open = True  # it gives sequences, or the steps before it have exchanged what they had to
            return None
        except (EngineError, RuntimeError) as error:
            if frame.told is not None and not isinstance(error, RankError):
                log.warning("steps between ranks are not captured, and run one by one: %s", error)
                self._is_open = True
            elif is_short_of_memory(error):  # which it takes beside that of the steps
                log.warning("sizes are not captured, and their steps run one by one: %s", error)
                self._left_out.add(key)
            else:
                raise
            return None
        self._captures[key] = capture
        if len(self._captures) > MAX_CAPTURES:
            del self._captures[min(self._captures, key=lambda known: self._captures[known].used)]
        return capture

    def _capture(self, frame: Frame, key: Key, *, is_only_size: bool) -> Capture:
        """A new capture; of many sizes, those that no kernels can be made for do without."""
        try:
            return Capture(self, frame, key, self.kernels)
        except KernelsError as error:
            if is_only_size:
                raise
            log.warning("a size runs in torch's own kernels: %s", error)
            return Capture(self, frame, key)

    def has(self, capture: Capture) -> bool:
        """Whether a capture was not dropped."""
        return any(capture is own for own in self._captures.values())

    def _key(self, frame: Frame) -> Key | None:
        """What a capture depends on; None where there is something that cannot be captured."""
        parts: list[Any] = [] if frame.told is None else [frame.told.key]
        if self._is_open:
            return None
        for slot in self.reads:
            value = frame.device[slot] if frame.device[slot] is not None else frame.fed.get(slot)
            known = frame.host[slot]
            if isinstance(known, torch.Tensor):
                parts.append((slot, known.dtype, tuple(known.shape), as_array(known).tobytes()))
            elif known is None and isinstance(value, torch.Tensor):
                parts.append((slot, value.dtype, tuple(value.shape), value.stride()))
            elif value is not None or known is not None:
                return None  # a sequence, or text
        return tuple(parts)


def is_short_of_memory(error: BaseException | None) -> bool:
    """Whether an error comes of too little memory on the device."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__cause__
    return error is not None


def cut(
    steps: Sequence[Step],
    waiting: set[Step],
    kept: Sequence[int],
    constant: frozenset[int],
    stream: Any,
    kernels: Kernels | None = None,
) -> list[Piece | Step]:
    """Steps as pieces, with those that wait between them.

    Args:
        steps: The steps.
        waiting: Those that wait.
        kept: Slots that are needed behind all of them.
        constant: Slots that are the same in every run.
        stream: The stream that pieces are captured on; None on the CPU.
        kernels: Takes the kernels that are made for the pieces; None where none are.
    """
    runs: list[list[Step]] = [[]]
    for step in steps:
        if step in waiting:
            runs += [[step], []]
        else:
            runs[-1].append(step)
    needed, made = set(kept), list[Piece | Step]()
    for run in reversed([run for run in runs if run]):
        is_waiting = run[0] in waiting
        made.append(run[0] if is_waiting else Piece(run, constant, needed, stream, kernels))
        needed |= {slot for step in run for slot in uses_of(step)}
    return made[::-1]

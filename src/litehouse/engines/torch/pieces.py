"""Steps that run as one: captured for the sizes of what they take, then replayed."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from litehouse.device import is_rehearsed
from litehouse.engines.torch.captures import Capture, Key, WaitsError, Work, can_do_without, is_short_of_memory
from litehouse.engines.torch.compiled import Kernels, KernelsError
from litehouse.engines.torch.frame import NONE, Frame, Step, uses_of
from litehouse.engines.torch.graphs import recording
from litehouse.engines.torch.values import as_array
from litehouse.errors import EngineError, RankError

log = logging.getLogger(__name__)
MAX_CAPTURES = 16  # of a piece; the one that was not used for the longest time makes room
MAX_SEEN = 64  # sizes that are remembered as having been run step by step
MIN_SEEN = 1  # times that sizes were, before they are captured
MIN_SEEN_FULL = 32  # times, where another one must make room: to capture takes as long as many runs
MIN_STEPS = 2  # of a piece that is worth capturing
MAX_TRIES = 3  # of a capture that fails: what another thread does at the moment can be why
ON_CPU = False  # whether steps on the CPU are run as if they were captured: only tests gain from it


class Piece:
    """Work, and what was captured of it for some sizes.

    Attributes:
        work: The steps, with what they take and give.
        latest: What the last run has replayed; None where it went step by step.
    """

    def __init__(
        self, steps: Sequence[Step], constant: frozenset[int], needed: set[int], stream: Any, kernels: Kernels | None
    ) -> None:
        """Join steps; nothing is captured yet."""
        own = {slot: None for step in steps for slot in step.outputs if slot != NONE}
        uses = frozenset(slot for step in steps for slot in uses_of(step))
        self.work = Work(
            steps=tuple(steps),
            reads=tuple(slot for slot in sorted(uses) if slot not in own and slot not in constant),
            uses=uses,
            gives=tuple(slot for slot in own if slot in needed),
            stream=stream,
            pool=None if stream is None else torch.cuda.graph_pool_handle(),
        )
        self._kernels = kernels
        self._captures: dict[Key, Capture] = {}
        self._seen: OrderedDict[Key, int] = OrderedDict()  # sizes that ran step by step, and how often
        self._failed: Counter[Key] = Counter()  # how often captures of sizes have
        is_gained = stream is not None or kernels is not None or ON_CPU or is_rehearsed()
        self._is_open = len(steps) < MIN_STEPS or not is_gained  # and is never captured
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
            return run_singly(frame, self.work.steps)
        capture.use()
        self.latest = capture
        capture.replay(frame)

    def _is_due(self, key: Key, *, at_once: bool) -> bool:
        """Whether new sizes are captured now; else they are remembered."""
        if self._failed[key] >= MAX_TRIES:
            return False
        seen = self._seen.pop(key, 0)
        if at_once or seen >= (MIN_SEEN if len(self._captures) < MAX_CAPTURES else MIN_SEEN_FULL):
            return True
        self._seen[key] = seen + 1
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return False

    def _new(self, frame: Frame, key: Key, *, at_once: bool) -> Capture | None:
        """A capture for new sizes; None where the steps run one by one.

        What is logged is text: who keeps an error would keep the memory of the device that its frames have.
        """
        try:
            capture = self._capture(frame, key, is_only_size=at_once)
        except WaitsError as error:
            if error.steps and frame.told is None:
                raise
            self._is_open = True  # it gives sequences, or the steps before it have exchanged what they had to
            return None
        except (EngineError, RuntimeError) as error:
            if frame.told is not None and not isinstance(error, RankError):
                log.warning("steps between ranks are not captured, and run one by one: %s", str(error))
                self._is_open = True
            elif can_do_without(error):
                log.warning("sizes are not captured, and their steps run one by one: %s", str(error))
                self._failed[key] += MAX_TRIES if is_short_of_memory(error) else 1
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
            return Capture(self.work, frame, key, self._kernels)
        except KernelsError as error:
            if is_only_size:
                raise
            log.warning("a size runs in torch's own kernels: %s", str(error))
            return Capture(self.work, frame, key)

    def has(self, capture: Capture) -> bool:
        """Whether a capture was not dropped."""
        return any(capture is own for own in self._captures.values())

    def _key(self, frame: Frame) -> Key | None:
        """What a capture depends on; None where there is something that cannot be captured."""
        parts: list[Any] = [] if frame.told is None else [frame.told.key]
        if self._is_open:
            return None
        for slot in self.work.reads:
            value = frame.device[slot] if frame.device[slot] is not None else frame.fed.get(slot)
            known = frame.host[slot]
            if isinstance(known, torch.Tensor):
                parts.append((slot, known.dtype, tuple(known.shape), as_array(known).tobytes()))
            elif known is None and isinstance(value, torch.Tensor):
                parts.append((slot, value.dtype, tuple(value.shape), value.stride()))
            elif value is not None or known is not None:
                return None  # a sequence, or text
        return tuple(parts)


def run_singly(frame: Frame, steps: Sequence[Step]) -> None:
    """Run steps that are not captured. Convolutions try kernels meanwhile, and torch waits for the whole GPU then."""
    is_alone = frame.place.type == "cuda" and frame.told is None and any(_tries(step) for step in steps)
    with recording if is_alone else contextlib.nullcontext():  # other ranks, which may be threads, are waited for
        frame.run_noted(steps)


def _tries(step: Step) -> bool:
    """Whether there is a convolution in a step, which ONNX Runtime does not compute."""
    is_own = "Conv" in step.op and not step.is_lacking
    return is_own or any(_tries(inner) for block in step.blocks.values() for inner in block.steps)


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

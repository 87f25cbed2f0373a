"""What runs: steps, one for each node, in blocks, one for each graph, on a frame of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from litehouse.engines.torch import doubts
from litehouse.engines.torch.fallback import Fallback
from litehouse.engines.torch.registry import LackingError
from litehouse.engines.torch.values import Tensor
from litehouse.errors import EngineError, RankError

NONE = -1  # the slot of an input or output that is left out
# Types that torch can hold, but hardly compute in: what to compute in instead.
WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
# What is the same for numbers with and without a sign, bit by bit: all that is right in 64 bits.
SIGNLESS = {
    *("Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Compress", "Concat", "Equal"),
    *("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "If", "Loop", "Mul", "Pad"),
    *("Reshape", "Scan", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Sub"),
    *("Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
}


@dataclass(slots=True, eq=False)
class Step:
    """A node: what it computes, from which slots into which.

    Attributes:
        op: The node's op.
        name: Its name.
        function: Takes the inputs by position; None where torch has no such op.
        known: For each input, whether its numbers must be known.
        inputs: Their slots.
        outputs: The slots of what it gives.
        frees: The slots that nothing uses behind it.
        is_on_host: Whether it computes with numbers that are known on the CPU, as sizes are.
        gives_known: Whether it gives such numbers.
        control: For an op with graphs, or between ranks: runs it on the frame.
        blocks: Those graphs, by attribute.
        attributes: Its attributes, for those ops.
        fallback: Runs it elsewhere.
        is_lacking: Whether that must be.
        parts: The steps that it stands for, of a step that stands for several.
        takes_place: Whether the function is told the device, as `place`.
    """

    op: str
    name: str
    function: Callable[..., Any] | None
    known: tuple[bool, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    fallback: Fallback | None
    is_on_host: bool = False
    gives_known: bool = False
    control: Callable[[Frame, Step], list[Any]] | None = None
    blocks: Mapping[str, Block] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    frees: tuple[int, ...] = ()
    is_lacking: bool = False
    parts: tuple[Step, ...] = ()
    takes_place: bool = False

    def run(self, frame: Frame) -> None:
        """Compute the outputs, into the frame."""
        waits = len(frame.waits)
        try:
            if self.control is not None:
                results: Sequence[Any] = self.control(frame, self)
            elif self.is_on_host or self.gives_known:
                with doubts.told_at_once():
                    results = frame.noted(lambda: self._results(frame))
            else:
                results = self._results(frame)
        except RankError:  # names its op itself
            raise
        except EngineError as error:
            raise EngineError(str(error) if self.blocks else f"{self}: {error}") from error
        except Exception as error:
            raise EngineError(f"{self}: {type(error).__name__}: {error}") from error
        if self.control is None:
            is_known = self.is_on_host or self.gives_known
            for slot, value in zip(self.outputs, results, strict=False):
                if slot != NONE:
                    frame.put(slot, value, is_known=is_known or (self not in frame.waits and not frame.is_there(value)))
        if len(frame.waits) > waits:
            frame.waits.add(self)  # too, where a step inside did
        for slot in self.frees:
            frame.free(slot)

    def _results(self, frame: Frame) -> Sequence[Any]:
        if not self.is_lacking and self.function is not None:
            arguments = [self._argument(frame, place) for place in range(len(self.inputs))]
            try:
                results = _widened(self, arguments, **({"place": frame.place} if self.takes_place else {}))
            except LackingError:
                pass
            except (NotImplementedError, RuntimeError) as error:
                if not isinstance(error, NotImplementedError) and "not implemented for" not in str(error):
                    raise
            else:
                made = results if isinstance(results, tuple) else (results,)
                if self._is_all(made):
                    return made
            del arguments
        assert self.fallback is not None
        self.is_lacking = True
        frame.waits.add(self)
        return self.fallback([None if slot == NONE else frame.on_host(slot, self) for slot in self.inputs])

    def _is_all(self, results: tuple[Any, ...]) -> bool:
        """Whether results are all that the node gives: an op may leave out one that hardly any file asks for."""
        if len(self.outputs) == 1:
            return True
        wanted = [place for place, slot in enumerate(self.outputs) if slot != NONE]
        return all(place < len(results) and results[place] is not None for place in wanted)

    def _argument(self, frame: Frame, place: int) -> Any:
        slot = self.inputs[place]
        if slot == NONE:
            return None
        if self.is_on_host or self.known[place]:
            return frame.on_host(slot, self)
        if self.gives_known:  # its sizes are enough, wherever it is
            return frame.anywhere(slot)
        return frame.on_device(slot)

    def __str__(self) -> str:
        """The op and the node."""
        return f"{self.op} (node {self.name})" if self.name else self.op


def _widened(step: Step, arguments: list[Any], **named: Any) -> Any:
    """What the function gives; numbers without a sign are computed in a wider type, and come back as they were."""
    assert step.function is not None
    kinds = {value.dtype for value in _tensors(arguments)} & WIDER.keys()
    if _has_text(arguments):
        raise LackingError("text")
    if not kinds or step.op in BITS:
        return step.function(*arguments, **named)
    if len(kinds) > 1 or (torch.uint64 in kinds and (step.op not in SIGNLESS or _compares(step))):
        raise LackingError("numbers of 64 bits without a sign")
    (kind,) = kinds
    wide = WIDER[kind]
    others = [value for place, value in enumerate(arguments) if not step.known[place]]  # no sizes, axes and the like
    if any(value.dtype == wide for value in _tensors(others)) and step.op not in SIGNLESS:
        raise LackingError("numbers with and without a sign")
    places = [place for place, value in enumerate(arguments) if _is_of(value, kind)]
    results = step.function(*(_to(value, wide) if place in places else value for place, value in enumerate(arguments)))
    if step.op in NOT_BACK:
        return results
    results = results if isinstance(results, tuple) else (results,)
    return tuple(
        _to(value, kind) if _is_of(value, wide) and place not in INDICES.get(step.op, ()) else value
        for place, value in enumerate(results)
    )


def _compares(step: Step) -> bool:
    """Whether a step with SIGNLESS's op lets the greatest or the least number stay, and so looks at the sign."""
    return getattr(step.function, "keywords", {}).get("reduction") in ("max", "min")


# Ops that take numbers without a sign as they are.
BITS = frozenset({"BitCast", "BitShift", "Cast", "CastLike"})
# Ops that give another type than they take; and which results of others are indices.
NOT_BACK = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape", "Size"})
INDICES = {"TopK": (1,), "MaxPool": (1,), "Unique": (1, 2, 3)}


def _has_text(values: Iterable[Any]) -> bool:
    return any(isinstance(value, np.ndarray) or (isinstance(value, list) and _has_text(value)) for value in values)


def _is_of(value: Any, kind: torch.dtype) -> bool:
    return any(each.dtype == kind for each in _tensors([value]))


def _to(value: Any, kind: torch.dtype) -> Any:
    return [_to(each, kind) for each in value] if isinstance(value, list) else value.to(kind)


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list):
            yield from _tensors(value)


@dataclass(slots=True, eq=False)
class Block:
    """A graph: its steps, and the slots of what it takes and gives."""

    steps: list[Step]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Frame:
    """The values of a run, by slot: those on the device, and those whose numbers are known on the CPU.

    Attributes:
        device: The values on the device.
        host: The values whose numbers are known, on the CPU: constants, and what follows from sizes. Where the device
            has one, too, they are equal.
        fed: Tensors on the CPU that are other ones in each run, by slot: what the caller has given, and what was
            computed there from numbers of the device.
        read: What was copied from the device, by slot: what it was there, and the copy.
        place: The device.
        waits: The steps that made the CPU wait for the device, as they must know numbers that it computes.
        notes: Takes all that follows from the sizes alone, in order; None where nothing is noted.
        reads: The notes of an earlier run with the same sizes: what they tell is not computed again.
        told: What the ranks of a job have told each other about the sizes; None for a model that is not part of one.
        is_dry: Whether nothing is exchanged with other ranks: it only matters what results look like.
        finish: Waits for the device before anything is copied from it; None where the copy itself may wait.
        wrong: What steps found wrong, on the device, with the texts for it.
    """

    def __init__(self, constants: Sequence[Any], weights: Sequence[Any], place: torch.device) -> None:
        """Begin with the constants, on the CPU and on the device."""
        self.host, self.device, self.place = list(constants), list(weights), place
        self.fed: dict[int, Tensor] = {}
        self.read: dict[int, tuple[Any, Any]] = {}
        self.waits: set[Step] = set()
        self.notes: list[Any] | None = None
        self.reads: Iterator[Any] | None = None
        self.told: Any = None
        self.is_dry = False
        self.finish: Callable[[], None] | None = None
        self.wrong: doubts.Wrong = []

    def copy(self) -> Frame:
        """Another frame with the same values."""
        other = Frame(self.host, self.device, self.place)
        other.fed = dict(self.fed)
        other.told, other.finish = self.told, self.finish
        return other

    def varies(self, slot: int) -> bool:
        """Whether a slot has a value that is not known beforehand."""
        return self.host[slot] is None and (self.device[slot] is not None or slot in self.fed)

    def on_device(self, slot: int) -> Any:
        """A value on the device."""
        value = self.device[slot]
        if value is None:
            given = self.fed.get(slot)
            value = self.device[slot] = self.upload(self.host[slot]) if given is None else given.to(self.place)
        return value

    def on_host(self, slot: int, step: Step) -> Any:
        """A value whose numbers are needed; `step` waits for them where they are not known."""
        if self.host[slot] is not None:
            return self.host[slot]
        self.waits.add(step)  # also where another one has waited for them before: what was captured must not have them
        return self.fed[slot] if slot in self.fed else self._copied(slot)

    def _copied(self, slot: int) -> Any:
        """A value of the device, on the CPU."""
        value = self.device[slot]
        source, copy = self.read.get(slot, (None, None))
        if source is not value:
            if self.finish is not None:
                self.finish()
            copy = _download(value)
            self.read[slot] = value, copy
        return copy

    def anywhere(self, slot: int) -> Any:
        """A value, wherever it is."""
        for values in (self.device, self.host):
            if values[slot] is not None:
                return values[slot]
        return self.fed[slot]

    def is_there(self, value: Any) -> bool:
        """Whether the device has a value: not so where it was computed from numbers on the CPU alone."""
        return all(each.device.type == self.place.type for each in _tensors([value]))

    def upload(self, value: Any) -> Any:
        """A value of the CPU, on the device."""
        if isinstance(value, list):
            return [self.upload(each) for each in value]
        if not isinstance(value, torch.Tensor):
            return value  # text, or nothing
        return self.noted(lambda: value.to(self.place))

    def noted(self, compute: Callable[[], Any]) -> Any:
        """What follows from the sizes alone: computed, or as it was in an earlier run."""
        if self.reads is not None:
            return next(self.reads)
        found = compute()
        if self.notes is not None:
            self.notes.append(found)
        return found

    def run(self, steps: Iterable[Step]) -> None:
        """Run steps, in order."""
        for step in steps:
            doubts.at(str(step))
            step.run(self)

    def run_noted(self, steps: Iterable[Step]) -> None:
        """Run steps, and note what they find wrong."""
        with doubts.noted() as found:
            self.run(steps)
            flags = found.joined()
        if flags is not None:
            self.wrong.append((flags, found.texts))

    def move(self, source: int, target: int) -> None:
        """Let another slot have a value, too."""
        self.device[target], self.host[target] = self.device[source], self.host[source]
        self.fed.pop(target, None)
        if source in self.fed:
            self.fed[target] = self.fed[source]

    def put(self, slot: int, value: Any, *, is_known: bool = False) -> None:
        """Put a value into a slot."""
        is_there = not is_known and self.is_there(value)
        is_fed = not is_known and not is_there and isinstance(value, torch.Tensor)
        self.device[slot] = value if is_there else None
        self.host[slot] = None if is_there or is_fed else value
        self.fed.pop(slot, None)
        if is_fed:
            self.fed[slot] = value

    def free(self, slot: int) -> None:
        """Forget a value."""
        self.device[slot] = self.host[slot] = None
        self.fed.pop(slot, None)
        self.read.pop(slot, None)


def uses_of(step: Step) -> Iterable[int]:
    """The slots that a step and its blocks read."""
    yield from (slot for slot in step.inputs if slot != NONE)
    for block in step.blocks.values():
        yield from block.outputs
        for inner in block.steps:
            yield from uses_of(inner)


def _download(value: Any) -> Any:
    if isinstance(value, list):
        return [_download(each) for each in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value

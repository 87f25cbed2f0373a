"""Memory: what in-place ops write and views show.

Every tensor of a network lies in some memory. Names, tuples and arguments that share it hold the same object, so a
write through one of them is seen through all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from litehouse.formats.tape import RefusedError, Tape

Show = Callable[[ir.Value], Any]
UNSURE = "the result of an if or a loop is, or is not, the memory of another tensor, as the run decides"
UNORDERED = "a view is read, and its memory is written through another name, in an order that the file does not state"


@dataclass(slots=True)
class Changes:
    """What happened to memory in a scope.

    Attributes:
        states: The memory that changed in any way, with its state before.
        written: The memory that was written, in order.
        lost: The memory whose content is not known any more.
    """

    states: dict[Memory, tuple[Any, ...]] = field(default_factory=dict)
    written: dict[Memory, None] = field(default_factory=dict)
    lost: dict[Memory, None] = field(default_factory=dict)


class Heap:
    """All memory of one translation. It can undo: what a branch wrote must not be seen by the other branch.

    Attributes:
        depth: How many scopes are open.
        writes: How often memory was written.
    """

    def __init__(self) -> None:
        """Start outside of every branch."""
        self.depth = 0
        self.writes = 0
        self._scopes = [Changes()]

    @contextmanager
    def scope(self) -> Iterator[Changes]:
        """Open a scope: at its end all memory is as before."""
        changes = Changes()
        self._scopes.append(changes)
        self.depth += 1
        try:
            yield changes
        finally:
            self.depth -= 1
            self._scopes.pop()
            for memory, state in changes.states.items():
                memory.restore(state)

    def before_change(self, memory: Memory, *, writes: bool = False, loses: bool = False) -> None:
        """Keep the state of a memory that is about to change."""
        changes = self._scopes[-1]
        changes.states.setdefault(memory, memory.state())
        if writes:
            self.writes += 1
            changes.written[memory] = None
            changes.lost.pop(memory, None)
        if loses:
            changes.lost[memory] = None


class Memory:
    """A tensor's memory.

    Attributes:
        heap: The memory that it is part of.
        lasting: Whether a write outlives the call: the memory of a weight.
        depth: In how many scopes it was made.
        is_lost: Whether the content is not known any more.
        stamp: Another object after every change.
    """

    def __init__(self, heap: Heap, value: ir.Value, lasting: bool = False) -> None:
        """Start with a content."""
        self.heap = heap
        self.lasting = lasting
        self.depth = heap.depth
        self._value = value
        self.is_lost = False
        self.stamp = object()
        self._reads: list[tuple[Memory, ir.Value]] = []

    def read(self) -> ir.Value:
        """The content now."""
        if self.is_lost:
            raise RefusedError(f"{UNSURE}; the former is written, then the latter is read")
        return self._value

    def write(self, value: ir.Value) -> None:
        """Replace the content."""
        self.heap.before_change(self, writes=True)
        self.stamp = object()
        self.is_lost = False
        self._value = value

    def lose(self) -> None:
        """Forget the content: it was written, or was not, as the run decides."""
        if self.lasting:
            raise RefusedError(f"{UNSURE}, which is a weight; the former is written")
        self.heap.before_change(self, loses=True)
        self.stamp = object()
        self.is_lost = True

    def roots(self) -> list[Memory]:
        """The memory, itself in no other memory, that this may lie in."""
        return [self]

    def state(self) -> tuple[Any, ...]:
        """What `restore` takes."""
        return (self._value, self.is_lost, self.stamp, list(self._reads))

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back to an earlier state."""
        self._value, self.is_lost, self.stamp, self._reads = state

    def note_read(self, view: Memory, result: ir.Value) -> None:
        """Note what an op computed from a view of this memory."""
        self._reads.append((view, result))

    def check_order(self, view: Memory, value: ir.Value) -> None:
        """Refuse a write through one name when an earlier op read through another, unless the write needs its result.

        A file orders reads and writes of one name. Those of two names for one memory it leaves to chance: MindSpore
        then lets the op see the memory before or after the write.
        """
        if not _feed({result for other, result in self._reads if other is not view}, value):
            raise RefusedError(UNORDERED)
        self._reads.clear()


class View(Memory):
    """Memory that lies inside other memory, as an op shows it."""

    def __init__(self, tape: Tape, base: Memory | Loaded, show: Show, value: ir.Value, overlaps: bool) -> None:
        """Start with what the op shows now.

        Args:
            tape: Where the nodes are written.
            base: The memory that the view lies in, now or as it was loaded.
            show: The op: the view's content from the base's.
            value: What it shows now.
            overlaps: Whether several places of the view may lie on one place of the base.
        """
        self._base = base.memory if isinstance(base, Loaded) else base
        super().__init__(self._base.heap, value)
        self._tape = tape
        self._show = show
        self._overlaps = overlaps
        self._seen: ir.Value = content(base)

    def read(self) -> ir.Value:
        """The content now; shown anew where the base was written since."""
        if self._seen is not self._base.read():
            self.heap.before_change(self)
            self._seen = self._base.read()
            self._value = self._show(self._seen)
        return self._value

    def write(self, value: ir.Value) -> None:
        """Replace the content, in the base as well."""
        if self._overlaps:
            raise RefusedError("an in-place write through a broadcast view is not supported; write to its base")
        self.heap.before_change(self)
        self._base.write(replaced(self._tape, self._base.read(), self._show, value))
        self._seen, self._value = self._base.read(), value

    def roots(self) -> list[Memory]:
        """Those of the base."""
        return self._base.roots()

    def state(self) -> tuple[Any, ...]:
        """What `restore` takes."""
        return (self._value, self._seen)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back to an earlier state."""
        self._value, self._seen = state

    def note_read(self, view: Memory, result: ir.Value) -> None:
        """Note it where the memory is."""
        self._base.note_read(view, result)

    def check_order(self, view: Memory, value: ir.Value) -> None:
        """Check it where the memory is."""
        self._base.check_order(view, value)


class Passed(Memory):
    """What a branch or loop gave back: a copy, or other memory itself, as the run decides."""

    def __init__(self, heap: Heap, value: ir.Value, bases: list[Memory]) -> None:
        """Start with a content.

        Args:
            heap: The memory that it is part of.
            value: The content.
            bases: The memory, itself in no other memory, that this may be.
        """
        super().__init__(heap, value)
        self._bases = [(base, base.stamp) for base in bases]

    def read(self) -> ir.Value:
        """The content, as long as no memory that this may be was written."""
        if any(base.stamp is not seen for base, seen in self._bases):
            raise RefusedError(f"{UNSURE}; the latter is written, then the former is read")
        return super().read()

    def write(self, value: ir.Value) -> None:
        """Replace the content. What other memory holds, which this may be, is not known from here on."""
        for base, _ in self._bases:
            base.lose()
        self._bases = []
        super().write(value)

    def roots(self) -> list[Memory]:
        """All that this may lie in."""
        return [self, *(base for base, _ in self._bases)]

    def state(self) -> tuple[Any, ...]:
        """What `restore` takes."""
        return (super().state(), self._bases)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back to an earlier state."""
        super().restore(state[0])
        self._bases = state[1]


def replaced(t: Tape, base: ir.Value, show: Show, value: ir.Value) -> ir.Value:
    """The base with the part that an op shows of it replaced. Where that part lies, the op itself tells."""
    int64, flat = ir.DataType.INT64, t.ints(-1)
    sizes = t.op("Shape", [base], dtype=int64)
    count = t.op("Size", [base], dtype=int64, shape=[])
    positions = t.op("Range", [t.constant(0, int64), count, t.constant(1, int64)], dtype=int64)
    places = show(t.op("Reshape", [positions, sizes], like=base, dtype=int64))
    places.dtype = int64
    whole, where, part = (t.op("Reshape", [item, flat]) for item in (base, places, value))
    result: ir.Value = t.op("Reshape", [t.op("ScatterElements", [whole, where, part], axis=0), sizes], like=base)
    return result


@dataclass(frozen=True, slots=True)
class Loaded:
    """Memory as read at one point of the order of side effects: ops that take it compute with the content of then."""

    memory: Memory
    content: ir.Value


def views(heap: Heap, tape: Tape, target: Any, show: Show, result: Any, overlaps: bool) -> Any:
    """The result of a view op, of one tensor or several, in the memory of its operand."""
    if not isinstance(target, Memory | Loaded):
        return remembered(heap, result)
    if not isinstance(result, tuple):
        return View(tape, target, show, result, overlaps)
    return tuple(View(tape, target, _item(show, index), item, overlaps) for index, item in enumerate(result))


def _item(show: Show, index: int) -> Show:
    return lambda base: show(base)[index]


def written(target: Any, result: ir.Value) -> Memory:
    """The memory of an in-place op's operand, the result stored into it."""
    if not isinstance(target, Memory):
        raise RefusedError("an in-place write to a value that is not a tensor's memory is not supported")
    target.check_order(target, result)
    target.write(result)
    return target


def note_reads(operands: Any, result: Any) -> None:
    """Note what was computed from views, so that a write out of order can be refused."""
    for operand in operands:
        memory = operand.memory if isinstance(operand, Loaded) else operand
        if isinstance(memory, View):
            if isinstance(operand, Loaded) and operand.content is not memory.read():
                raise RefusedError(UNORDERED)
            for value in result if isinstance(result, tuple) else (result,):
                if isinstance(value, ir.Value):
                    memory.note_read(memory, value)
        elif isinstance(memory, tuple):
            note_reads(memory, result)


def _feed(sources: set[ir.Value], value: ir.Value) -> bool:
    """Whether a value is computed from all of the others. The nearest are looked at first."""
    waiting, seen = deque([value]), {value}
    while sources and waiting:
        item = waiting.popleft()
        sources.discard(item)
        node = item.producer()
        found = [source for source in node.inputs if source is not None and source not in seen] if node else []
        waiting.extend(found)
        seen.update(found)
    return not sources


def remembered(heap: Heap, value: Any) -> Any:
    """A result, each tensor of it put into memory of its own."""
    if isinstance(value, ir.Value):
        return Memory(heap, value)
    return tuple(remembered(heap, item) for item in value) if isinstance(value, tuple | list) else value


class Function:
    """A value that ops cannot compute with: a function, or a call that is still to be made.

    Attributes:
        refusal: What to say where an op takes it.
    """

    refusal = ""


class Absent:
    """An item of a result that no converter computes, as the statistics that only training needs."""


ABSENT = Absent()


def content(value: Any) -> Any:
    """What ops compute with: memory's content, as of the moment where it was loaded."""
    if value is ABSENT:
        raise RefusedError("the network uses an item of a result that is only computed for training")
    if isinstance(value, Loaded):
        return value.content
    if isinstance(value, Memory):
        return value.read()
    if isinstance(value, Function):
        raise RefusedError(value.refusal)
    return tuple(content(item) for item in value) if isinstance(value, tuple | list) else value


def last_content(value: Any) -> Any:
    """What leaves the network: memory itself, also where it was loaded before, so its last content."""
    if isinstance(value, Loaded):
        return value.memory.read()
    if isinstance(value, tuple | list):
        return tuple(last_content(item) for item in value)
    return content(value)

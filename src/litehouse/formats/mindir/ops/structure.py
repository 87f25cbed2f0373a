"""Ops that arrange values and order side effects; no tensor is computed."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.literals import MONAD, TensorType
from litehouse.formats.mindir.memory import Loaded, Memory, content, remembered
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import MAX_COUNT

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
UNKNOWN_RANK = -2


@op("Load", structural=True)
def load(t: MindirTape, value: Any, *_: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(load(t, item) for item in value)
    memory = value.memory if isinstance(value, Loaded) else value
    return Loaded(memory, memory.read()) if isinstance(memory, Memory) else value


@op("TensorMove", "Clone", "Copy", structural=True)
def copy(t: MindirTape, value: Any, *_: Any) -> Any:
    """New memory with the content of this moment."""
    return remembered(t.heap, content(value))


@op("StopGradient", "Identity", "Contiguous", "Detach", structural=True)
def identity(t: MindirTape, value: Any, *_: Any) -> Any:
    """The same memory: seen in MindSpore when the operand, or the result, is written later."""
    return value


@op("Depend", structural=True)
def depend(t: MindirTape, value: Any, *_: Any) -> Any:
    return value


@op("UpdateState", "ControlDepend", structural=True)
def update_state(t: MindirTape, *_: Any) -> Any:
    return MONAD


@op("MakeTuple", "make_tuple", "RealMakeTuple", "MakeList", "make_list", "RealMakeList", structural=True)
def make_tuple(t: MindirTape, *items: Any) -> Any:
    t.bounded(_leaf_count(items))
    return items


def _leaf_count(items: Any) -> int:
    """How many items a nest of tuples has, counted no further than a bound: pairs of pairs of one tuple grow fast."""
    count, rest = 0, [items]
    while rest and count <= MAX_COUNT:
        for item in rest.pop():
            count += 1
            if isinstance(item, tuple):
                rest.append(item)
    return count


@op("TupleGetItem", "tuple_getitem", "RealTupleGetItem", "list_getitem", "RealListGetItem", structural=True)
def tuple_get_item(t: MindirTape, items: Any, index: Any) -> Any:
    if not isinstance(items, tuple):
        t.refuse("an item of a value that is no tuple")
    return items[t.literal(content(index))]


@op("Shape")
def shape(t: MindirTape, input: ir.Value) -> Any:
    """The sizes as a tuple: ints where the file fixes them, run-time scalars where not; a tensor in converted files."""
    if isinstance(t.expected, TensorType):
        return t.cast(t.op("Shape", [input], dtype=INT64), t.result_dtype())
    known = t.known_sizes(input)
    if None not in known:
        return known
    sizes = t.op("Shape", [input], dtype=INT64, shape=[len(known)])
    return tuple(size if size is not None else _entry(t, sizes, axis) for axis, size in enumerate(known))


def _entry(t: MindirTape, vector: ir.Value, place: int) -> ir.Value:
    entry: ir.Value = t.op("Gather", [vector, t.constant(place, INT64)], dtype=vector.dtype, shape=[])
    return entry


@op("TensorShape", "DynamicShape")
def tensor_shape(t: MindirTape, input_x: ir.Value) -> Any:
    return t.op("Shape", [input_x])


@op("Size")
def size(t: MindirTape, input_x: ir.Value) -> Any:
    count = t.op("Size", [input_x], dtype=INT64, shape=[])
    return t.cast(count, t.result_dtype()) if isinstance(t.expected, TensorType) else count


@op("Rank")
def rank(t: MindirTape, input_x: ir.Value) -> Any:
    """A number; a tensor in converted files."""
    return t.constant(t.rank(input_x), t.result_dtype()) if isinstance(t.expected, TensorType) else t.rank(input_x)


@op("TensorToTuple", "TensorToList")
def tensor_to_tuple(t: MindirTape, input_tensor: ir.Value) -> Any:
    if t.is_literal(input_tensor):
        return t.literal(input_tensor)
    if not isinstance(t.expected, tuple):
        t.refuse("a tuple whose length is only known when the model runs")
    return tuple(_entry(t, input_tensor, place) for place in range(len(t.expected)))


@op("TensorToScalar")
def tensor_to_scalar(t: MindirTape, input_tensor: ir.Value) -> Any:
    return t.op("Reshape", [input_tensor, t.constant(np.zeros(0, np.int64))])


# Questions about Python values, which stay in files of dynamic shapes -------------------------------------------------


@op("InSequence")
def in_sequence(t: MindirTape, target: Any, sequence: Any) -> Any:
    """Whether a number is in a tuple. Library code asks for -2, an unknown rank's mark, among run-time sizes."""
    if t.is_literal(target) and t.is_literal(sequence):
        return t.literal(target) in t.literal(sequence)
    if isinstance(target, int) and target == UNKNOWN_RANK:
        return target in [item for item in sequence if not isinstance(item, ir.Value)]
    found = [t.op("Equal", t.operands(target, item), dtype=BOOL) for item in sequence]
    return _any(t, found)


@op("not_in", "NotInSequence")
def not_in(t: MindirTape, target: Any, sequence: Any) -> Any:
    inside = in_sequence(t, target, sequence)
    return not inside if isinstance(inside, bool) else t.op("Not", [inside], dtype=BOOL)


def _any(t: MindirTape, conditions: list[ir.Value]) -> Any:
    if not conditions:
        return False
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = t.op("Or", [whole, condition], dtype=BOOL)
    return whole


@op("tuple_equal", "list_equal")
def tuple_equal(t: MindirTape, first: Any, second: Any) -> Any:
    if len(first) != len(second):
        return False
    if t.is_literal(first) and t.is_literal(second):
        return t.literal(first) == t.literal(second)
    different = [
        t.op("Not", [t.op("Equal", t.operands(a, b), dtype=BOOL)], dtype=BOOL)
        for a, b in zip(first, second, strict=True)
    ]
    return t.op("Not", [_any(t, different)], dtype=BOOL)


@op("is_")
def is_(t: MindirTape, first: Any, second: Any) -> Any:
    """Whether two values are the same None or truth value; other values have no identity in a file."""
    for value, other in ((first, second), (second, first)):
        if value is None:
            return other is None
        if isinstance(value, bool):
            if isinstance(other, ir.Value) and other.dtype == BOOL:
                return other if value else t.op("Not", [other], dtype=BOOL)
            return other is value
    t.refuse("the identity of values other than None, True and False")


@op("is_not")
def is_not(t: MindirTape, first: Any, second: Any) -> Any:
    same = is_(t, first, second)
    return not same if isinstance(same, bool) else t.op("Not", [same], dtype=BOOL)


# Tuples of sizes ------------------------------------------------------------------------------------------------------


@op("SequenceAdd", "tuple_add", structural=True)
def sequence_add(t: MindirTape, first: Any, second: Any) -> Any:
    return make_tuple(t, *first, *second)


@op("SequenceMul", structural=True)
def sequence_mul(t: MindirTape, sequence: Any, times: Any) -> Any:
    count = t.literal(content(times))
    t.bounded(len(sequence) * count)
    return make_tuple(t, *sequence * count)


@op("SequenceSlice", structural=True)
def sequence_slice(t: MindirTape, sequence: Any, start: Any, stop: Any, step: Any) -> Any:
    return tuple(sequence)[t.literal(content(start)) : t.literal(content(stop)) : t.literal(content(step))]


@op("sequence_len", structural=True)
def sequence_len(t: MindirTape, sequence: Any) -> Any:
    return len(sequence)

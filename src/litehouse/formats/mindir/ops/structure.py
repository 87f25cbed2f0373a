"""Ops that arrange values and order side effects; no tensor is computed."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import MONAD
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape


@op(
    "Load",
    "StopGradient",
    "Identity",
    "TensorMove",
    "Clone",
    "Copy",
    "Contiguous",
    "Detach",
    "OnesLikeRef",
    structural=True,
)
def identity(t: MindirTape, value: Any, *_: Any) -> Any:
    return value


@op("Depend", structural=True)
def depend(t: MindirTape, value: Any, *_: Any) -> Any:
    return value


@op("UpdateState", structural=True)
def update_state(t: MindirTape, *_: Any) -> Any:
    return MONAD


@op("MakeTuple", "make_tuple", "MakeList", "make_list", structural=True)
def make_tuple(t: MindirTape, *items: Any) -> Any:
    return items


@op("TupleGetItem", "tuple_getitem", "list_getitem", structural=True)
def tuple_get_item(t: MindirTape, items: Any, index: Any) -> Any:
    if not isinstance(items, tuple):
        t.refuse("an item of a value that is no tuple")
    return items[t.literal(index)]


@op("Shape", "TensorShape", "DynamicShape")
def shape(t: MindirTape, input: ir.Value) -> Any:
    """The sizes as a tuple: ints where the file fixes them, run-time scalars where not."""
    known = t.known_sizes(input)
    if None not in known:
        return known
    sizes = t.op("Shape", [input], dtype=ir.DataType.INT64, shape=[len(known)])
    return tuple(
        size
        if size is not None
        else t.op("Gather", [sizes, t.constant(axis, ir.DataType.INT64)], dtype=ir.DataType.INT64, shape=[])
        for axis, size in enumerate(known)
    )

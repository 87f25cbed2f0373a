"""Padding, and the exchange of blocks between space and batch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import cast_around, int64_op, length, onnx_pads, positions, size_along
from litehouse.formats.mindir.ops.layout import as_format, channels_first
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
LACKS_PAD = {ir.DataType.INT16: ir.DataType.INT32, ir.DataType.UINT16: ir.DataType.INT32}


def pad_with(t: MindirTape, x: ir.Value, pairs: Sequence[Any], mode: str, value: Any = 0) -> ir.Value:
    """The value padded by (begin, end), ints or run-time scalars, for each of its axes. A negative int takes away."""
    if mode in ("circular", "symmetric"):
        for axis in range(t.rank(x)):
            x = _gather_pad(t, x, axis, pairs[2 * axis], pairs[2 * axis + 1], mode)
        return x
    if mode not in ("constant", "reflect", "edge"):
        t.refuse(f"padding mode {mode!r}")
    if mode != "constant" and any(isinstance(size, int) and size < 0 for size in pairs):
        t.refuse(f"negative padding of mode {mode!r}")
    fill = t.tensor(value, t.dtype(x)) if mode == "constant" else None
    return cast_around(t, LACKS_PAD, "Pad", x, t.ints(onnx_pads(pairs)), fill, mode=mode)


def _gather_pad(t: MindirTape, x: ir.Value, axis: int, begin: Any, end: Any, mode: str) -> ir.Value:
    """One axis padded with copies of itself, end to end or mirrored: neither is an ONNX mode that all engines have."""
    if isinstance(begin, int) and isinstance(end, int) and begin == end == 0:
        return x
    size = size_along(t, x, axis)
    whole = int64_op(t, "Add", int64_op(t, "Add", size, begin), end)
    places = int64_op(t, "Sub", positions(t, whole), begin)
    if mode == "circular":
        source = int64_op(t, "Mod", places, size)
    else:
        period = int64_op(t, "Mul", size, 2)
        forth = int64_op(t, "Mod", places, period)
        back = int64_op(t, "Sub", int64_op(t, "Sub", period, 1), forth)
        source = int64_op(t, "Min", forth, back)
    padded: ir.Value = t.op("Gather", [x, source], axis=axis, dtype=x.dtype, shape=[None] * t.rank(x))
    return padded


def pad_sizes(t: MindirTape, paddings: Any, count: int | None = None) -> tuple[Any, ...]:
    """The numbers of a padding operand one by one: ints, or run-time scalars."""
    if t.is_literal(paddings):
        return tuple(int(size) for size in np.ravel(t.literal(paddings)))
    if isinstance(paddings, tuple):
        return paddings
    flat = t.ints(paddings)
    places = range(length(t, paddings) if count is None else count)
    return tuple(t.op("Gather", [flat, t.constant(place, INT64)], dtype=INT64, shape=[]) for place in places)


def last_axis_first(t: MindirTape, x: ir.Value, padding: Sequence[Any]) -> tuple[Any, ...]:
    """The pairs of all axes, from pairs for some of the last ones that begin with the very last."""
    if len(padding) % 2 or len(padding) > 2 * t.rank(x):
        t.refuse(f"{len(padding)} padding sizes for a value of rank {t.rank(x)}")
    pairs = [padding[index : index + 2] for index in range(0, len(padding), 2)]
    return (*(0,) * (2 * t.rank(x) - len(padding)), *(size for pair in reversed(pairs) for size in pair))


@op("Pad")
def pad(t: MindirTape, input_x: ir.Value, paddings: Any) -> Any:
    return pad_with(t, input_x, pad_sizes(t, paddings), "constant")


@op("PadV3")
def pad_v3(
    t: MindirTape,
    x: ir.Value,
    paddings: Any,
    constant_value: Any = None,
    *,
    mode: Any = "constant",
    paddings_contiguous: Any = True,
) -> Any:
    sizes = pad_sizes(t, paddings)
    if not t.literal(paddings_contiguous):
        half = len(sizes) // 2
        sizes = tuple(size for pair in zip(sizes[:half], sizes[half:], strict=True) for size in pair)
    value = 0 if constant_value is None else constant_value
    return pad_with(t, x, last_axis_first(t, x, sizes), t.literal(mode), value)


@op("ConstantPadND")
def constant_pad(t: MindirTape, input: ir.Value, padding: Any, value: Any = 0) -> Any:
    return pad_v3(t, input, padding, value)


@op("ReflectionPad1D", "ReflectionPad2D", "ReflectionPad3D")
def reflection_pad(t: MindirTape, input: ir.Value, padding: Any) -> Any:
    return pad_with(t, input, last_axis_first(t, input, pad_sizes(t, padding)), "reflect")


@op("ReplicationPad1D", "ReplicationPad2D", "ReplicationPad3D")
def replication_pad(t: MindirTape, input: ir.Value, padding: Any) -> Any:
    return pad_with(t, input, last_axis_first(t, input, pad_sizes(t, padding)), "edge")


@op("MirrorPad")
def mirror_pad(t: MindirTape, input_x: ir.Value, paddings: Any, *, mode: Any = "REFLECT") -> Any:
    return pad_with(t, input_x, pad_sizes(t, paddings, 2 * t.rank(input_x)), t.literal(mode).lower())


# Space and batch ------------------------------------------------------------------------------------------------------


@op("SpaceToBatchND")
def space_to_batch(t: MindirTape, input_x: ir.Value, block_shape: Any, paddings: Any, *, format: Any = 0) -> Any:
    x = channels_first(t, input_x, format)
    blocks, pairs = np.ravel(t.literal(block_shape)).tolist(), np.ravel(t.literal(paddings)).tolist()
    lead = t.rank(x) - len(blocks)
    padded = pad_with(t, x, [*(0,) * (2 * lead), *pairs], "constant")
    sizes = [size_along(t, padded, axis) for axis in range(t.rank(x))]
    # Each space axis becomes (places, block); the block axes move in front of the batch and melt into it.
    counts = [int64_op(t, "Div", size, block) for size, block in zip(sizes[lead:], blocks, strict=True)]
    split = [part for pair in zip(counts, blocks, strict=True) for part in pair]
    inner = [lead + 2 * index for index in range(len(blocks))]
    moved = t.op(
        "Transpose",
        [t.op("Reshape", [padded, t.ints((*sizes[:lead], *split))])],
        perm=[*(axis + 1 for axis in inner), *range(lead), *inner],
    )
    whole = t.ints((-1, *sizes[1:lead], *counts))
    return as_format(t, t.op("Reshape", [moved, whole], dtype=x.dtype, shape=[None] * t.rank(x)), format)


@op("SpaceToBatch")
def space_to_batch_square(t: MindirTape, x: ir.Value, block_size: Any, paddings: Any, *, format: Any = 0) -> Any:
    return space_to_batch(t, x, _two(t, block_size), paddings, format=format)


@op("BatchToSpace")
def batch_to_space_square(t: MindirTape, x: ir.Value, block_size: Any, crops: Any, *, format: Any = 0) -> Any:
    return batch_to_space(t, x, _two(t, block_size), crops, format=format)


def _two(t: MindirTape, block_size: Any) -> tuple[int, ...]:
    """MindSpore states one size for both axes, its Lite converter one for each."""
    sizes = tuple(np.ravel(t.literal(block_size)).tolist())
    return sizes * 2 if len(sizes) == 1 else sizes


@op("BatchToSpaceND")
def batch_to_space(t: MindirTape, input_x: ir.Value, block_shape: Any, crops: Any, *, format: Any = 0) -> Any:
    x = channels_first(t, input_x, format)
    blocks = np.ravel(t.literal(block_shape)).tolist()
    lead, count = t.rank(x) - len(blocks), len(blocks)
    sizes = [size_along(t, x, axis) for axis in range(t.rank(x))]
    batch = int64_op(t, "Div", sizes[0], math.prod(blocks))
    outer = [count + lead + index for index in range(count)]
    moved = t.op(
        "Transpose",
        [t.op("Reshape", [x, t.ints((*blocks, batch, *sizes[1:]))])],
        perm=[
            *range(count, count + lead),
            *(axis for pair in zip(outer, range(count), strict=True) for axis in pair),
        ],
    )
    inner = [int64_op(t, "Mul", size, block) for size, block in zip(sizes[lead:], blocks, strict=True)]
    whole = t.ints((batch, *sizes[1:lead], *inner))
    joined = t.op("Reshape", [moved, whole], dtype=x.dtype, shape=[None] * t.rank(x))
    cropped = [-size for size in np.ravel(t.literal(crops)).tolist()]
    return as_format(t, pad_with(t, joined, [*(0,) * (2 * lead), *cropped], "constant"), format)


@op("Padding")
def padding_to(t: MindirTape, x: ir.Value, *, pad_dim_size: Any = 8) -> Any:
    """The last axis, of size 1, grown with zeros."""
    return pad_with(t, x, [*(0,) * (2 * t.rank(x) - 1), t.literal(pad_dim_size) - 1], "constant")

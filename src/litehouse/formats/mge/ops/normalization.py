"""Normalisation, and dropout. Statistics are float32, as MegEngine has them; nobody computes those that nobody uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def moments(t: MgeTape, x: ir.Value, axes: Sequence[int]) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The operand less its mean over axes, the mean, and the variance, in float32; the axes stay, of size one."""
    x, over = t.cast(x, FLOAT), t.ints(tuple(axes))
    mean = t.op("ReduceMean", [x, over])
    centred = t.op("Sub", [x, mean])
    return centred, mean, t.op("ReduceMean", [t.op("Mul", [centred, centred]), over])


def deviation(t: MgeTape, variance: ir.Value, epsilon: float) -> ir.Value:
    """The square root of the variance, which epsilon keeps off zero."""
    root: ir.Value = t.op("Sqrt", [t.op("Add", [variance, t.constant(epsilon, FLOAT)])])
    return root


def reshaped(t: MgeTape, x: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """The operand in another shape; no node where it has it already."""
    if t.shape(x) == tuple(sizes):
        return x
    made: ir.Value = t.op("Reshape", [x, t.ints(tuple(sizes))], dtype=x.dtype)
    return made


def filled(t: MgeTape, number: float, size: int) -> ir.Value:
    """One number, as often as there are channels."""
    made: ir.Value = t.op("Expand", [t.constant(number, FLOAT), t.ints(size)], dtype=FLOAT)
    return made


def affine_operands(t: MgeTape, affine: bool, weight: ir.Value | None, bias: ir.Value | None) -> list[ir.Value]:
    """Scale and bias; none where the numbers are only normalised."""
    if affine and (weight is None or bias is None):
        t.refuse("it is affine, but has no weight and bias")
    return [value for value in (weight, bias) if affine and value is not None]


def scaled(t: MgeTape, y: ir.Value, affine: Sequence[ir.Value], sizes: Sequence[int], dtype: ir.DataType) -> ir.Value:
    """Times the weight, plus the bias, both in that shape; then in that dtype."""
    for op_type, value in zip(("Mul", "Add"), affine, strict=False):
        y = t.op(op_type, [y, t.cast(reshaped(t, value, sizes), FLOAT)])
    return t.cast(y, dtype)


# Over the batch -------------------------------------------------------------------------------------------------------


@op("BatchNorm")
def batch_norm(
    t: MgeTape,
    x: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    mean: ir.Value | None = None,
    variance: ir.Value | None = None,
    *,
    param_dim: str,
    fwd_mode: str,
    epsilon: float,
) -> Any:
    """By the stored statistics, or by those of the batch at hand.

    The results are the statistics of the batch, working memory, and the numbers. In inference MegEngine leaves those
    statistics unset. In training the updated stored statistics come first: state, which is not kept here.
    """
    axes = [axis for axis, size in enumerate(t.sizes(scale)) if size == 1]
    if t.rank(x) != 4 or t.rank(scale) != 4:
        t.refuse(f"operands of rank {t.rank(x)} and {t.rank(scale)}, where MegEngine has 4")
    scale, bias = t.cast(scale, FLOAT), t.cast(bias, FLOAT)
    if fwd_mode == "TRAINING":
        centred, batch_mean, batch_variance = moments(t, x, axes)
        root = deviation(t, batch_variance, epsilon)
        y = t.op("Add", [t.op("Mul", [t.op("Div", [centred, root]), scale]), bias])
        stored = () if mean is None else (None, None)
        return (*stored, batch_mean, t.op("Reciprocal", [root]), None, t.cast(y, t.dtype(x)))
    if mean is None or variance is None:
        t.refuse("it has no mean and variance")
    operand, mean, variance = (t.cast(value, FLOAT) for value in (x, mean, variance))
    if param_dim == "DIM_1C11":
        flat = [t.op("Reshape", [value, t.ints(-1)]) for value in (scale, bias, mean, variance)]
        y = t.op("BatchNormalization", [operand, *flat], epsilon=epsilon)
    else:
        factor = t.op("Div", [scale, deviation(t, variance, epsilon)])
        y = t.op("Add", [t.op("Mul", [t.op("Sub", [operand, mean]), factor]), bias])
    return (None, None, None, t.cast(y, t.dtype(x)))


# Over neighbouring axes -----------------------------------------------------------------------------------------------


@op("LayerNorm")
def layer_norm(
    t: MgeTape,
    x: ir.Value,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    *,
    affine: bool,
    eps: float,
    normalized_dim: int,
    normalized_size: int,
) -> Any:
    """Over the last axes."""
    rank, sizes = t.rank(x), t.known_sizes(x)
    if not 0 < normalized_dim < rank:
        t.refuse(f"{normalized_dim} axes of an operand of rank {rank}")
    normalised = sizes[rank - normalized_dim :]
    if None not in normalised and math.prod(size or 0 for size in normalised) != normalized_size:
        t.refuse(f"axes of sizes {list(normalised)}, where the file says {normalized_size} numbers")
    return normalise(t, x, affine_operands(t, affine, weight, bias), eps, rank - normalized_dim, rank)


@op("GeneralNorm")
def general_norm(
    t: MgeTape,
    x: ir.Value,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    *,
    affine: bool,
    eps: float,
    axis_start: int,
    axis_end: int,
) -> Any:
    """Over the axes from the first to before the last."""
    rank = t.rank(x)
    if not 0 <= axis_start < axis_end <= rank:
        t.refuse(f"the axes from {axis_start} to {axis_end} of an operand of rank {rank}")
    return normalise(t, x, affine_operands(t, affine, weight, bias), eps, axis_start, axis_end)


def normalise(
    t: MgeTape, x: ir.Value, affine: Sequence[ir.Value], epsilon: float, start: int, end: int
) -> tuple[ir.Value, ...]:
    """The numbers, normalised over axes; then their means, and one through their deviations."""
    centred, mean, variance = moments(t, x, range(start, end))
    root = deviation(t, variance, epsilon)
    if end == t.rank(x):
        shape = t.op("Shape", [x], start=start)
        weights = affine or [t.op("Expand", [t.constant(1, x.dtype), shape])]
        y = t.op("LayerNormalization", [x, *weights], axis=start - end, epsilon=epsilon)
    else:
        sizes = (*t.sizes(affine[0]), *(1,) * (t.rank(x) - end)) if affine else ()
        y = scaled(t, t.op("Div", [centred, root]), affine, sizes, t.dtype(x))
    # Nothing that the graph has is of rank 0.
    axes = range(start, end) if end - start < t.rank(x) else range(1, end)
    inverse = t.op("Reciprocal", [root])
    return y, *(t.op("Squeeze", [value, t.ints(tuple(axes))]) for value in (mean, inverse))


# Over groups of channels ----------------------------------------------------------------------------------------------


@op("GroupNorm")
def group_norm(
    t: MgeTape,
    x: ir.Value,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    *,
    affine: bool,
    eps: float,
    group: int,
    format: str,
) -> Any:
    """Over groups of channels of each sample."""
    batch, channels, *_ = _planes(t, x, format)
    if group < 1 or channels % group:
        t.refuse(f"{group} groups of {channels} channels")
    weights = affine_operands(t, affine, weight, bias)
    if group == channels:
        y, mean, variance = by_plane(t, x, weights, eps)
    else:
        grouped = t.op("Reshape", [x, t.ints((batch, group, -1))])
        y, mean, variance = by_plane(t, grouped, [], eps)
        y = scaled(t, t.op("Reshape", [y, t.ints(t.sizes(x))]), weights, (1, channels, 1, 1), FLOAT)
    return t.cast(y, t.dtype(x)), mean, variance


@op("InstanceNorm")
def instance_norm(
    t: MgeTape,
    x: ir.Value,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    *,
    affine: bool,
    eps: float,
    format: str,
) -> Any:
    """Over each plane of each sample."""
    _planes(t, x, format)
    y, mean, variance = by_plane(t, x, affine_operands(t, affine, weight, bias), eps)
    return t.cast(y, t.dtype(x)), mean, variance


def _planes(t: MgeTape, x: ir.Value, layout: str) -> tuple[int, ...]:
    if layout != "NCHW" or t.rank(x) != 4:
        t.refuse(f"an operand of rank {t.rank(x)} in format {layout}, where MegEngine has NCHW")
    return t.sizes(x)


def by_plane(
    t: MgeTape, x: ir.Value, affine: Sequence[ir.Value], epsilon: float
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The numbers in float32, normalised for each sample and channel; then their means, and their variances."""
    channels, axes = t.sizes(x)[1], tuple(range(2, t.rank(x)))
    scale, bias = [t.cast(value, FLOAT) for value in affine] or [filled(t, number, channels) for number in (1, 0)]
    y = t.op("InstanceNormalization", [t.cast(x, FLOAT), scale, bias], epsilon=epsilon)
    _, mean, variance = moments(t, x, axes)
    return y, t.op("Squeeze", [mean, t.ints(axes)]), t.op("Squeeze", [variance, t.ints(axes)])


@op("Dropout")
def dropout(t: MgeTape, x: ir.Value, *, drop_prob: float) -> Any:
    """The operand itself, where nothing is dropped; then what was kept, which only training wants."""
    if drop_prob:
        t.refuse(f"it drops numbers at random (probability {drop_prob}); save the network in inference mode")
    return (x, None)

"""Weights of 2 to 8 bits, several in a byte, which are made floats in blocks."""

from __future__ import annotations

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.ops.scales import spread
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

# What the 16 numbers of bitsandbytes' two formats are, as parts of the greatest of a block.
FP4 = [0.0, 0.0625 / 12, 8 / 12, 12 / 12, 4 / 12, 6 / 12, 2 / 12, 3 / 12]
FP4 += [-each for each in FP4]
NF4 = [
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]


def unpacked(x: Tensor, bits: int) -> Tensor:
    """The numbers in the bytes of the last axis, the lowest bits first."""
    if bits == 8:
        return x
    if bits not in (2, 4):
        raise LackingError(f"weights of {bits} bits")
    parts = [(x >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)


def _middle(bits: int) -> int:
    """The zero point of numbers that come without one."""
    return 1 << (bits - 1)


@op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero: Tensor | None = None,
    groups: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803  (ONNX Runtime's own name)
    N: int,  # noqa: N803
    accuracy_level: int = 0,  # noqa: ARG001  (the least that will do)
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Tensor:
    if weight_prepacked:
        raise LackingError("weights that are packed for one kind of GPU")
    blocks = -(-K // block_size)
    if groups is not None and (bits != 4 or (zero is not None and not zero.is_floating_point())):
        raise LackingError("groups of rows, with packed zero points or not of 4 bits")  # the kernel leaves these out
    scales = scales.reshape(N, blocks)
    points = None if zero is None else _points(zero, N, blocks, bits)
    small = unpacked(b, bits).reshape(N, blocks, -1)
    if groups is None:
        scales, points = scales.unsqueeze(-1), None if points is None else points.unsqueeze(-1)
    else:
        places = from_zero(groups[:K], blocks, counts_back=False)
        small = small.reshape(N, -1)[:, :K]
        scales, points = scales[:, places], None if points is None else points[:, places]
    less = small.to(a.dtype) - (_middle(bits) if points is None else points.to(a.dtype))
    weight = (less * scales.to(a.dtype)).reshape(N, -1)[:, :K]
    return functional.linear(a, weight, bias)


def _points(zero: Tensor, rows: int, blocks: int, bits: int) -> Tensor:
    """The zero point of each block: as it is, or several in a byte."""
    if zero.is_floating_point():
        return zero.reshape(rows, blocks)
    return unpacked(zero.reshape(rows, -1), bits)[:, :blocks]


@op("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(
    a: Tensor,
    b: Tensor,
    greatest: Tensor,
    *,
    K: int,  # noqa: N803
    N: int,  # noqa: N803
    block_size: int,
    quant_type: int,
    training_mode: int = 0,  # noqa: ARG001  (for gradients)
    transB: int = 1,  # noqa: N803
) -> Tensor:
    if not transB:
        raise LackingError("MatMulBnb4 with its weights not transposed")
    codes = torch.stack([b >> 4, b & 15], -1).flatten()[: N * K]
    table = [torch.full((), part, dtype=a.dtype, device=a.device) for part in (NF4 if quant_type else FP4)]
    parts = torch.stack(table).index_select(0, codes.int())
    weight = parts * greatest.to(a.dtype).repeat_interleave(block_size)[: N * K]
    return functional.linear(a, weight.reshape(N, K))


@op("GatherBlockQuantized", domain=MICROSOFT, small=["data", "zero"])
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    if data.dtype not in (torch.int8, torch.uint8):
        raise LackingError(f"GatherBlockQuantized of {data.dtype}")
    gathered, blocked, size = gather_axis % data.ndim, quantize_axis % data.ndim, data.shape[gather_axis]
    is_packed = data.dtype == torch.uint8  # what is of 4 bits by its type arrives as int8
    if is_packed and (blocked != data.ndim - 1 or gathered == blocked):
        raise LackingError("packed numbers in blocks along another axis than the last, or taken along it")
    places = from_zero(indices.reshape(-1), size)
    taken = data.index_select(gathered, places)
    rows = places if gathered != blocked else places.div(block_size, rounding_mode="floor")
    factors = scales.index_select(gathered, rows)
    points = None if zero is None else zero.index_select(gathered, rows)
    if is_packed:
        taken = unpacked(taken, bits)
        points = None if points is None else unpacked(points, bits)
    if gathered != blocked:
        factors = spread(factors, taken, blocked, block_size)
        points = None if points is None else spread(points, taken, blocked, block_size)
    less = taken.float() - ((_middle(bits) if is_packed else 0) if points is None else points.float())
    found = (less * factors.float()).to(scales.dtype)
    return found.reshape([*found.shape[:gathered], *indices.shape, *found.shape[gathered + 1 :]])

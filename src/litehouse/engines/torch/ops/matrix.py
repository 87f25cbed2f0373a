"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable

import torch

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import MICROSOFT, op
from litehouse.engines.torch.values import Tensor

BITS = 16  # of the parts of integers
SMALL, MEDIUM, MANY = 16, 128, 16  # rows of matrices that torch decomposes all at once, and so many at a time
LONGEST = 1 << 21  # so many products of two parts are a whole number that float64 holds


@op("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.is_cuda and not a.is_floating_point() and a.shape[-1] <= LONGEST:
        return product_by_parts(a, b)
    return a @ b


def product_by_parts(a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices of integers, which torch lacks on a GPU: that of their parts, in float64.

    What is beyond the dtype is lost, as in the sums of integers.
    """
    count = -(-8 * a.element_size() // BITS)
    left, right = ([(x.long() >> BITS * place & (1 << BITS) - 1).double() for place in range(count)] for x in (a, b))
    pairs = [(one, two) for one in range(count) for two in range(count - one)]
    sums = [(left[one] @ right[two]).long() << BITS * (one + two) for one, two in pairs]
    return torch.stack(sums).sum(0).to(a.dtype)


@op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's own name)
    transB: int = 0,  # noqa: N803
) -> Tensor:
    a, b = a.t() if transA else a, b.t() if transB else b
    if c is not None and a.is_floating_point() and c.ndim <= 2:
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    product = _times(matmul(a, b), alpha)
    return product if c is None else product + _times(c, beta)


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else (factor * x).to(x.dtype)


@op("Einsum")
def einsum(*values: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *values).to(values[0].dtype)  # sums of a diagonal are of 64 bits in torch


@op("Det")
def det(x: Tensor) -> Tensor:
    return in_parts(torch.linalg.det, x) if x.is_cuda else torch.linalg.det(x)


@op("Inverse", domain=MICROSOFT)
def inverse(x: Tensor) -> Tensor:
    found = in_parts(_inverse, wide(x)) if x.is_cuda else _inverse(wide(x))
    return found.to(x.dtype)


def _inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv_ex(x).inverse  # not `inv`, which waits to see whether there is one


def in_parts(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a function gives for matrices, so many at a time as torch computes on a GPU without waiting for it.

    It leaves more of them to MAGMA, which waits, so that what uses it cannot be captured.
    """
    if x.ndim == 2 or x.shape[-1] <= SMALL:
        return function(x)
    count = MANY if x.shape[-1] <= MEDIUM else 1
    found = torch.cat([function(part) for part in x.flatten(0, -3).split(count)])
    return found.reshape(*x.shape[:-2], *found.shape[1:])

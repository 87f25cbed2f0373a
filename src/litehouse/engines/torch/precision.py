"""What numbers are computed in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def exact(precision: str) -> Iterator[None]:
    """Compute products and convolutions of 32 bits in 32 bits, but for "tf32", which leaves out digits."""
    is_short = precision == "tf32"
    products = torch.backends.cuda.matmul.allow_tf32
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=True, benchmark_limit=10, deterministic=False, allow_tf32=is_short
    ):
        torch.backends.cuda.matmul.allow_tf32 = is_short
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = products

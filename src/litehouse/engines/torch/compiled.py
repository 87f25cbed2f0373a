"""Makes kernels for a function on tensors, with torch's own compiler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from litehouse.engines.torch.values import Tensor

Function = Callable[..., list[Tensor]]


class Kernels:
    """The kernels that were made for a program; all of its runners use them."""

    def __init__(self, *, is_last: bool) -> None:
        """Begin with none; `is_last` lets the compiler put the channels of images last."""
        self._is_last = is_last
        self._made: dict[Hashable, Function] = {}
        self._lock = threading.Lock()

    def find(self, key: Hashable, function: Function, examples: Sequence[Tensor]) -> Function:
        """The kernels for a key, which tells the function and the sizes; they are made where there are none."""
        with self._lock:
            if key not in self._made:
                self._made[key] = compiled(function, examples, is_last=self._is_last)
            return self._made[key]


def compiled(function: Function, examples: Sequence[Tensor], *, is_last: bool) -> Function:
    """The function, in kernels for tensors of exactly these sizes, strides and dtypes.

    Weights are given to it like all else, so that it keeps none: their memory can be written to and shared. It is not
    captured; that is the caller's part.
    """
    from torch._inductor import compile as make
    from torch.fx.experimental.proxy_tensor import make_fx

    graph: Any = make_fx(function)(*examples)
    # Left to itself, the compiler puts channels last wherever there are convolutions, which 32 bits do not gain from.
    settings = {"triton.cudagraphs": False, "layout_optimization": is_last}
    made: Function = make(graph, list(examples), options=settings)
    return made

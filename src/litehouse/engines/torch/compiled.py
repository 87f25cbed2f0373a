"""Makes kernels for a function on tensors, with torch's own compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litehouse.engines.torch.values import Tensor

Function = Callable[..., list[Tensor]]


def compiled(function: Function, examples: Sequence[Tensor]) -> Function:
    """The function, in kernels for tensors of exactly these sizes, strides and dtypes.

    Weights are given to it like all else, so that it keeps none: their memory can be written to and shared. It is not
    captured; that is the caller's part.
    """
    from torch._inductor import compile as make
    from torch.fx.experimental.proxy_tensor import make_fx

    graph: Any = make_fx(function)(*examples)
    made: Function = make(graph, list(examples), options={"triton.cudagraphs": False})
    return made

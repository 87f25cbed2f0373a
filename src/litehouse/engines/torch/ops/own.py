"""Ops that only this engine has: passes write them where one kernel does the work of several."""

from __future__ import annotations

import torch

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor

DOMAIN = "litehouse.torch"


@op("Linear", domain=DOMAIN)
def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return torch.addmm(bias, rows, weight).reshape(*x.shape[:-1], weight.shape[1])

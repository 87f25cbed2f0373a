"""Whether ops leave their numbers on a device."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Apart(TorchDispatchMode):
    """Refuses whatever brings together a tensor on the CPU and one on the device: that is a copy, which waits."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        places = {value.device.type for value in tree_leaves((args, kwargs, result)) if isinstance(value, torch.Tensor)}
        assert len(places) < 2, f"{function} has tensors on {sorted(places)}"
        return result

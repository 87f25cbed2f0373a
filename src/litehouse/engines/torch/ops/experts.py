"""Layers of which each token uses a few."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "identity": lambda x: x,
    "relu": torch.relu,
    "silu": F.silu,
}


@op("MoE", domain=MICROSOFT)
def mixture_of_experts(
    x: Tensor,
    router: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    weight_out: Tensor,
    bias_out: Tensor | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> Tensor:
    is_glu = activation_type == "swiglu"
    if use_sparse_mixer or (not is_glu and activation_type not in ACTIVATIONS) or (is_glu and swiglu_fusion != 1):
        raise LackingError("MoE with a sparse mixer, another activation or other places of its gates")
    shares, chosen = torch.softmax(wide(router), -1).topk(k, -1)
    if normalize_routing_weights:
        shares = shares / shares.sum(-1, keepdim=True)

    def activated(hidden: Tensor) -> Tensor:
        if not is_glu:
            return ACTIVATIONS[activation_type](hidden)
        gate, linear = hidden[..., 0::2], hidden[..., 1::2]
        if swiglu_limit is not None:
            gate, linear = gate.clamp(max=swiglu_limit), linear.clamp(-swiglu_limit, swiglu_limit)
        return gate * torch.sigmoid(activation_alpha * gate) * (linear + activation_beta)

    rows = x.reshape(-1, x.shape[-1])
    if chosen.numel() < weight.shape[0]:  # each token has copies of its experts
        hidden = (weight[chosen] @ rows[:, None, :, None]).squeeze(-1)
        hidden = activated(hidden if bias is None else hidden + bias[chosen])
        found = (weight_out[chosen] @ hidden.unsqueeze(-1)).squeeze(-1)
        found = found if bias_out is None else found + bias_out[chosen]
    else:  # all experts look at all tokens, as how many one has is not known here
        hidden = rows @ weight.mT
        hidden = activated(hidden if bias is None else hidden + bias.unsqueeze(1))
        found = hidden @ weight_out.mT
        found = (found if bias_out is None else found + bias_out.unsqueeze(1)).transpose(0, 1)
        found = found.gather(1, chosen.unsqueeze(-1).expand(-1, -1, found.shape[-1]))
    return (wide(found) * shares.unsqueeze(-1)).sum(1).to(x.dtype).reshape(x.shape)

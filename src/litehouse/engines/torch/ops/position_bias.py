"""What ONNX Runtime's optimiser makes of biases that depend on how far tokens are apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.attention import heads
from litehouse.engines.torch.ops.common import divided
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("RelativePositionBias", domain=MICROSOFT, known=["queries", "keys"])
def relative_position_bias(
    table: Tensor, queries: Tensor, keys: Tensor, *, is_bidirectional: int = 0, max_distance: int
) -> Tensor:
    count = int(queries)
    if count != int(keys):
        raise LackingError("RelativePositionBias of several lengths")
    buckets = table.shape[0]
    places = torch.arange(count, device=table.device)
    distance = places.unsqueeze(1) - places  # back from a query to a key
    bucket = torch.zeros_like(distance)
    if is_bidirectional:
        buckets //= 2
        bucket, distance = (distance < 0) * buckets, distance.abs()
    exact = buckets // 2
    most = torch.full((), max_distance / exact, device=table.device)
    far = divided(distance.clamp(min=1).float(), exact).log() / most.log() * (buckets - exact)
    far = (exact + far.long()).clamp(max=buckets - 1)
    bucket = bucket + torch.where(distance < exact, distance.clamp(min=0), far)
    # The table is by heads, whatever its sizes say: that is how the optimiser writes it.
    return F.embedding(bucket, table.reshape(table.shape[1], -1).t()).permute(2, 0, 1).unsqueeze(0)


@op("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(
    x: Tensor, x_bias: Tensor, positions: Tensor, weight: Tensor, bias: Tensor, factors: Tensor, *, num_heads: int
) -> Tensor:
    sums = (heads(x + x_bias, num_heads) @ weight + bias).unflatten(-1, (2, -1)).sum(-1, keepdim=True)
    update, reset = torch.sigmoid(sums).unbind(-2)
    return (update * (reset * factors - 1) + 2) * positions

"""ONNX Runtime's own ops that are norms with what comes before or behind them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.ops.normalization import EPSILON, layer_norm, rms_norm, scaled
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    before: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    total = scaled(x + skip, None, before)
    return layer_norm(total, scale, bias, epsilon=epsilon), None, None, total if outputs > 3 else None


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    before: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> tuple[Tensor | None, ...]:
    total = scaled(x + skip, None, before)
    return rms_norm(total, scale, epsilon=epsilon), None, None, total if outputs > 3 else None


@op("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(
    x: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = EPSILON
) -> Tensor:
    if activation not in ("silu", "swish", "sigmoid"):
        raise LackingError(f"GatedRMSNorm with {activation}")
    opened = torch.sigmoid(wide(gate)) if activation == "sigmoid" else F.silu(wide(gate))
    normal = rms_norm(wide(x).unflatten(-1, (-1, scale.shape[0])), wide(scale), epsilon=epsilon)
    return (normal.flatten(-2) * opened).to(x.dtype)


@op("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(
    x: Tensor, scale: Tensor | None = None, *, epsilon: float = EPSILON, num_branches: int = 0
) -> Tensor:
    branches = wide(x).unflatten(-1, (num_branches, -1)) if num_branches else wide(x)
    normal = rms_norm(branches, epsilon=epsilon)
    if scale is not None:
        is_one = scale.ndim == 1 and scale.shape[0] == normal.shape[-1]
        normal = normal * (wide(scale) if is_one else wide(scale).reshape(normal.shape[-2:]))
    return normal.reshape(x.shape).to(x.dtype)


@op("GroupNorm", domain=MICROSOFT)
def group_norm_with_activation(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = EPSILON,
    groups: int,
) -> Tensor:
    if activation not in (0, 1):
        raise LackingError("GroupNorm with another activation")
    y = x.movedim(-1, 1) if channels_last else x
    y = torch.group_norm(wide(y), groups, wide(scale), wide(bias), epsilon)
    y = (F.silu(y) if activation else y).to(x.dtype)
    return y.movedim(1, -1) if channels_last else y


@op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    skip: Tensor,
    before: Tensor | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = EPSILON,
    groups: int,
) -> tuple[Tensor, Tensor]:
    channels = -1 if channels_last else 1
    if skip.ndim != 2 and skip.shape != x.shape and not channels_last:
        raise LackingError("SkipGroupNorm with a skip of other axes")
    if skip.ndim == 2:
        skip = skip[:, None, None] if channels_last else skip[:, :, None, None]
    total = x + skip
    if before is not None:
        total = total + (before if channels == -1 else before[:, None, None])
    options = {"activation": activation, "channels_last": channels_last, "epsilon": epsilon, "groups": groups}
    return group_norm_with_activation(total, scale, bias, **options), total

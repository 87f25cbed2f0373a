"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    if ignore_index is None:
        return F.nll_loss(x, from_zero(target, x.shape[1], counts_back=False), weight, reduction=reduction)
    is_ignored = target == ignore_index
    labels = from_zero(target.masked_fill(is_ignored, 0), x.shape[1], counts_back=False)
    labels = labels.masked_fill(is_ignored, ignore_index)
    return F.nll_loss(x, labels, weight, ignore_index=ignore_index, reduction=reduction)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(scores, 1)
    return negative_log_likelihood(logs, labels, weights, ignore_index=ignore_index, reduction=reduction), logs

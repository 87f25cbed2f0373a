"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as torch's own documentation has it)

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import Tensor

NO_INDEX = -100  # no label is that


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = NO_INDEX,
    reduction: str = "mean",
) -> Tensor:
    return F.nll_loss(x, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int = NO_INDEX,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(scores, 1)
    return negative_log_likelihood(logs, labels, weights, ignore_index=ignore_index, reduction=reduction), logs

"""Cuts a whole model into one model for each rank."""

from __future__ import annotations

from litehouse.distributed.slicing.choice import Costs, Traffic
from litehouse.distributed.slicing.pipeline import plan_stages
from litehouse.distributed.slicing.plan import Exchange, Plan, Row
from litehouse.distributed.slicing.prepared import prepared
from litehouse.distributed.slicing.tensor_parallel import plan_parts
from litehouse.distributed.slicing.writing import write
from litehouse.errors import LitehouseError
from litehouse.model import Model

__all__ = ["Costs", "Exchange", "Plan", "Row", "plan", "write"]

MAX_RANKS = 4096


def plan(model: Model, ranks: int, *, pipeline: bool = False, costs: Costs | None = None) -> Plan:
    """Decide what each of so many ranks gets of a model.

    Args:
        model: A whole model, of any format. It stays as it is, and must be kept while the plan is used.
        ranks: How many processes run it together.
        pipeline: Give each rank some of the layers, instead of a part of each.
        costs: What sending is taken to cost.

    Raises:
        LitehouseError: The model cannot be cut; the text says why.
    """
    if not 1 <= ranks <= MAX_RANKS:
        raise LitehouseError(f"ranks must be from 1 to {MAX_RANKS}, not {ranks}")
    source = prepared(model)
    if pipeline:
        return plan_stages(model, source, ranks, Traffic(source, ranks, costs or Costs()))
    return plan_parts(model, source, ranks, costs or Costs())
